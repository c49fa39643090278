"""A comparison on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.text import Text

from nixwulf.core.document import (
    Cell,
    Column,
    Table,
    Value,
    escaped,
    markdown,
    output,
    pipe_table,
    rich_table,
)
from nixwulf.core.text import clean
from nixwulf.results.compare.comparison import Comparison
from nixwulf.results.compare.gate import Power
from nixwulf.results.compare.interval import ASSUMED, Interval
from nixwulf.results.compare.pairs import Ending, Pair, SideValue
from nixwulf.results.compare.text import Names, difference_document, differences, pairs, sentences
from nixwulf.results.identity import Identity

_COLUMNS: tuple[Column | str, ...] = (
    "case",
    Column("metric", whole=True),
    *(Column(head, number=True, whole=True) for head in ("A", "B", "B / A", "95 % interval")),
    Column("B is", whole=True),
)
_UNNAMED = ("", Column("", whole=True), *_COLUMNS[2:])
_STYLES = {"better": "good", "worse": "bad", "": "quiet"}


def to_terminal(comparison: Comparison, limit: float | None) -> None:
    """Print a comparison; a case is named at the first of its metrics."""
    console = output()
    names = Names(comparison)
    for head in _heads(comparison, names):
        console.print(Text(head))
    rows: list[list[Value]] = []
    last = None
    for (case, *cells, word), pair in zip(pairs(comparison, names), comparison.pairs, strict=True):
        rows.append(
            [case if case != last else "", *cells, Cell(word, style=_STYLES[pair.judgement])]
        )
        last = case
    if rows:
        console.print()
        console.print(rich_table(Table(_UNNAMED, rows)))
    for sentence in sentences(comparison, names, limit):
        console.print()
        console.print(Text(sentence))


def to_markdown(comparison: Comparison, limit: float | None) -> str:
    """A comparison as GitHub Markdown, to paste into an issue or a pull request."""
    names = Names(comparison)
    rows = pairs(comparison, names)
    return markdown(
        (
            "  \n".join(map(escaped, _heads(comparison, names))),
            pipe_table(Table(_COLUMNS, rows)) if rows else "",
            *map(escaped, sentences(comparison, names, limit)),
        )
    )


def to_json(comparison: Comparison, limit: float | None) -> str:
    """A comparison with all its numbers; a key without a value is absent."""
    document: dict[str, Any] = {
        "a": {"name": comparison.a.name, "records": len(comparison.a.records)},
        "b": {"name": comparison.b.name, "records": len(comparison.b.records)},
        "over": list(comparison.over),
        "differences": [difference_document(one) for one in comparison.differences],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "failures": [_ending(ending) for ending in comparison.endings],
        "not_compared": [{"why": one.why, "case": _flat(one.shared)} for one in comparison.alone],
    }
    if limit is not None:
        below = comparison.below(limit)
        document["fail_below"] = {
            "limit": limit,
            "pairs": [i for i, pair in enumerate(comparison.pairs) if pair in below],
            "failures": [i for i, ending in enumerate(comparison.endings) if ending in below],
            **({"power": _power(power)} if (power := comparison.power(limit)) else {}),
        }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _heads(comparison: Comparison, names: Names) -> list[str]:
    heads = [
        f"A  {clean(side.name)} ({len(side.records)} records)".replace("(1 records)", "(1 record)")
        for side in (comparison.a, comparison.b)
    ]
    heads[1] = heads[1].replace("A", "B", 1)
    differing = "; ".join(differences(comparison))
    heads.append(
        f"They differ in: {differing}." if differing else "They differ in nothing that is recorded."
    )
    return [*heads, f"In all pairs: {clean(names.common)}."]


def _pair(pair: Pair) -> dict[str, Any]:
    document: dict[str, Any] = {
        "case": _flat(pair.shared),
        "a": _side(pair.a),
        "b": _side(pair.b),
        "ratio": pair.ratio,
        "interval": None if pair.interval is None else [pair.interval.low, pair.interval.high],
        "session_effect": None if pair.interval is None else _session_effect(pair.interval),
        "b_is": pair.word,
        "for_the": pair.judgement,
    }
    return {key: value for key, value in document.items() if value not in (None, "")}


def _side(value: SideValue) -> dict[str, Any]:
    return {key: one for key, one in vars(value).items() if one != ""}


def _session_effect(interval: Interval) -> dict[str, Any]:
    assumed = {"assumed_stddev_of_a_session": ASSUMED} if interval.basis == "assumed" else {}
    return {"basis": interval.basis, "stddev": math.sqrt(interval.sessions.of), **assumed}


def _power(power: Power) -> dict[str, Any]:
    return {key: value for key, value in vars(power).items() if value is not None}


def _ending(ending: Ending) -> dict[str, Any]:
    return {"case": _flat(ending.shared), "a": dict(ending.a), "b": dict(ending.b)}


def _flat(identity: Identity) -> dict[str, Any]:
    """Conditions and parameters in objects of their own, as a record has them."""
    document: dict[str, Any] = {}
    for key, value in sorted(identity.items(), key=lambda item: item[0]):
        if value not in (None, ""):
            (document.setdefault(key.group, {}) if key.group else document)[key.name] = value
    return document
