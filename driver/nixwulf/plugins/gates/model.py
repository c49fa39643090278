"""Gate: the model is where the engine reads it."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    model = subject.model
    if model and model.bytes is None and model.missing_on == node.name:
        what = "tokenizer" if model.path == model.model.tokenizer else "model"
        yield refused(
            f"Node {node.name!r} has no {what} {model.path!r}; copy it there, or correct the path "
            "in the sweep."
        )


GATE = Gate(
    name="model",
    holds="the model is on the nodes that read it",
    reads="the size of the file or folder",
    fix="copy it there, or correct the path in the sweep",
    concerns=lambda subject, node: subject.model is not None,
    judge=_judge,
    systems=None,
)
