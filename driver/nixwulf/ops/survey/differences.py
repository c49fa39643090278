"""What a cluster file says otherwise than its machines: for files that exist already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nixwulf.inventory.cluster import Attachment, Cluster, Fabric
from nixwulf.ops.survey.draft import UNKNOWN_PLATFORM, Draft
from nixwulf.ops.survey.machines import Surveyed


def differences(cluster: Cluster, machines: Sequence[Surveyed], found: Draft) -> list[str]:
    """A sentence for each value of the file that the machines contradict; empty when all agree.

    Interfaces, addresses and MTUs of the interfaces are the gates', which say how to mend them.
    """
    places = {node["name"]: node.get("fabrics", {}) for node in found.document["nodes"]}
    sentences = list(_of_machines(cluster, machines, found))
    for fabric in cluster.fabrics.values():
        ends = {node.name: node.fabrics[fabric.name] for node in cluster.nodes_on(fabric.name)}
        real = {name: _same_place(end, places[name]) for name, end in ends.items()}
        wires = {wire for wire in real.values() if wire is not None}
        lost = [name for name, wire in real.items() if wire is None]
        if len(ends) > 1 and (len(wires) > 1 or lost):
            who = ", ".join(lost) or "its nodes in parts"
            sentences.append(
                f"fabrics.{fabric.name}: not all of its nodes reach each other on it, but "
                f"{who} stand apart; see 'nixwulf cluster new' for why."
            )
        elif wires:
            wire = wires.pop()
            sentences += _of_fabric(fabric, found.document["fabrics"][wire])
            for name, end in ends.items():
                sentences += _of_rdma(fabric, name, end, places[name][wire])
    return sentences


def additions(cluster: Cluster, found: Draft) -> list[str]:
    """Wires that the file does not have; it need not, so that each is only a sentence."""
    known = {(node.name, end.interface) for node in cluster.nodes for end in node.fabrics.values()}
    sentences = []
    for name, fabric in found.document["fabrics"].items():
        ends = [
            (node["name"], node["fabrics"][name]["interface"])
            for node in found.document["nodes"]
            if name in node.get("fabrics", {})
        ]
        if not known & set(ends):
            nodes = ", ".join(f"{node} ({interface})" for node, interface in ends)
            sentences.append(f"The file lacks a fabric on {fabric['subnet']}: {nodes}.")
    return sentences


def _of_machines(cluster: Cluster, machines: Sequence[Surveyed], found: Draft) -> Iterable[str]:
    for node, machine, said in zip(cluster.nodes, machines, found.document["nodes"], strict=True):
        recognised = said["platform"] != UNKNOWN_PLATFORM
        if recognised and said["platform"] != node.platform:
            yield (
                f"Node {node.name!r} is a {machine.machine.product!r}, of the platform "
                f"{said['platform']!r}, and the file says {node.platform!r}."
            )
        if node.disk is not None and machine.machine.disks and not machine.machine.disk(node.disk):
            yield (
                f"Node {node.name!r} has no disk {node.disk!r}; see 'nixwulf preflight --only "
                f"facts --cluster {cluster.source}'."
            )


def _same_place(end: Attachment, places: dict[str, dict[str, Any]]) -> str | None:
    """The wire on which a machine really is with an interface and address, or None."""
    return next(
        (
            name
            for name, place in places.items()
            if (place["interface"], place["address"]) == (end.interface, end.address)
        ),
        None,
    )


def _of_fabric(fabric: Fabric, real: dict[str, Any]) -> Iterable[str]:
    where = f"fabrics.{fabric.name}"
    if fabric.kind != real["kind"]:
        yield f"{where}.kind is {fabric.kind!r}, and it is {real['kind']!r}."
    if real["speed_gbps"] < fabric.speed_gbps:
        yield (
            f"{where}.speed_gbps is {fabric.speed_gbps:g}, and it is linked at "
            f"{real['speed_gbps']:g}; see the cable and the port."
        )
    if real["mtu"] < fabric.mtu:
        yield f"{where}.mtu is {fabric.mtu}, and packets of at most {real['mtu']} bytes pass."


def _of_rdma(fabric: Fabric, node: str, end: Attachment, real: dict[str, Any]) -> Iterable[str]:
    for key, ours in (("rdma_device", end.rdma_device), ("gid_index", end.gid_index)):
        theirs = real.get(key)
        if ours is not None and theirs is not None and ours != theirs:
            yield f"{key} of node {node!r} on {fabric.name!r} is {ours!r}, and it is {theirs!r}."
