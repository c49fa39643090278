"""Gate: USB4 and Thunderbolt cables trained at the speed of the ports, both ways.

A cable at half of it goes unnoticed otherwise: ethtool says 40 Gbit/s of any
(https://blog.hellas.ai/blog/thunderbolt-ibverbs/2-scaling/).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nixwulf.inventory.cluster import Fabric, Node
from nixwulf.plugins.gates import Gate, GateContext, Verdict, on_lab, pairs, refused, unknown

_KINDS = frozenset({"thunderbolt-net", "usb4-rdma"})


def _fabrics(subject: GateContext, node: Node) -> list[Fabric]:
    return [c.fabric for c in subject.crossings_of(node) if c.fabric.kind in _KINDS]


def expected_gbps(subject: GateContext, node: Node, fabric: Fabric) -> float:
    """Of the slowest USB4 port at either end; the fabric's own where no platform knows."""
    ends = [node, *(other for crossing, other in pairs(subject, node) if crossing.fabric == fabric)]
    speeds = [
        port["speed_gbps"]
        for end in ends
        for port in subject.platform(end).get("ports", ())
        if re.match(r"usb4|thunderbolt", port["kind"], re.IGNORECASE) and "speed_gbps" in port
    ]
    return float(min(speeds, default=fabric.speed_gbps))


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    links = subject.facts[node.name].hardware.links
    for fabric in _fabrics(subject, node):
        expected = expected_gbps(subject, node, fabric)
        if not links:
            yield refused(
                f"Node {node.name!r} has no cable to another host, and is on {fabric.name!r}; see "
                "the cable, and 'boltctl' or 'dmesg | grep thunderbolt' there."
            )
        for name, link in links.items():
            if link is None:
                yield unknown(f"Node {node.name!r} does not tell the speed of its cable {name!r}.")
                continue
            for way, lane, lanes in (
                ("sends", link.tx_gbps, link.tx_lanes),
                ("receives", link.rx_gbps, link.rx_lanes),
            ):
                if lane * lanes < expected:
                    yield refused(
                        f"The cable {name!r} of node {node.name!r} to {link.peer!r} {way} at "
                        f"'{lane:g} Gb/s x {lanes}', and its ports can {expected:g} Gbit/s; unplug "
                        "it at BOTH ends, plug it in again, then try another cable."
                    )


GATE = Gate(
    name="usb4",
    holds="USB4 and Thunderbolt cables trained at the speed of the ports, both ways, at both ends",
    reads="`{tx,rx}_{speed,lanes}` of `/sys/bus/thunderbolt/devices`, the platform's ports",
    fix="unplug BOTH ends, plug in again; then another cable",
    concerns=lambda subject, node: not on_lab(node) and bool(_fabrics(subject, node)),
    judge=_judge,
)
