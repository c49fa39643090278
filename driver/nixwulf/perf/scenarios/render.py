"""Predictions on a terminal, as Markdown and as JSON.

What a prediction is called, never as a measurement is, and where its time goes.

A time is drawn as a bar of letters, one for each part of a prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from nixwulf.core.document import (
    Cell,
    Table,
    escaped,
    markdown,
    output,
    pipe_table,
    rich_table,
    say,
)
from nixwulf.core.files import DATA, as_json, read_toml, titled
from nixwulf.core.query import grouped
from nixwulf.core.text import format_significant, plural
from nixwulf.perf.inputs import newest
from nixwulf.perf.predict import Prediction
from nixwulf.perf.scenarios.candidates import Candidate, Question
from nixwulf.perf.scenarios.forecast import Answer, Forecast, ScenarioForecast
from nixwulf.results.identity import REPLICAS

LETTERS: Mapping[str, Sequence[str]] = read_toml(DATA / "model" / "parts.toml")
"""By part: its letter, what it is, and its colour."""
_SMALL = 0.01
ASSUMED = "Assumed, because it is not known:"


def change(before: Prediction, after: Prediction) -> str:
    """'~18.1, +19 %'."""
    return f"~{format_significant(after.value)}, {percent(after.value / before.value)}"


def percent(factor: float) -> str:
    """A factor as a change: '+19 %'."""
    return f"{100 * (factor - 1):+.0f} %".replace("-0 %", "+0 %")


def how(candidate: Candidate) -> str:
    """'2 nodes, pipeline, cable, tcp'; of one node its platform."""
    count = plural(len(candidate.nodes), "node")
    if candidate.parallelism == REPLICAS:
        return f"{count}, {REPLICAS}"
    if candidate.fabric is None:
        return f"{count}, {candidate.nodes[0].platform}"
    more = f" (and {candidate.alike} equal)" if candidate.alike else ""
    name = candidate.fabric.name
    if candidate.groups > 1:
        count += f" in {candidate.groups} servers"
    how_cut = candidate.split and f" {candidate.split}"
    return f"{count}, {candidate.parallelism}{how_cut}, {name}{more}, {candidate.transport}"


def heading(question: Question) -> str:
    """Say in one line what is asked."""
    lengths = f"a prompt of {question.n_prompt:,} tokens" if question.n_prompt else "no prompt"
    depth = f" behind {question.depth:,}" if question.depth else ""
    batch = f", {question.batch} sequences at once" if question.batch > 1 else ""
    backend = f" ({question.backend})" if question.backend else ""
    drafts = ", without drafts"
    if question.drafts:
        drafts = f", {question.drafts} drafts a step of which {question.acceptance:.0%} are kept"
    return (
        f"Predicted, not measured: {question.model.name} by {question.engine}{backend} on "
        f"{question.cluster.name}; {lengths}{depth}, then {question.n_gen:,} tokens{batch}"
        f"{drafts.replace('%', ' %')}."
    )


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    """Return shares of the whole, from 0 to 1, in the order of LETTERS."""
    whole = sum(parts.values())
    return {name: parts.get(name, 0.0) / whole for name in LETTERS}


def cells(parts: Mapping[str, float], width: int) -> dict[str, int]:
    """Return the characters of width for each part: they add up, by largest remainders."""
    exact = {name: share * width for name, share in shares(parts).items()}
    found = {name: int(value) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: found[name] - exact[name])
    for name in rest[: width - sum(found.values())]:
        found[name] += 1
    return found


def rich_bar(parts: Mapping[str, float], width: int) -> Text:
    """The bar of width characters, on a terminal with colours in them."""
    bar = Text(no_wrap=True)
    for name, count in cells(parts, width).items():
        letter, _, colour = LETTERS[name]
        bar.append(letter * count, style=f"{colour} reverse")
    return bar


def percentages(parts: Mapping[str, float]) -> str:
    """'weights 84 %, hops 9 %, dispatch 7 %': from the largest; without what is below 1 %."""
    ordered = sorted(shares(parts).items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in ordered
                     if share >= _SMALL)  # fmt: skip


def legend(predictions: Iterable[Prediction]) -> list[str]:
    """Explain the letters of the parts that take time in any of them, a line each."""
    known = {name for one in predictions for name, seconds in one.parts.items() if seconds}
    return [f"{LETTERS[name][0]} {name}: {LETTERS[name][1]}" for name in LETTERS if name in known]


KIND = "prediction"
"""Of the document; no record has it, and record.validate refuses it."""
_CONDITIONS = ("n_prompt", "n_gen", "depth", "batch", "backend", "drafts", "acceptance")
_BAR = 32
_SENTENCE = 40
_HEAD = ("strategy", "decode", "prompt", "memory of a node")
_UNITS = (
    "~ is a prediction, in tok/s, for software up to {}; in brackets is what 80 % of measurements "
    "should lie between."
)


def to_terminal(answer: Answer) -> None:
    """Print predictions; plain text where the output is a pipe or a file."""
    console = output()
    for sentence in (heading(answer.question), *_heads(answer)):
        say(console, sentence)
    _print_table(console, [_plain(one) for one in answer.forecasts], answer)
    for number, sentence in enumerate(_beside(answer)):
        say(console, sentence if number else f"\n{sentence}")
    if answer.changed:
        say(console, f"\n{_then(answer)}")
        _print_table(console, [_changed(one) for one in answer.forecasts], answer)
    shown = answer.fitting
    for metric, what in (("decode", "a decoded token"), ("prompt", "a token of the prompt")):
        _bars(console, shown, metric, what)
    known = [prediction for one in shown for prediction in _both(one) if prediction]
    for number, sentence in enumerate(legend(known)):
        say(console, sentence if number else f"\n{sentence}")
    say(console, f"\n{ASSUMED}")
    for sentence in answer.assumptions:
        # A link stays one where the terminal itself breaks the line.
        say(console, f"- {sentence}", whole="://" in sentence)


def to_markdown(answer: Answer) -> str:
    """Predictions as GitHub Markdown."""
    then = [_changed(one) for one in answer.forecasts if one.changed]
    time = [
        (how(one.candidate), *(percentages(found.parts) if found else "" for found in _both(one)))
        for one in answer.fitting
    ]
    parts = [
        "  \n".join(map(escaped, (heading(answer.question), *_heads(answer)))),
        pipe_table(Table(_HEAD, [_plain(one) for one in answer.forecasts])),
        *(escaped(sentence) for sentence in _beside(answer)),
        *((escaped(_then(answer)), pipe_table(Table(_HEAD, then))) if then else ()),
        *((pipe_table(Table(("where the time goes", "decode", "prompt"), time)),) if time else ()),
        "\n".join((ASSUMED, "", *(f"- {escaped(one)}" for one in answer.assumptions))),
    ]
    return markdown(parts)


def _heads(answer: Answer) -> list[str]:
    given = answer.what_ifs and not answer.changed
    units = _UNITS.format(newest()["month"])
    return [units, f"Given: {', '.join(answer.what_ifs)}."] if given else [units]


def _then(answer: Answer) -> str:
    return f"With {', '.join(answer.what_ifs)}:"


def _beside(answer: Answer) -> list[str]:
    """Say why strategies are left out, by reason; and that none of the others fits."""
    by_reason = grouped((one.reason, how(one.what)) for one in answer.left_out)
    sentence = [
        f"Left out: {first}{f' (and {len(others)} more)' if others else ''}: {why}."
        for why, (first, *others) in by_reason.items()
    ]
    if not answer.fitting:
        nearest = min(answer.forecasts, key=lambda one: one.plain.room.short_gib)
        sentence.append(
            f"It fits in none of these strategies, the nearest being {how(nearest.candidate)} with "
            f"{nearest.plain.room.words}; take a smaller quantization, or more nodes."
        )
    return sentence


def _plain(one: ScenarioForecast) -> tuple[str, ...]:
    """The line of a strategy; a speed only of what fits."""
    return how(one.candidate), *_speeds(one.plain), one.plain.room.words


def _changed(one: ScenarioForecast) -> tuple[str, ...]:
    """The same with the what-ifs, and the change in percent."""
    if one.changed is None:
        return ()
    return how(one.candidate), *_changes(one.plain, one.changed), one.changed.room.words


def _speeds(forecast: Forecast) -> tuple[str, str]:
    if forecast.room.fits is False:
        return "", ""
    return forecast.decode.text, forecast.prompt.text if forecast.prompt else ""


def _changes(before: Forecast, after: Forecast) -> tuple[str, str]:
    """Compare two forecasts; empty where what did not fit before has nothing to compare with."""
    if after.room.fits is False:
        return "", ""
    if before.room.fits is False:
        return _speeds(after)
    prompt = change(before.prompt, after.prompt) if before.prompt and after.prompt else ""
    return change(before.decode, after.decode), prompt


def _print_table(console: Console, rows: Sequence[Sequence[str]], answer: Answer) -> None:
    styles = ("quiet" if one.plain.room.fits is False else "" for one in answer.forecasts)
    cells = [
        [Cell(cell, style=style) for cell in row] for row, style in zip(rows, styles, strict=True)
    ]
    console.print()
    console.print(rich_table(Table(_HEAD, cells)))


def _bars(console: Console, answers: Sequence[ScenarioForecast], metric: str, what: str) -> None:
    """A line a strategy; on a narrow terminal the bar is below its name."""
    rows = []
    for one in answers:
        prediction = getattr(one.plain, metric)
        if prediction is not None:
            time = (
                f"{format_significant(1000 / prediction.value)} ms: {percentages(prediction.parts)}"
            )
            bar = rich_bar(prediction.parts, _BAR)
            rows.append((Text(how(one.candidate), no_wrap=True), bar, Text(time)))
    if not rows:
        return
    console.print(Text(f"\nWhere the time of {what} goes:"))
    if max(len(strategy) for strategy, _, _ in rows) + _BAR + _SENTENCE <= console.width:
        table = RichTable.grid(padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    for strategy, *others in rows:
        console.print(strategy)
        table = RichTable.grid(padding=(0, 2, 0, 0))
        table.add_row(*others)
        console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _both(one: ScenarioForecast) -> tuple[Prediction | None, Prediction | None]:
    return one.plain.decode, one.plain.prompt


def to_json(answer: Answer) -> str:
    """Predictions with all their numbers; times are seconds a token."""
    question = answer.question
    document = {
        "cluster": question.cluster.name,
        "engine": question.engine,
        "model": {
            "name": question.model.name,
            "parameters": round(question.model.facts.parameters),
            "active_parameters": round(question.model.facts.active),
            "weight_bytes": round(question.model.facts.weight_bytes),
        },
        "conditions": {key: getattr(question, key) for key in _CONDITIONS},
        "software_until": newest()["month"],
        "what_if": list(answer.what_ifs),
        "ways": [_way(one) for one in answer.forecasts],
        "left_out": [_place(one.what) | {"why": one.reason} for one in answer.left_out],
    }
    return as_json(titled(KIND, document))


def _way(one: ScenarioForecast) -> dict[str, object]:
    document = _place(one.candidate) | _forecast(one.plain)
    if one.changed:
        document["what_if"] = _forecast(one.changed)
    return document


def _place(candidate: Candidate) -> dict[str, object]:
    document: dict[str, object] = {
        "nodes": len(candidate.nodes),
        "platforms": [node.platform for node in candidate.nodes],
        "parallelism": candidate.parallelism,
    }
    if candidate.groups > 1:
        document["servers"] = candidate.groups
    if candidate.split:
        document["split"] = candidate.split
    if candidate.fabric:
        document |= {"fabric": candidate.fabric.name, "transport": candidate.transport}
    return document


def _forecast(forecast: Forecast) -> dict[str, object]:
    memory: dict[str, object] = {"needs_gib": forecast.room.needs_gib}
    if forecast.room.has_gib:
        memory |= {"has_gib": forecast.room.has_gib, "fits": forecast.room.fits}
    document: dict[str, object] = {"memory": memory, "decode": _prediction(forecast.decode)}
    if forecast.prompt:
        document["prompt"] = _prediction(forecast.prompt)
    return document | {"assumptions": list(forecast.assumptions)}


def _prediction(one: Prediction) -> dict[str, object]:
    return {
        "unit": "tok/s",
        "predicted": one.value,
        "low": one.low,
        "high": one.high,
        "configurations": one.basis,
        "seconds": dict(one.parts),
        "shares": shares(one.parts),
    }
