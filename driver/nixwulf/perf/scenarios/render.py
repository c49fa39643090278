"""Predictions on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nixwulf.core.pipes import escaped, pipe_table
from nixwulf.core.text import clean, format_significant
from nixwulf.perf.predict import Prediction
from nixwulf.perf.scenarios.bar import COLOURS, LETTERS, cells, legend, percentages
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, Question
from nixwulf.perf.scenarios.forecast import Forecast, ScenarioForecast
from nixwulf.perf.scenarios.text import change, heading, how, speed

_PIPE_WIDTH = 170
_BAR = 32
_SENTENCE = 40
_ASSUMED = "Assumed, because it is not known:"
_HEAD = ("way", "decode", "prompt", "memory of a node")
_UNITS = "~ is a prediction, in tok/s; in brackets is what 80 % of measurements should lie between."


def to_terminal(
    question: Question,
    answers: Sequence[ScenarioForecast],
    left_out: Sequence[LeftOut[Candidate]],
    what_ifs: Sequence[str],
) -> None:
    """Print predictions; plain text where the output is a pipe or a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    for sentence in (heading(question), *_heads(answers, what_ifs)):
        _say(console, sentence)
    _print_table(console, _HEAD, [_plain(one) for one in answers], answers)
    for number, sentence in enumerate(_beside(answers, left_out)):
        _say(console, sentence if number else f"\n{sentence}")
    if answers[0].changed:
        _say(console, f"\n{_then(what_ifs)}")
        _print_table(console, _HEAD, [_changed(one) for one in answers], answers)
    shown = _fitting(answers)
    for metric, what in (("decode", "a decoded token"), ("prompt", "a token of the prompt")):
        _bars(console, shown, metric, what)
    for number, sentence in enumerate(legend(_sum(shown))):
        _say(console, sentence if number else f"\n{sentence}")
    _say(console, f"\n{_ASSUMED}")
    for sentence in _assumptions(answers):
        # A link stays one where the terminal itself breaks the line.
        console.print(Text(f"- {sentence}"), soft_wrap=True)


def _fitting(answers: Sequence[ScenarioForecast]) -> list[ScenarioForecast]:
    return [one for one in answers if one.plain.room.fits is not False]


def _say(console: Console, text: str) -> None:
    """A sentence: a terminal's line ends between words."""
    console.print(Text(text), soft_wrap=not console.is_terminal)


def to_markdown(
    question: Question,
    answers: Sequence[ScenarioForecast],
    left_out: Sequence[LeftOut[Candidate]],
    what_ifs: Sequence[str],
) -> str:
    """Predictions as GitHub Markdown."""
    then = [_changed(one) for one in answers if one.changed]
    time = [
        (how(one.candidate), *(percentages(found.parts) if found else "" for found in _both(one)))
        for one in _fitting(answers)
    ]
    parts = [
        "  \n".join(map(escaped, (heading(question), *_heads(answers, what_ifs)))),
        pipe_table(_HEAD, [_plain(one) for one in answers]),
        *(escaped(sentence) for sentence in _beside(answers, left_out)),
        *((escaped(_then(what_ifs)), pipe_table(_HEAD, then)) if then else ()),
        *((pipe_table(("where the time goes", "decode", "prompt"), time),) if time else ()),
        _listed(answers),
    ]
    return "\n\n".join(parts) + "\n"


def _heads(answers: Sequence[ScenarioForecast], what_ifs: Sequence[str]) -> list[str]:
    given = what_ifs and not answers[0].changed
    return [_UNITS, f"Given: {', '.join(what_ifs)}."] if given else [_UNITS]


def _then(what_ifs: Sequence[str]) -> str:
    return f"With {', '.join(what_ifs)}:"


def _beside(
    answers: Sequence[ScenarioForecast], left_out: Sequence[LeftOut[Candidate]]
) -> list[str]:
    """Why ways are left out, a sentence for each reason; and that none of the others fits."""
    first: dict[str, list[str]] = {}
    for one in left_out:
        first.setdefault(one.reason, []).append(how(one.what))
    sentence = [
        f"Left out: {ways[0]}{f' (and {len(ways) - 1} more)' if len(ways) > 1 else ''}: {why}."
        for why, ways in first.items()
    ]
    if not _fitting(answers):
        nearest = min(answers, key=lambda one: one.plain.room.short_gib)
        sentence.append(
            f"It fits in none of these ways, the nearest being {how(nearest.candidate)} with "
            f"{nearest.plain.room.words}; take a smaller quantization, or more nodes."
        )
    return sentence


def _plain(one: ScenarioForecast) -> tuple[str, ...]:
    """The line of a way; a speed only of what fits."""
    return how(one.candidate), *_speeds(one.plain), one.plain.room.words


def _changed(one: ScenarioForecast) -> tuple[str, ...]:
    """The same with the what-ifs, and the change in percent."""
    if one.changed is None:
        return ()
    return how(one.candidate), *_changes(one.plain, one.changed), one.changed.room.words


def _speeds(forecast: Forecast) -> tuple[str, str]:
    if forecast.room.fits is False:
        return "", ""
    return speed(forecast.decode), speed(forecast.prompt) if forecast.prompt else ""


def _changes(before: Forecast, after: Forecast) -> tuple[str, str]:
    """Of what did not fit before there is nothing to compare with."""
    if after.room.fits is False:
        return "", ""
    if before.room.fits is False:
        return _speeds(after)
    prompt = change(before.prompt, after.prompt) if before.prompt and after.prompt else ""
    return change(before.decode, after.decode), prompt


def _table(head: Sequence[str], *, show_header: bool = True) -> Table:
    table = Table(box=None, show_header=show_header, padding=(0, 2, 0, 0), pad_edge=False)
    for name in head:
        table.add_column(Text(name), justify="left")
    return table


def _print_table(
    console: Console,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    answers: Sequence[ScenarioForecast],
) -> None:
    table = _table(head)
    for row, one in zip(rows, answers, strict=True):
        style = "dim" if one.plain.room.fits is False else ""
        table.add_row(*(Text(clean(cell), style=style) for cell in row))
    console.print(Text())
    console.print(table)


def _bars(console: Console, answers: Sequence[ScenarioForecast], metric: str, what: str) -> None:
    """A line a way; in a narrow terminal the bar stands below its name."""
    rows = []
    for one in answers:
        prediction = getattr(one.plain, metric)
        if prediction is not None:
            bar = Text(no_wrap=True)
            for name, count in cells(prediction.parts, _BAR).items():
                bar.append(LETTERS[name][0] * count, style=f"{COLOURS[name]} reverse")
            time = (
                f"{format_significant(1000 / prediction.value)} ms: {percentages(prediction.parts)}"
            )
            rows.append((Text(how(one.candidate), no_wrap=True), bar, Text(time)))
    if not rows:
        return
    console.print(Text(f"\nWhere the time of {what} goes:"))
    if max(len(strategy) for strategy, _, _ in rows) + _BAR + _SENTENCE <= console.width:
        table = _table(("", "", ""), show_header=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    for strategy, *others in rows:
        console.print(strategy)
        table = _table(("", ""), show_header=False)
        table.add_row(*others)
        console.print(Padding(table, (0, 0, 0, 2)))


def _both(one: ScenarioForecast) -> tuple[Prediction | None, Prediction | None]:
    return one.plain.decode, one.plain.prompt


def _sum(answers: Iterable[ScenarioForecast]) -> dict[str, float]:
    found = dict.fromkeys(LETTERS, 0.0)
    for one in answers:
        for prediction in _both(one):
            for name, seconds in prediction.parts.items() if prediction else ():
                found[name] += seconds
    return found


def _assumptions(answers: Sequence[ScenarioForecast]) -> list[str]:
    return list(dict.fromkeys(text for one in answers for text in one.plain.assumptions))


def _listed(answers: Sequence[ScenarioForecast]) -> str:
    return "\n".join((_ASSUMED, "", *(f"- {escaped(one)}" for one in _assumptions(answers))))
