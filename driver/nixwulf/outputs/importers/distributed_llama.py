"""dllama inference of distributed-llama: prompt, decode and what its nodes exchanged."""

from __future__ import annotations

import re

from nixwulf.outputs import dllama as parser
from nixwulf.outputs.dllama import metrics
from nixwulf.outputs.importers import ANY, ONE, Found, Nodes, Tool, exactly, metric

_WORKER = re.compile(r"Socket\[(\d{1,4})\]: connecting to \S+ worker")
_ARCHITECTURE = re.compile(r"^\S+ Arch: (\S+)$", re.MULTILINE)
# The model's header, which comes before the sockets: without it, the begin is cut off.
_HEADER = "nKvHeads: "


def _read(text: str) -> list[Found]:
    result = parser.parse(text)
    workers = len(set(_WORKER.findall(text)))
    nodes = _nodes(workers) if workers or _HEADER in text else ANY
    measured = [
        metric(one.name, one.unit, samples=one.samples, conditions=one.conditions)
        for one in metrics([result], (nodes.reported or 1), [])
    ]
    architecture = _ARCHITECTURE.search(text)
    return [
        Found(
            "dllama",
            measured,
            nodes=nodes,
            parameters={
                "n_prompt": result.evaluation.tokens,
                "n_gen": result.prediction.tokens,
            },
            engine={"name": "distributed-llama"},
            model={"architecture": architecture[1]} if architecture else {},
            transport="tcp" if workers else None,
            parallelism="tensor" if workers else None,
        )
    ]


TOOL = Tool("distributed-llama", parser, _read)


def _nodes(workers: int) -> Nodes:
    if not workers:
        return ONE
    return exactly(workers + 1, f"{workers} workers and the root")
