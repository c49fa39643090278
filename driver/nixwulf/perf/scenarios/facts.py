"""Facts of a strategy's nodes, link and engine: as known, as measured, or taken to be different."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from nixwulf.core.errors import InputError
from nixwulf.core.text import some
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.inventory.platforms import load_platform
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.constants import Constants, choose, family
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy, fabric_facts, platform_facts
from nixwulf.perf.scenarios import what_if
from nixwulf.perf.scenarios.what_if import WhatIf
from nixwulf.results.fabrics import record_bandwidth_gbps, record_rtt_us
from nixwulf.results.store import read_records

_LAB_TRIP_US = 20.0  # what the kernel takes where a fabric of the lab has no delay
_LAB_GBPS = 10.0


def platform(node: Node, changes: Sequence[WhatIf]) -> PlatformFacts:
    """Facts of a node, of its platform or its own; the bandwidth of its memory may be given."""
    name, own = node.platform, node.memory_bandwidth_gbs
    document = load_platform(name)
    if own:
        document = {**document, what_if.BANDWIDTH: {"value": own}}
        # Of a platform that lacks it, what is given is of the nodes that have none of their own.
        missing = (name, what_if.BANDWIDTH) if lacks(name, what_if.BANDWIDTH) else None
        changes = [one for one in changes if (one.name, one.key) != missing]
    elif lacks(name, what_if.BANDWIDTH):
        given = [one for one in changes if (one.name, one.key) == (name, what_if.BANDWIDTH)]
        if not given:
            raise InputError(
                f"Platform {name!r} has no memory bandwidth; give what was measured of it, GB/s: "
                f"--what-if platform.{name}.{what_if.BANDWIDTH}=60."
            )
        document = {**document, what_if.BANDWIDTH: {"value": given[0].value}}
    return what_if.of_platform(platform_facts(document), changes)


def lacks(name: str, key: str) -> bool:
    """Whether the platform's file lacks a fact that a what-if can give."""
    document = load_platform(name)
    if key == what_if.BANDWIDTH:
        return not {key, "memory_bandwidth_nominal_gbs"} & document.keys()
    # HPL measures it of a CPU.
    of_hpl = key == "compute_tflops" and kind_of(name) == "cpu" and "hpl_gflops" in document
    return key not in document and not of_hpl


def kind_of(platform: str) -> str:
    """Who made the device that computes, or 'cpu'."""
    gpu = load_platform(platform).get("gpu")
    return str(gpu["vendor"]) if gpu else "cpu"


def link(
    fabric: Fabric, transport: str, measured: Mapping[str, float], changes: Sequence[WhatIf]
) -> FabricFacts:
    """Facts of a fabric; measured: its rtt_us and bandwidth_gbps of TCP, valid for TCP alone."""
    known = dict(measured) if transport == "tcp" else {}
    known |= what_if.of_link(fabric.name, changes)
    return fabric_facts(fabric.kind, transport, fabric.speed_gbps, **known)


def constants(
    strategy: Strategy, model: ModelFacts, kind: str, changes: Sequence[WhatIf]
) -> Constants | None:
    """The constants of an engine with what-ifs about it; None: those that the model chooses."""
    if not any(one.group == "engine" for one in changes):
        return None
    known = choose(family(strategy, kind), kind).of(strategy, model)
    return what_if.of_constants(strategy.engine, known, changes)


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

    They are round trips and streams of TCP, and not valid for RDMA.
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
        whose = f" (its records are of {some(sorted(others))})" if others else ""
        raise InputError(
            f"{str(path)!r} has no measured link of the cluster {cluster.name!r}{whose}; name a "
            "run of this cluster on several nodes."
        )
    return found
