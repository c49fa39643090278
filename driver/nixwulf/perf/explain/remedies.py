"""Faster ways to run a case, the cheapest first: measured by the same records, else predicted.

What was measured is never predicted as well: a strategy that these records show to be no faster is
no remedy, whatever the model says of it.

What would make a case faster, and what no machine of its kind can exceed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import hypot
from typing import Literal, get_args

from nixwulf.core.errors import InputError
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.explain.measured import MeasuredCase
from nixwulf.perf.explain.subject import RunPlan, facts_of
from nixwulf.perf.inputs import (
    PARALLELISMS,
    Constants,
    FabricFacts,
    PlatformFacts,
    Strategy,
    fabric_facts,
)
from nixwulf.perf.predict import Prediction, predict, token_parts
from nixwulf.perf.scenarios.candidates import point_of
from nixwulf.perf.scenarios.facts import ModelDescription
from nixwulf.perf.scenarios.forecast import room, shared_out
from nixwulf.perf.work import Configuration, forward
from nixwulf.plugins import engines
from nixwulf.plugins.runtime import upstream
from nixwulf.plugins.runtime.memory import FASTEST
from nixwulf.results.identity import PLACE
from nixwulf.results.record import Record

ENOUGH = 5
"""Percent; a change of less is no help."""


@dataclass(frozen=True)
class PredictionInputs:
    """A case with its nodes and link, as the model predicts it."""

    platforms: tuple[PlatformFacts, ...]
    model: ModelFacts
    strategy: Strategy
    fabric: FabricFacts | None
    constants: Constants
    metric: str

    @property
    def configuration(self) -> Configuration:
        """The configuration: what runs, and on what."""
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
    """A change and the factor by which it helps; of_link: 'trips' or 'rate' for one of the link."""

    what: str
    factor: float
    of_link: str = ""

    @property
    def enough(self) -> bool:
        """Tell whether it is worth anything, in the whole percent that are shown."""
        return round(100 * (self.factor - 1)) >= ENOUGH


Change = Callable[[PredictionInputs, float], PredictionInputs]
"""A case with one quantity so many times better."""


def faster_memory(one: PredictionInputs, times: float) -> PredictionInputs:
    """The bandwidth of all nodes' memory."""
    faster = (replace(node, bandwidth_gbs=times * node.bandwidth_gbs) for node in one.platforms)
    return replace(one, platforms=tuple(faster))


def more_compute(one: PredictionInputs, times: float) -> PredictionInputs:
    """The compute of all nodes."""
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
    """Try each change, the most helpful first; those of links on several nodes only."""
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
    platforms, model = map(_at_its_best, setting.platforms), _at_its_least(setting.model)
    of = setting.configuration._replace(platforms=list(platforms), model=model)
    work = forward(of, tokens=tokens, sequences=strategy.batch, depth=strategy.depth)
    # Prompts of a pipeline can be on all nodes at once; one sequence is on one at a time.
    several = nodes if prompt and strategy.parallelism == "pipeline" else 1
    seconds = work.compute if prompt else work.weights + work.cache
    return several * tokens / seconds if seconds else None


def _at_its_least(model: ModelFacts) -> ModelFacts:
    """Return the model with other weights no finer than the experts, where only a name says so."""
    weights = model.weights
    if not weights.assumptions:
        return model
    least = min(weights.other_bits, weights.routed_bits)
    return model.quantized(replace(weights, other_bits=least))


def _at_its_best(node: PlatformFacts) -> PlatformFacts:
    known = facts_of(node.name)
    nominal = known.get("memory_bandwidth_nominal_gbs", {}).get("value", 0.0) if known else 0.0
    return replace(node, bandwidth_gbs=max(node.bandwidth_gbs, nominal))


Kind = Literal[
    "one-node", "fewer-nodes", "replicas", "split", "parameter", "engine", "transport", "fabric"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In order of what they cost: nodes are saved, nothing but words of a sweep changes, a network has
to be there."""
Alternative = tuple[Kind, str, MeasuredCase]
_PROMPT = 512  # tokens, of a case that has no prompt
_DEVIATIONS = 2.0  # of the ratio of two means: less is chance


@dataclass(frozen=True)
class Remedy:
    """A way to run a case faster.

    what: it in words. speed: tok/s that it gives, measured or predicted. factor: against the same
    of the case as it is. costs: of the other metric, prompt or decode, what it would be less, as a
    predicted factor; None where it is not less, or not known.
    """

    kind: Kind
    what: str
    speed: float
    factor: float
    measured: bool
    costs: float | None = None


Way = tuple[Remedy, PredictionInputs | None]
"""A remedy, its costs still unknown, and the case as it is then; None without a prediction."""


def remedies(
    one: MeasuredCase,
    beside: Sequence[MeasuredCase],
    inputs: PredictionInputs | None,
    plan: RunPlan,
) -> tuple[Remedy, ...]:
    """List a case's remedies, at most one of a kind, the cheapest first.

    beside: cases of the same work that differ in where, or in one parameter. inputs: what its
    prediction is made of; None without one. plan: of its run, for its cluster's other fabrics.
    """
    alternatives: list[Alternative] = [
        (*difference, other)
        for other in beside
        if (difference := _difference(one.record, other.record))
    ]
    tried = {kind for kind, _, _ in alternatives}
    ways: list[Way] = list(_measured(one, alternatives, inputs))
    if inputs is not None:
        ways += (way for way in _predicted(one, inputs, plan) if way[0].kind not in tried)
    fastest: dict[Kind, Way] = {}
    for way in ways:
        kind = way[0].kind
        if kind not in fastest or way[0].speed > fastest[kind][0].speed:
            fastest[kind] = way
    found = (fastest[kind] for kind in KINDS if kind in fastest)
    # They take predictions too, so of those alone that are shown.
    other = _of_the_other_metric(inputs) if inputs else None
    return tuple(
        replace(remedy, costs=_costs(other, _of_the_other_metric(after)))
        if other and after
        else remedy
        for remedy, after in found
    )


def _measured(
    one: MeasuredCase, alternatives: Sequence[Alternative], inputs: PredictionInputs | None
) -> Iterator[Way]:
    for kind, what, other in alternatives:
        factor = other.value / one.value if one.value > 0 else 0.0
        least = max(ENOUGH / 100, _DEVIATIONS * hypot(one.error, other.error))
        if factor >= 1 + least:
            after = _run_as(other.record, inputs) if inputs and kind != "engine" else None
            yield Remedy(kind, what, other.value, factor, measured=True), after


def _run_as(record: Record, inputs: PredictionInputs) -> PredictionInputs:
    """The case on as many nodes, and split, as another record of the same work."""
    case = record["case"]
    strategy = replace(inputs.strategy, parallelism=case.get("parallelism", "single"))
    return replace(inputs, platforms=inputs.platforms[: case["nodes"]], strategy=strategy)


def _of_the_other_metric(one: PredictionInputs) -> PredictionInputs:
    strategy = replace(one.strategy, n_prompt=one.strategy.n_prompt or _PROMPT)
    return replace(one, metric="decode" if one.metric == "prompt" else "prompt", strategy=strategy)


def _costs(before: PredictionInputs, after: PredictionInputs) -> float | None:
    """The predicted factor where it becomes slower."""
    try:
        factor = after.speed / before.speed
    except (InputError, ZeroDivisionError):
        return None  # the model has no sums for it
    return factor if factor <= 1 - ENOUGH / 100 else None


def _difference(record: Record, other: Record) -> tuple[Kind, str] | None:
    """Describe how another record is run otherwise, if by one change; else None."""
    here, there = record["case"], other["case"]
    changed = [key for key in PLACE[1:] if here.get(key) != there.get(key)]
    if here.get("engine") != there.get("engine"):
        return "engine", f"{_engine(other)} in place of {_engine(record)}"
    before, after = here["parameters"], there["parameters"]
    # What a source does not state may be the same.
    parameters = [key for key in before.keys() & after if before[key] != after[key]]
    if here["nodes"] != there["nodes"]:
        if parameters or there["nodes"] > here["nodes"]:
            return None
        if there["nodes"] == 1:
            return "one-node", "one node"
        over = f" over {there['fabric']}" if "fabric" in there else ""  # replicas cross none
        how = f" by {there['parallelism']}{over}" if changed else ""
        return "fewer-nodes", f"{there['nodes']} nodes{how}"
    if len(changed) + len(parameters) != 1:
        return None
    if parameters:
        key = parameters[0]
        return "parameter", f"{key} {after[key]} in place of {before[key]}"
    key = changed[0]
    text = f"{there.get(key)} in place of {here.get(key)}"
    kinds: dict[str, Kind] = {"parallelism": "split", "transport": "transport", "fabric": "fabric"}
    return kinds[key], text


def _engine(record: Record) -> str:
    weights = record.get("model", {}).get("weights", "")
    return str(record["case"]["engine"]) + (f" with {weights}" if weights else "")


def _predicted(one: MeasuredCase, inputs: PredictionInputs, plan: RunPlan) -> Iterator[Way]:
    is_now = max(inputs.speed, one.value)
    for kind, what, other, copies in _strategies(one, inputs, plan):
        try:
            # Advice has to be true: nearly all of its interval is above what there is.
            sure = copies * other.speed > is_now and copies * other.prediction().low > is_now
        except InputError:
            continue  # the model has no sums for it, so it is no advice
        if sure:
            speed = copies * other.speed
            yield Remedy(kind, what, speed, speed / inputs.speed, measured=False), other


def _strategies(
    one: MeasuredCase, inputs: PredictionInputs, plan: RunPlan
) -> Iterator[tuple[Kind, str, PredictionInputs, int]]:
    """Yield other ways to run it that fit and that its engine has, last the copies that run."""
    if len(inputs.platforms) > 1:
        yield from _on_fewer_nodes(one, inputs)
        yield from _split_otherwise(one, inputs)
        for name, link in _fabrics(one.record, plan):
            text = f"{name} in place of {one.fabric}"
            yield "fabric", text, replace(inputs, fabric=link), 1


def _on_fewer_nodes(
    one: MeasuredCase, inputs: PredictionInputs
) -> Iterator[tuple[Kind, str, PredictionInputs, int]]:
    nodes, strategy = len(inputs.platforms), inputs.strategy
    alone = replace(strategy, parallelism="single")
    for platform in dict.fromkeys(inputs.platforms):
        if fits([platform], inputs.model, alone):
            single = replace(inputs, platforms=(platform,), strategy=alone, fabric=None)
            yield "one-node", "one node", single, 1
    if strategy.batch > 1 and inputs.metric == "decode":
        each = replace(alone, batch=max(1, strategy.batch // nodes))
        if all(fits([platform], inputs.model, each) for platform in inputs.platforms):
            single = replace(inputs, platforms=inputs.platforms[:1], strategy=each, fabric=None)
            yield "replicas", f"{nodes} copies, one on each node", single, nodes
    for count in range(2, nodes):
        fewer = inputs.platforms[:count]
        if fits(fewer, inputs.model, strategy) and _runs(one.record, inputs, strategy, count):
            yield "fewer-nodes", f"{count} nodes", replace(inputs, platforms=fewer), 1


def _split_otherwise(
    one: MeasuredCase, inputs: PredictionInputs
) -> Iterator[tuple[Kind, str, PredictionInputs, int]]:
    nodes, strategy = len(inputs.platforms), inputs.strategy
    for name in (other for other in PARALLELISMS[1:] if other != strategy.parallelism):
        other = replace(strategy, parallelism=name)
        if fits(inputs.platforms, inputs.model, other) and _runs(one.record, inputs, other, nodes):
            text = f"{name} in place of {strategy.parallelism}"
            yield "split", text, replace(inputs, strategy=other), 1
    split = one.record["case"]["parameters"].get("split", FASTEST)
    if strategy.parallelism == "pipeline" and split != FASTEST:
        model = ModelDescription(inputs.model.name, inputs.model)
        other = shared_out(inputs.platforms, model, strategy, FASTEST)
        if fits(inputs.platforms, inputs.model, other):
            text = f"split {FASTEST} in place of {split}"
            yield "parameter", text, replace(inputs, strategy=other), 1


def fits(platforms: Sequence[PlatformFacts], model: ModelFacts, strategy: Strategy) -> bool:
    """Tell whether it is known that a model fits on nodes, run so."""
    return room(platforms, ModelDescription(model.name, model), strategy).fits is True


def _runs(record: Record, inputs: PredictionInputs, strategy: Strategy, nodes: int) -> bool:
    case = record["case"]
    try:
        engine = engines.find(strategy.engine, "--engine")
    except InputError:
        return False
    version = record.get("engine", {}).get("version", "")
    if not upstream.splits(engine.name, version, strategy.parallelism):
        return False
    point = {
        **point_of(engine, inputs.model),
        "nodes": nodes,
        "parallelism": strategy.parallelism,
        "transport": case.get("transport", "tcp"),
        "fabric_kind": record.get("fabric", {}).get("kind"),
        "cables": None,
        "control": True,
        "gpus": {inputs.platforms[0].kind},
    }
    return engine.unsupported(point) is None


def _fabrics(record: Record, plan: RunPlan) -> Iterator[tuple[str, FabricFacts]]:
    """The other fabrics of the cluster that join as many nodes, as they usually are."""
    case = record["case"]
    for name, kind, speed_gbps, joined in plan.fabrics:
        if name == case.get("fabric") or joined < case["nodes"]:
            continue
        try:
            yield name, fabric_facts(kind, case.get("transport", "tcp"), speed_gbps)
        except InputError:
            continue  # nothing is known of it by this transport
