"""Gate: all RDMA devices of a fabric are one vendor's; mixed ones were slower than one node."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, pairs, refused


def _kind(subject: GateContext, node: Node, fabric: Fabric) -> str:
    """The PCI vendor; of software, which has none, the letters that its name begins with."""
    name = node.fabrics[fabric.name].rdma_device or ""
    device = subject.facts[node.name].hardware.rdma.get(name)
    return (device.vendor or name.rstrip("0123456789")) if device else ""


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    for crossing in subject.crossings_of(node):
        fabric = crossing.fabric
        ours = _kind(subject, node, fabric)
        first = next(n for n in subject.nodes if fabric.name in n.fabrics)
        theirs = _kind(subject, first, fabric)
        if crossing.rdma and ours and theirs and ours != theirs:
            yield refused(
                f"The RDMA device of node {node.name!r} on {fabric.name!r} is of {ours!r}, and "
                f"that of {first.name!r} of {theirs!r}; use cards of one vendor, or transport: "
                "[tcp]."
            )


GATE = Gate(
    name="rdma-vendor",
    holds="for `rdma`: the devices of a fabric are one vendor's",
    reads="`/sys/class/infiniband/DEVICE/device/vendor`",
    fix="use cards of one vendor, or `transport: [tcp]`",
    concerns=lambda subject, node: any(c.rdma for c, _ in pairs(subject, node)),
    judge=_judge,
)
