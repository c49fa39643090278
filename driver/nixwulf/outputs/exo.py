"""Output of exo's own benchmark (exo_bench.py --json-out): a row for each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from nixwulf.core.metric import Metric
from nixwulf.outputs import Found, ParseError, Tool, exactly, json_object, model_of

ENGINE = "exo"
_ROW_KEYS = ("placement_sharding", "placement_instance_meta")
_TRANSPORTS = {"MlxRing": "tcp", "MlxJaccl": "rdma"}
_PARALLELISMS = {"Pipeline": "pipeline", "Tensor": "tensor"}
_METRICS = (("prompt", "tok/s"), ("decode", "tok/s"), ("peak_memory", "GB"))
# Model, sharding, instance and nodes; tokens of prompt and answer, requests at once; the metrics,
# of which memory is that of the node that answers.
_Row = tuple[tuple[Any, ...], tuple[int, ...], tuple[float, ...]]


def recognises(text: str) -> bool:
    """Tell whether the text looks like the benchmark's, whole or cut short."""
    return '"runs"' in text and any(f'"{key}"' in text for key in _ROW_KEYS)


def read(text: str) -> list[Found]:
    """A case a placement: prompt, decode and memory of the requests of each size."""
    rows = json_object("exo_bench", text).get("runs")
    if not isinstance(rows, list) or not rows:
        _refuse(0, "at least one of 'runs'")
    placements: dict[tuple[Any, ...], dict[tuple[int, ...], list[tuple[float, ...]]]] = {}
    for number, row in enumerate(rows, 1):
        placement, size, samples = _row(number, row)
        placements.setdefault(placement, {}).setdefault(size, []).append(samples)
    return [
        Found(
            "exo-bench",
            [one for size, rows in sizes.items() for one in _metrics(size, rows)],
            nodes=exactly(nodes, f"{nodes} nodes"),
            engine={"name": ENGINE},
            model=model_of(model),
            transport=_TRANSPORTS.get(meta),
            parallelism=_PARALLELISMS.get(sharding),
        )
        for (model, sharding, meta, nodes), sizes in placements.items()
    ]


TOOL = Tool("exo-bench", recognises, read)


def _row(number: int, row: Any) -> _Row:
    try:
        stats = row["stats"]
        _number(row["elapsed_s"])
        names = tuple(str(row[key]) for key in ("model_id", *_ROW_KEYS))
        tokens = tuple(int(stats[f"{key}_tokens"]) for key in ("prompt", "generation"))
        speeds = tuple(_number(stats[f"{key}_tps"]) for key in ("prompt", "generation"))
        memory = int(stats["peak_memory_usage"]["inBytes"]) / 1e9
        sizes = (*tokens, int(_number(row.get("concurrency", 1), least=1)))
        nodes = int(_number(row["placement_nodes"], least=1))
        return (*names, nodes), sizes, (*speeds, memory)
    except KeyError as error:
        _refuse(number, f"the key {error}")
    except (TypeError, ValueError, AttributeError, OverflowError):
        _refuse(number, "figures of a whole answer")


def _number(value: Any, least: int = 0) -> float:
    if not least <= value < float("inf"):
        raise ValueError
    return float(value)


def _refuse(number: int, expected: str) -> NoReturn:
    raise ParseError(f"exo_bench: run {number}: expected {expected}.")


def _metrics(size: tuple[int, ...], rows: Sequence[tuple[float, ...]]) -> Iterator[Metric]:
    """Each a sample of one request alone, also where several went at once."""
    conditions = dict(zip(("n_prompt", "n_gen", "concurrency"), size, strict=True))
    for (name, unit), samples in zip(_METRICS, zip(*rows, strict=True), strict=True):
        yield Metric(name, unit, samples, conditions=conditions)
