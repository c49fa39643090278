"""Gate: every node has room for its part of the model."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import LINUX_AND_MACOS, Gate, GateContext, Verdict, refused
from nixwulf.plugins.runtime import memory


def _concerns(subject: GateContext, node: Node) -> bool:
    has_sizes = subject.model is not None and subject.model.sizes is not None
    return has_sizes and node is subject.nodes[0]


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    if subject.case and subject.model and subject.model.sizes:
        sizes = subject.model.sizes
        problem = memory.problem(sizes, subject.case, subject.nodes, subject.facts)
        if problem:
            yield refused(problem)


GATE = Gate(
    name="memory",
    holds="every node has room for its weights, KV cache and compute buffers",
    reads="the model's headers, `MemAvailable`, the GPU's `mem_info_*_total`; `vm_stat` on macOS",
    fix="use more nodes, a smaller model or a shorter context",
    concerns=_concerns,
    judge=_judge,
    systems=LINUX_AND_MACOS,
)
