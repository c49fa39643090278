"""Forms that several tools share: JSON, tables with pipes, the line that shows why a run failed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.outputs import ParseError, ToolFailed

# Of speeds, times and sizes: none is negative, none so large that a float has no room for it.
NUMBER = r"\+?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,2})?"
_MEAN = re.compile(rf"({NUMBER})(?:\s*±\s*({NUMBER}))?")
_TELLING = re.compile(
    r"\b(error|failed|failure|crashed|abort(ed)?|terminate called|what\(\)|unable|fatal|killed)\b"
    r"|\wError: ",
    re.IGNORECASE,
)
_LENGTH = 160
_FEWEST_PIPES = 2


def json_object(tool: str, text: str) -> dict[str, Any]:
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
    line = line.strip()
    if "|" not in line:
        line = line.replace("\t", "|")
    if line.count("|") < _FEWEST_PIPES:
        return []
    found = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
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
    """The number of the first line that reports a failure, and the end of a sentence; 0 and '.'.

    first: the number of the first of the lines.
    """
    for number, line in enumerate(lines, first):
        if _TELLING.search(line):
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
