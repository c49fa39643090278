"""What exo's own benchmark writes (exo_bench.py --json-out): a row for each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from nixwulf.outputs import ParseError
from nixwulf.outputs.json_text import json_object

_ROW_KEYS = ("placement_sharding", "placement_instance_meta", "stats")


@dataclass(frozen=True)
class ExoRow:
    """One request: how the model was placed, and exo's own figures.

    prompt_tps, generation_tps: tokens a second of this request alone, also where several went at
    once; peak_memory_bytes: of the node that answers; seconds: wall time.
    """

    model: str
    sharding: str
    instance_meta: str
    nodes: int
    concurrency: int
    prompt_tokens: int
    generation_tokens: int
    prompt_tps: float
    generation_tps: float
    peak_memory_bytes: int
    seconds: float


def parse(text: str) -> tuple[ExoRow, ...]:
    """The rows; raises ParseError when there are none or one has no figures."""
    rows = json_object("exo_bench", text).get("runs")
    if not isinstance(rows, list) or not rows:
        _refuse(0, "at least one of 'runs'")
    return tuple(_row(number, row) for number, row in enumerate(rows, 1))


def recognises(text: str) -> bool:
    """Whether the text looks like the benchmark's, whole or cut short."""
    return '"runs"' in text and any(f'"{key}"' in text for key in _ROW_KEYS[:2])


def _row(number: int, row: Any) -> ExoRow:
    try:
        stats = row["stats"]
        return ExoRow(
            str(row["model_id"]),
            str(row["placement_sharding"]),
            str(row["placement_instance_meta"]),
            _positive(row["placement_nodes"]),
            _positive(row.get("concurrency", 1)),
            int(stats["prompt_tokens"]),
            int(stats["generation_tokens"]),
            float(_finite(stats["prompt_tps"])),
            float(_finite(stats["generation_tps"])),
            int(stats["peak_memory_usage"]["inBytes"]),
            float(_finite(row["elapsed_s"])),
        )
    except KeyError as error:
        _refuse(number, f"the key {error}")
    except (TypeError, ValueError, AttributeError, OverflowError):
        _refuse(number, "figures of a whole answer")


def _positive(value: Any) -> int:
    if int(value) < 1:
        raise ValueError
    return int(value)


def _finite(value: Any) -> float:
    if not 0 <= value < float("inf"):
        raise ValueError
    return float(value)


def _refuse(number: int, expected: str) -> NoReturn:
    raise ParseError(f"exo_bench: run {number}: expected {expected}.")
