"""The fabrics of a cluster file, of wires: their tables, each node's place, what is uncertain.

Pure: wires are cables of one fabric if they hang together; some are of one cable.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nixwulf.core.query import grouped
from nixwulf.core.text import format_significant, plural, some
from nixwulf.inventory.fabrics import KINDS, kind_of
from nixwulf.nodes.interfaces import Interface, RdmaPort
from nixwulf.ops.survey.wires import Wire, WireEnd

# What holds all cables of a mesh is at most all of 10.0.0.0.
_WIDEST_PREFIX = 8

Ports = tuple[Wire, ...]
"""Wires between the same physical ports, as a cable may have several; most have one."""


def meshes(found: Sequence[Wire]) -> list[list[Ports]]:
    """Wires in groups: cables that hang together and are alike are one, each other wire is one.

    Macs whose Thunderbolt ports are joined in pairs are the case, and DGX Sparks in a ring: what a
    switch would be is a mesh of cables. Wires between the same physical ports are one cable's, of a
    second cable between the same two machines the wires are of another mesh.
    """
    cables = grouped((_cable_of(wire), wire) for wire in found)
    groups: list[list[Ports]] = []
    for ports in map(tuple, cables.values()):
        joined = [
            group for group in groups if any(_hang_together(ports[0], other[0]) for other in group)
        ]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), ports])
    ordered = [sorted(group, key=lambda ports: found.index(ports[0])) for group in groups]
    layers = [layer for group in ordered for layer in _one_a_pair(group)]
    return sorted(layers, key=lambda layer: found.index(layer[0][0]))


def _cable_of(wire: Wire) -> Hashable:
    """Return what wires of one cable share; of unknown ports each is a cable of its own."""
    ports = wire.physical_ports
    known = (frozenset(ports.items()), wire.speed_gbps, wire.mtu)
    return known if all(ports.values()) else id(wire)


def may_be_of_one_cable(one: Wire, other: Wire) -> bool:
    """Tell whether two wires join the same cards, and nothing says by which of their ports."""
    cards = one.joins_cards and other.joins_cards and one.nodes == other.nodes
    ports = [*one.physical_ports.values(), *other.physical_ports.values()]
    return cards and one is not other and not all(ports)


def _hang_together(one: Wire, other: Wire) -> bool:
    kinds = [
        (w.is_cable or w.joins_cards, w.is_thunderbolt, w.speed_gbps, w.mtu) for w in (one, other)
    ]
    return kinds[0][0] and kinds[0] == kinds[1] and bool(one.nodes & other.nodes)


def _one_a_pair(group: Sequence[Ports]) -> list[list[Ports]]:
    layers: list[list[Ports]] = []
    for ports in group:
        free = [
            layer for layer in layers if all(ports[0].nodes != other[0].nodes for other in layer)
        ]
        if free:
            free[0].append(ports)
        else:
            layers.append([ports])
    return layers


def own_subnets(group: Sequence[Wire]) -> tuple[ipaddress.IPv4Network, int] | None:
    """Return the network of a mesh's cables, and each one's prefix; None where two share one."""
    networks = [wire.network for wire in group]
    prefixes = {network.prefixlen for network in networks}
    around = networks[0]
    while not all(network.subnet_of(around) for network in networks) and around.prefixlen:
        around = around.supernet()
    alike = len(prefixes) == 1 and len(set(networks)) == len(networks) > 1
    return (around, prefixes.pop()) if alike and around.prefixlen >= _WIDEST_PREFIX else None


_LONGEST_NAME = 40

Devices = tuple[RdmaPort, ...]


@dataclass(frozen=True)
class FabricDraft:
    """A fabric of the file; several wires are cables of one mesh.

    table: its keys. places: each node's part. headline: the comment above it; notes: above keys.
    """

    wires: tuple[Wire, ...]
    table: dict[str, Any]
    places: dict[str, dict[str, Any]]
    headline: tuple[str, ...]
    notes: dict[str, tuple[str, ...]]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes on it."""
        return frozenset(self.places)


def fabric_drafts(wires: Sequence[Wire], reached: set[str]) -> dict[str, FabricDraft]:
    """The fabrics by name, the fastest first; reached: addresses that ssh came to, last of equals.

    Cables that make a mesh are one fabric where each has a subnet of its own, else one each.
    """
    groups = sorted(
        meshes(wires),
        key=lambda group: (_is_sshs(group[0][0], reached), -(group[0][0].speed_gbps or 0)),
    )
    found: list[FabricDraft] = []
    for group in groups:
        if len(group) > 1 and own_subnets([wire for ports in group for wire in ports]):
            found.append(_mesh(group, reached))
        else:
            found += [_network(wire, ports, group, reached) for ports in group for wire in ports]
    found = [_with_others(fabric, wires) for fabric in found]
    named = dict(zip(_names(found), found, strict=True))
    return {name: _with_control(fabric, named) for name, fabric in named.items()}


def _network(wire: Wire, ports: Ports, group: Sequence[Ports], reached: set[str]) -> FabricDraft:
    """A fabric of one wire; `group` has the cables that hang together with it, and its own."""
    devices = _devices(wire)
    kind = _kind(wire, devices)
    return FabricDraft(
        (wire,),
        _table(wire, kind, len(ports)),
        {
            end.node: _place(end, found, kind)
            for end, found in zip(wire.members, devices, strict=True)
        },
        tuple(_headline(wire, ports, group, reached)),
        _notes(wire, kind, devices),
    )


def _mesh(group: Sequence[Ports], reached: set[str]) -> FabricDraft:
    cables = [[_network(wire, (wire,), [], reached) for wire in ports] for ports in group]
    every = [port for ports in cables for port in ports]
    links: dict[str, dict[str, Any]] = defaultdict(dict)
    for ports in cables:
        one, other = (end.node for end in ports[0].wires[0].members)
        for node, peer in ((one, other), (other, one)):
            ends = [port.places[node] for port in ports]
            links[node][peer] = ends if len(ends) > 1 else ends[0]
    notes: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for port in every:
        for key, texts in port.notes.items():
            notes[key] = tuple(dict.fromkeys([*notes[key], *texts]))
    wires = tuple(port.wires[0] for port in every)
    around, prefix = own_subnets(wires) or (wires[0].network, 0)
    kinds = Counter(port.table["kind"] for port in every)
    if len(kinds) > 1:
        notes["kind"] += (f"Its cables differ: {', '.join(kinds)}.",)
    return FabricDraft(
        wires,
        {
            **every[0].table,
            "kind": kinds.most_common(1)[0][0],
            "subnet": str(around),
            "link_prefix": prefix,
        },
        {node: {"links": ends} for node, ends in links.items()},
        (_mesh_headline(group, list(links)),),
        dict(notes),
    )


def _mesh_headline(group: Sequence[Ports], nodes: Sequence[str]) -> str:
    count, each = plural(len(group), "cable"), {len(ports) for ports in group}
    ports = f", of {each.pop()} ports each" if len(each) == 1 and each != {1} else ""
    if len(group) * 2 == len(nodes) * (len(nodes) - 1):
        return f"{count} between each two of {', '.join(nodes)}{ports}."
    return f"{count}, of which each joins two of {', '.join(nodes)}{ports}."


def _with_others(fabric: FabricDraft, wires: Sequence[Wire]) -> FabricDraft:
    """Add a comment where it may be one fabric with other wires between the same nodes."""
    others = [wire for wire in wires if wire not in fabric.wires]
    if not any(may_be_of_one_cable(one, other) for one in fabric.wires for other in others):
        return fabric
    why = (
        "Other interfaces join the same nodes; whether they are ports of the same cables is not "
        "known. Of those 'links' has a list, as in clusters/dgx-spark-3.toml."
    )
    return replace(fabric, headline=(*fabric.headline, why))


def _with_control(fabric: FabricDraft, named: dict[str, FabricDraft]) -> FabricDraft:
    """Add the network over which ranks on cables find each other: the slowest."""
    if "link_prefix" not in fabric.table:
        return fabric
    networks = [
        name
        for name, other in named.items()
        if "link_prefix" not in other.table and fabric.nodes <= other.nodes
    ]
    if networks:
        return replace(fabric, table={**fabric.table, "control": networks[-1]})
    why = "No network joins all of its nodes, so that it has no control for vLLM and jaccl."
    return replace(fabric, headline=(*fabric.headline, why))


def _devices(wire: Wire) -> list[Devices]:
    """List each end's RDMA devices, that of its address first; none where one end has none."""
    found = [
        tuple(
            sorted(
                (port for port in one.rdma if not port.software),
                key=lambda port: (_gid_index(end, port) is None, port.state != "ACTIVE"),
            )
        )
        for end, one in zip(wire.members, wire.interfaces, strict=True)
    ]
    return found if sum(map(bool, found)) > 1 else [()] * len(found)


def _gid_index(end: WireEnd, port: RdmaPort) -> int | None:
    wanted = str(end.address.ip)
    return next((index for index, address in port.gids.items() if address == wanted), None)


def _table(wire: Wire, kind: str, ports: int) -> dict[str, object]:
    speed = wire.speed_gbps / ports if wire.speed_gbps else KINDS[kind].usual_gbps
    return {
        "kind": kind,
        "speed_gbps": int(speed) if speed == int(speed) else speed,
        "mtu": wire.mtu,
        "subnet": str(wire.network),
    }


def _kind(wire: Wire, devices: Sequence[Devices]) -> str:
    media = {one.medium for one in wire.interfaces}
    medium = "thunderbolt" if wire.is_thunderbolt else "ethernet"
    names = [port.device for ports in devices for port in ports]
    return kind_of(
        "infiniband" if "infiniband" in media else medium,
        rdma=bool(names),
        macos=all(name.startswith("rdma_en") for name in names),
    )


def _place(end: WireEnd, ports: Devices, kind: str) -> dict[str, object]:
    found: dict[str, object] = {"interface": end.interface, "address": str(end.address.ip)}
    if ports:
        names = [port.device for port in ports]
        found["rdma_device"] = names[0] if len(names) == 1 else names
        index = {"first": 0, "address": _gid_index(end, ports[0])}.get(KINDS[kind].gid)
        if index is not None:
            found["gid_index"] = index
    return found


def _is_sshs(wire: Wire, reached: set[str]) -> bool:
    return any(str(end.address.ip) in reached for end in wire.members)


def _headline(wire: Wire, ports: Ports, group: Sequence[Ports], reached: set[str]) -> Iterable[str]:
    if wire.is_cable:
        ends = [f"{end.node} ({end.interface})" for end in wire.members]
        yield f"A cable from {' to '.join(ends)}."
    else:
        yield f"{plural(len(wire.members), 'node')} that reach each other both ways."
    if len(ports) > 1:
        yield f"It is one of {len(ports)} fabrics of the same physical ports; they share the speed."
    if len(group) > 1 and wire is group[0][0]:
        yield (
            f"It and {plural(len(group) - 1, 'other cable')} hang together: with a subnet of its "
            "own for each they would be one fabric (link_prefix)."
        )
    if _is_sshs(wire, reached):
        yield "ssh takes this network too."


def _notes(wire: Wire, kind: str, devices: Sequence[Devices]) -> dict[str, tuple[str, ...]]:
    found = {
        "kind": tuple(_kind_notes(wire, kind, devices)),
        "speed_gbps": tuple(_speed_notes(wire)),
        "mtu": tuple(_mtu_notes(wire)),
        "subnet": wire.crossed,
    }
    return {key: texts for key, texts in found.items() if texts}


def _kind_notes(wire: Wire, kind: str, devices: Sequence[Devices]) -> Iterable[str]:
    media = sorted({one.medium for one in wire.interfaces})
    if len(media) > 1:
        yield f"Its ends differ: {' and '.join(media)}."
    for end, one, ports in zip(wire.members, wire.interfaces, devices, strict=True):
        yield from _rdma_notes(end, one, ports, kind)


def _rdma_notes(end: WireEnd, one: Interface, ports: Devices, kind: str) -> Iterable[str]:
    if not ports and KINDS[kind].rdma:
        yield f"{end.node} has no RDMA device on {end.interface} and takes part by tcp."
    elif not ports and one.rdma:
        why = "no other end has RDMA"
        if all(port.software for port in one.rdma):
            why = "RDMA in software"
        yield f"{', '.join(port.device for port in one.rdma)} of {end.node} is left out: {why}."
    for port in ports:
        if port.state != "ACTIVE":
            yield f"The port of {port.device} on {end.node} is {port.state or 'in no state'}."
    if ports and KINDS[kind].gid == "address" and _gid_index(end, ports[0]) is None:
        yield (
            f"No GID of {ports[0].device} on {end.node} is of RoCE v2 and {end.address.ip}: its "
            "gid_index is not known."
        )


def _speed_notes(wire: Wire) -> Iterable[str]:
    ends = zip(wire.members, wire.interfaces, strict=True)
    speeds = grouped((one.speed_gbps or 0.0, end.node) for end, one in ends)
    unknown = speeds.pop(0.0, [])
    if not speeds:
        yield "Its speed is not known: this is what is usual; 'nixwulf bench links' measures it."
    elif unknown:
        yield f"The speed of {some(unknown)} is not known."
    if len(speeds) > 1:
        parts = [
            f"{some(nodes)} {format_significant(one)}" for one, nodes in sorted(speeds.items())
        ]
        yield f"Ends are linked at unlike speeds, Gbit/s: {'; '.join(parts)}."


def _mtu_notes(wire: Wire) -> Iterable[str]:
    mtus = grouped((end.mtu, end.node) for end in wire.members)
    if not wire.mtu_known:
        yield "Small packets pass; of which size whole ones do could not be tried."
    elif wire.mtu < min(mtus):
        yield f"The interfaces have MTU {min(mtus)}; what is between them passes {wire.mtu}."
    if len(mtus) > 1:
        parts = [f"{some(nodes)} {mtu}" for mtu, nodes in sorted(mtus.items())]
        yield f"MTUs of the interfaces differ: {'; '.join(parts)}."


def _names(drafts: Sequence[FabricDraft]) -> list[str]:
    """A name for each, of its kind; of several that are alike with the interface or both ends."""
    bases = [_base(one) for one in drafts]
    found: list[str] = []
    for one, base in zip(drafts, bases, strict=True):
        wire = one.wires[0]
        interfaces = {end.interface for end in wire.members}
        ends = [end.node for end in wire.members] if wire.is_cable else sorted(interfaces)
        plain = base if bases.count(base) == 1 else f"{base}-{'-'.join(ends)}"
        clear = plain == base or (base == "cable" or (base != "mesh" and len(interfaces) == 1))
        options = [plain] if clear and len(plain) <= _LONGEST_NAME else []
        options += [f"{base}-{number}" for number in range(1, len(drafts) + 1)]
        found.append(next(option for option in options if option not in found))
    return found


def _base(one: FabricDraft) -> str:
    if len(one.wires) > 1:
        return "mesh"
    kind = KINDS[one.table["kind"]]
    return "cable" if one.wires[0].is_cable else kind.name if kind.rdma or kind.by_cable else "lan"
