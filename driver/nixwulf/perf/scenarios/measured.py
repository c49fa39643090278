"""Links of a cluster as its records measured them, or as the lab makes them."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Cluster
from nixwulf.results.fabrics import record_bandwidth_gbps, record_rtt_us
from nixwulf.results.store import read_records

_SHOWN = 3
_LAB_TRIP_US = 20.0  # what the kernel takes where a fabric of the lab has no delay
_LAB_GBPS = 10.0


def stated_links(cluster: Cluster) -> dict[str, dict[str, float]]:
    """Of a lab, round trips and rates that its fabrics are made to have; of others none."""
    if not cluster.is_lab:
        return {}
    return {
        name: {
            "rtt_us": _LAB_TRIP_US + 2 * (fabric.shape.delay_us if fabric.shape else 0.0),
            "bandwidth_gbps": (fabric.shape.rate_gbps if fabric.shape else None) or _LAB_GBPS,
        }
        for name, fabric in cluster.fabrics.items()
    }


def links_of(path: Path, cluster: Cluster) -> dict[str, dict[str, float]]:
    """By fabric of a cluster, medians of what its records measured; raises InputError for none.

    They are round trips and streams of TCP: of RDMA they tell nothing.
    """
    seen: dict[str, list[tuple[float | None, float | None]]] = {}
    others = set()
    for record in read_records(path):
        name = record.get("fabric", {}).get("name")
        if record.get("cluster", {}).get("name") != cluster.name:
            others.add(str(record.get("cluster", {}).get("name")))
        elif name in cluster.fabrics:
            pair = (record_rtt_us(record), record_bandwidth_gbps(record))
            seen.setdefault(name, []).append(pair)
    found: dict[str, dict[str, float]] = {}
    for name, pairs in seen.items():
        for key, values in zip(("rtt_us", "bandwidth_gbps"), zip(*pairs, strict=True), strict=True):
            known = [value for value in values if value]
            if known:
                found.setdefault(name, {})[key] = median(known)
    if not found:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        names = ", ".join(sorted(others)[:_SHOWN])
        whose = f" (its records are of {names}{more})" if others else ""
        raise InputError(
            f"{str(path)!r} has no measured link of the cluster {cluster.name!r}{whose}; name a "
            "run of this cluster on several nodes."
        )
    return found
