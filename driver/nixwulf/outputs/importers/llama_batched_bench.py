"""llama-batched-bench: speeds of several sequences of llama.cpp at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.outputs import llama_batched_bench as parser
from nixwulf.outputs.importers import Found, Tool, metric, told_apart
from nixwulf.outputs.llama_batched_bench import BatchedBenchOutput


def _read(text: str) -> list[Found]:
    tables = parser.parse(text)
    return [
        Found(
            "llama-batched-bench",
            told_apart(_metrics(table)),
            engine={"name": "llama.cpp"},
            parameters={"table": number} if len(tables) > 1 else {},
        )
        for number, table in enumerate(tables, 1)
    ]


TOOL = Tool("llama-batched-bench", parser, _read)


def _metrics(table: BatchedBenchOutput) -> Iterator[Mapping[str, Any]]:
    """Of all sequences together: tokens of prompts, tokens generated, and both over all seconds."""
    options = {key: value for key, value in table.options.items() if key != "n_kv_max"}
    for row in table.rows:
        sizes = {"n_prompt": row.n_prompt, "n_gen": row.n_gen, "concurrency": row.sequences}
        conditions = sizes | options
        if row.n_prompt:
            yield metric("prompt_throughput", "tok/s", row.prompt, conditions=conditions)
        if row.n_gen:
            yield metric("throughput", "tok/s", row.decode, conditions=conditions)
        yield metric("total_throughput", "tok/s", row.total, conditions=conditions)
