"""Machines that no facts tell about: speeds of the same run stand for them.

The lab's nodes are such. All of one node's time is taken as reading weights and cache, or for a
prompt as computing. What the host adds for each exchange is the model's, or is what another fabric
of the run shows.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from nixwulf.core.errors import InputError
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.constants import Constants, choose, family
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy
from nixwulf.perf.predict import predict, total

_KIND = "cpu"
_PERFECT = 1e9
_SURE = 0.05
"""Deviation of speeds of the same machine at another time, in logarithms."""
_SEEN = 0.3
"""The same of the host's time: chosen, it is a small difference of two measured speeds."""


def calibrated(
    name: str, model: ModelFacts, strategy: Strategy, metric: str, speed: float, error: float
) -> tuple[PlatformFacts, Constants]:
    """The platform that gives speed tok/s on one node, and constants that take nothing off it.

    error: how far off that speed may be, as a share of it. All that stands on it may be as far off.
    Raises InputError for a speed that no machine has.
    """
    if not speed > 0:
        raise InputError(f"One node was measured at {speed!r} tok/s; expected more than 0.")
    alone = replace(strategy, parallelism="single")
    unit = PlatformFacts(name, _KIND, 1.0, 1.0)
    work, tokens = total([unit], model, alone, None, metric=metric)
    seconds = tokens / speed
    assumption = (
        f"{name}: no published facts; the speed of one node measured in this run stands for it"
    )
    if metric == "prompt":
        computed = work.compute + work.attention
        platform = PlatformFacts(
            name, _KIND, _PERFECT, computed / seconds, assumptions=(assumption,)
        )
    else:
        read = work.weights + work.cache
        platform = PlatformFacts(name, _KIND, read / seconds, _PERFECT, assumptions=(assumption,))
    known = choose(family(strategy, _KIND), _KIND)
    sure = hypot(_SURE, error)
    deviations = (sure, sure, sure, sure, *known.deviations[4:6], sure)
    return platform, replace(
        known,
        weights=1.0,
        cache=1.0,
        compute=1.0,
        layer_us=0.0,
        attention=1.0,
        deviations=deviations,
    )


def with_exchanges_of(
    constants: Constants,
    node: PlatformFacts,
    nodes: int,
    model: ModelFacts,
    strategy: Strategy,
    fabric: FabricFacts,
    metric: str,
    speed: float,
) -> Constants:
    """The host's time for an exchange such that nodes on a fabric give speed tok/s."""
    free = replace(constants, hop_us=0.0, sync_us=0.0)
    cluster = [node] * nodes
    without = predict(cluster, model, strategy, fabric, metric=metric, constants=free)
    work, tokens = total(cluster, model, strategy, fabric, metric=metric)
    microseconds = 1e6 * max(0.0, 1 / speed - 1 / without.value) * tokens
    deviations = (*constants.deviations[:4], _SEEN, _SEEN, *constants.deviations[6:])
    return replace(
        constants,
        hop_us=microseconds / (work.hops or 1.0),
        sync_us=microseconds / (work.syncs or 1.0),
        deviations=deviations,
    )
