"""Gates: RDMA devices are there and alike, and may lock memory.

Mixed devices of two vendors were slower than one node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.inventory.fabrics import KINDS, Attachment
from nixwulf.nodes.interfaces import RdmaDevice, ipv4_of_gid
from nixwulf.plugins.gates import Gate, GateContext, Verdict, pairs, refused, unknown


def _judge_gid(context: GateContext, node: Node) -> Iterator[Verdict]:
    devices = context.facts[node.name].hardware.rdma
    for crossing in context.crossings_of(node):
        for end in context.ends_of(node, crossing.fabric) if crossing.rdma else ():
            if end.rdma_device is None:
                yield unknown(
                    f"The cluster file names no RDMA device of node {node.name!r} on "
                    f"{crossing.fabric.name!r}; add rdma_device, as 'rdma link' shows it there."
                )
            for name in end.rdma_devices:
                if name not in devices:
                    yield refused(
                        f"Node {node.name!r} has no RDMA device {name!r}; it has: "
                        f"{', '.join(devices) or 'none'}; see 'rdma link' there."
                    )
                else:
                    yield from _judge_port(node, name, devices[name])
                    if name == end.rdma_device:
                        yield from _judge_address(node, crossing.fabric, end, devices[name])


def _judge_port(node: Node, name: str, device: RdmaDevice) -> Iterator[Verdict]:
    if device.state != "ACTIVE":
        yield refused(
            f"The port of {name!r} on node {node.name!r} is {device.state!r}, not 'ACTIVE'; see "
            "the cable, and 'rdma link' there."
        )


def _judge_address(
    node: Node, fabric: Fabric, end: Attachment, device: RdmaDevice
) -> Iterator[Verdict]:
    name, index, address = end.rdma_device, end.gid_index, end.address
    if index is not None and index not in device.gids:
        yield refused(
            f"{name!r} on node {node.name!r} has no GID {index}; it has "
            f"{', '.join(map(str, sorted(device.gids))) or 'none'}; correct gid_index."
        )
        return
    gids = device.gids.values() if index is None else [device.gids[index]]
    # RoCE's packets are IP's, with the address that the GID is made of: peers know the fabric's.
    checked = index if KINDS[fabric.kind].medium == "ethernet" else None
    right = [i for i, gid in sorted(device.gids.items()) if ipv4_of_gid(gid) == address]
    if (checked is None or not right) and not any(gid.strip("0:") for gid in gids):
        yield refused(
            f"The GID {'' if index is None else f'{index} '}of {name!r} on node {node.name!r} is "
            f"zero, so its interface has no address yet; run 'ip addr add "
            f"{address}/{fabric.link_prefix or fabric.subnet.prefixlen} dev {end.interface}' there."
        )
    elif checked is not None and checked not in right:
        others = f"GID {' and '.join(map(str, right))} is" if right else "no GID is"
        yield refused(
            f"GID {checked} of {name!r} on node {node.name!r} is {device.gids[checked]!r}, which "
            f"is not of the address {address!r}; {others}; correct gid_index."
        )


def _judge_memlock(context: GateContext, node: Node) -> Iterator[Verdict]:
    login = context.facts[node.name].memlock
    if login is None:
        yield unknown(f"Node {node.name!r} does not report how much memory a login may lock.")
    elif not math.isinf(login):
        yield refused(
            f"A login on node {node.name!r} may lock {login / 1024:.0f} KiB of memory, and RDMA "
            "needs any amount; write '* - memlock unlimited' to /etc/security/limits.conf there, "
            f"and end the shared login by 'ssh -O exit {node.ssh}'."
        )
    unit = context.answer("memlock", node)
    if unit.isdecimal():
        yield refused(
            f"A unit on node {node.name!r} may lock {int(unit) // 1024} KiB of memory, and RDMA "
            "needs any amount; write 'DefaultLimitMEMLOCK=infinity' below [Manager] in "
            "/etc/systemd/system.conf there, and reboot."
        )
    elif unit != "infinity":
        yield unknown(f"Node {node.name!r} does not report the limit of its units: {unit[:80]!r}.")


def _kind(context: GateContext, node: Node, fabric: Fabric) -> str:
    """The PCI vendor; of software, which has none, the letters that its name begins with."""
    ends = context.ends_of(node, fabric)
    name = next((end.rdma_device for end in ends if end.rdma_device), "")
    device = context.facts[node.name].hardware.rdma.get(name)
    return (device.vendor or name.rstrip("0123456789")) if device else ""


def _judge_rdma_vendor(context: GateContext, node: Node) -> Iterator[Verdict]:
    for crossing in context.crossings_of(node):
        fabric = crossing.fabric
        ours = _kind(context, node, fabric)
        first = next(n for n in context.nodes if fabric.name in n.fabric_names)
        theirs = _kind(context, first, fabric)
        if crossing.rdma and ours and theirs and ours != theirs:
            yield refused(
                f"The RDMA device of node {node.name!r} on {fabric.name!r} is of {ours!r}, and "
                f"that of {first.name!r} of {theirs!r}; use cards of one vendor, or transport: "
                "[tcp]."
            )


GATES = (
    Gate(
        name="gid",
        holds="for `rdma`: the device is there, its port is ACTIVE, its GID is not zero, and on "
        "`roce` "
        "the address's",
        reads="`/sys/class/infiniband/DEVICE/ports/1`",
        fix="give the interface its address; correct `rdma_device` and `gid_index`",
        concerns=lambda context, node: any(c.rdma for c in context.crossings_of(node)),
        judge=_judge_gid,
    ),
    Gate(
        name="memlock",
        holds="for `rdma`: logins and units may lock any amount of memory",
        reads="`ulimit -l` of the login, `systemctl show --property DefaultLimitMEMLOCK`",
        fix="`/etc/security/limits.conf`, `/etc/systemd/system.conf`; log in again",
        concerns=lambda context, node: any(c.rdma for c in context.crossings_of(node)),
        judge=_judge_memlock,
        command=lambda context, node: [
            "systemctl",
            "show",
            "--value",
            "--property",
            "DefaultLimitMEMLOCK",
        ],
    ),
    Gate(
        name="rdma-vendor",
        holds="for `rdma`: the devices of a fabric are one vendor's",
        reads="`/sys/class/infiniband/DEVICE/device/vendor`",
        fix="use cards of one vendor, or `transport: [tcp]`",
        concerns=lambda context, node: any(c.rdma for c, _ in pairs(context, node)),
        judge=_judge_rdma_vendor,
    ),
)
