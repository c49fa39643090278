"""Gate: a node has its interface, its address and the MTU of each fabric, as all others do."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.nodes.facts import Facts
from nixwulf.plugins.gates import LINUX_AND_MACOS, MACOS, Gate, GateContext, Verdict, refused


def fabric_problem(node: Node, fabric: Fabric, facts: Facts) -> str | None:
    """What a node's facts say against its place on a fabric, or None."""
    name, attachment = node.name, node.fabrics[fabric.name]
    mtu = facts.mtus.get(attachment.interface)
    mac = facts.system == MACOS
    if mtu is None:
        see = "ifconfig" if mac else "ip link"
        return f"Node {name!r} has no interface {attachment.interface!r}; see {see!r} there."
    if attachment.address not in facts.addresses:
        see = "ifconfig" if mac else "ip addr"
        return f"Node {name!r} does not have the address {attachment.address!r}; see {see!r} there."
    if mtu != fabric.mtu:
        setting = f"ip link set {attachment.interface} mtu {fabric.mtu}"
        if mac:
            setting = f"sudo networksetup -setMTU {attachment.interface} {fabric.mtu}"
        return (
            f"Node {name!r} has MTU {mtu} on {attachment.interface!r}, and the fabric "
            f"{fabric.name!r} says {fabric.mtu}; run '{setting}' there."
        )
    return None


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    for crossing in subject.crossings_of(node):
        problem = fabric_problem(node, crossing.fabric, subject.facts[node.name])
        if problem:
            yield refused(problem)


GATE = Gate(
    name="fabric",
    holds="the node has its interface, its address and the fabric's MTU",
    reads="`/sys/class/net/*/mtu`, `/proc/net/fib_trie`; `ifconfig` on macOS",
    fix="`ip link set INTERFACE mtu N`, or correct the cluster file",
    concerns=lambda subject, node: bool(subject.crossings_of(node)),
    judge=_judge,
    systems=LINUX_AND_MACOS,
)
