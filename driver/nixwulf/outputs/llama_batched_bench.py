"""llama-batched-bench of llama.cpp: speeds of 1, 2, 4, ... sequences at once.

https://github.com/ggml-org/llama.cpp/tree/master/tools/batched-bench
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nixwulf.outputs import ParseError
from nixwulf.outputs.last_words import last_words
from nixwulf.outputs.pipe_table import NUMBER, cells

_HEAD = ["PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"]
_COUNTS = 4
_OPTION = re.compile(r"(\w+) = (-?[0-9]{1,18})")


@dataclass(frozen=True)
class BatchedBenchRow:
    """One number of sequences: lengths in tokens, times in seconds, speeds in tokens per second.

    The speeds are those of all sequences together.
    """

    n_prompt: int
    n_gen: int
    sequences: int
    n_kv: int
    prompt_s: float
    prompt: float
    decode_s: float
    decode: float
    total_s: float
    total: float


@dataclass(frozen=True)
class BatchedBenchOutput:
    """One run: its rows, and the options that it states, such as n_batch and n_gpu_layers."""

    rows: tuple[BatchedBenchRow, ...]
    options: Mapping[str, int] = field(default_factory=dict)


def parse(text: str) -> tuple[BatchedBenchOutput, ...]:
    """The runs in a text, each with at least one row; at least one."""
    tables: list[BatchedBenchOutput] = []
    options: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = cells(line)
        if "n_kv_max = " in line:
            options = {name: int(value) for name, value in _OPTION.findall(line)}
        elif found == _HEAD:
            tables.append(BatchedBenchOutput((), options))
            options = {}
        elif found and tables and len(found) == len(_HEAD):
            tables[-1] = replace(tables[-1], rows=(*tables[-1].rows, _row(found, number)))
    tables = [table for table in tables if table.rows]
    if not tables:
        raise ParseError(
            f"llama-batched-bench: no result row in {len(text.splitlines())} lines, expected a "
            f"table with the columns {', '.join(_HEAD)}{last_words(text)}"
        )
    return tuple(tables)


def recognises(text: str) -> bool:
    """The head of its table, or the line with its options."""
    return any("n_kv_max = " in line or cells(line) == _HEAD for line in text.splitlines())


def _row(found: list[str], line: int) -> BatchedBenchRow:
    for index, cell in enumerate(found):
        expected = "[0-9]{1,18}" if index < _COUNTS else NUMBER
        if not re.fullmatch(expected, cell):
            raise ParseError(
                f"llama-batched-bench, line {line}: {_HEAD[index]} is {cell[:40]!r}, expected a "
                f"{'count' if index < _COUNTS else 'number'}."
            )
    n_prompt, n_gen, sequences, n_kv = (int(cell) for cell in found[:_COUNTS])
    return BatchedBenchRow(
        n_prompt, n_gen, sequences, n_kv, *(float(cell) for cell in found[_COUNTS:])
    )
