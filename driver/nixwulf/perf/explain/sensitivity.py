"""What would make a case faster, and what no machine of its kind can exceed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.constants import Constants
from nixwulf.perf.explain.subject import facts_of
from nixwulf.perf.inputs import FabricFacts, PlatformFacts, Strategy
from nixwulf.perf.predict import Configuration, Prediction, predict, token_parts
from nixwulf.perf.work import forward

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

    @property
    def configuration(self) -> Configuration:
        """What runs on what."""
        return Configuration(self.platforms, self.model, self.strategy, self.fabric)

    def prediction(self) -> Prediction:
        """Tokens a second with their interval."""
        return predict(*self.configuration, metric=self.metric, constants=self.constants)

    @cached_property
    def speed(self) -> float:
        """Tokens a second, for which no interval is computed: a case asks for 15."""
        parts, _ = token_parts(self.configuration, self.metric, self.constants)
        return 1 / sum(parts.values())


@dataclass(frozen=True)
class Sensitivity:
    """A change and the factor by which it makes a case faster.

    of_link: 'trips' or 'rate' where the change is one of the link.
    """

    what: str
    factor: float
    of_link: str = ""

    @property
    def enough(self) -> bool:
        """Whether it is worth anything, in the whole percent that are shown."""
        return round(100 * (self.factor - 1)) >= ENOUGH


Change = Callable[[PredictionInputs, float], PredictionInputs]
"""A case with one quantity so many times better."""


def faster_memory(one: PredictionInputs, times: float) -> PredictionInputs:
    """Its bandwidth, of all nodes."""
    faster = (replace(node, bandwidth_gbs=times * node.bandwidth_gbs) for node in one.platforms)
    return replace(one, platforms=tuple(faster))


def more_compute(one: PredictionInputs, times: float) -> PredictionInputs:
    """Of all nodes."""
    faster = (replace(node, tflops=times * node.tflops) for node in one.platforms)
    return replace(one, platforms=tuple(faster))


def quicker_host(one: PredictionInputs, times: float) -> PredictionInputs:
    """The host's time for layers, hops and sums."""
    known = one.constants
    quicker = replace(
        known,
        layer_us=known.layer_us / times,
        hop_us=known.hop_us / times,
        sync_us=known.sync_us / times,
    )
    return replace(one, constants=quicker)


def shorter_trips(one: PredictionInputs, times: float) -> PredictionInputs:
    """Round trips of the link; nothing without one."""
    fabric = one.fabric and replace(one.fabric, rtt_us=one.fabric.rtt_us / times)
    return replace(one, fabric=fabric)


def higher_rate(one: PredictionInputs, times: float) -> PredictionInputs:
    """Bandwidth of the link; nothing without one."""
    fabric = one.fabric and replace(one.fabric, bandwidth_gbps=times * one.fabric.bandwidth_gbps)
    return replace(one, fabric=fabric)


# In words, by how many times, and the quantity where it is one of the link.
_OF_NODES: Sequence[tuple[str, Change, float, str]] = (
    ("twice the bandwidth of memory", faster_memory, 2, ""),
    ("twice the compute", more_compute, 2, ""),
    ("half of the host's time", quicker_host, 2, ""),
)
_OF_LINKS: Sequence[tuple[str, Change, float, str]] = (
    ("a tenth of the link's latency", shorter_trips, 10, "trips"),
    ("twice the link's bandwidth", higher_rate, 2, "rate"),
)


def sensitivities(setting: PredictionInputs) -> tuple[Sensitivity, ...]:
    """Each change, the most helpful first; those of links on several nodes only."""
    changes = [*_OF_NODES, *(_OF_LINKS if setting.fabric else ())]
    before = setting.speed
    found = [
        Sensitivity(what, change(setting, times).speed / before, of_link)
        for what, change, times, of_link in changes
    ]
    return tuple(sorted(found, key=lambda one: -one.factor))


def roofline(setting: PredictionInputs) -> float | None:
    """Tokens a second when nothing takes time but what the hardware alone has to do.

    By the nominal bandwidth, where it is more than what was measured, and by the fewest bits that
    the name of a quantization can mean. None for a batch whose experts are not known: how many of
    them it reads is a guess.
    """
    nodes, strategy = len(setting.platforms), setting.strategy
    if setting.metric == "decode" and strategy.batch > 1 and setting.model.routed:
        return None
    prompt = setting.metric == "prompt"
    tokens = strategy.n_prompt if prompt else strategy.batch
    work = forward(
        [_at_its_best(node) for node in setting.platforms],
        _at_its_least(setting.model),
        setting.fabric,
        strategy,
        tokens=tokens,
        sequences=strategy.batch,
        depth=strategy.depth,
    )
    # Prompts of a pipeline can be on all nodes at once; one sequence is on one at a time.
    several = nodes if prompt and strategy.parallelism == "pipeline" else 1
    seconds = work.compute if prompt else work.weights + work.cache
    return several * tokens / seconds if seconds else None


def _at_its_least(model: ModelFacts) -> ModelFacts:
    """What is finer than the experts by a name only may be as they are."""
    weights = model.weights
    if not weights.assumptions:
        return model
    return model.quantized(
        replace(weights, other_bits=min(weights.other_bits, weights.routed_bits))
    )


def _at_its_best(node: PlatformFacts) -> PlatformFacts:
    nominal = (facts_of(node.name) or {}).get("memory_bandwidth_nominal_gbs", {}).get("value", 0.0)
    return replace(node, bandwidth_gbs=max(node.bandwidth_gbs, nominal))
