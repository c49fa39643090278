"""What no machine of a kind can exceed, whatever the engine."""

from __future__ import annotations

from dataclasses import replace

from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.explain.machines import facts_of
from nixwulf.perf.explain.sensitivity import PredictionInputs
from nixwulf.perf.inputs import PlatformFacts
from nixwulf.perf.work import forward


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
