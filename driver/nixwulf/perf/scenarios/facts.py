"""Facts of a strategy's nodes, link and engine: as known, as measured, or taken to be different.

What-ifs: one fact taken to be another, as 'fabric.usb4.latency_us=7'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.text import did_you_mean, some
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.inventory.platforms import load_platform
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.constants import Constants, choose, family
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy, fabric_facts, platform_facts
from nixwulf.results.store import read_records
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us

BANDWIDTH = "memory_bandwidth_gbs"
KEYS: Mapping[str, tuple[str, ...]] = {
    "fabric": ("latency_us", "rtt_us", "bandwidth_gbps"),
    "platform": (BANDWIDTH, "compute_tflops", "memory_gib"),
    "engine": ("layer_us", "hop_us", "sync_us"),
}
"""What can be changed. latency_us is one way, rtt_us a round trip: twice of it."""
_ONE_WAY = "latency_us"
_FIELDS = {BANDWIDTH: "bandwidth_gbs", "compute_tflops": "tflops"}  # of PlatformFacts
# Far outside of what a machine can have, and still far from where numbers overflow.
_LEAST, _MOST = 1e-6, 1e9


@dataclass(frozen=True)
class WhatIf:
    """A fact of a group's member and the value that it is taken to have, in the key's unit."""

    group: str
    name: str
    key: str
    value: float

    @property
    def about(self) -> tuple[str, str, str]:
        """The fact: its group, name and key, a latency being half of a round trip."""
        return self.group, self.name, "rtt_us" if self.key == _ONE_WAY else self.key

    @property
    def text(self) -> str:
        """As it is given on the command line."""
        return f"{self.group}.{self.name}.{self.key}={self.value:g}"


def parse(text: str) -> WhatIf:
    """The what-if of a text GROUP.NAME.KEY=VALUE; raises InputError."""
    place, equals, number = text.partition("=")
    group, _, rest = place.strip().partition(".")
    name, _, key = rest.rpartition(".")
    if not (equals and name and key):
        raise InputError(
            f"What-if {quoted(text)} is not GROUP.NAME.KEY=VALUE; give one such as "
            "fabric.cable.latency_us=7 or platform.framework-desktop.memory_bandwidth_gbs=500."
        )
    if group not in KEYS:
        raise InputError(
            f"What-if {quoted(text)}: {quoted(group)} is unknown; {did_you_mean(group, KEYS)}"
        )
    if key not in KEYS[group]:
        raise InputError(
            f"What-if {quoted(text)}: a {group} has no {quoted(key)}; it has "
            f"{', '.join(KEYS[group])}."
        )
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and _LEAST <= value <= _MOST):
        raise InputError(
            f"What-if {quoted(text)}: {quoted(number)} is no number from {_LEAST:g} to {_MOST:g}; "
            f"give it alone, as in {place.strip()}=7."
        )
    return WhatIf(group, name, key, value)


def parse_all(texts: Iterable[str], names: Mapping[str, Sequence[str]]) -> tuple[WhatIf, ...]:
    """All of them; raises InputError for two about one fact, and for names that are not there.

    names: those of the cluster, by group.
    """
    found = tuple(map(parse, texts))
    for number, one in enumerate(found):
        if one.name not in names[one.group]:
            raise InputError(
                f"What-if {one.text!r}: there is no {one.group} {quoted(one.name)} in this "
                f"question; {did_you_mean(one.name, names[one.group])}"
            )
        for other in found[:number]:
            if one.about == other.about:
                raise InputError(
                    f"What-ifs {other.text!r} and {one.text!r} are about one fact; give one of "
                    "them."
                )
    return found


def of_platform(facts: PlatformFacts, what_ifs: Iterable[WhatIf]) -> PlatformFacts:
    """The facts with what is taken to be different; what was assumed of it is assumed no more."""
    for one in what_ifs:
        if (one.group, one.name) == ("platform", facts.name):
            changed: dict[str, Any] = {_FIELDS.get(one.key, one.key): one.value}
            changed |= {"assumptions": ()} if one.key == BANDWIDTH else {}
            facts = replace(facts, **changed)
    return facts


def of_link(fabric: str, what_ifs: Iterable[WhatIf]) -> dict[str, float]:
    """rtt_us and bandwidth_gbps of a fabric where they are taken to be different."""
    return {
        one.about[2]: 2 * one.value if one.key == _ONE_WAY else one.value
        for one in what_ifs
        if (one.group, one.name) == ("fabric", fabric)
    }


def of_constants(engine: str, constants: Constants, what_ifs: Iterable[WhatIf]) -> Constants:
    """The constants of an engine with the changes of what-ifs.

    what_ifs: those of other engines or facts change nothing.
    """
    for one in what_ifs:
        if (one.group, one.name) == ("engine", engine):
            changed: dict[str, Any] = {one.key: one.value}
            constants = replace(constants, **changed)
    return constants


_LAB_TRIP_US = 20.0  # what the kernel takes where a fabric of the lab has no delay
_LAB_GBPS = 10.0


def platform(node: Node, changes: Sequence[WhatIf]) -> PlatformFacts:
    """Facts of a node, of its platform or its own; the bandwidth of its memory may be given."""
    name, own = node.platform, node.memory_bandwidth_gbs
    document = load_platform(name)
    if own:
        document = {**document, BANDWIDTH: {"value": own}}
        # Of a platform that lacks it, what is given is of the nodes that have none of their own.
        missing = (name, BANDWIDTH) if lacks(name, BANDWIDTH) else None
        changes = [one for one in changes if (one.name, one.key) != missing]
    elif lacks(name, BANDWIDTH):
        given = [one for one in changes if (one.name, one.key) == (name, BANDWIDTH)]
        if not given:
            raise InputError(
                f"Platform {name!r} has no memory bandwidth; give what was measured of it, GB/s: "
                f"--what-if platform.{name}.{BANDWIDTH}=60."
            )
        document = {**document, BANDWIDTH: {"value": given[0].value}}
    return of_platform(platform_facts(document), changes)


def lacks(name: str, key: str) -> bool:
    """Whether the platform's file lacks a fact that a what-if can give."""
    document = load_platform(name)
    if key == BANDWIDTH:
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
    known |= of_link(fabric.name, changes)
    return fabric_facts(fabric.kind, transport, fabric.speed_gbps, **known)


def constants(
    strategy: Strategy, model: ModelFacts, kind: str, changes: Sequence[WhatIf]
) -> Constants | None:
    """The constants of an engine with what-ifs about it; None: those that the model chooses."""
    if not any(one.group == "engine" for one in changes):
        return None
    known = choose(family(strategy, kind), kind).of(strategy, model)
    return of_constants(strategy.engine, known, changes)


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
