"""Gates: the fabric is as its file has it, cables trained at full speed, and whole packets pass.

A cable at half of its speed goes unnoticed otherwise: ethtool shows 40 Gbit/s for any
(https://blog.hellas.ai/blog/thunderbolt-ibverbs/2-scaling/).
RDMA devices are there and alike, since mixed devices of two vendors were slower than one node, and
may lock memory.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator, Sequence

from nixwulf.core.files import shipped_text
from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.inventory.fabrics import KINDS, TRAINED_KINDS, Attachment
from nixwulf.nodes.facts import Facts
from nixwulf.nodes.interfaces import ROCE_V2, RdmaDevice, ipv4_of_gid
from nixwulf.plugins.gates import (
    LINUX_AND_MACOS,
    MACOS,
    Gate,
    GateContext,
    Verdict,
    on_lab,
    pairs,
    refused,
    unknown,
)


def fabric_problem(node: Node, fabric: Fabric, end: Attachment, facts: Facts) -> str | None:
    """What a node's facts have against a port of it on a fabric, in a sentence, or None."""
    name, attachment = node.name, end
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
            f"{fabric.name!r} has {fabric.mtu}; run '{setting}' there."
        )
    return None


def _judge_fabric(context: GateContext, node: Node) -> Iterator[Verdict]:
    for crossing in context.crossings_of(node):
        for end in context.ends_of(node, crossing.fabric):
            problem = fabric_problem(node, crossing.fabric, end, context.facts[node.name])
            if problem:
                yield refused(problem)


# IPv4's and ICMP's headers, bytes.
_HEADERS = 28
_PROBE = shipped_text("plugins/gates/path_mtu.sh")


def _command_path_mtu(context: GateContext, node: Node) -> Sequence[str]:
    words = []
    for crossing, other in pairs(context, node):
        for end in other.ends(crossing.fabric.name, [node.name]):
            words += [str(crossing.fabric.mtu - _HEADERS), end.address]
    return ["sh", "-c", _PROBE, "sh", *words]


def _judge_path_mtu(context: GateContext, node: Node) -> Iterator[Verdict]:
    text = context.answer("path-mtu", node)
    found = dict(line.split(" ", 1) for line in text.splitlines() if line.count(" ") == 1)
    ends = (
        (crossing.fabric, other, end.address)
        for crossing, other in pairs(context, node)
        for end in other.ends(crossing.fabric.name, [node.name])
    )
    for fabric, other, address in ends:
        way = f"from {node.name!r} to {other.name!r} over {fabric.name!r}"
        whole = "-D" if context.facts[node.name].system == MACOS else "-M do"
        ping = f"ping {whole} -s {fabric.mtu - _HEADERS} {address}"
        if found.get(address) == "small":
            yield refused(
                f"Small packets pass {way}, and those of its MTU, {fabric.mtu} bytes, do not; set "
                f"MTU {fabric.mtu} on what is between them, or a smaller one in the cluster file, "
                f"and try '{ping}'."
            )
        elif found.get(address) == "silent":
            yield refused(
                f"No packet came back {way}; see the cable and the firewall, and try '{ping}' on "
                f"{node.name!r}."
            )
        elif found.get(address) == "unasked":
            yield unknown(
                f"The ping of node {node.name!r} has no option '{whole}' (busybox's has none), so "
                f"that nobody knows whether packets of {fabric.mtu} bytes pass {way}; install "
                "iputils there."
            )
        elif found.get(address) != "passes":
            yield unknown(f"{node.name!r} could not be asked for the path to {other.name!r}.")


def _fabrics(context: GateContext, node: Node) -> list[Fabric]:
    return [c.fabric for c in context.crossings_of(node) if c.fabric.kind in TRAINED_KINDS]


def expected_gbps(context: GateContext, node: Node, fabric: Fabric) -> float:
    """Gbit/s of the slowest USB4 port at either end, the fabric's own without facts of one."""
    ends = [node, *(other for crossing, other in pairs(context, node) if crossing.fabric == fabric)]
    speeds = [
        port["speed_gbps"]
        for end in ends
        for port in context.platform(end).get("ports", ())
        if re.match(r"usb4|thunderbolt", port["kind"], re.IGNORECASE) and "speed_gbps" in port
    ]
    return float(min(speeds, default=fabric.speed_gbps))


def _judge_usb4(context: GateContext, node: Node) -> Iterator[Verdict]:
    links = context.facts[node.name].hardware.links
    for fabric in _fabrics(context, node):
        expected = expected_gbps(context, node, fabric)
        if not links:
            yield refused(
                f"Node {node.name!r} has no cable to another host, and is on {fabric.name!r}; see "
                "the cable, and 'boltctl' or 'dmesg | grep thunderbolt' there."
            )
        for name, link in links.items():
            if link is None:
                yield unknown(
                    f"Node {node.name!r} does not report the speed of its cable {name!r}."
                )
                continue
            for way, lane, lanes in (
                ("sends", link.tx_gbps, link.tx_lanes),
                ("receives", link.rx_gbps, link.rx_lanes),
            ):
                if lane * lanes < expected:
                    yield refused(
                        f"The cable {name!r} of node {node.name!r} to {link.peer!r} {way} at "
                        f"'{lane:g} Gb/s x {lanes}', and its ports can {expected:g} Gbit/s; unplug "
                        "it at BOTH ends, and any RJ45, plug it in again, then try another cable."
                    )


def _shares_ssh(node: Node, fabric: Fabric) -> bool:
    """Whether a fabric is the network of a node's ssh address."""
    host = node.ssh.rpartition("@")[2]
    try:
        return ipaddress.IPv4Address(host) in fabric.subnet
    except ValueError:
        return any(end.address == host for end in node.ends(fabric.name))


def _judge_strangers(context: GateContext, node: Node) -> Iterator[Verdict]:
    cluster = context.cluster
    if cluster is not None and context.answer("strangers", node) == cluster.name:
        return  # the flake imaged it, and its firewall lets the cluster's nodes in
    close = "close the ports of engines, which ask for no password (docs/reference/ports.md),"
    for crossing in context.crossings_of(node):
        fabric = crossing.fabric
        if _shares_ssh(node, fabric):
            yield unknown(
                f"Whoever is on {str(fabric.subnet)!r}, from which node {node.name!r} is reached "
                f"by ssh too, may reach its engines over {fabric.name!r}; {close} to all but the "
                "cluster's nodes."
            )
        elif context.facts[node.name].system != MACOS:
            address = context.ends_of(node, fabric)[0].address
            yield unknown(
                f"Node {node.name!r} may take packets for {address!r} from its other networks, as "
                f"Linux does by itself; {close} there."
            )


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
    elif checked is not None and device.types.get(checked, ROCE_V2) != ROCE_V2:
        better = [i for i in right if device.types.get(i) == ROCE_V2]
        instead = f"set gid_index to {better[0]}" if better else "enable RoCE v2 on the card"
        yield refused(
            f"GID {checked} of {name!r} on node {node.name!r} is of "
            f"{device.types[checked]!r}, which no router takes, and not of {ROCE_V2!r}; {instead}."
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
        name="fabric",
        slows="link",
        holds="the node has its interface, its address and the fabric's MTU, of cables each",
        reads="`/sys/class/net/*/mtu`, `/proc/net/fib_trie`; `ifconfig` on macOS",
        fix="`ip link set INTERFACE mtu N`, or correct the cluster file",
        concerns=lambda context, node: bool(context.crossings_of(node)),
        judge=_judge_fabric,
        systems=LINUX_AND_MACOS,
    ),
    Gate(
        name="path-mtu",
        slows="link",
        holds="packets of the fabric's MTU pass to every other node, unfragmented",
        reads="`ping -M do -s MTU-28` (macOS: `-D`), each way",
        fix="set the MTU of switches, bridges and routes between them",
        concerns=lambda context, node: any(True for _ in pairs(context, node)),
        judge=_judge_path_mtu,
        command=_command_path_mtu,
        systems=LINUX_AND_MACOS,
    ),
    Gate(
        name="strangers",
        holds="only the cluster's nodes reach engines: known of what the flake imaged",
        reads="`/etc/nixwulf/cluster`, whether ssh's address is in the subnet; not before a run",
        fix="a firewall by address and interface, or nodes of the flake",
        concerns=lambda context, node: (
            not context.is_case and not on_lab(node) and any(True for _ in pairs(context, node))
        ),
        judge=_judge_strangers,
        command=lambda context, node: ["cat", "/etc/nixwulf/cluster"],
        systems=LINUX_AND_MACOS,
    ),
    Gate(
        name="usb4",
        slows="link",
        holds="USB4 and Thunderbolt cables trained at the speed of the ports, both ways, at both "
        "ends",
        reads="`{tx,rx}_{speed,lanes}` of `/sys/bus/thunderbolt/devices`, the platform's ports",
        fix="unplug BOTH ends, plug in again, on Strix Halo while no RJ45 is plugged in "
        "(https://github.com/Geramy/OdinLink-Five/issues/31); then another cable",
        concerns=lambda context, node: not on_lab(node) and bool(_fabrics(context, node)),
        judge=_judge_usb4,
    ),
    Gate(
        name="gid",
        holds="for `rdma`: the device is there, its port is ACTIVE, its GID is not zero, and on "
        "`roce` "
        "the address's and of RoCE v2",
        reads="`/sys/class/infiniband/DEVICE/ports/1`, there `gid_attrs/types`",
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
        command=lambda context, node: (
            ["systemctl", "show", "--value", "--property", "DefaultLimitMEMLOCK"]
        ),
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
