"""Clusters: the nodes and the fabrics between them, read from one TOML file."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_input, read_toml
from nixwulf.core.schema import check
from nixwulf.inventory.platforms import platform_names

LAB_PLATFORM = "lab"
PRIVATE = "PRIVATE KEY-----"
RDMA_KINDS = frozenset({"usb4-rdma", "roce", "infiniband", "thunderbolt5-rdma"})


@dataclass(frozen=True)
class Shape:
    """What the lab makes of a fabric: each value holds for one direction.

    delay_us: one-way delay in microseconds; rate_gbps: rate in Gbit/s, None is unlimited;
    loss_percent: share of frames dropped.
    """

    delay_us: float = 0.0
    rate_gbps: float | None = None
    loss_percent: float = 0.0


@dataclass(frozen=True)
class Fabric:
    """A named network between nodes; speed_gbps is nominal, Gbit/s, as sold."""

    name: str
    kind: str
    speed_gbps: float
    mtu: int
    subnet: ipaddress.IPv4Network
    shape: Shape | None = None

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that can cross this fabric."""
        return ("tcp", "rdma") if self.kind in RDMA_KINDS else ("tcp",)


@dataclass(frozen=True)
class Attachment:
    """A node's place on a fabric."""

    interface: str
    address: str
    rdma_device: str | None = None
    gid_index: int | None = None


@dataclass(frozen=True)
class Meter:
    """A wall meter that is asked over HTTP; channel is which of its sockets, from 0."""

    kind: str
    url: str
    channel: int = 0


@dataclass(frozen=True)
class PowerSwitch:
    """What turns a node off and on from outside.

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
    """One machine; ssh is the management address and never assumed to be a data address.

    disk: what deploy wipes, by id; host_key: the only host key that is accepted of it; meter: what
    measures its power at the wall, maybe together with other nodes; power_switch: what recovering
    it may use last; price_usd: what it cost, US$.
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


@dataclass(frozen=True)
class Cluster:
    """The nodes, in the order in which cases take them (the first is the head), and the fabrics.

    models: the folder of models on every node.
    """

    name: str
    nodes: tuple[Node, ...]
    fabrics: dict[str, Fabric]
    source: str
    document: dict[str, Any]
    description: str = ""
    models: str = "/models"

    def nodes_on(self, fabric: str) -> tuple[Node, ...]:
        """The nodes that are on a fabric, in order."""
        return tuple(node for node in self.nodes if fabric in node.fabrics)

    @property
    def ssh_keys(self) -> tuple[str, ...]:
        """The public keys that deployed nodes let in; empty when nodes are not deployed."""
        return tuple(self.document.get("deploy", {}).get("ssh_keys", ()))

    @property
    def is_lab(self) -> bool:
        """Whether the nodes are namespaces of this machine."""
        return all(node.platform == LAB_PLATFORM for node in self.nodes)


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster of a TOML file, or of clusters/NAME.toml; raises InputError."""
    path = find_input(str(name_or_path), "clusters", ".toml")
    document = read_toml(path)
    _check_no_private_key(document, str(path))
    check(document, "cluster", str(path))
    return parse_cluster(document, str(path))


def _check_no_private_key(document: dict[str, Any], source: str) -> None:
    """Before anything quotes a value of the file: this one must not be seen in a terminal."""
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
    return cluster


def with_lab_nodes(cluster: Cluster, count: int) -> Cluster:
    """The cluster with lab nodes n1, n2, ... on every fabric, from the subnet's 11th address."""
    nodes = []
    for index in range(1, count + 1):
        fabrics = {}
        for name, fabric in cluster.fabrics.items():
            address = fabric.subnet.network_address + 10 + index
            if address not in fabric.subnet or address == fabric.subnet.broadcast_address:
                raise InputError(
                    f"{cluster.source}: fabrics.{name}.subnet is {str(fabric.subnet)!r}, too small "
                    f"for lab node {index}; use a /24."
                )
            fabrics[name] = Attachment(interface=name[:15], address=str(address))
        nodes.append(
            Node(name=f"n{index}", platform=LAB_PLATFORM, ssh=f"n{index}", fabrics=fabrics)
        )
    return replace(cluster, nodes=tuple(nodes))


def _fabric(name: str, values: dict[str, Any], source: str) -> Fabric:
    try:
        subnet = ipaddress.IPv4Network(values["subnet"])
    except ValueError as error:
        raise InputError(f"{source}: fabrics.{name}.subnet: {error}.") from None
    shape = Shape(**values["shape"]) if "shape" in values else None
    return Fabric(name, values["kind"], values["speed_gbps"], values["mtu"], subnet, shape)


def _node(values: dict[str, Any], fabrics: dict[str, Fabric], source: str) -> Node:
    name = values["name"]
    if values["platform"] not in platform_names():
        raise InputError(
            f"{source}: node {name!r} has the unknown platform {values['platform']!r}; known: "
            f"{', '.join(platform_names())}."
        )
    for fabric_name, attachment in values.get("fabrics", {}).items():
        if fabric_name not in fabrics:
            raise InputError(
                f"{source}: node {name!r} is on the fabric {fabric_name!r}, which is not among "
                f"[fabrics]: {', '.join(fabrics)}."
            )
        try:
            address = ipaddress.IPv4Address(attachment["address"])
        except ValueError as error:
            raise InputError(f"{source}: node {name!r} on {fabric_name!r}: {error}.") from None
        if address not in fabrics[fabric_name].subnet:
            raise InputError(
                f"{source}: node {name!r} has the address {str(address)!r} on {fabric_name!r}, "
                f"outside its subnet {fabrics[fabric_name].subnet}."
            )
    attachments = {key: Attachment(**value) for key, value in values.get("fabrics", {}).items()}
    return Node(
        name,
        values["platform"],
        values["ssh"],
        attachments,
        values.get("disk"),
        values.get("host_key"),
        Meter(**values["meter"]) if "meter" in values else None,
        _power_switch(values["power_switch"]) if "power_switch" in values else None,
        values.get("price_usd"),
    )


def _power_switch(values: dict[str, Any]) -> PowerSwitch:
    return PowerSwitch(**{**values, "command": tuple(values.get("command", ()))})


def _check_names(cluster: Cluster) -> None:
    seen: set[str] = set()
    for node in cluster.nodes:
        if node.name in seen:
            raise InputError(f"{cluster.source}: two nodes have the name {node.name!r}.")
        seen.add(node.name)
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
        addresses = {attachment.address for attachment in node.fabrics.values()}
        for address in sorted(addresses | {node.ssh.rpartition("@")[2]}):
            if address in owners:
                raise InputError(
                    f"{cluster.source}: nodes {owners[address]!r} and {node.name!r} both have the "
                    f"address {address!r}."
                )
            owners[address] = node.name
