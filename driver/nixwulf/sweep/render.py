"""A plan on a terminal, as a dry run prints it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.text import Text

from nixwulf.core.document import Column, Table, output, rich_table
from nixwulf.core.text import plural
from nixwulf.perf.scenarios.candidates import NO_SPLIT
from nixwulf.sweep.consent import active, addresses
from nixwulf.sweep.plan import Plan, by_reason

_AXES = ("engine", "benchmark", "model", "nodes", "fabric", "transport", "parallelism")


def print_plan(plan: Plan) -> None:
    """The cases that would run by what differs between them, and why how many points are none."""
    rows = [{name: getattr(case, name) for name in _AXES} | case.parameters for case in plan.cases]
    values = distinct(rows)
    same = {name: found[0] for name, found in values.items() if len(found) == 1}
    columns = [name for name, found in values.items() if len(found) > 1]
    cells = [
        [case.id, *("" if row.get(name) is None else str(row[name]) for name in columns)]
        for case, row in zip(plan.cases, rows, strict=True)
    ]
    cases, repetitions = len(plan.cases), plan.sweep.repetitions
    console = output()
    for url in addresses(plan):
        console.print(Text(f"Asks {url}"))
    for line in active(plan):
        console.print(Text(f"Look at this: {line}"))
    console.print(Text(f"All cases: {pairs(same)}."))
    console.print(rich_table(Table([Column("case", whole=True), *columns], cells)))
    for reason, points in by_reason(plan.left_out).items():
        if reason != NO_SPLIT:
            console.print(Text(f"Left out {points}: {reason}."))
    counts = plural(cases, "case"), plural(repetitions, "repetition")
    console.print(Text(f"{', '.join(counts)}, {plural(cases * repetitions, 'run')}."))


def pairs(values: Mapping[str, object]) -> str:
    """'nodes=2 fabric=cable'."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def distinct(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each key, once each, in order; None is none."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            known = found.setdefault(key, [])
            if value is not None and value not in known:
                known.append(value)
    return found
