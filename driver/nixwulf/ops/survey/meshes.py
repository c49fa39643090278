"""Which wires are cables of one fabric: those that hang together, and those of one cable: pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from nixwulf.ops.survey.wires import Wire

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
    cables: list[list[Wire]] = []
    for wire in found:
        cable = next((ports for ports in cables if _of_same_ports(ports[0], wire)), None)
        if cable is None:
            cables.append([wire])
        else:
            cable.append(wire)
    grouped: list[list[Ports]] = []
    for ports in map(tuple, cables):
        joined = [
            group for group in grouped if any(_hang_together(ports[0], other[0]) for other in group)
        ]
        grouped = [group for group in grouped if group not in joined]
        grouped.append([*(other for group in joined for other in group), ports])
    ordered = [sorted(group, key=lambda ports: found.index(ports[0])) for group in grouped]
    layers = [layer for group in ordered for layer in _one_a_pair(group)]
    return sorted(layers, key=lambda layer: found.index(layer[0][0]))


def _of_same_ports(one: Wire, other: Wire) -> bool:
    known = all(one.physical_ports.values()) and one.physical_ports == other.physical_ports
    return known and (one.speed_gbps, one.mtu) == (other.speed_gbps, other.mtu)


def may_be_of_one_cable(one: Wire, other: Wire) -> bool:
    """Whether two wires join the same cards, and nothing says by which of their ports."""
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
        free = (
            layer for layer in layers if all(ports[0].nodes != other[0].nodes for other in layer)
        )
        layer = next(free, None)
        if layer is None:
            layers.append([ports])
        else:
            layer.append(ports)
    return layers


def own_subnets(group: Sequence[Wire]) -> tuple[ipaddress.IPv4Network, int] | None:
    """What holds the subnets of all cables of a mesh, and the prefix of each.

    None where they are no fabric of cables: two share a subnet, or they differ in size.
    """
    networks = [wire.network for wire in group]
    prefixes = {network.prefixlen for network in networks}
    around = networks[0]
    while not all(network.subnet_of(around) for network in networks) and around.prefixlen:
        around = around.supernet()
    alike = len(prefixes) == 1 and len(set(networks)) == len(networks) > 1
    return (around, prefixes.pop()) if alike and around.prefixlen >= _WIDEST_PREFIX else None
