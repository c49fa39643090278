"""What exo's own benchmark writes (exo_bench.py --json-out): a row for each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from nixwulf.core.metric import Metric
from nixwulf.outputs import Found, ParseError, Tool, exactly, model_of
from nixwulf.outputs.forms import json_object

ENGINE = "exo"
_ROW_KEYS = ("placement_sharding", "placement_instance_meta")
_TRANSPORTS = {"MlxRing": "tcp", "MlxJaccl": "rdma"}
_PARALLELISMS = {"Pipeline": "pipeline", "Tensor": "tensor"}


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


def recognises(text: str) -> bool:
    """Whether the text looks like the benchmark's, whole or cut short."""
    return '"runs"' in text and any(f'"{key}"' in text for key in _ROW_KEYS)


def parse(text: str) -> tuple[ExoRow, ...]:
    """The rows; raises ParseError when there are none or one has no figures."""
    rows = json_object("exo_bench", text).get("runs")
    if not isinstance(rows, list) or not rows:
        _refuse(0, "at least one of 'runs'")
    return tuple(_row(number, row) for number, row in enumerate(rows, 1))


def read(text: str) -> list[Found]:
    """A case a placement: prompt, decode and memory of the requests of each size."""
    groups: dict[tuple[str, str, str, int], list[ExoRow]] = {}
    for row in parse(text):
        key = (row.model, row.sharding, row.instance_meta, row.nodes)
        groups.setdefault(key, []).append(row)
    return [
        Found(
            "exo-bench",
            list(_metrics(rows)),
            nodes=exactly(nodes, f"{nodes} nodes"),
            engine={"name": ENGINE},
            model=model_of(model),
            transport=_TRANSPORTS.get(meta),
            parallelism=_PARALLELISMS.get(sharding),
        )
        for (model, sharding, meta, nodes), rows in groups.items()
    ]


TOOL = Tool("exo-bench", recognises, read)


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


def _metrics(rows: Sequence[ExoRow]) -> Iterator[Metric]:
    alike: dict[tuple[int, int, int], list[ExoRow]] = {}
    for row in rows:
        key = (row.prompt_tokens, row.generation_tokens, row.concurrency)
        alike.setdefault(key, []).append(row)
    for (n_prompt, n_gen, concurrency), own in alike.items():
        conditions = {"n_prompt": n_prompt, "n_gen": n_gen, "concurrency": concurrency}
        samples = {
            ("prompt", "tok/s"): [row.prompt_tps for row in own],
            ("decode", "tok/s"): [row.generation_tps for row in own],
            ("peak_memory", "GB"): [row.peak_memory_bytes / 1e9 for row in own],
        }
        for (name, unit), values in samples.items():
            yield Metric(name, unit, tuple(values), conditions=conditions)
