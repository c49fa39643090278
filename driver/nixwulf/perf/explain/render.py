"""Explanations on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nixwulf.core.document import escaped, output, say
from nixwulf.core.text import format_significant, plural
from nixwulf.perf.explain.explanation import Explained
from nixwulf.perf.explain.measured import Unmeasured
from nixwulf.perf.explain.text import NOTICED, case, labels, measured, sentences
from nixwulf.perf.scenarios.text import legend, percentages, rich_bar, shares

_BAR = 40
_PIPE_WIDTH = 170
_COLOURS = {"cannot be right": "bold red", "half of it or less": "bold red",
            "slower than predicted": "yellow"}  # fmt: skip


def to_terminal(explained: Sequence[Explained], rest: Sequence[Unmeasured]) -> None:
    """Print explanations; in a pipe or a file a sentence is a line."""
    console = output(_PIPE_WIDTH)
    last, noticed = "", set[str]()
    for one, label in zip(explained, labels(explained), strict=True):
        if case(one) != last:
            noticed.clear()
            say(console, f"{chr(10) if last else ''}{case(one)}", "bold")
        last = case(one)
        say(console, f"{label}: {measured(one)}", _COLOURS.get(one.verdict, ""), indent=2)
        if one.prediction:
            bar = rich_bar(one.prediction.parts, _BAR)
            ms = 1000 / one.prediction.value
            bar.append(f" {format_significant(ms)} ms: {percentages(one.prediction.parts)}")
            say(console, bar, indent=4)
        for sentence in sentences(one):
            if sentence not in noticed:
                say(console, sentence, indent=4)
            if sentence.startswith(NOTICED):
                noticed.add(sentence)
    for text in (*_rest(rest), *_foot(explained)):
        # A link stays one where the terminal itself breaks the line.
        say(console, text, whole=True)


def to_markdown(explained: Sequence[Explained], rest: Sequence[Unmeasured]) -> str:
    """Explanations as GitHub Markdown."""
    lines = []
    for one, label in zip(explained, labels(explained), strict=True):
        lines.append(f"**{escaped(case(one))}**, {escaped(label)}: {escaped(measured(one))}")
        lines.append("")
        if one.prediction:
            lines.append(f"- Predicted time: {escaped(percentages(one.prediction.parts))}.")
        lines += [f"- {escaped(sentence)}" for sentence in sentences(one)]
        lines.append("")
    lines += [escaped(text) if text else "" for text in (*_rest(rest), *_assumptions(explained))]
    return "\n".join(lines).rstrip() + "\n"


def to_json(explained: Sequence[Explained], rest: Sequence[Unmeasured]) -> str:
    """Explanations with all their numbers; a key without a value is absent."""
    document = {
        "kind": "explanation",
        "explained": [_document(one) for one in explained],
        "without_speed": [{"case": dict(one.case), "why": one.why} for one in rest],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _document(one: Explained) -> dict[str, Any]:
    document: dict[str, Any] = {
        "record": one.record["id"],
        "case": dict(one.case),
        "metric": one.metric,
        "conditions": dict(one.conditions),
        "unit": "tok/s",
        "measured": one.measured,
        "n_runs": one.runs,
        "clues": [*one.diagnostics, *(link.what for link in one.links)],
        "sentences": list(sentences(one)),
    }
    if one.prediction is None:
        return document | {"why_not": one.why_not}
    document |= {
        "predicted": one.prediction.value,
        "low": one.prediction.low,
        "high": one.prediction.high,
        "verdict": one.verdict,
        "shares": shares(one.prediction.parts),
        "helps": [{"what": help_.what, "factor": help_.factor} for help_ in one.sensitivities],
        "assumptions": list(one.prediction.assumptions),
    }
    return document | ({"roof": one.roofline} if one.roofline else {})


def _rest(rest: Sequence[Unmeasured]) -> list[str]:
    """Records of one reason are one line."""
    counts: dict[str, int] = {}
    for one in rest:
        name = f"{one.case['benchmark']}, {plural(one.case['nodes'], 'node')}: {one.why}"
        counts[name] = counts.get(name, 0) + 1
    lines = [f"{plural(count, 'record')} of {name}" for name, count in counts.items()]
    return ["", *lines] if lines else []


def _foot(explained: Sequence[Explained]) -> list[str]:
    parts: dict[str, float] = {}
    for one in explained:
        for name, seconds in one.prediction.parts.items() if one.prediction else ():
            parts[name] = parts.get(name, 0.0) + seconds
    return ["", *legend(parts), *_assumptions(explained)] if parts else []


def _assumptions(explained: Sequence[Explained]) -> list[str]:
    assumptions = dict.fromkeys(
        text for one in explained if one.prediction for text in one.prediction.assumptions
    )
    return (
        ["", "Assumed, because it is not known:", *(f"- {text}" for text in assumptions)]
        if assumptions
        else []
    )
