"""Machines as a survey finds them, and wires between them that decide who reaches whom."""

from __future__ import annotations

import itertools
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Interface

from nixwulf.core.schema import check
from nixwulf.inventory.cluster import Cluster, Node, parse_cluster
from nixwulf.inventory.platforms import Signs
from nixwulf.nodes.interfaces import Hardware, Interface
from nixwulf.ops.deploy.machine import Machine
from nixwulf.ops.survey.draft import ClusterDraft, draft, render
from nixwulf.ops.survey.machines import Surveyed, vram_gib
from nixwulf.ops.survey.wires import (
    Pair,
    Reach,
    candidates,
    groups,
    pairs_between,
    pairs_to_try,
    wires,
)

_MACS = itertools.count(1)


def interface(name: str, *addresses: str, medium="ethernet", mtu=1500, **others) -> Interface:
    """An interface that is plugged in, with a card of its own."""
    number = next(_MACS)
    return Interface(
        name=name,
        medium=medium,
        carrier=others.pop("carrier", True),
        mtu=mtu,
        addresses=tuple(map(IPv4Interface, addresses)),
        mac=others.pop("mac", f"02:00:00:00:{number // 256 % 256:02x}:{number % 256:02x}"),
        speed_gbps=others.pop("speed_gbps", 10.0),
        **others,
    )


def machine(name: str, *interfaces: Interface, product="", reached_at="", **others) -> Surveyed:
    """A PC that answered."""
    found = Machine(
        kernel=others.pop("kernel", "Linux"),
        architecture=others.pop("architecture", "x86_64"),
        hostname=name,
        product=product,
        boot=others.pop("boot", name),
        disks=others.pop("disks", ()),
    )
    hardware = others.pop("hardware", Hardware())
    node = Node(name, "", name)
    pci, targets = others.pop("pci", ()), hardware.targets
    signs = Signs(found.system, product, pci=pci, targets=targets, vram_gib=vram_gib(hardware))
    return Surveyed(node, found, hardware, interfaces, signs, reached_at)


Wired = Sequence[set[tuple[str, str]]]


def tried(pairs: Iterable[Pair], wired: Wired, passes: int = 65535) -> Reach:
    """What pings over wires show: each wire is a set of (node, interface); others are silent."""
    found = {}
    for one, other in pairs:
        for source, target in ((one, other), (other, one)):
            ends = {(source.node, source.interface), (target.node, target.interface)}
            joined = any(ends <= wire for wire in wired)
            found[source, target] = min(passes, source.mtu, target.mtu) if joined else 0
    return Reach(found)


def surveyed(machines: Sequence[Surveyed], wired: Wired, passes: int = 65535) -> ClusterDraft:
    """The draft that follows, by the same steps as of real machines."""
    endpoints, left = candidates(machines)
    reach = tried(pairs_to_try(endpoints), wired, passes)
    more = pairs_between(groups(endpoints, reach), reach)
    found, apart = wires(machines, endpoints, reach.joined(tried(more, wired, passes)))
    return draft("mine", machines, found, [*left, *apart])


def loaded(found: ClusterDraft) -> Cluster:
    """The cluster that a draft's file is, read as every command reads it."""
    document = tomllib.loads(render(found))
    assert document == found.document
    check(document, "cluster", "mine.toml")
    return parse_cluster(document, "mine.toml")


def attachments(found: ClusterDraft) -> set[frozenset[tuple[str, str]]]:
    """The networks and cables of a draft as sets of (node, interface)."""
    ends: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
    for node in found.document["nodes"]:
        for fabric, place in node.get("fabrics", {}).items():
            for other, end in place.get("links", {"": place}).items():
                pair = sorted((node["name"], other)) if other else ()
                for number, port in enumerate(end if isinstance(end, list) else [end]):
                    ends[fabric, *pair, str(number)].add((node["name"], port["interface"]))
    return set(map(frozenset, ends.values()))


def with_reach(reach: Reach, pair: Pair, size: int) -> Reach:
    """The same but for one direction."""
    return replace(reach, bytes={**reach.bytes, pair: size})
