"""Links of a lab: how a fabric is shaped, and the `ip` and `tc` commands that make it so.

A node's interface is one end of a veth pair; everything that shapes it lies behind the other end,
in the hub, so that shaping can change while the interface keeps its address, MTU and traffic:

    node: eth0 == f0n1 - (bridge u0n1) - v0n1 == w0n1 - (bridge b0) - w0n2 == ...

A cable is a bridge b0c1 of its own, with two ports.

The queue of v0n1 is the node's uplink, the queue of f0n1 its downlink. The userspace switch takes
frames at f0n1, which is then in no bridge.
"""

from __future__ import annotations

import ipaddress
import subprocess
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import Cluster, Shape

Shaping = Literal["none", "tbf", "netem", "switch"]
Argv = list[str]

MANAGEMENT_INTERFACE = "mgmt0"
# One slow port holds at most 5 ms of traffic (1 MB on slow links), about what the packet buffer of
# a small switch gives a port; more would be delay that nobody asked for.
QUEUE_SECONDS = 0.005
QUEUE_MINIMUM_BYTES = 1_000_000
# netem counts packets; 100000 of 1500 bytes is the product of 10 Gbit/s and 120 ms.
NETEM_LIMIT_PACKETS = 100_000


@dataclass
class LabPort:
    """A node's interface on one fabric, as the hub sees it; names of links in the hub.

    number: from 1, another for each port of the fabric; cable: that it is of, from 1, 0 of a
    network. link: the hub's end of the node's interface, whose queue is the downlink; uplink: the
    end whose queue is the node's uplink; bridge: between the two; trunk: the uplink's other end, in
    trunk_bridge, which is between all ports of the network or cable.
    """

    node: str
    fabric: int
    number: int
    interface: str = ""
    cable: int = 0

    def __post_init__(self) -> None:
        port = f"{self.fabric}n{self.number}"
        self.link, self.bridge, self.uplink, self.trunk = (f"{kind}{port}" for kind in "fuvw")
        self.trunk_bridge = f"b{self.fabric}c{self.cable}" if self.cable else f"b{self.fabric}"


def segments(cluster: Cluster, fabric: str) -> list[list[LabPort]]:
    """The ports of a fabric in the order of the nodes: all of a network, or those of each cable."""
    index = list(cluster.fabrics).index(fabric)
    if cluster.fabrics[fabric].link_prefix is None:
        places = [
            LabPort(node.name, index, number, node.fabrics[fabric].interface)
            for number, node in enumerate(cluster.nodes, start=1)
            if fabric in node.fabrics
        ]
        return [places]
    found: list[list[LabPort]] = []
    for pair in combinations(cluster.nodes, 2):
        ends = [(one, one.end_to(fabric, two.name)) for one, two in (pair, pair[::-1])]
        cable = len(found) + 1
        ports = [
            LabPort(node.name, index, 2 * cable - 1 + second, end.interface, cable)
            for second, (node, end) in enumerate(ends)
            if end
        ]
        found += [ports] if ports else []
    return found


def management_subnet(cluster: Cluster) -> ipaddress.IPv4Network:
    """The first of 10.77.0.0/24, 10.78.0.0/24, ... that no fabric uses."""
    candidates = (ipaddress.IPv4Network(f"10.{second}.0.0/24") for second in range(77, 256))
    for candidate in candidates:
        if not any(fabric.subnet.overlaps(candidate) for fabric in cluster.fabrics.values()):
            return candidate
    raise InputError(
        f"{cluster.source}: the fabrics leave no subnet of 10.77.0.0/24 to 10.255.0.0/24 free for "
        "the lab's management network; give them smaller subnets."
    )


def management_addresses(cluster: Cluster, subnet: ipaddress.IPv4Network) -> dict[str, str]:
    """Each node's management address; the hub has the last one of the subnet."""
    return {node.name: str(subnet[number]) for number, node in enumerate(cluster.nodes, start=1)}


def hub_links(
    cluster: Cluster, subnet: ipaddress.IPv4Network, networks: dict[str, str]
) -> list[Argv]:
    """Arguments of `ip` that make every link; the nodes' ends go to the processes' namespaces.

    networks: the file of each node's network namespace, by the node's name.
    """
    commands = [
        ["link", "set", "lo", "up"],
        _bridge("mgmt"),
        ["addr", "add", f"{subnet[-2]}/{subnet.prefixlen}", "dev", "mgmt"],
    ]
    for number, node in enumerate(cluster.nodes, start=1):
        link = f"m{number}"
        peer = [MANAGEMENT_INTERFACE, "netns", networks[node.name]]
        commands.append(["link", "add", link, "type", "veth", "peer", "name", *peer])
        commands.append(["link", "set", link, "master", "mgmt", "up"])
    for name, fabric in cluster.fabrics.items():
        mtu = str(fabric.mtu)
        parts = segments(cluster, name)
        bridges = dict.fromkeys(port.trunk_bridge for part in parts for port in part)
        commands += [_bridge(bridge) for bridge in bridges]
        for port in (port for part in parts for port in part):
            peer = [port.interface, "mtu", mtu, "netns", networks[port.node]]
            trunk = ["type", "veth", "peer", "name", port.trunk, "mtu", mtu]
            commands += [
                ["link", "add", port.link, "mtu", mtu, "type", "veth", "peer", "name", *peer],
                ["link", "add", port.uplink, "mtu", mtu, *trunk],
                _bridge(port.bridge),
                ["link", "set", port.uplink, "master", port.bridge, "up"],
                ["link", "set", port.trunk, "master", port.trunk_bridge, "up"],
                ["link", "set", port.link, "up"],
            ]
        commands += [["link", "set", bridge, "up"] for bridge in bridges]
    commands.append(["link", "set", "mgmt", "up"])
    return commands


def _bridge(name: str) -> Argv:
    # Without spanning tree a port forwards at once, not after 30 s of listening and learning.
    return ["link", "add", name, "up", "type", "bridge", "stp_state", "0", "mcast_snooping", "0"]


def node_links(cluster: Cluster, subnet: ipaddress.IPv4Network, number: int) -> list[Argv]:
    """Arguments of `ip` that give a node its addresses; its number is from 1."""
    node = cluster.nodes[number - 1]
    commands = [
        ["link", "set", "lo", "up"],
        ["addr", "add", f"{subnet[number]}/{subnet.prefixlen}", "dev", MANAGEMENT_INTERFACE],
        ["link", "set", MANAGEMENT_INTERFACE, "up"],
    ]
    for name in node.fabric_names:
        fabric = cluster.fabrics[name]
        bits = fabric.link_prefix or fabric.subnet.prefixlen
        for end in node.ends(name):
            commands += [
                ["addr", "add", f"{end.address}/{bits}", "dev", end.interface],
                ["link", "set", end.interface, "up"],
            ]
    return commands


def choose(shape: Shape, *, kernel_has_netem: bool) -> Shaping:
    """How a shape is made: the kernel's queues where they can do it, else the userspace switch."""
    if shape.delay_us or shape.loss_percent:
        return "netem" if kernel_has_netem else "switch"
    return "tbf" if shape.rate_gbps is not None else "none"


def queue_bytes(rate_gbps: float) -> int:
    """What a port holds before it drops, in bytes."""
    return max(QUEUE_MINIMUM_BYTES, round(rate_gbps * 1e9 / 8 * QUEUE_SECONDS))


def shape_port(port: LabPort, shape: Shape, shaping: Shaping) -> list[Argv]:
    """The commands that shape one port of a fabric, whatever shaped it before."""
    if shaping == "switch":
        return [["ip", "link", "set", port.link, "nomaster"]]
    up, down = ["noqueue"], ["noqueue"]
    if shaping == "tbf":
        up = down = _tbf(shape)
    elif shaping == "netem":
        # Delay and loss act once, on the way up; the rate holds both ways.
        up, down = _netem(shape), _netem(Shape(rate_gbps=shape.rate_gbps))
    return [
        ["tc", "qdisc", "replace", "dev", port.uplink, "root", *up],
        ["tc", "qdisc", "replace", "dev", port.link, "root", *down],
        ["ip", "link", "set", port.link, "master", port.bridge],
    ]


def _netem(shape: Shape) -> Argv:
    delay = ["delay", f"{shape.delay_us:g}us"] if shape.delay_us else []
    loss = ["loss", f"{shape.loss_percent:g}%"] if shape.loss_percent else []
    rate = [] if shape.rate_gbps is None else ["rate", _rate(shape.rate_gbps)]
    return ["netem", "limit", str(NETEM_LIMIT_PACKETS), *delay, *loss, *rate]


def _tbf(shape: Shape) -> Argv:
    if shape.rate_gbps is None:
        raise ValueError("tbf needs a rate")
    # Measured on two cores: 256 kB / 512 kB / 2 MB reach 0.957 / 2.39 / 9.5 of 1 / 2.5 / 10 Gbit/s;
    # a burst below one 64 KiB frame makes tbf cut it into packets.
    burst = max(256_000, round(shape.rate_gbps * 200_000))
    limit = queue_bytes(shape.rate_gbps) + burst
    return ["tbf", "rate", _rate(shape.rate_gbps), "burst", str(burst), "limit", str(limit)]


def _rate(gbps: float) -> str:
    return f"{round(gbps * 1e6)}kbit"


def kernel_has_netem() -> bool:
    """Whether `tc netem` works in this network namespace: tried on its loopback, then removed."""
    netem = ["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1us"]
    if subprocess.run(netem, capture_output=True, check=False).returncode != 0:
        return False
    run([["tc", "qdisc", "del", "dev", "lo", "root"]])
    return True


def run(commands: list[Argv]) -> None:
    """Run commands one after the other; the first that fails raises with its own words."""
    for argv in commands:
        _checked(argv, subprocess.run(argv, capture_output=True, text=True, check=False))


def run_batch(program: Literal["ip", "tc"], commands: list[Argv]) -> None:
    """Run it once for many commands: a process for each would take seconds for 16 nodes."""
    argv = [program, "-batch", "-"]
    text = "".join(" ".join(command) + "\n" for command in commands)
    result = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    _checked(argv, result)


def _checked(argv: Argv, result: subprocess.CompletedProcess[str]) -> None:
    if result.returncode != 0:
        reason = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        raise NixwulfError(f"The lab could not run {' '.join(argv)!r}: {reason}.")
