"""Facts of a way's nodes, link and engine, with some of them taken to be different."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nixwulf.cluster import Fabric
from nixwulf.errors import InputError
from nixwulf.model.constants import Constants, choose, family
from nixwulf.model.facts import FabricFacts, PlatformFacts, Way, platform_facts
from nixwulf.model.links import fabric_facts
from nixwulf.platforms import load_platform
from nixwulf.predicting import what_if
from nixwulf.predicting.what_if import WhatIf


def platform(name: str, changes: Sequence[WhatIf]) -> PlatformFacts:
    """Facts of a platform; of one without a memory bandwidth, with the one that is given."""
    document = load_platform(name)
    if not has_bandwidth(name):
        given = [one for one in changes if (one.name, one.key) == (name, what_if.BANDWIDTH)]
        if not given:
            raise InputError(
                f"Platform {name!r} has no memory bandwidth; give what was measured of it, GB/s: "
                f"--what-if platform.{name}.{what_if.BANDWIDTH}=60."
            )
        document = {**document, what_if.BANDWIDTH: {"value": given[0].value}}
    return what_if.of_platform(platform_facts(document), changes)


def has_bandwidth(name: str) -> bool:
    """Whether a platform has a bandwidth of its memory, measured or nominal."""
    return bool({what_if.BANDWIDTH, "memory_bandwidth_nominal_gbs"} & load_platform(name).keys())


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


def constants(way: Way, kind: str, changes: Sequence[WhatIf]) -> Constants | None:
    """None: those that the model chooses."""
    if not any(one.group == "engine" for one in changes):
        return None
    return what_if.of_constants(way.engine, choose(family(way, kind), kind), changes)
