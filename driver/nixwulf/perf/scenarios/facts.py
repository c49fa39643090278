"""Facts of a way's nodes, link and engine, with some of them taken to be different."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Fabric
from nixwulf.inventory.platforms import load_platform
from nixwulf.perf.constants import Constants, choose, family
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy, platform_facts
from nixwulf.perf.links import fabric_facts
from nixwulf.perf.scenarios import what_if
from nixwulf.perf.scenarios.what_if import WhatIf


def platform(name: str, changes: Sequence[WhatIf]) -> PlatformFacts:
    """Facts of a platform; of one without a memory bandwidth, with the one that is given."""
    document = load_platform(name)
    if lacks(name, what_if.BANDWIDTH):
        given = [one for one in changes if (one.name, one.key) == (name, what_if.BANDWIDTH)]
        if not given:
            raise InputError(
                f"Platform {name!r} has no memory bandwidth; give what was measured of it, GB/s: "
                f"--what-if platform.{name}.{what_if.BANDWIDTH}=60."
            )
        document = {**document, what_if.BANDWIDTH: {"value": given[0].value}}
    return what_if.of_platform(platform_facts(document), changes)


def lacks(name: str, key: str) -> bool:
    """Whether nothing is known of what a what-if about a platform gives."""
    document = load_platform(name)
    if key == what_if.BANDWIDTH:
        return not {key, "memory_bandwidth_nominal_gbs"} & document.keys()
    # Of a CPU, HPL tells it.
    of_hpl = key == "compute_tflops" and kind_of(name) == "cpu" and "hpl_gflops" in document
    return key not in document and not of_hpl


def kind_of(platform: str) -> str:
    """Who made the device that computes, or 'cpu'."""
    gpu = load_platform(platform).get("gpu")
    return str(gpu["vendor"]) if gpu else "cpu"


def link(
    fabric: Fabric,
    transport: str,
    measured: Mapping[str, float],
    changes: Sequence[WhatIf],
) -> FabricFacts:
    """Of a fabric; measured: its rtt_us and bandwidth_gbps of TCP, which tell nothing of RDMA."""
    known = dict(measured) if transport == "tcp" else {}
    known |= what_if.of_link(fabric.name, changes)
    return fabric_facts(
        fabric.kind,
        transport,
        fabric.speed_gbps,
        rtt_us=known.get("rtt_us"),
        bandwidth_gbps=known.get("bandwidth_gbps"),
    )


def constants(strategy: Strategy, kind: str, changes: Sequence[WhatIf]) -> Constants | None:
    """None: those that the model chooses."""
    if not any(one.group == "engine" for one in changes):
        return None
    return what_if.of_constants(strategy.engine, choose(family(strategy, kind), kind), changes)
