"""What a fact that is off costs a case, by the sensitivity of the case to the quantity it slows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nixwulf.perf.explain.diagnostics import Diagnostic, Slows
from nixwulf.perf.explain.remedies import (
    Change,
    PredictionInputs,
    faster_memory,
    higher_rate,
    more_compute,
    quicker_host,
    shorter_trips,
)

LEAST = 3
"""Percent; a fact that costs less is no cause: as much is the noise of repeated runs."""

_OF_NODES = ("nodes", "processors")
_ALL_OF_NODES = (quicker_host, faster_memory, more_compute)
_QUANTITIES: Mapping[Slows, Sequence[Change]] = {
    "nodes": _ALL_OF_NODES,
    "processors": _ALL_OF_NODES,
    "rate": (higher_rate,),
    "trips": (shorter_trips,),
    "link": (higher_rate, shorter_trips),
}
_TWICE = 2.0


@dataclass(frozen=True)
class WeighedDiagnostic:
    """A diagnostic, and the factor by which the case would be faster without it.

    factor: None where nothing can be predicted. Of a quantity that is worse by an unknown factor it
    is what twice as much of it would give, and shows only whether the case depends on it.
    """

    diagnostic: Diagnostic
    factor: float | None

    @property
    def enough(self) -> bool:
        """Whether it may be what slows the case, in the whole percent that are shown.

        Without a prediction nobody knows whether a case depends on its link, and all do on nodes.
        """
        if self.factor is None:
            return self.diagnostic.slows in _OF_NODES
        return round(100 * (self.factor - 1)) >= LEAST

    @property
    def known(self) -> float | None:
        """The factor where it is one that may be stated."""
        return self.factor if self.diagnostic.times or self.diagnostic.mended else None


def weighed(found: Iterable[Diagnostic], inputs: PredictionInputs) -> list[WeighedDiagnostic]:
    """Diagnostics of a case with their costs, the dearest first."""
    causes = [WeighedDiagnostic(one, without(one, inputs).speed / inputs.speed) for one in found]
    return _ordered(causes)


def unpredicted(found: Iterable[Diagnostic], nodes: int) -> list[WeighedDiagnostic]:
    """The same of a case without a prediction: on one node nothing but the nodes takes time."""
    causes = []
    for one in found:
        times = (one.times or _TWICE) if one.slows in _OF_NODES else 1.0
        factor = times if nodes == 1 else None
        causes.append(WeighedDiagnostic(one, factor if one.slows else 1.0))
    return _ordered(causes)


def _ordered(causes: Iterable[WeighedDiagnostic]) -> list[WeighedDiagnostic]:
    return sorted(causes, key=lambda cause: -(cause.factor or 1.0))


def without(one: Diagnostic, inputs: PredictionInputs) -> PredictionInputs:
    """The case as it would be without a fact."""
    if one.mended is not None:
        return replace(inputs, fabric=one.mended)
    return improved(inputs, one.slows, one.times or _TWICE)


def improved(inputs: PredictionInputs, slows: Slows, times: float) -> PredictionInputs:
    """The case with a quantity so many times better.

    slows: the quantity; one that no speed depends on changes nothing.
    """
    for change in _changes(slows, inputs.platforms[0].kind):
        inputs = change(inputs, times)
    return inputs


def _changes(slows: Slows, kind: str) -> Sequence[Change]:
    """What a quantity is made of, on a kind of device."""
    if slows == "processors" and kind != "cpu":
        return (quicker_host,)
    return _QUANTITIES.get(slows, ())
