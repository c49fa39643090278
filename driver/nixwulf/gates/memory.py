"""Gate: a node that runs alone has free memory for the model's weights."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.cluster import Node
from nixwulf.gates import Gate, Subject, Verdict, refused


def _concerns(subject: Subject, node: Node) -> bool:
    return subject.model is not None and subject.model.bytes is not None and len(subject.nodes) == 1


def _judge(subject: Subject, node: Node) -> Iterator[Verdict]:
    free = subject.facts[node.name].memory_available
    needed = subject.model.bytes if subject.model else None
    if needed and free and needed > free:
        yield refused(
            f"The model takes {needed / 2**30:.1f} GiB and node {node.name!r} has "
            f"{free / 2**30:.1f} GiB free; use more nodes or a smaller model."
        )


GATE = Gate(
    name="memory",
    holds="a node that runs alone has free memory for the weights",
    reads="`MemAvailable`, the size of the model",
    fix="use more nodes or a smaller model",
    concerns=_concerns,
    judge=_judge,
)
