"""What outputs of tools hold, as cases and metrics with the names and units of the benchmarks.

A module of this package is one tool: an object TOOL of the class below. Its parser, in
`nixwulf.outputs`, knows the tool's text; the module here knows what a record calls it.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any, cast

from nixwulf.core.discovery import discover
from nixwulf.core.metric import percentile
from nixwulf.outputs import ParseError

_MOST_SAMPLES = 1000
# Above it, JSON's readers no longer agree on a number.
_MOST = 2**53


@dataclass(frozen=True)
class Nodes:
    """What an output says of the number of nodes; why is the end of a sentence: 'its 2 servers'.

    reported: None where it can be any from least to most; most: None where nothing bounds it.
    """

    reported: int | None = None
    least: int = 1
    most: int | None = None
    why: str = ""

    def fits(self, nodes: int) -> bool:
        """Whether the output can be of so many nodes."""
        return self.least <= nodes and (self.most is None or nodes <= self.most)


def exactly(count: int, why: str) -> Nodes:
    """Of so many nodes and no other number."""
    return Nodes(count, count, count, why)


ANY = Nodes()
ONE = exactly(1, "one node")
PAIR = exactly(2, "two nodes")


@dataclass(frozen=True)
class Found:
    """One case of an output, with what the output itself says of it; the rest is None or empty.

    machines: it measures the machines, so that there is no engine, model or parallelism.
    engine and model: blocks as in a record. note: what no other key of a record holds.
    """

    benchmark: str
    metrics: Sequence[Mapping[str, Any]]
    machines: bool = False
    nodes: Nodes = ANY
    parameters: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    transport: str | None = None
    parallelism: str | None = None
    fabric: str | None = None
    note: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """A tool: its name, its parser, and what reads an output (raises ParseError)."""

    name: str
    parser: ModuleType
    read: Callable[[str], Sequence[Found]]


@cache
def all_tools() -> dict[str, Tool]:
    """Every tool by name."""
    return cast(dict[str, Tool], discover(sys.modules[__name__], "TOOL"))


def metric(
    name: str,
    unit: str,
    value: float | None = None,
    *,
    conditions: Mapping[str, Any],
    samples: Sequence[float] = (),
    observed: Mapping[str, Any] | None = None,
    spread: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """A metric as in a record; its value is the mean of the samples where there are some.

    spread: percentiles of the samples are given too. Of very many, at most 1000 are kept, evenly
    over all. more: stddev, state, percentiles. What is None or empty is left out.
    Raises ParseError for a number that is NaN, infinite or negative, and for a speed of nothing.
    """
    for key, number in {**conditions, **(observed or {})}.items():
        if isinstance(number, int | float) and not abs(number) <= _MOST:
            raise ParseError(f"{name} has {key} {number:g}, expected a number below 2^53.")
    kept = list(samples)[:: max(1, math.ceil(len(samples) / _MOST_SAMPLES))]
    for number in (*kept, *([] if value is None else [value]), more.get("stddev") or 0):
        if not (math.isfinite(number) and number >= 0):
            raise ParseError(f"{name} is {number:g} {unit}, expected a finite number from 0 on.")
    if kept:
        value = statistics.fmean(kept)
    if value is None or (unit == "tok/s" and not (value and all(kept))):
        raise ParseError(f"{name} is {value or 0:g} {unit}, expected a speed above 0.")
    if len(kept) > 1:
        more["stddev"] = statistics.stdev(kept)
    if spread and kept:
        more["percentiles"] = {f"p{p}": percentile(kept, p) for p in (50, 95, 99)}
    return {
        "name": name,
        "unit": unit,
        "value": value,
        **({"samples": kept} if kept else {}),
        **present(more),
        "conditions": present(conditions),
        **present({"observed": present(observed or {})}),
    }


def told_apart(metrics: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The metrics; one that another of its name and conditions precedes is of a later pass."""
    seen: Counter[str] = Counter()
    found: list[Mapping[str, Any]] = []
    for one in metrics:
        key = json.dumps([one["name"], one["conditions"]], sort_keys=True)
        seen[key] += 1
        conditions = {**one["conditions"], **({"pass": seen[key]} if seen[key] > 1 else {})}
        found.append({**one, "conditions": conditions})
    return found


def model_of(name: str) -> dict[str, str]:
    """The model block of a name; of a path, whose folders are nobody's business, its end."""
    if name.startswith(("/", "~", ".")):
        name = PurePosixPath(name).name
    return {"name": name} if name.strip() else {}


def present(block: Mapping[str, Any]) -> dict[str, Any]:
    """What of a block is there: absent keys, not empty ones."""
    return {key: value for key, value in block.items() if value not in (None, "", {})}
