"""Where a cluster file differs from what its machines report: for files that exist already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.inventory.fabrics import Attachment
from nixwulf.ops.survey.draft import UNKNOWN_PLATFORM
from nixwulf.ops.survey.machines import Surveyed


@dataclass(frozen=True)
class _Wire:
    """A network of a file, or one port of a cable of a mesh: the ends of its nodes.

    port: its number from 1, of a cable that has several; else 0.
    """

    fabric: Fabric
    ends: Mapping[str, Attachment]
    port: int = 0

    @property
    def name(self) -> str:
        """As a sentence calls it."""
        port = f", port {self.port}" if self.port else ""
        cable = f" (the cable of {' and '.join(self.ends)}{port})"
        return f"fabrics.{self.fabric.name}{cable if self.fabric.link_prefix else ''}"

    @property
    def places(self) -> set[tuple[str, str, str]]:
        """Node, interface and address of each end."""
        return {(node, end.interface, end.address) for node, end in self.ends.items()}


def _wires(cluster: Cluster) -> list[_Wire]:
    found = []
    for name, fabric in cluster.fabrics.items():
        nodes = cluster.nodes_on(name)
        if not fabric.link_prefix:
            found.append(_Wire(fabric, {node.name: node.fabrics[name] for node in nodes}))
            continue
        for one, other in combinations(nodes, 2):
            ours, theirs = one.ends(name, [other.name]), other.ends(name, [one.name])
            for number, (end, peer) in enumerate(zip(ours, theirs, strict=True), start=1):
                port = number if len(ours) > 1 else 0
                found.append(_Wire(fabric, {one.name: end, other.name: peer}, port))
    return found


def differences(cluster: Cluster, machines: Sequence[Surveyed], real: Cluster) -> list[str]:
    """A sentence for each value of a file that the machines contradict; empty when all agree.

    Interfaces, addresses and MTUs of the interfaces are the gates', which say how to mend them.

    Args:
        cluster: the file's.
        machines: what its nodes reported, in their order.
    """
    sentences = list(_of_machines(cluster, machines, real))
    there = _wires(real)
    for wire in _wires(cluster):
        best = max(there, key=lambda one: len(one.places & wire.places), default=None)
        apart = wire.places - best.places if best else wire.places
        if len(wire.ends) > 1 and apart:
            who = ", ".join(sorted({node for node, _, _ in apart}))
            sentences.append(
                f"{wire.name}: {who} and the other nodes do not reach each other on it; "
                "'nixwulf cluster new' with these nodes writes why."
            )
        elif len(wire.ends) > 1 and best:
            sentences += _of_wire(wire, best)
    return sentences


def additions(cluster: Cluster, real: Cluster) -> list[str]:
    """A sentence for each wire that a file does not have; it need not."""
    known = {(node.name, end.interface) for node in cluster.nodes for end in node.all_ends}
    sentences = []
    for wire in _wires(real):
        ends = [(node, end.interface) for node, end in wire.ends.items()]
        if not known & set(ends):
            nodes = ", ".join(f"{node} ({interface})" for node, interface in ends)
            sentences.append(f"Not in the file, and need not be: a wire of {nodes}.")
    return sentences


def _of_machines(cluster: Cluster, machines: Sequence[Surveyed], real: Cluster) -> Iterable[str]:
    for node, machine, found in zip(cluster.nodes, machines, real.nodes, strict=True):
        if found.platform not in {UNKNOWN_PLATFORM, node.platform}:
            yield (
                f"Node {node.name!r} is a {machine.machine.product!r}, of the platform "
                f"{found.platform!r}, and the file has {node.platform!r}."
            )
        if node.disk is not None and machine.machine.disks and not machine.machine.disk(node.disk):
            yield (
                f"Node {node.name!r} has no disk {node.disk!r}; see 'nixwulf preflight --only "
                f"facts --cluster {cluster.source}'."
            )


def _of_wire(wire: _Wire, real: _Wire) -> Iterable[str]:
    fabric, found = wire.fabric, real.fabric
    if fabric.kind != found.kind:
        yield f"{wire.name}: its kind is {fabric.kind!r} in the file, and {found.kind!r} by itself."
    if found.speed_gbps < fabric.speed_gbps:
        yield (
            f"{wire.name}: its speed is {fabric.speed_gbps:g} Gbit/s in the file, and "
            f"{found.speed_gbps:g} by what the machines report; see the cable and the ports."
        )
    if found.mtu < fabric.mtu:
        yield f"{wire.name}: its mtu is {fabric.mtu}, and at most {found.mtu} bytes pass."
    for node, end in wire.ends.items():
        for key in ("rdma_device", "gid_index"):
            ours, theirs = getattr(end, key), getattr(real.ends[node], key)
            if None not in {ours, theirs} and ours != theirs:
                yield f"{wire.name}: {key} of {node} is {ours!r} in the file, and {theirs!r} there."
