"""Clusters: the nodes and the fabrics between them, read from one TOML file."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from nixwulf.errors import InputError
from nixwulf.files import read_toml
from nixwulf.schema import check

LAB_PLATFORM = "lab"
RDMA_KINDS = frozenset({"usb4-rdma", "roce", "infiniband", "thunderbolt5-rdma"})


@dataclass(frozen=True)
class Shape:
    """What the lab makes of a fabric: each value holds for one direction.

    delay_us: one-way delay in microseconds; rate_gbps: rate in Gbit/s, none is unlimited;
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
class Node:
    """One machine; ssh is the management address and never assumed to be a data address."""

    name: str
    platform: str
    ssh: str
    fabrics: dict[str, Attachment] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster:
    """The nodes, in the order in which cases take them (the first is the head), and the fabrics."""

    name: str
    nodes: tuple[Node, ...]
    fabrics: dict[str, Fabric]
    source: str
    description: str = ""

    @property
    def is_lab(self) -> bool:
        """Whether the nodes are namespaces of this machine."""
        return all(node.platform == LAB_PLATFORM for node in self.nodes)
