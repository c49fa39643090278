"""Gates: the model is where engines read it, and every node has room for its part."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import LINUX_AND_MACOS, Gate, GateContext, Verdict, refused
from nixwulf.plugins.runtime import memory


def _judge_model(subject: GateContext, node: Node) -> Iterator[Verdict]:
    model = subject.model
    if model and model.bytes is None and model.missing_on == node.name:
        what = "tokenizer" if model.path == model.model.tokenizer else "model"
        yield refused(
            f"Node {node.name!r} has no {what} {model.path!r}; copy it there, or correct the path "
            "in the sweep."
        )


def _concerns_memory(subject: GateContext, node: Node) -> bool:
    has_sizes = subject.model is not None and subject.model.sizes is not None
    return has_sizes and node is subject.nodes[0]


def _judge_memory(subject: GateContext, node: Node) -> Iterator[Verdict]:
    if subject.case and subject.model and subject.model.sizes:
        sizes = subject.model.sizes
        problem = memory.problem(sizes, subject.case, subject.nodes, subject.facts)
        if problem:
            yield refused(problem)


GATES = (
    Gate(
        name="model",
        holds="the model is on the nodes that read it",
        reads="the size of the file or folder",
        fix="copy it there, or correct the path in the sweep",
        concerns=lambda subject, node: subject.model is not None,
        judge=_judge_model,
        systems=None,
    ),
    Gate(
        name="memory",
        holds="every node has room for its weights, KV cache and compute buffers",
        reads="the model's headers, `MemAvailable`, the GPU's `mem_info_*_total`; `vm_stat` on "
        "macOS",
        fix="use more nodes, a smaller model or a shorter context",
        concerns=_concerns_memory,
        judge=_judge_memory,
        systems=LINUX_AND_MACOS,
    ),
)
