"""exo_bench: prompt, decode and memory of each request that exo answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nixwulf.outputs import exo as parser
from nixwulf.outputs.exo import ExoRow
from nixwulf.outputs.importers import Found, Tool, exactly, metric, model_of

_TRANSPORTS = {"MlxRing": "tcp", "MlxJaccl": "rdma"}
_PARALLELISMS = {"Pipeline": "pipeline", "Tensor": "tensor"}


def _read(text: str) -> list[Found]:
    groups: dict[tuple[str, str, str, int], list[ExoRow]] = {}
    for row in parser.parse(text):
        key = (row.model, row.sharding, row.instance_meta, row.nodes)
        groups.setdefault(key, []).append(row)
    return [
        Found(
            "exo-bench",
            list(_metrics(rows)),
            nodes=exactly(nodes, f"{nodes} nodes"),
            engine={"name": "exo"},
            model=model_of(model),
            transport=_TRANSPORTS.get(meta),
            parallelism=_PARALLELISMS.get(sharding),
        )
        for (model, sharding, meta, nodes), rows in groups.items()
    ]


TOOL = Tool("exo-bench", parser, _read)


def _metrics(rows: Sequence[ExoRow]) -> Iterator[Mapping[str, Any]]:
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
            yield metric(name, unit, samples=values, conditions=conditions)
