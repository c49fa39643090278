"""What would make a case faster and what would not, by the model's sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.constants import Constants
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy
from nixwulf.perf.predict import predict

ENOUGH = 5
"""Percent; a change of less is no help."""


@dataclass(frozen=True)
class PredictionInputs:
    """All that a prediction is made of."""

    platforms: tuple[PlatformFacts, ...]
    model: ModelFacts
    strategy: Strategy
    fabric: FabricFacts | None
    constants: Constants
    metric: str

    def speed(self) -> float:
        """Tokens a second."""
        return predict(
            self.platforms,
            self.model,
            self.strategy,
            self.fabric,
            metric=self.metric,
            constants=self.constants,
        ).value


@dataclass(frozen=True)
class Sensitivity:
    """A change and the factor by which it makes a case faster."""

    what: str
    factor: float

    @property
    def enough(self) -> bool:
        """Whether it is worth anything, in the whole percent that are shown."""
        return round(100 * (self.factor - 1)) >= ENOUGH


def _memory(one: PredictionInputs) -> PredictionInputs:
    faster = (replace(node, bandwidth_gbs=2 * node.bandwidth_gbs) for node in one.platforms)
    return replace(one, platforms=tuple(faster))


def _compute(one: PredictionInputs) -> PredictionInputs:
    faster = (replace(node, tflops=2 * node.tflops) for node in one.platforms)
    return replace(one, platforms=tuple(faster))


def _host(one: PredictionInputs) -> PredictionInputs:
    known = one.constants
    halved = replace(
        known, layer_us=known.layer_us / 2, hop_us=known.hop_us / 2, sync_us=known.sync_us / 2
    )
    return replace(one, constants=halved)


def _latency(one: PredictionInputs) -> PredictionInputs:
    fabric = one.fabric and replace(one.fabric, rtt_us=one.fabric.rtt_us / 10)
    return replace(one, fabric=fabric)


def _bandwidth(one: PredictionInputs) -> PredictionInputs:
    fabric = one.fabric and replace(one.fabric, bandwidth_gbps=2 * one.fabric.bandwidth_gbps)
    return replace(one, fabric=fabric)


_OF_NODES: Sequence[tuple[str, Callable[[PredictionInputs], PredictionInputs]]] = (
    ("twice the bandwidth of memory", _memory),
    ("twice the compute", _compute),
    ("half of the host's time", _host),
)
_OF_LINKS: Sequence[tuple[str, Callable[[PredictionInputs], PredictionInputs]]] = (
    ("a tenth of the link's latency", _latency),
    ("twice the link's bandwidth", _bandwidth),
)


def sensitivities(setting: PredictionInputs) -> tuple[Sensitivity, ...]:
    """Each change, the most helpful first; those of links on several nodes only."""
    changes = [*_OF_NODES, *(_OF_LINKS if setting.fabric else ())]
    before = setting.speed()
    found = [Sensitivity(what, change(setting).speed() / before) for what, change in changes]
    return tuple(sorted(found, key=lambda one: -one.factor))
