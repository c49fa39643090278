"""Predictions on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nixwulf.model.predict import Prediction
from nixwulf.predicting.bar import COLOURS, LETTERS, cells, legend, percentages, shares
from nixwulf.predicting.candidates import Candidate, LeftOut, Question
from nixwulf.predicting.ways import Answer, Told
from nixwulf.predicting.words import change, heading, how, speed
from nixwulf.report.pipes import escaped, pipe_table
from nixwulf.report.words import clean, figure

KIND = "prediction"
"""Of the JSON document; no record has it, and record.validate refuses it."""
_PIPE_WIDTH = 170
_BAR = 32
_SENTENCE = 40
_ASSUMED = "Assumed, because it is not known:"
_HEAD = ("way", "decode", "prompt", "memory of a node")
_UNITS = "~ is a prediction, in tok/s; in brackets is what 80 % of measurements should lie between."


def to_terminal(
    question: Question,
    answers: Sequence[Answer],
    left_out: Sequence[LeftOut],
    what_ifs: Sequence[str],
) -> None:
    """Print predictions; plain text where the output is a pipe or a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    for sentence in (heading(question), *_heads(answers, what_ifs)):
        console.print(Text(sentence))
    _print_table(console, _HEAD, [_plain(one) for one in answers], answers)
    if left_out:
        console.print()
    for said in _left_out(left_out):
        console.print(Text(said))
    if answers[0].changed:
        console.print(Text(f"\n{_then(what_ifs)}"))
        _print_table(console, _HEAD, [_changed(one) for one in answers], answers)
    shown = [one for one in answers if one.plain.room.fits is not False] or list(answers)
    for metric, what in (("decode", "a decoded token"), ("prompt", "a token of the prompt")):
        _bars(console, shown, metric, what)
    console.print()
    for sentence in (*legend(_sum(shown)), "", _ASSUMED):
        console.print(Text(sentence), soft_wrap=True)
    for said in _assumptions(answers):
        console.print(Text(f"- {said}"), soft_wrap=True)


def to_markdown(
    question: Question,
    answers: Sequence[Answer],
    left_out: Sequence[LeftOut],
    what_ifs: Sequence[str],
) -> str:
    """Predictions as GitHub Markdown."""
    then = [_changed(one) for one in answers if one.changed]
    time = [
        (how(one.candidate), *(percentages(found.parts) if found else "" for found in _both(one)))
        for one in answers
    ]
    parts = [
        "  \n".join(map(escaped, (heading(question), *_heads(answers, what_ifs)))),
        pipe_table(_HEAD, [_plain(one) for one in answers]),
        *(escaped(said) for said in _left_out(left_out)),
        *((escaped(_then(what_ifs)), pipe_table(_HEAD, then)) if then else ()),
        pipe_table(("where the time goes", "decode", "prompt"), time),
        _listed(answers),
    ]
    return "\n\n".join(parts) + "\n"


def to_json(
    question: Question,
    answers: Sequence[Answer],
    left_out: Sequence[LeftOut],
    what_ifs: Sequence[str],
) -> str:
    """Predictions with all their numbers; times are seconds a token."""
    document = {
        "kind": KIND,
        "cluster": question.cluster.name,
        "engine": question.engine,
        "model": {
            "name": question.model.name,
            "parameters": round(question.model.facts.parameters),
            "active_parameters": round(question.model.facts.active),
            "weight_bytes": round(question.model.facts.weight_bytes),
        },
        "conditions": {
            "n_prompt": question.n_prompt,
            "n_gen": question.n_gen,
            "depth": question.depth,
            "batch": question.batch,
        },
        "what_if": list(what_ifs),
        "ways": [_way(one) for one in answers],
        "left_out": [_place(one.candidate) | {"why": one.why} for one in left_out],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _heads(answers: Sequence[Answer], what_ifs: Sequence[str]) -> list[str]:
    given = what_ifs and not answers[0].changed
    return [_UNITS, f"Given: {', '.join(what_ifs)}."] if given else [_UNITS]


def _then(what_ifs: Sequence[str]) -> str:
    return f"With {', '.join(what_ifs)}:"


def _left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """A sentence for each reason."""
    first: dict[str, list[str]] = {}
    for one in left_out:
        first.setdefault(one.why, []).append(how(one.candidate))
    return [
        f"Left out: {ways[0]}{f' (and {len(ways) - 1} more)' if len(ways) > 1 else ''}: {why}."
        for why, ways in first.items()
    ]


def _plain(one: Answer) -> tuple[str, ...]:
    """The line of a way; a speed only of what fits."""
    return how(one.candidate), *_speeds(one.plain), one.plain.room.words


def _changed(one: Answer) -> tuple[str, ...]:
    """The same with the what-ifs, and the change in percent."""
    if one.changed is None:
        return ()
    return how(one.candidate), *_changes(one.plain, one.changed), one.changed.room.words


def _speeds(told: Told) -> tuple[str, str]:
    if told.room.fits is False:
        return "", ""
    return speed(told.decode), speed(told.prompt) if told.prompt else ""


def _changes(before: Told, after: Told) -> tuple[str, str]:
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
    answers: Sequence[Answer],
) -> None:
    table = _table(head)
    for row, one in zip(rows, answers, strict=True):
        style = "dim" if one.plain.room.fits is False else ""
        table.add_row(*(Text(clean(cell), style=style) for cell in row))
    console.print(Text())
    console.print(table)


def _bars(console: Console, answers: Sequence[Answer], metric: str, what: str) -> None:
    """A line a way; in a narrow terminal the bar stands below its name."""
    rows = []
    for one in answers:
        prediction = getattr(one.plain, metric)
        if prediction is not None:
            bar = Text(no_wrap=True)
            for name, count in cells(prediction.parts, _BAR).items():
                bar.append(LETTERS[name][0] * count, style=f"{COLOURS[name]} reverse")
            time = f"{figure(1000 / prediction.value)} ms: {percentages(prediction.parts)}"
            rows.append((Text(how(one.candidate), no_wrap=True), bar, Text(time)))
    if not rows:
        return
    console.print(Text(f"\nWhere the time of {what} goes:"))
    if max(len(way) for way, _, _ in rows) + _BAR + _SENTENCE <= console.width:
        table = _table(("", "", ""), show_header=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    for way, *others in rows:
        console.print(way)
        table = _table(("", ""), show_header=False)
        table.add_row(*others)
        console.print(Padding(table, (0, 0, 0, 2)))


def _both(one: Answer) -> tuple[Prediction | None, Prediction | None]:
    return one.plain.decode, one.plain.prompt


def _sum(answers: Iterable[Answer]) -> dict[str, float]:
    found = dict.fromkeys(LETTERS, 0.0)
    for one in answers:
        for prediction in _both(one):
            for name, seconds in prediction.parts.items() if prediction else ():
                found[name] += seconds
    return found


def _assumptions(answers: Sequence[Answer]) -> list[str]:
    return list(dict.fromkeys(text for one in answers for text in one.plain.assumptions))


def _listed(answers: Sequence[Answer]) -> str:
    return "\n".join((_ASSUMED, "", *(f"- {escaped(one)}" for one in _assumptions(answers))))


def _way(one: Answer) -> dict[str, Any]:
    document = _place(one.candidate) | _told(one.plain)
    if one.changed:
        document["what_if"] = _told(one.changed)
    return document


def _place(candidate: Candidate) -> dict[str, Any]:
    document: dict[str, Any] = {
        "nodes": len(candidate.nodes),
        "platforms": [node.platform for node in candidate.nodes],
        "parallelism": candidate.parallelism,
    }
    if candidate.fabric:
        document |= {"fabric": candidate.fabric.name, "transport": candidate.transport}
    return document


def _told(told: Told) -> dict[str, Any]:
    memory: dict[str, Any] = {"needs_gib": told.room.needs_gib}
    if told.room.has_gib:
        memory |= {"has_gib": told.room.has_gib, "fits": told.room.fits}
    document: dict[str, Any] = {"memory": memory, "decode": _prediction(told.decode)}
    if told.prompt:
        document["prompt"] = _prediction(told.prompt)
    return document | {"assumptions": list(told.assumptions)}


def _prediction(one: Prediction) -> dict[str, Any]:
    return {
        "unit": "tok/s",
        "predicted": one.value,
        "low": one.low,
        "high": one.high,
        "seconds": dict(one.parts),
        "shares": shares(one.parts),
    }
