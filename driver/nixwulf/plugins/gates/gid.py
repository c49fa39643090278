"""Gate: the RDMA device of a fabric is there, its port is up, and its GID is the address's."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.nodes.hardware import RdmaDevice
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown

ROCE = "roce"


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    devices = subject.facts[node.name].hardware.rdma
    for crossing in subject.crossings_of(node):
        if not crossing.rdma:
            continue
        name = node.fabrics[crossing.fabric.name].rdma_device
        if name is None:
            yield unknown(
                f"The cluster file names no RDMA device of node {node.name!r} on "
                f"{crossing.fabric.name!r}; add rdma_device, as 'rdma link' shows it there."
            )
        elif name not in devices:
            yield refused(
                f"Node {node.name!r} has no RDMA device {name!r}; it has: "
                f"{', '.join(devices) or 'none'}; see 'rdma link' there."
            )
        else:
            yield from _judge_device(node, crossing.fabric, name, devices[name])


def _judge_device(node: Node, fabric: Fabric, name: str, device: RdmaDevice) -> Iterator[Verdict]:
    if device.state != "ACTIVE":
        yield refused(
            f"The port of {name!r} on node {node.name!r} is {device.state!r}, not 'ACTIVE'; see "
            "the cable, and 'rdma link' there."
        )
    index = node.fabrics[fabric.name].gid_index
    if index is not None and index not in device.gids:
        yield refused(
            f"{name!r} on node {node.name!r} has no GID {index}; it has "
            f"{', '.join(map(str, sorted(device.gids))) or 'none'}; correct gid_index."
        )
        return
    address = node.fabrics[fabric.name].address
    gids = device.gids.values() if index is None else [device.gids[index]]
    # RoCE's packets are IP's, with the address that the GID is made of: peers know the fabric's.
    checked = index if fabric.kind == ROCE else None
    right = [i for i, gid in sorted(device.gids.items()) if _ipv4(gid) == address]
    if (checked is None or not right) and not any(gid.strip("0:") for gid in gids):
        yield refused(
            f"The GID {'' if index is None else f'{index} '}of {name!r} on node {node.name!r} is "
            f"zero, so its interface has no address yet; run 'ip addr add "
            f"{address}/{fabric.subnet.prefixlen} dev {node.fabrics[fabric.name].interface}' there."
        )
    elif checked is not None and checked not in right:
        others = f"GID {' and '.join(map(str, right))} is" if right else "no GID is"
        yield refused(
            f"GID {checked} of {name!r} on node {node.name!r} is {device.gids[checked]!r}, which "
            f"is not of the address {address!r}; {others}; correct gid_index."
        )


def _ipv4(gid: str) -> str | None:
    """The IPv4 address that a GID is made of, or None."""
    try:
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None
    return str(mapped) if mapped else None


GATE = Gate(
    name="gid",
    holds="for `rdma`: the device is there, its port is ACTIVE, its GID is not zero, and on `roce` "
    "the address's",
    reads="`/sys/class/infiniband/DEVICE/ports/1`",
    fix="give the interface its address; correct `rdma_device` and `gid_index`",
    concerns=lambda subject, node: any(c.rdma for c in subject.crossings_of(node)),
    judge=_judge,
)
