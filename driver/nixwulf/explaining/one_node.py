"""Machines that no facts tell about: one node's measured speed stands for the machine.

The lab's nodes are such. All of one node's time is taken as reading weights and cache, or for a
prompt as computing; what several nodes add to it is the model's.
"""

from __future__ import annotations

from dataclasses import replace

from nixwulf.errors import InputError
from nixwulf.model.constants import Constants, choose, family
from nixwulf.model.facts import ModelFacts, PlatformFacts, Way
from nixwulf.model.predict import total

_KIND = "cpu"
_PERFECT = 1e9
_SURE = 0.05
"""Deviation of a speed that was measured on the same machine, in logarithms."""


def calibrated(
    name: str, model: ModelFacts, way: Way, metric: str, speed: float
) -> tuple[PlatformFacts, Constants]:
    """The platform that gives speed tok/s on one node, and constants that take nothing off it.

    Raises InputError for a speed that no machine has.
    """
    if not speed > 0:
        raise InputError(f"One node was measured at {speed!r} tok/s; expected more than 0.")
    alone = replace(way, parallelism="single")
    unit = PlatformFacts(name, _KIND, 1.0, 1.0)
    work, tokens = total([unit], model, alone, None, metric=metric)
    seconds = tokens / speed
    said = f"{name}: no published facts; the speed of one node measured in this run stands for it"
    if metric == "prompt":
        platform = PlatformFacts(name, _KIND, _PERFECT, work.compute / seconds, assumptions=(said,))
    else:
        read = work.weights + work.cache
        platform = PlatformFacts(name, _KIND, read / seconds, _PERFECT, assumptions=(said,))
    known = choose(family(way.engine, _KIND, graphs=way.graphs, parallelism=way.parallelism), _KIND)
    deviations = (_SURE, _SURE, _SURE, _SURE, *known.deviations[4:])
    return platform, replace(
        known, weights=1.0, cache=1.0, compute=1.0, layer_us=0.0, deviations=deviations
    )
