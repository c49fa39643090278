"""What a fact that is off costs a case, by the sensitivity of the case to the quantity it slows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nixwulf.perf.explain.diagnostics import Diagnostic, Slows
from nixwulf.perf.explain.sensitivity import PredictionInputs

LEAST = 3
"""Percent; a fact that costs less is no cause: as much is the noise of repeated runs."""

_OF_NODES = ("nodes", "processors")
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
    before = inputs.speed()
    causes = [WeighedDiagnostic(one, without(one, inputs).speed() / before) for one in found]
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

    Args:
        inputs: of its prediction.
        slows: the quantity; one that no speed depends on changes nothing.
        times: how many times better.
    """
    fabric = inputs.fabric
    if slows in ("rate", "trips", "link") and fabric is not None:
        if slows in ("rate", "link"):
            fabric = replace(fabric, bandwidth_gbps=fabric.bandwidth_gbps * times)
        if slows in ("trips", "link"):
            fabric = replace(fabric, rtt_us=fabric.rtt_us / times)
        return replace(inputs, fabric=fabric)
    if slows not in _OF_NODES:
        return inputs
    known = inputs.constants
    constants = replace(
        known,
        layer_us=known.layer_us / times,
        hop_us=known.hop_us / times,
        sync_us=known.sync_us / times,
    )
    if slows == "processors" and inputs.platforms[0].kind != "cpu":
        return replace(inputs, constants=constants)
    platforms = tuple(
        replace(one, bandwidth_gbs=times * one.bandwidth_gbs, tflops=times * one.tflops)
        for one in inputs.platforms
    )
    return replace(inputs, constants=constants, platforms=platforms)
