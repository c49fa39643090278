"""Clusters: the nodes and the fabrics between them, read from one TOML file."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_input, read_toml
from nixwulf.core.schema import check
from nixwulf.inventory.fabrics import KINDS, Attachment, Ends, cable_all, ends_problem
from nixwulf.inventory.platforms import load_platform, memory_bandwidth_gbs, own_platform

LAB_PLATFORM = "lab"
PRIVATE = "PRIVATE KEY-----"
_WRITER = "nixwulf cluster new HOST... --output"
# What a fabric and a node have as their tables in the file have it.
_OF_FABRIC = ("kind", "speed_gbps", "mtu", "link_prefix", "control")
_OF_NODE = ("name", "ssh", "disk", "host_key", "price_usd", "memory_bandwidth_gbs")


@dataclass(frozen=True)
class Shape:
    """A fabric's shape in the lab: each value holds for one direction.

    delay_us: one-way delay in microseconds; rate_gbps: rate in Gbit/s, None is unlimited;
    loss_percent: share of frames dropped.
    """

    delay_us: float = 0.0
    rate_gbps: float | None = None
    loss_percent: float = 0.0


@dataclass(frozen=True)
class Fabric:
    """A named network between nodes, or cables, each between two of them.

    speed_gbps is nominal, Gbit/s, as sold. link_prefix: of each cable's own subnet, None of a
    network; control: the network over which the ranks on cables find each other.
    """

    name: str
    kind: str
    speed_gbps: float
    mtu: int
    subnet: ipaddress.IPv4Network
    shape: Shape | None = None
    link_prefix: int | None = None
    control: str | None = None

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that can cross this fabric."""
        return KINDS[self.kind].transports


@dataclass(frozen=True)
class Meter:
    """A wall meter that is asked over HTTP; channel is which of its sockets, from 0."""

    kind: str
    url: str
    channel: int = 0


@dataclass(frozen=True)
class PowerSwitch:
    """A switch that turns a node off and on from outside.

    An HTTP relay has a url and a channel, from 0; 'wake-on-lan' a mac and a broadcast address, and
    it only turns on; 'command' is run on the driver's machine and has to do both.
    """

    kind: str
    url: str = ""
    channel: int = 0
    mac: str = ""
    broadcast: str = "255.255.255.255"
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A machine; ssh is its management address and never assumed to be a data address.

    fabrics: its place on each network; links: its end of each cable, by the fabric and then by the
    node at the other end; disk: what deploy wipes, by id; host_key: the only host key that is
    accepted of it; meter: what measures its power at the wall, maybe together with other nodes;
    power_switch: what recovering it may use last; price_usd: what it cost, US$;
    memory_bandwidth_gbs: what was measured of its memory, GB/s, where it is not as its platform.
    """

    name: str
    platform: str
    ssh: str
    fabrics: dict[str, Attachment] = field(default_factory=dict)
    disk: str | None = None
    host_key: str | None = None
    meter: Meter | None = None
    power_switch: PowerSwitch | None = None
    price_usd: float | None = None
    links: dict[str, dict[str, Attachment]] = field(default_factory=dict)
    memory_bandwidth_gbs: float | None = None

    @property
    def bandwidth_gbs(self) -> float:
        """Memory bandwidth, GB/s: the node's own, else its platform's; 0 for neither."""
        return self.memory_bandwidth_gbs or memory_bandwidth_gbs(load_platform(self.platform))

    @property
    def fabric_names(self) -> tuple[str, ...]:
        """The fabrics that it is on: networks, then those of cables."""
        return (*self.fabrics, *self.links)

    def end_to(self, fabric: str, other: str) -> Attachment | None:
        """Find its end of the link to a node, of several ports the first; None without a link."""
        return self.fabrics.get(fabric) or self.links.get(fabric, {}).get(other)

    def ends(self, fabric: str, others: Iterable[str] | None = None) -> tuple[Attachment, ...]:
        """Return its ports on a fabric, of cables those to `others`, else to all."""
        if fabric in self.fabrics:
            return (self.fabrics[fabric],)
        own = self.links.get(fabric, {})
        chosen = (own[name] for name in (own if others is None else others) if name in own)
        return tuple(port for end in chosen for port in end.ports)

    @property
    def all_ends(self) -> tuple[Attachment, ...]:
        """Return its ends on all fabrics."""
        return tuple(end for fabric in self.fabric_names for end in self.ends(fabric))


def joins_all(fabric: str, nodes: Sequence[Node]) -> bool:
    """Tell whether a fabric joins each two of some nodes."""
    return all(one.end_to(fabric, other.name) for one, other in combinations(nodes, 2))


@dataclass(frozen=True)
class Cluster:
    """Nodes in the order of their use, the head first; fabrics; the folder of models on each."""

    name: str
    nodes: tuple[Node, ...]
    fabrics: dict[str, Fabric]
    source: str
    document: dict[str, Any]
    description: str = ""
    models: str = "/models"

    def nodes_on(self, fabric: str) -> tuple[Node, ...]:
        """The nodes that are on a fabric, in order."""
        return tuple(node for node in self.nodes if fabric in node.fabric_names)

    def joined(self, fabric: str, count: int) -> tuple[Node, ...]:
        """List the first COUNT nodes that a fabric joins each to each, or as a ring, in order."""
        for nodes in combinations(self.nodes_on(fabric), count):
            if joins_all(fabric, nodes):
                return nodes
        if count <= 3:  # noqa: PLR2004 - three in a ring are joined each to each
            return ()
        rings = (self._ring(fabric, (one,), count) for one in self.nodes_on(fabric))
        return next(filter(None, rings), ())

    def _ring(self, fabric: str, path: tuple[Node, ...], count: int) -> tuple[Node, ...]:
        """The first ring of so many nodes that begins with a path; empty: there is none."""
        if len(path) == count:
            return path if path[-1].end_to(fabric, path[0].name) else ()
        for name in path[-1].links.get(fabric, {}):
            if all(name != one.name for one in path):
                node = next(node for node in self.nodes if node.name == name)
                if ring := self._ring(fabric, (*path, node), count):
                    return ring
        return ()

    def model_name(self, path: str) -> str | None:
        """A model's name in the folder of models; None of a path outside of it."""
        outside = not PurePosixPath(path).is_relative_to(self.models)
        return None if outside else str(PurePosixPath(path).relative_to(self.models))

    @property
    def ssh_keys(self) -> tuple[str, ...]:
        """The public keys that deployed nodes let in; empty when nodes are not deployed."""
        return tuple(self.document.get("deploy", {}).get("ssh_keys", ()))

    @property
    def is_lab(self) -> bool:
        """Tell whether the nodes are namespaces of this machine."""
        return all(node.platform == LAB_PLATFORM for node in self.nodes)


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster of a TOML file, or of clusters/NAME.toml; raises InputError."""
    path = find_input(str(name_or_path), "clusters", ".toml", _WRITER)
    document = read_toml(path)
    _check_no_private_key(document, str(path))
    check(document, "cluster", str(path))
    return parse_cluster(document, str(path))


def _check_no_private_key(document: Mapping[str, object], source: str) -> None:
    """Refuse a private key before anything quotes a value of the file."""
    deploy = document.get("deploy")
    keys = deploy.get("ssh_keys") if isinstance(deploy, dict) else None
    if PRIVATE in str(keys):
        raise InputError(
            f"{source}: deploy.ssh_keys has a private key, which would be readable by all on every "
            "node; put the line of its .pub file there, and if the file was shared make a new pair "
            "by 'ssh-keygen'."
        )


def parse_cluster(document: dict[str, Any], source: str) -> Cluster:
    """The cluster of a document that passed the schema; raises InputError."""
    fabrics = {name: _fabric(name, values, source) for name, values in document["fabrics"].items()}
    cluster = Cluster(
        name=document["name"],
        description=document.get("description", ""),
        models=document.get("models", Cluster.models),
        nodes=tuple(_node(values, fabrics, source) for values in document.get("nodes", ())),
        fabrics=fabrics,
        source=source,
        document=document,
    )
    if "lab" in document:
        cluster = with_lab_nodes(cluster, document["lab"]["nodes"])
    _check_names(cluster)
    _check_addresses(cluster)
    _check_gateways(cluster)
    _check_cables(cluster)
    return cluster


def with_lab_nodes(cluster: Cluster, count: int) -> Cluster:
    """Add lab nodes n1, n2, ... to every fabric, from a network's 11th address, or by cables."""
    names = [f"n{index}" for index in range(1, count + 1)]
    links = {
        name: _lab_cables(cluster, name, names)
        for name, fabric in cluster.fabrics.items()
        if fabric.link_prefix
    }
    nodes = []
    for index, name in enumerate(names, start=1):
        fabrics = {}
        for key, fabric in cluster.fabrics.items():
            if key in links:
                continue
            address = fabric.subnet.network_address + 10 + index
            if address not in fabric.subnet or address == fabric.subnet.broadcast_address:
                raise InputError(
                    f"{cluster.source}: fabrics.{key}.subnet is {str(fabric.subnet)!r}, too small "
                    f"for lab node {index}; use a /24."
                )
            fabrics[key] = Attachment(interface=key[:15], address=str(address))
        own = {key: dict(ends[name]) for key, ends in links.items()}
        nodes.append(Node(name, LAB_PLATFORM, ssh=name, fabrics=fabrics, links=own))
    return replace(cluster, nodes=tuple(nodes))


def _fabric(name: str, values: dict[str, Any], source: str) -> Fabric:
    try:
        subnet = ipaddress.IPv4Network(values["subnet"])
    except ValueError as error:
        raise InputError(f"{source}: fabrics.{name}.subnet: {error}.") from None
    if _is_no_machine(subnet.network_address) or _is_no_machine(subnet.broadcast_address):
        raise InputError(
            f"{source}: fabrics.{name}.subnet is {str(subnet)!r}, which has addresses that no "
            "machine of a network has; use a private one such as '10.10.0.0/24'."
        )
    shape = Shape(**values["shape"]) if "shape" in values else None
    own = {key: values[key] for key in _OF_FABRIC if key in values}
    return Fabric(name=name, subnet=subnet, shape=shape, **own)


def _is_no_machine(address: ipaddress.IPv4Address) -> bool:
    """Tell whether it means every interface, the machine itself, or a group of machines."""
    local = address.is_loopback or address.packed[0] == 0
    return local or address.is_multicast or address.is_reserved


def _node(values: dict[str, Any], fabrics: dict[str, Fabric], source: str) -> Node:
    name = values["name"]
    who = f"{source}: node {name!r}"
    platform = own_platform(values["platform"], Path(source).parent, who)
    fabrics_of_node: dict[str, Attachment] = {}
    links: dict[str, dict[str, Attachment]] = {}
    for key, place in values.get("fabrics", {}).items():
        if key not in fabrics:
            raise InputError(
                f"{source}: node {name!r} is on the fabric {key!r}, which is not among "
                f"[fabrics]: {', '.join(fabrics)}."
            )
        if ("links" in place) != (fabrics[key].link_prefix is not None):
            raise InputError(
                f"{source}: node {name!r} on {key!r}: 'links' of a node and 'link_prefix' of "
                f"[fabrics.{key}] belong together, and one of them is missing."
            )
        if "links" in place:
            ends = place["links"].items()
            links[key] = {other: _end(end, fabrics[key], name, source) for other, end in ends}
        else:
            fabrics_of_node[key] = _end(place, fabrics[key], name, source)
    own = {key: values[key] for key in _OF_NODE if key in values}
    if "meter" in values:
        own["meter"] = Meter(**values["meter"])
    if switch := values.get("power_switch"):
        command = tuple(switch.get("command", ()))
        own["power_switch"] = PowerSwitch(**{**switch, "command": command})
    return Node(platform=platform, fabrics=fabrics_of_node, links=links, **own)


def _end(
    values: dict[str, Any] | list[dict[str, Any]], fabric: Fabric, node: str, source: str
) -> Attachment:
    if isinstance(values, list):
        first, *twins = (_end(one, fabric, node, source) for one in values)
        return replace(first, twins=tuple(twins))
    try:
        address = ipaddress.IPv4Address(values["address"])
    except ValueError as error:
        raise InputError(f"{source}: node {node!r} on {fabric.name!r}: {error}.") from None
    if address not in fabric.subnet:
        raise InputError(
            f"{source}: node {node!r} has the address {str(address)!r} on {fabric.name!r}, "
            f"outside its subnet {fabric.subnet}."
        )
    ends_of_subnet = {fabric.subnet.network_address, fabric.subnet.broadcast_address}
    if fabric.subnet.num_addresses > 2 and address in ends_of_subnet:  # noqa: PLR2004 - a /31 is two machines
        raise InputError(
            f"{source}: node {node!r} has the address {str(address)!r} on {fabric.name!r}, which "
            f"in {fabric.subnet} is no node's."
        )
    devices = values.get("rdma_device", ())
    return Attachment(
        values["interface"],
        values["address"],
        (devices,) if isinstance(devices, str) else tuple(devices),
        values.get("gid_index"),
    )


def _check_names(cluster: Cluster) -> None:
    seen: dict[str, str] = {}
    for node in cluster.nodes:
        key = node.name.casefold()  # names of hosts, and of files on a Mac
        if other := seen.get(key):
            more = "" if other == node.name else f", as {other!r} in other letters"
            raise InputError(f"{cluster.source}: two nodes have the name {node.name!r}{more}.")
        seen[key] = node.name
    if cluster.is_lab:
        interfaces = [name[:15] for name in cluster.fabrics]
        for interface in interfaces:
            if interfaces.count(interface) > 1:
                raise InputError(
                    f"{cluster.source}: two fabrics begin with {interface!r}, and the lab names "
                    "interfaces by the first 15 characters; rename one."
                )


def _check_addresses(cluster: Cluster) -> None:
    owners: dict[str, str] = {}
    for node in cluster.nodes:
        addresses = {end.address for end in node.all_ends}
        for address in sorted(addresses | {node.ssh.rpartition("@")[2]}):
            if address in owners:
                raise InputError(
                    f"{cluster.source}: nodes {owners[address]!r} and {node.name!r} both have the "
                    f"address {address!r}."
                )
            owners[address] = node.name


def _check_gateways(cluster: Cluster) -> None:
    """Check that addresses are such, a gateway leads out of its network, and a node has one."""
    written = cluster.document["fabrics"]
    owners = {end.address: node.name for node in cluster.nodes for end in node.all_ends}
    for name, fabric in cluster.fabrics.items():
        key = f"{cluster.source}: fabrics.{name}"
        gateway = written[name].get("gateway")
        try:
            for address in (*written[name].get("dns", ()), *filter(None, [gateway])):
                ipaddress.IPv4Address(address)
        except ValueError as error:
            raise InputError(f"{key}: {error}.") from None
        if gateway is None:
            continue
        if fabric.link_prefix:
            raise InputError(f"{key}.gateway: cables lead to no router; leave it out.")
        if ipaddress.IPv4Address(gateway) not in fabric.subnet:
            raise InputError(f"{key}.gateway is {gateway!r}, outside its subnet {fabric.subnet}.")
        if gateway in owners:
            raise InputError(f"{key}.gateway is {gateway!r}, the address of {owners[gateway]!r}.")
    for node in cluster.nodes:
        routes = sorted(name for name in node.fabrics if "gateway" in written[name])
        if len(routes) > 1:
            raise InputError(
                f"{cluster.source}: node {node.name!r} has a gateway on {routes[0]!r} and on "
                f"{routes[1]!r}, and can have one default route; leave one out."
            )


def _lab_cables(cluster: Cluster, name: str, nodes: list[str]) -> Ends:
    fabric = cluster.fabrics[name]
    cables = cable_all(nodes, fabric.subnet, fabric.link_prefix or 0)
    if cables is None:
        raise InputError(
            f"{cluster.source}: fabrics.{name}.subnet is {str(fabric.subnet)!r}, too small for a "
            f"cable between each two of {len(nodes)} lab nodes; use a /16 with link_prefix = 30."
        )
    return cables


def _check_cables(cluster: Cluster) -> None:
    """Check that both ends of each cable agree, and the control network joins all its nodes."""
    for name, fabric in cluster.fabrics.items():
        nodes = cluster.nodes_on(name)
        if fabric.control is not None and not (
            fabric.link_prefix and all(fabric.control in node.fabrics for node in nodes)
        ):
            raise InputError(
                f"{cluster.source}: fabrics.{name}.control is {fabric.control!r}, expected, on a "
                "fabric of cables, a network that all its nodes are on."
            )
        if fabric.link_prefix:
            ends = {node.name: node.links[name] for node in nodes}
            if wrong := ends_problem(ends, fabric.subnet, fabric.link_prefix):
                raise InputError(f"{cluster.source}: fabrics.{name}: {wrong}.")
