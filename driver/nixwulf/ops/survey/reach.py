"""Which machines reach which over which interfaces: pings in both directions, all at once.

A packet of the full size that may not be cut is tried first, since it also shows that the MTU
passes. It leaves by the interface that it is meant for: a route over another network, or the ssh
network behind all of them, is no wire.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nixwulf.core.interrupts import check_numbers
from nixwulf.nodes.ssh import Connection, each

# IPv4's and ICMP's headers, bytes.
_HEADERS = 28
# Tried downwards where the interfaces' own MTU does not pass: jumbo frames of switches, RoCE's and
# InfiniBand's, Ethernet, PPPoE, tunnels, the least of IPv6 and of a cluster file.
_LADDER = (9000, 4200, 4096, 2044, 1500, 1492, 1420, 1400, 1280, 576)
# On more nodes not every pair is tried: it would fill a table of 1024 neighbours that the kernel
# has for all containers together.
_ALL_PAIRS = 9
_LIMIT_S = 120

# $@ are triples: an interface, an address, bytes of the packet. Prints what passed: the bytes,
# 'small' where no size is known, 'silent'. With both -c and -w Linux sends until there was one
# reply, as macOS does with -o. The neighbours tell which of a machine's cards answered.
_SCRIPT = f"""
PATH=$PATH:/usr/sbin:/sbin
if [ -e /proc/meminfo ]; then
  whole="-M do"; wait="-c 1 -w 2 -i 0.5 -I"
else
  whole=-D; wait="-o -t 2 -i 0.5 -b"
fi
reaches() {{ ping -n -q $wait "$@" >/dev/null 2>&1; }}
try() {{
  if reaches "$1" $whole -s $(($3 - {_HEADERS})) "$2"; then echo "$1 $2 $3"; return; fi
  if ! reaches "$1" "$2"; then echo "$1 $2 silent"; return; fi
  for size in {" ".join(map(str, _LADDER))}; do
    if [ "$size" -lt "$3" ] && reaches "$1" $whole -s $((size - {_HEADERS})) "$2"; then
      echo "$1 $2 $size"; return
    fi
  done
  echo "$1 $2 small"
}}
while [ $# -gt 2 ]; do try "$1" "$2" "$3" & shift 3; done
wait
echo "== neighbours"
ip -j neighbour 2>/dev/null
exit 0
"""


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


Pair = tuple[WireEnd, WireEnd]


@dataclass(frozen=True)
class Reach:
    """What was tried: by source and target the largest packet in bytes that came back.

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
    for members in _by_network(endpoints).values():
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


def _by_network(endpoints: Iterable[WireEnd]) -> dict[ipaddress.IPv4Network, list[WireEnd]]:
    found: dict[ipaddress.IPv4Network, list[WireEnd]] = defaultdict(list)
    for one in endpoints:
        found[one.network].append(one)
    return found


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
            for word in (
                source.interface,
                str(target.address.ip),
                str(min(source.mtu, target.mtu)),
            )
        ]
        text = connections[node].script(_SCRIPT, *words, timeout_s=_LIMIT_S)
        return parse(check_numbers(node, text), probes[node])

    found = Reach()
    for answer in each(ask, probes):
        found = found.joined(answer)
    return found


def parse(text: str, probes: Sequence[Pair]) -> Reach:
    """What a machine printed of its probes; one that it did not print was silent."""
    answers, _, neighbours = text.partition("== neighbours")
    sizes = {
        (words[0], words[1]): _bytes(words[2])
        for words in map(str.split, answers.splitlines())
        if len(words) == 3  # noqa: PLR2004 - interface, address, answer
    }
    cards = _cards(neighbours)
    keys = {pair: (pair[0].interface, str(pair[1].address.ip)) for pair in probes}
    return Reach(
        {pair: sizes.get(key, 0) for pair, key in keys.items()},
        {pair: cards[key] for pair, key in keys.items() if key in cards},
    )


def _bytes(word: str) -> int:
    return int(word) if word.isdecimal() else {"small": 1}.get(word, 0)


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
