"""Outputs of tools: a module a tool, found by its file, that holds all that is known of its output.

A module has an object TOOL of the class below, and is two pure functions:

    recognises(text) -> bool: whether the text looks like this tool's, whole, cut short or failed
    read(text) -> its cases, with the names and units that records have for what it measured

Beside them a module may have what the benchmark of its tool shares with an import: parse, of rows
with the units that the tool prints, and metrics, of rows. Where the output is always of one engine,
the module names it: ENGINE.

Readers raise ParseError and nothing else, on any text at all: where the tool failed, where its
output ends too early to hold a result, and where a number is none. What was printed whole before
a crash is kept; whether a run ended well is known by its exit status.

Also forms that several tools share: JSON, tables with pipes, the line that shows why a run failed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import PurePosixPath
from typing import cast

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
        """Tell whether the output can be of so many nodes."""
        return self.least <= nodes and (self.most is None or nodes <= self.most)


def exactly(count: int, why: str) -> Nodes:
    """Return the condition of so many nodes and no other number."""
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
    parameters: Mapping[str, object] = field(default_factory=dict)
    engine: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, object] = field(default_factory=dict)
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


def documents(metrics: Iterable[Metric]) -> list[dict[str, object]]:
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
    """Check a metric's numbers; of very many samples it keeps at most 1000, evenly over all."""
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


def present(block: Mapping[str, object]) -> dict[str, object]:
    """Keep what a block has: absent keys, not empty ones."""
    return {key: value for key, value in block.items() if value not in (None, "", {})}


# Of speeds, times and sizes: none is negative, none so large that a float has no room for it.
NUMBER = r"\+?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,2})?"
_MEAN = re.compile(rf"({NUMBER})(?:\s*±\s*({NUMBER}))?")
_TELLING = re.compile(
    r"\b(error(?!\"\s*:\s*(?:0|null|false|\"\"))|failed|failure|crashed|abort(ed)?"
    r"|terminate called|what\(\)|unable|fatal|killed)\b"
    r"|\wError: ",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"\w(?:Error|Exception): \S")
_ELSEWHERE = re.compile(r"\b(?:see|above|below|root cause)\b", re.IGNORECASE)
_LENGTH = 160
_FEWEST_PIPES = 2
_PIPE = re.compile(r"(?<!\\)\|")


def json_object(tool: str, text: str) -> dict[str, object]:
    """The one object that a text is; its numbers may be NaN and Infinity, which Python knows."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(
            f"{tool}, line {error.lineno}: {error.msg}, expected a whole JSON object."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{tool}: {error}, expected JSON as {tool} writes it.") from None
    if not isinstance(value, dict):
        raise ParseError(f"{tool}, line 1: a {type(value).__name__}, expected a JSON object.")
    return value


def cells(line: str) -> list[str]:
    """The cells of one line of a table; empty for any other line, and for the rule under a head.

    Posters lose the first or the last pipe, or both; a page's table that is copied has tabs.
    """
    separator = "|" if "|" in line else "\t"
    if line.count(separator) < _FEWEST_PIPES:
        return []
    if separator == "|":
        parts = _PIPE.split(line.strip().removeprefix("|").removesuffix("|"))
    else:
        parts = line.strip("\n ").split("\t")  # empty ones at the end are cells too
    found = [cell.strip().replace("\\|", "|") for cell in parts]
    return [] if all(set(cell) <= set("-: ") for cell in found) else found


def mean_and_deviation(cell: str) -> tuple[float, float | None] | None:
    """A mean and its standard deviation from '55.73 ± 0.04' or '55.73'; None for another text."""
    found = _MEAN.fullmatch(cell)
    return (float(found[1]), float(found[2]) if found[2] else None) if found else None


def without_result(tool: str, expected: str, text: str) -> ParseError:
    """The error for an output without a result: ToolFailed where a line of it reports why."""
    lines = text.splitlines()
    number, words = failure(lines, 1)
    if number:
        return ToolFailed(f"{tool} failed{words}")
    return ParseError(f"{tool}: no result in {len(lines)} lines, expected {expected}.")


def failure(lines: Iterable[str], first: int) -> tuple[int, str]:
    """The number of the line that reports a failure, and the end of a sentence; 0 and '.'.

    It is the last that names a cause and points to no other line, else the first one. first: the
    number of the first of the lines.
    """
    telling = [one for one in enumerate(lines, first) if _TELLING.search(one[1])]
    causes = [one for one in telling if _CAUSE.search(one[1]) and not _ELSEWHERE.search(one[1])]
    for number, line in causes[-1:] or telling[:1]:
        text = "".join(char if char.isprintable() else " " for char in line).strip()
        return number, f'; line {number} says "{text[:_LENGTH]}".'
    return 0, "."


def as_printed(metrics: Iterable[Metric]) -> list[Metric]:
    """Numbers that an output has once as values: they are no samples of several measurements."""
    return [
        replace(one, samples=(), value=one.samples[0])
        if len(one.samples) == 1 and not one.distribution
        else one
        for one in metrics
    ]
