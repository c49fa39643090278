"""What tools print: a module a tool, found by its file, that holds all that is known of its output.

A module has an object TOOL of the class below, and is two pure functions:

    recognises(text) -> bool: whether the text looks like this tool's, whole, cut short or failed
    read(text) -> its cases, with the names and units that records have for what it measured

Beside them a module may have what the benchmark of its tool shares with an import: parse, of rows
with the units that the tool prints, and metrics, of rows. Where the output is always of one engine,
the module names it: ENGINE.

Readers raise ParseError and nothing else, on any text at all: where the tool failed, where its
output ends too early to hold a result, and where a number is none. What was printed whole before
a crash is kept; whether a run ended well is known by its exit status.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any, cast

from nixwulf.core.errors import NixwulfError
from nixwulf.core.metric import Metric
from nixwulf.core.registry import discover

_MOST_SAMPLES = 1000
# Above it, JSON's readers no longer agree on a number.
_MOST = 2**53


class ParseError(NixwulfError):
    """An output that is not what its tool prints when all went well."""


class ToolFailed(ParseError):
    """An output in which the tool itself says why it has no result: a run that failed."""


@dataclass(frozen=True)
class Nodes:
    """The number of nodes by an output; why is the end of a sentence: 'its 2 servers'.

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
    """One case of an output, with what the output itself reports of it; the rest is None or empty.

    machines: it measures the machines, so that there is no engine, model or parallelism.
    engine and model: blocks as in a record. note: what no other key of a record holds. peer: whom
    it was measured with, by an address that gets into no record. line: in which it begins.
    failure: why the run failed, which then has no metrics.
    """

    benchmark: str
    metrics: Sequence[Metric]
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
    peer: str = ""
    line: int = 1
    failure: str = ""


@dataclass(frozen=True)
class Tool:
    """A tool: its name, whether a text looks like its output, and its cases (or ParseError).

    reads_all: read takes several runs, and gives each case its line; else outputs.runs splits a
    text, by data/outputs_runs.toml where runs are no JSON objects. what: what is read, where no
    module of its own says so. failed: the case of a run that ended with ToolFailed; None: it is
    none.
    """

    name: str
    recognises: Callable[[str], bool]
    read: Callable[[str], Sequence[Found]]
    reads_all: bool = False
    what: str = ""
    failed: Found | None = None


@cache
def all_tools() -> dict[str, Tool]:
    """Every tool by name."""
    return cast(dict[str, Tool], discover(sys.modules[__name__], "TOOL"))


def documents(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """The metrics of a case as in a record; what is None or empty is left out.

    One that another of its name and conditions precedes is of a later pass. Raises ParseError for
    a number that is NaN, infinite or negative, and for a speed of nothing.
    """
    seen: Counter[str] = Counter()
    found = []
    for one in map(_checked, metrics):
        key = repr((one.name, sorted(one.conditions.items())))
        seen[key] += 1
        if seen[key] > 1:
            one = replace(one, conditions={**one.conditions, "pass": seen[key]})  # noqa: PLW2901
        found.append(one.document())
    return found


def _checked(metric: Metric) -> Metric:
    """Of very many samples, at most 1000 are kept, evenly over all."""
    name, unit = metric.name, metric.unit
    for key, number in {**metric.conditions, **metric.observed}.items():
        if isinstance(number, int | float) and not abs(number) <= _MOST:
            raise ParseError(f"{name} has {key} {number:g}, expected a number below 2^53.")
    kept = metric.samples[:: max(1, math.ceil(len(metric.samples) / _MOST_SAMPLES))]
    for number in (*kept, metric.value or 0, metric.stddev or 0):
        if not (math.isfinite(number) and number >= 0):
            raise ParseError(f"{name} is {number:g} {unit}, expected a finite number from 0 on.")
    nothing = not all(kept) if kept else not metric.value
    if (not kept and metric.value is None) or (unit == "tok/s" and nothing):
        raise ParseError(f"{name} is 0 {unit}, expected a speed above 0.")
    conditions, observed = present(metric.conditions), present(metric.observed)
    if (kept, conditions, observed) == (metric.samples, metric.conditions, metric.observed):
        return metric
    return replace(metric, samples=kept, conditions=conditions, observed=observed)


def model_of(name: str) -> dict[str, str]:
    """The model block of a name; of a path, whose folders are private, its end."""
    if name.startswith(("/", "~", ".")):
        name = PurePosixPath(name).name
    return {"name": name} if name.strip() else {}


def present(block: Mapping[str, Any]) -> dict[str, Any]:
    """What of a block is there: absent keys, not empty ones."""
    return {key: value for key, value in block.items() if value not in (None, "", {})}
