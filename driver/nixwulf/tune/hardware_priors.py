"""Facts that nobody knows of a platform, as of the lab: assumed until a strategy is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nixwulf.inventory.cluster import Cluster
from nixwulf.inventory.platforms import load_platform
from nixwulf.perf.scenarios.facts import kind_of, lacks
from nixwulf.perf.scenarios.what_if import BANDWIDTH, WhatIf

# Chosen: two channels of DDR4 and a few cores, or a small GPU.
_ASSUMED_GBS = 20.0
_FLOPS_A_BYTE = {"cpu": 5.0}
_FLOPS_A_BYTE_OF_GPU = 100.0
_COMPUTE = "compute_tflops"
_COMPUTING = ("compute", "attention")  # parts of a time
_UNKNOWN = 1.0
_OWN = 0.04


def widened(
    deviations: Mapping[str, float], platforms: Sequence[str]
) -> tuple[dict[str, float], float]:
    """Deviations of the constants' logarithms there, and the least variance of a strategy's own.

    No constant of a machine that nobody measured is known to better than a factor of e.
    """
    if any(lacks(platform, BANDWIDTH) for platform in platforms):
        return {part: max(_UNKNOWN, one) for part, one in deviations.items()}, _OWN
    if any(lacks(platform, _COMPUTE) for platform in platforms):
        return {**deviations, **{part: max(_UNKNOWN, deviations[part]) for part in _COMPUTING}}, 0.0
    return dict(deviations), 0.0


def assumed(cluster: Cluster) -> tuple[WhatIf, ...]:
    """Facts that nobody knows of the cluster's platforms, taken to be some until measured."""
    found = []
    for platform in dict.fromkeys(node.platform for node in cluster.nodes):
        document = load_platform(platform)
        gbs = _ASSUMED_GBS
        if lacks(platform, BANDWIDTH):
            found.append(WhatIf("platform", platform, BANDWIDTH, gbs))
        else:
            values = [document.get(key, {}).get("value")
                      for key in (BANDWIDTH, "memory_bandwidth_nominal_gbs")]  # fmt: skip
            gbs = next(value for value in values if value)
        if lacks(platform, _COMPUTE):
            ratio = _FLOPS_A_BYTE.get(kind_of(platform), _FLOPS_A_BYTE_OF_GPU)
            found.append(WhatIf("platform", platform, _COMPUTE, gbs * ratio / 1e3))
    return tuple(found)


def missing(cluster: Cluster) -> tuple[str, ...]:
    """As a command line gives what has to be known before anything is predicted."""
    return tuple(one.text for one in assumed(cluster) if lacks(one.name, BANDWIDTH))


def assumption_sentences(platforms: Sequence[str]) -> list[str]:
    """A sentence for each of them that something is not known of."""
    found = []
    for platform in platforms:
        if lacks(platform, BANDWIDTH):
            found.append(
                f"{platform}: nobody measured its memory; {_ASSUMED_GBS:g} GB/s, give or take a "
                "factor of three, until a strategy is measured"
            )
        elif lacks(platform, _COMPUTE):
            found.append(
                f"{platform}: its compute is not known; guessed until a strategy is measured"
            )
    return found
