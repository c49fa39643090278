"""Fabrics: what the driver does otherwise for one kind than for another, read from data, and where
nodes are attached: to one network, or to cables, each between two of them.

Also the ports on which programs listen for other nodes, which the flake's firewall opens to them:
both read data/ports.toml. A port of the loopback, such as a server's API, is its engine's own.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Attachment:
    """A node's end of what joins it to other nodes of a fabric: a network, or one cable.

    rdma_devices: that of the address first; several where one interface is several devices. twins:
    the other ports of the same cable, each with an interface and a subnet of its own.
    """

    interface: str
    address: str
    rdma_devices: tuple[str, ...] = ()
    gid_index: int | None = None
    twins: tuple[Attachment, ...] = ()

    @property
    def rdma_device(self) -> str | None:
        """The device of the address, for programs that take one; None: tcp only."""
        return self.rdma_devices[0] if self.rdma_devices else None

    @property
    def ports(self) -> tuple[Attachment, ...]:
        """The port and its twins."""
        return (self, *self.twins)


Ends = Mapping[str, Mapping[str, Attachment]]


def ends_problem(ends: Ends, subnet: ipaddress.IPv4Network, prefix: int) -> str | None:
    """Say what is wrong with a fabric's cables, each in `subnet`; ends: by node and other node."""
    if prefix <= subnet.prefixlen:
        return f"link_prefix is {prefix}, and the subnet {subnet} has no room for one of those"
    owners: dict[ipaddress.IPv4Network, tuple[list[str], int]] = {}
    for node, own in ends.items():
        interfaces = [port.interface for end in own.values() for port in end.ports]
        for other, end in own.items():
            theirs = ends.get(other, {}).get(node)
            if node == other or theirs is None:
                return (
                    f"node {node!r} has a cable to {other!r}, and {other!r} has none to {node!r}; "
                    f"add links.{node} to {other!r}"
                )
            if len(end.ports) != len(theirs.ports):
                return (
                    f"the cable of {node!r} and {other!r} has {len(end.ports)} ports at one end "
                    f"and {len(theirs.ports)} at the other"
                )
            for number, (port, peer) in enumerate(zip(end.ports, theirs.ports, strict=True)):
                if interfaces.count(port.interface) > 1:
                    return f"node {node!r} has two cables on the interface {port.interface!r}"
                if problem := _link_problem(node, other, port, peer, prefix):
                    return problem
                link = _subnet(port, prefix)
                own_pair = sorted((node, other))
                pair, taken = owners.setdefault(link, (own_pair, number))
                if (pair, taken) != (own_pair, number):
                    others = " and ".join(map(repr, pair))
                    return (
                        f"the cables of {others} and of {node!r} and {other!r} are both in {link}; "
                        "give each its own subnet"
                    )
    return None


def _link_problem(
    node: str, other: str, port: Attachment, peer: Attachment, prefix: int
) -> str | None:
    """Say what is wrong with the two addresses of one link, or None."""
    link = _subnet(port, prefix)
    if prefix < 31 and port.address in {str(link[0]), str(link[-1])}:  # noqa: PLR2004
        return f"node {node!r} has the address {port.address!r}, which in {link} is no node's"
    if _subnet(peer, prefix) != link:
        return (
            f"the ends of the cable of {node!r} and {other!r} are {port.address!r} and "
            f"{peer.address!r}, not in one subnet with a prefix of {prefix}"
        )
    return None


def _subnet(end: Attachment, prefix: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network((end.address, prefix), strict=False)


def cable_all(names: Sequence[str], subnet: ipaddress.IPv4Network, prefix: int) -> Ends | None:
    """A cable for each two nodes, on interfaces cable-NODE; None where the subnet is too small."""
    ends: dict[str, dict[str, Attachment]] = {name: {} for name in names}
    own_subnets = subnet.subnets(new_prefix=prefix) if prefix > subnet.prefixlen else iter(())
    for one, other in combinations(names, 2):
        link = next(own_subnets, None)
        if link is None:
            return None
        for name, peer, address in zip((one, other), (other, one), link.hosts(), strict=False):
            ends[name][peer] = Attachment(f"cable-{peer}", str(address))
    return ends


_TABLE = Path(__file__).parents[1] / "data" / "fabric_kinds.toml"


@dataclass(frozen=True)
class FabricKind:
    """A kind of fabric, as data/fabric_kinds.toml describes it.

    usual_gbps: Gbit/s, of a link that shows no speed. gid: which GID of an RDMA port is used, that
    of its 'address' or the 'first'; empty where no program is given one. module: the kernel's,
    which a link of this kind can do with loaded anew. paired: the hosts of a link have to go down
    together. macos: both ends are Macs.
    """

    name: str
    medium: str
    usual_gbps: float
    rdma: bool = False
    gid: Literal["", "address", "first"] = ""
    macos: bool = False
    paired: bool = False
    module: str | None = None

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that can cross it."""
        return ("tcp", "rdma") if self.rdma else ("tcp",)

    @property
    def by_cable(self) -> bool:
        """Tell whether a machine has the interface only while a cable is in it."""
        return self.medium == "thunderbolt"


KINDS: dict[str, FabricKind] = {
    name: FabricKind(name, **facts)
    for name, facts in tomllib.loads(_TABLE.read_text("utf-8")).items()
}
RDMA_KINDS = frozenset(name for name, kind in KINDS.items() if kind.rdma)
# Of which the kernel shows at what speed cables were trained: Linux, of USB4.
TRAINED_KINDS = frozenset(name for name, kind in KINDS.items() if kind.by_cable and not kind.macos)
# Of Macs, each cabled to each: a sum goes from all to all at once.
MAC_RDMA_KINDS = frozenset(name for name, kind in KINDS.items() if kind.rdma and kind.macos)


def kind_of(medium: str, *, rdma: bool, macos: bool) -> str:
    """The name of the kind that a wire is of; without RDMA whether of Macs makes no difference."""
    crossed = (medium, rdma or medium == "infiniband")
    found = [kind for kind in KINDS.values() if (kind.medium, kind.rdma) == crossed]
    return max(found, key=lambda kind: kind.macos == macos).name


_PORTS = tomllib.loads((Path(__file__).parents[1] / "data" / "ports.toml").read_text("utf-8"))

TCP: dict[str, int] = _PORTS["tcp"]
UDP: dict[str, int] = _PORTS["udp"]
# The kernel's own for programs that ask for no port, first and last.
FREE: tuple[int, int] = (_PORTS["ranges"]["free"][0], _PORTS["ranges"]["free"][1])
