"""llama-benchy: llama-bench's tests against an OpenAI-compatible endpoint, at concurrencies.

https://github.com/eugr/llama-benchy
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nixwulf.outputs import ParseError
from nixwulf.outputs.last_words import last_words
from nixwulf.outputs.pipe_table import cells, mean_and_deviation

_TEST = re.compile(
    r"(?:ctx_)?(?P<kind>pp|tg)(?P<tokens>[0-9]{1,9})?(?: @ d(?P<depth>[0-9]{1,9}))?"
    r"(?: \(c(?P<concurrency>[0-9]{1,6})\))?"
)
_SPEEDS = ("t/s (total)", "t/s")
_VERSION = re.compile(r"llama-benchy \(([^)\s]+)\)")

Mean = tuple[float, float | None]


@dataclass(frozen=True)
class LlamaBenchyRow:
    """One test at one concurrency; a mean stands with its standard deviation, None if unknown.

    test: as llama-benchy names it: 'pp1024 (c1)', 'tg128 @ d4096'; metric: prompt or decode.
    speed: of all requests together, tokens per second.
    columns: every column that has a value, by its name with its unit: 'ttfr (ms)'.
    """

    model: str
    test: str
    metric: str
    tokens: int | None
    depth: int
    concurrency: int
    speed: Mean
    columns: Mapping[str, Mean] = field(default_factory=dict)


@dataclass(frozen=True)
class LlamaBenchyOutput:
    """One output; version is empty where no line tells it."""

    rows: tuple[LlamaBenchyRow, ...]
    version: str


def parse(text: str) -> LlamaBenchyOutput:
    """The rows of its tables; at least one."""
    head: list[str] = []
    rows: list[LlamaBenchyRow] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = cells(line)
        if _is_head(found):
            head = found
        elif head and len(found) == len(head):
            rows.append(_row(dict(zip(head, found, strict=True)), number))
    if not rows:
        raise ParseError(
            f"llama-benchy: no result row in {len(text.splitlines())} lines, expected a table with "
            f"the columns model, test, t/s and ttfr (ms){last_words(text)}"
        )
    version = _VERSION.search(text)
    return LlamaBenchyOutput(tuple(rows), version[1] if version else "")


def recognises(text: str) -> bool:
    """The head of its table, or its name with a version."""
    return bool(_VERSION.search(text)) or any(_is_head(cells(line)) for line in text.splitlines())


def _is_head(found: list[str]) -> bool:
    return found[:2] == ["model", "test"] and "ttfr (ms)" in found


def _row(values: dict[str, str], line: int) -> LlamaBenchyRow:
    test = _TEST.fullmatch(values["test"])
    columns = {}
    for name, cell in values.items():
        if name not in {"model", "test"} and cell:
            mean = mean_and_deviation(cell)
            if mean is None:
                raise ParseError(
                    f"llama-benchy, line {line}: {name} is {cell[:40]!r}, expected '46.47 ± 0.35'."
                )
            columns[name] = mean
    speed = next((columns[name] for name in _SPEEDS if name in columns), None)
    if test is None or speed is None:
        raise ParseError(
            f"llama-benchy, line {line}: test {values['test'][:40]!r} without a speed, expected "
            "one such as 'pp1024 (c1)' with its t/s."
        )
    return LlamaBenchyRow(
        model=values["model"],
        test=values["test"],
        metric="decode" if test["kind"] == "tg" else "prompt",
        tokens=int(test["tokens"]) if test["tokens"] else None,
        depth=int(test["depth"] or 0),
        concurrency=int(test["concurrency"] or 1),
        speed=speed,
        columns=columns,
    )
