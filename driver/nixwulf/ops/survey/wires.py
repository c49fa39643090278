"""The wires that machines are on, from what they reported and who reached whom.

Which machines reach which over which interfaces is found by pings in both directions, all at once.
A packet of the full size that may not be cut is tried first, since it also shows that the MTU
passes. It leaves by the interface that it is meant for: a route over another network, or the ssh
network behind all of them, is no wire.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nixwulf.core.files import shipped_text
from nixwulf.core.printed import check_numbers
from nixwulf.core.query import grouped
from nixwulf.nodes.interfaces import Interface, Medium
from nixwulf.nodes.ssh import Connection, each
from nixwulf.ops.survey.machines import Surveyed

# IPv4's and ICMP's headers, bytes.
_HEADERS = 28
# Tried downwards where the interfaces' own MTU does not pass: jumbo frames of switches, RoCE's and
# InfiniBand's, Ethernet, PPPoE, tunnels, the least of IPv6 and of a cluster file.
_LADDER = (9000, 4200, 4096, 2044, 1500, 1492, 1420, 1400, 1280, 576)
# On more nodes not every pair is tried: it would fill a table of 1024 neighbours that the kernel
# has for all containers together.
_ALL_PAIRS = 9
_LIMIT_S = 120

_SCRIPT = (
    f"headers={_HEADERS} ladder='{' '.join(map(str, _LADDER))}'\n"
    f"{shipped_text('ops/survey/wires.sh')}"
)


@dataclass(frozen=True)
class WireEnd:
    """An end of a wire: an address of a machine on one interface, whose mtu and mac these are."""

    node: str
    interface: str
    address: ipaddress.IPv4Interface
    mtu: int = 1500
    mac: str = ""

    @property
    def network(self) -> ipaddress.IPv4Network:
        """Its subnet."""
        return self.address.network

    def left_out(self, reason: str) -> LeftOut:
        """Say that the cluster file lacks its address, and why."""
        return LeftOut(self.node, self.interface, str(self.address), reason)


Pair = tuple[WireEnd, WireEnd]


@dataclass(frozen=True)
class Reach:
    """Probes by source and target: the largest packet in bytes that came back.

    0: none did; 1: a small one did, and no size is known. answered_by: the card that the source
    found behind the target's address.
    """

    bytes: Mapping[Pair, int] = field(default_factory=dict)
    answered_by: Mapping[Pair, str] = field(default_factory=dict)

    def both(self, one: WireEnd, other: WireEnd) -> int | None:
        """The largest packet that passes in both directions; None where it was not tried."""
        ways = [self.bytes.get((one, other)), self.bytes.get((other, one))]
        known = [size for size in ways if size is not None]
        return min(known) if len(known) == len(ways) else None

    def joined(self, more: Reach) -> Reach:
        """Both together."""
        return Reach({**self.bytes, **more.bytes}, {**self.answered_by, **more.answered_by})


def pairs_to_try(endpoints: Sequence[WireEnd]) -> list[Pair]:
    """The pairs that are tried first, each once.

    On a subnet with one interface a machine everyone is on one wire as a rule, and it is enough
    that each tries those that are 1, 2, 4, 8 ... places away. Where machines have several
    interfaces in a subnet, as cables have with addresses that nobody gave, every pair is tried.
    """
    found: list[Pair] = []
    for members in grouped((one.network, one) for one in endpoints).values():
        count = len(members)
        nodes = {one.node for one in members}
        everyone = itertools.combinations(members, 2)
        if len(nodes) == count > _ALL_PAIRS:
            steps = [2**power for power in range(count.bit_length()) if 2**power <= count // 2]
            found += {
                tuple(sorted((members[i], members[(i + step) % count]), key=members.index)): None
                for step in steps
                for i in range(count)
            }
        else:
            found += [(one, other) for one, other in everyone if one.node != other.node]
    return found


def pairs_between(groups: Sequence[Sequence[WireEnd]], tried: Reach) -> list[Pair]:
    """The pairs of different groups of a subnet that were not tried yet."""
    return [
        (one, other)
        for first, second in itertools.combinations(groups, 2)
        if first[0].network == second[0].network
        for one, other in itertools.product(first, second)
        if one.node != other.node and (one, other) not in tried.bytes
    ]


def try_pairs(pairs: Sequence[Pair], connections: Mapping[str, Connection]) -> Reach:
    """Try pairs in both directions: one session a machine, in which it pings all its peers."""
    probes: dict[str, list[Pair]] = defaultdict(list)
    for one, other in pairs:
        probes[one.node].append((one, other))
        probes[other.node].append((other, one))

    def ask(node: str) -> Reach:
        words = [
            word
            for source, target in probes[node]
            for word in (source.interface, str(target.address.ip), str(min(source.mtu, target.mtu)))
        ]
        text = connections[node].script(_SCRIPT, *words, timeout_s=_LIMIT_S)
        return parse(check_numbers(node, text), probes[node])

    found = Reach()
    for answer in each(ask, probes):
        found = found.joined(answer)
    return found


def parse(text: str, probes: Sequence[Pair]) -> Reach:
    """Read the probes that a machine printed; one that it did not print was silent."""
    answers, _, neighbours = text.partition("== neighbours")
    sizes = {
        (words[0], words[1]): int(words[2]) if words[2].isdecimal() else int(words[2] == "small")
        for words in map(str.split, answers.splitlines())
        if len(words) == 3  # noqa: PLR2004 - interface, address, answer
    }
    cards = _cards(neighbours)
    keys = {pair: (pair[0].interface, str(pair[1].address.ip)) for pair in probes}
    return Reach(
        {pair: sizes.get(key, 0) for pair, key in keys.items()},
        {pair: cards[key] for pair, key in keys.items() if key in cards},
    )


def _cards(text: str) -> dict[tuple[str, str], str]:
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {
        (str(one.get("dev")), str(one.get("dst"))): str(one["lladdr"]).lower()
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and "lladdr" in one
    }


def groups(endpoints: Sequence[WireEnd], reach: Reach) -> list[list[WireEnd]]:
    """Endpoints that reach each other, maybe over others; one that reaches none is alone."""
    group = {one: [one] for one in endpoints}
    for one, other in reach.bytes:
        if reach.both(one, other) and group[one] is not group[other]:
            merged = group[one] + group[other]
            group.update(dict.fromkeys(merged, merged))
    unique = {id(members): members for members in group.values()}
    return [sorted(members, key=endpoints.index) for members in unique.values()]


_NO_WIRE: Mapping[Medium, str] = {
    "tunnel": "a VPN or tunnel, which is no wire of its own",
    "virtual": "of containers or virtual machines, and no cable leads there",
    "wifi": "Wi-Fi, whose speed nothing can be compared by",
}
# A cable of two has a subnet of at most four addresses, or addresses that nobody gave.
_CABLE_PREFIX = 30


@dataclass(frozen=True)
class LeftOut:
    """Something that a machine has and the cluster file lacks, with the reason."""

    node: str
    interface: str
    what: str
    reason: str


@dataclass(frozen=True)
class Wire:
    """A network that machines reach each other on, one interface each.

    mtu: bytes of the largest packet that passed between all; if not mtu_known, their least MTU.
    """

    members: tuple[WireEnd, ...]
    interfaces: tuple[Interface, ...]
    mtu: int
    mtu_known: bool
    crossed: tuple[str, ...] = ()

    @property
    def network(self) -> ipaddress.IPv4Network:
        """Its subnet."""
        return self.members[0].network

    @property
    def nodes(self) -> frozenset[str]:
        """The machines on it."""
        return frozenset(end.node for end in self.members)

    @property
    def is_thunderbolt(self) -> bool:
        """Tell whether every end is Thunderbolt or USB4."""
        return all(one.medium == "thunderbolt" for one in self.interfaces)

    @property
    def is_cable(self) -> bool:
        """Tell whether it joins two machines and can join no third."""
        narrow = self.network.prefixlen >= _CABLE_PREFIX or self.network.is_link_local
        return len(self.members) == len("ab") and (narrow or self.is_thunderbolt)

    @property
    def joins_cards(self) -> bool:
        """Tell whether it joins two machines by RDMA cards: cables as a rule, in any subnet."""
        cards = (any(not port.software for port in one.rdma) for one in self.interfaces)
        return len(self.members) == len("ab") and all(cards)

    @property
    def physical_ports(self) -> dict[str, str]:
        """Ports of each machine's card, empty where that is not known."""
        ends = zip(self.members, self.interfaces, strict=True)
        return {end.node: one.physical_port for end, one in ends}

    @property
    def speed_gbps(self) -> float | None:
        """The speed of its slowest end whose speed is known."""
        return min((one.speed_gbps for one in self.interfaces if one.speed_gbps), default=None)


def candidates(machines: Sequence[Surveyed]) -> tuple[list[WireEnd], list[LeftOut]]:
    """Addresses that others may be reached from, at most one an interface; and all others."""
    left: list[LeftOut] = []
    ends: list[WireEnd] = []
    for machine in machines:
        for one in machine.interfaces:
            reason = _NO_WIRE.get(one.medium) or ("" if one.carrier else "nothing is plugged in")
            if not one.addresses and (one.cable or one.rdma) and not reason:
                what = f"a cable to {one.cable.peer!r}" if one.cable else "a cable"
                left.append(LeftOut(machine.name, one.name, what, "no IPv4 address"))
            for address in one.addresses:
                if reason:
                    left.append(LeftOut(machine.name, one.name, str(address), reason))
                else:
                    ends.append(WireEnd(machine.name, one.name, address, one.mtu, one.mac))
    ends, same = _without_shared(ends)
    chosen, second = _one_an_interface(ends)
    chosen, alone = _with_peers(chosen)
    return chosen, left + same + second + alone


def _without_shared(ends: Sequence[WireEnd]) -> tuple[list[WireEnd], list[LeftOut]]:
    """A machine that has an address itself answers for every other that has it too."""
    owners = grouped((end.address.ip, end.node) for end in ends)
    reason = "the same address on several machines, each of which means itself by it"
    shared = {address for address, nodes in owners.items() if len(set(nodes)) > 1}
    return [end for end in ends if end.address.ip not in shared], [
        end.left_out(reason) for end in ends if end.address.ip in shared
    ]


def _one_an_interface(ends: Sequence[WireEnd]) -> tuple[list[WireEnd], list[LeftOut]]:
    """Choose among addresses on one wire: in the subnet of most machines, or the first."""
    nodes = _nodes_of(ends)
    places = grouped(((end.node, end.interface), end) for end in ends)
    chosen, left = [], []
    for here in places.values():
        best = max(here, key=lambda end: len(nodes[end.network]))
        chosen.append(best)
        reason = "a second address on one wire, and a fabric has one an interface"
        left += [end.left_out(reason) for end in here if end is not best]
    return chosen, left


def _nodes_of(ends: Sequence[WireEnd]) -> dict[ipaddress.IPv4Network, set[str]]:
    found = grouped((end.network, end.node) for end in ends)
    return {network: set(nodes) for network, nodes in found.items()}


def _with_peers(ends: Sequence[WireEnd]) -> tuple[list[WireEnd], list[LeftOut]]:
    nodes = _nodes_of(ends)
    reason = "no other machine has an address in this subnet"
    return [end for end in ends if len(nodes[end.network]) > 1], [
        end.left_out(reason) for end in ends if len(nodes[end.network]) == 1
    ]


def wires(
    machines: Sequence[Surveyed], endpoints: Sequence[WireEnd], reach: Reach
) -> tuple[list[Wire], list[LeftOut]]:
    """The wires between machines that reach each other in both directions; and who is on none."""
    interfaces = {(m.name, one.name): one for m in machines for one in m.interfaces}
    found, left = [], []
    for group in groups(endpoints, reach):
        members, second = _one_a_machine(group, interfaces)
        members, silent = _all_reached(members, reach)
        left += second + silent
        if len(members) > 1:
            found.append(_wire(members, interfaces, reach))
        else:
            left += [_unreached(end, endpoints, reach) for end in members]
    return found, left


def _one_a_machine(
    group: Sequence[WireEnd], interfaces: Mapping[tuple[str, str], Interface]
) -> tuple[list[WireEnd], list[LeftOut]]:
    """Choose among two interfaces of a machine on one network the faster, then the first."""
    chosen: dict[str, WireEnd] = {}
    for end in group:
        speeds = [
            interfaces[one.node, one.interface].speed_gbps or 0.0
            for one in (end, chosen.get(end.node, end))
        ]
        if end.node not in chosen or speeds[0] > speeds[1]:
            chosen[end.node] = end
    why = "{} is on the same network, so that packets may take either"
    return [end for end in group if end in chosen.values()], [
        end.left_out(why.format(chosen[end.node].interface))
        for end in group
        if end not in chosen.values()
    ]


def _all_reached(members: Sequence[WireEnd], reach: Reach) -> tuple[list[WireEnd], list[LeftOut]]:
    """Leave out machines that others do not reach, as few as can be: the worst first."""
    kept, left = list(members), list[LeftOut]()
    while True:
        failing = {
            end: [other for other in kept if other is not end and reach.both(end, other) == 0]
            for end in kept
        }
        worst = max(reversed(kept), key=lambda end: len(failing[end]))
        if not failing[worst]:
            return kept, left
        kept.remove(worst)
        names = ", ".join(_one_way(worst, other, reach) for other in failing[worst])
        left.append(worst.left_out(names))


def _one_way(end: WireEnd, other: WireEnd, reach: Reach) -> str:
    if reach.bytes.get((end, other)):
        return f"reaches {other.node}, which does not reach it"
    if reach.bytes.get((other, end)):
        return f"does not reach {other.node}, which reaches it"
    return f"does not reach {other.node}"


def _unreached(end: WireEnd, endpoints: Sequence[WireEnd], reach: Reach) -> LeftOut:
    peers = [other for other in endpoints if (end, other) in reach.bytes]
    reason = ", ".join(_one_way(end, other, reach) for other in peers)
    return end.left_out(reason or "was not tried")


def _wire(
    members: Sequence[WireEnd], interfaces: Mapping[tuple[str, str], Interface], reach: Reach
) -> Wire:
    pairs = [(one, other) for one in members for other in members if one is not other]
    sizes = [size for pair in pairs if (size := reach.both(*pair)) is not None]
    known = bool(sizes) and min(sizes) > 1
    crossed = [
        f"{other.address.ip} of {other.node} is answered to {one.node} by another card than "
        f"{other.interface}: cables that are crossed, or two of its ports on one switch"
        for one, other in pairs
        if other.mac and reach.answered_by.get((one, other), other.mac) != other.mac
    ]
    return Wire(
        members=tuple(members),
        interfaces=tuple(interfaces[end.node, end.interface] for end in members),
        mtu=min(sizes) if known else min(end.mtu for end in members),
        mtu_known=known,
        crossed=tuple(crossed),
    )
