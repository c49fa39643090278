"""What runs measured of the fabrics between their nodes: pooled once, for every view of it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nixwulf.nodes.link import stream_bytes
from nixwulf.results.identity import canonical
from nixwulf.results.record import Record


@dataclass(frozen=True)
class FabricStats:
    """All that was measured of a fabric as it was shaped once, over failed runs' links too.

    fabric: as the first record has it; rtts_us: the median round trip (microseconds) of each probe,
    before and after each run and on each link, of cables on the slowest; bandwidths_gbps: of one
    TCP stream on each link.
    """

    fabric: Mapping[str, Any]
    rtts_us: tuple[float, ...]
    bandwidths_gbps: tuple[float, ...]

    @cached_property
    def rtt_us(self) -> float | None:
        """The median round trip, microseconds; None where none was measured."""
        return median(self.rtts_us)


_RETRY_US = 50e3
"""What a lost packet costs on average: 20 to 180 ms, and in the median of five runs about 50, were
measured in the lab, of llama.cpp over RPC at 3 and 5 % of loss. Most are found by those that
follow; the last waits for 200 ms (TCP_RTO_MIN,
https://github.com/torvalds/linux/blob/v6.12/include/net/tcp.h).
"""
_SURELY_LOST = 2
_RESENT = 0.005
"""Share of segments sent again beside which one lost packet is no accident; 0.0003 was the most of
a lab's links without loss."""
_SEGMENT_HEADERS = 52  # bytes of IPv4 and TCP with timestamps

FabricKey = tuple[str, str]
"""A cluster's name and a fabric's."""


def fabrics_of(records: Iterable[Record]) -> dict[FabricKey, list[FabricStats]]:
    """By cluster and fabric, one for each shaping; the shortest round trip first."""
    found: dict[FabricKey, dict[tuple[str, str], list[dict[str, Any]]]]
    found = defaultdict(lambda: defaultdict(list))
    for record in records:
        if fabric := record.get("fabric"):
            shape = (canonical(fabric.get("asked", {})), fabric.get("shaped_by", ""))
            found[record["cluster"]["name"], fabric["name"]][shape].append(fabric)
    return {
        key: sorted((_stats(shapes[shape]) for shape in sorted(shapes)), key=rtt_order)
        for key, shapes in sorted(found.items())
    }


def rtt_order(stats: FabricStats) -> float:
    """To sort by: an unmeasured one is last."""
    return float("inf") if stats.rtt_us is None else stats.rtt_us


def record_rtt_us(record: Record) -> float | None:
    """Round trip of a run, microseconds: median over its links of the medians before and after.

    Of cables that of the slowest cable.
    """
    return median(_rtts(record.get("fabric", {})))


def record_bandwidth_gbps(record: Record) -> float | None:
    """Bandwidth of a run, Gbit/s: the lowest over its links."""
    return min(_bandwidths(record.get("fabric", {})), default=None)


def record_lost(record: Record) -> tuple[int, int]:
    """Packets sent over the idle links of a run, and lost; none where it may be by accident."""
    sent, lost = _sent_and_lost(record)
    certain = lost >= _SURELY_LOST or (lost and _resent(record.get("fabric", {})) >= _RESENT)
    return sent, lost if certain else 0


def waiting_us(record: Record) -> float:
    """What a round trip waits on average for lost packets, microseconds: there or back."""
    sent, lost = record_lost(record)
    if not lost:
        return 0.0
    share = _resent(record.get("fabric", {})) or lost / sent / 2
    return 2 * share * _RETRY_US


def _sent_and_lost(record: Record) -> tuple[int, int]:
    links = record.get("fabric", {}).get("links", ())
    found = [link[p] for link in links for p in ("rtt_before", "rtt_after") if p in link]
    lost = sum(int(one["lost"]) for one in found)
    return lost + sum(len(one["samples"]) for one in found), lost


def _resent(fabric: Mapping[str, Any]) -> float:
    """Share of the segments of the streams that were sent again; 0 where that is not known."""
    counts: list[int] = [
        link["bandwidth"]["retransmits"]
        for link in fabric.get("links", ())
        if "retransmits" in link.get("bandwidth", {})
    ]
    payload = fabric.get("mtu", 0) - _SEGMENT_HEADERS
    if not counts or payload <= 0:
        return 0.0
    segments: float = stream_bytes(fabric.get("speed_gbps", 0.0)) / payload
    return sum(counts) / (len(counts) * segments)


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _stats(fabrics: list[dict[str, Any]]) -> FabricStats:
    return FabricStats(
        fabrics[0],
        tuple(rtt for fabric in fabrics for rtt in _rtts(fabric)),
        tuple(rate for fabric in fabrics for rate in _bandwidths(fabric)),
    )


def _rtts(fabric: Mapping[str, Any]) -> list[float]:
    probes = ("rtt_before", "rtt_after")
    links = fabric.get("links", ())
    trips = [[link[p]["median"] for p in probes if p in link] for link in links]
    # Of a network all links are measured from the head; what joins two workers is a cable, and a
    # collective waits for the slowest.
    if len({link["from"] for link in links}) > 1:
        return max(trips, key=lambda one: median(one) or 0.0)
    return [trip for one in trips for trip in one]


def _bandwidths(fabric: Mapping[str, Any]) -> Iterator[float]:
    links = fabric.get("links", ())
    return (link["bandwidth"]["value"] for link in links if "bandwidth" in link)
