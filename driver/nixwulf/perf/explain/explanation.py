"""Records explained: for each case measured beside predicted, the bottleneck, and what is wrong.

Machines without published facts, such as the lab's nodes, are described by speeds of the same run:
all of one node's time is taken as reading weights and cache, or for a prompt as computing. What the
host adds for each exchange is the model's, or is what another fabric of the run shows.

What a fact that is off costs a case, by the sensitivity of the case to the quantity it slows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, prod
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.explain.diagnostics import Diagnostic, Slows
from nixwulf.perf.explain.measured import (
    BaselineIndex,
    MeasuredCase,
    Unmeasured,
    measured_in,
    out_of_cache,
)
from nixwulf.perf.explain.remedies import (
    Change,
    PredictionInputs,
    Remedy,
    Sensitivity,
    faster_memory,
    higher_rate,
    more_compute,
    quicker_host,
    remedies,
    roofline,
    sensitivities,
    shorter_trips,
)
from nixwulf.perf.explain.subject import CaseInputs, RunPlan, batch, fabric_of, run_plan, subject_of
from nixwulf.perf.inputs import Constants, PlatformFacts, Strategy, choose, family
from nixwulf.perf.predict import Prediction, predict, total
from nixwulf.perf.work import Configuration
from nixwulf.results.record import Record, RecordedCase
from nixwulf.results.store import PLAN, read_entries, read_plan

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
        """Tell whether it may be what slows the case, in the whole percent that are shown.

        Without a prediction nobody knows whether a case depends on its link, and all do on nodes.
        """
        if self.factor is None:
            return self.diagnostic.slows in _OF_NODES
        return round(100 * (self.factor - 1)) >= LEAST

    @property
    def known(self) -> float | None:
        """The factor where it is one that may be stated."""
        return self.factor if self.diagnostic.times or self.diagnostic.mended else None


def unpredicted(found: Iterable[Diagnostic], nodes: int) -> tuple[WeighedDiagnostic, ...]:
    """Diagnostics of a case without a prediction: on one node only the nodes take time."""
    causes = []
    for one in found:
        times = (one.times or _TWICE) if one.slows in _OF_NODES else 1.0
        factor = times if nodes == 1 else None
        causes.append(WeighedDiagnostic(one, factor if one.slows else 1.0))
    return _ordered(causes)


def _ordered(causes: Iterable[WeighedDiagnostic]) -> tuple[WeighedDiagnostic, ...]:
    return tuple(sorted(causes, key=lambda cause: -(cause.factor or 1.0)))


def without(one: Diagnostic, inputs: PredictionInputs) -> PredictionInputs:
    """The case as it would be without a fact."""
    if one.mended is not None:
        return replace(inputs, fabric=one.mended)
    host = one.slows == "processors" and inputs.platforms[0].kind != "cpu"
    for change in (quicker_host,) if host else _QUANTITIES.get(one.slows, ()):
        inputs = change(inputs, one.times or _TWICE)
    return inputs


_KIND = "cpu"
_PERFECT = 1e9
_SURE = 0.05
"""Deviation of speeds of the same machine at another time, in logarithms."""
_SEEN = 0.3
"""The same of the host's time: chosen, it is a small difference of two measured speeds."""

_HALF = 0.5
_SURELY = 1.1  # bits of a weight by the name of a quantization are that far off


@dataclass(frozen=True)
class Explained:
    """A metric of a case: tok/s measured and predicted, or in why_not what is missing.

    roofline: what no machine of this kind can exceed, tok/s; None where it is not known.
    causes: facts that are off, with what each costs. remedies: faster ways to run it. calibrated:
    the prediction stands on what the same run measured, which the same facts may have slowed.
    record: the first of its runs; conditions: of the metric; cluster_file: of its run, or empty.
    """

    record: Record
    conditions: Mapping[str, Any]
    metric: str
    measured: float
    runs: int
    prediction: Prediction | None = None
    sensitivities: tuple[Sensitivity, ...] = ()
    roofline: float | None = None
    causes: tuple[WeighedDiagnostic, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    calibrated: bool = False
    cluster_file: str = ""
    why_not: str = ""

    @property
    def case(self) -> RecordedCase:
        """The case."""
        case: RecordedCase = self.record["case"]
        return case

    @property
    def verdict(self) -> str:
        """Judge it in a few words; empty without a prediction."""
        prediction = self.prediction
        if prediction is None:
            return ""
        if self.roofline and self.measured > _SURELY * self.roofline:
            return "cannot be right"
        if self.measured > prediction.high:
            return "faster than predicted"
        if self.measured <= _HALF * prediction.low:
            return "below half of the interval"
        return "slower than predicted" if self.measured < prediction.low else "as predicted"

    @property
    def is_slow(self) -> bool:
        """Tell whether it is below the interval of its prediction."""
        return self.prediction is not None and self.measured < self.prediction.low

    @property
    def slows(self) -> tuple[WeighedDiagnostic, ...]:
        """The causes that slow it, the dearest first.

        What a prediction does not include slows only a case that is slower than predicted, unless
        the same may have slowed what the prediction stands on.
        """
        any_may = self.is_slow or self.calibrated or self.prediction is None
        return tuple(
            cause
            for cause in self.causes
            if cause.enough and (any_may or cause.diagnostic.included)
        )

    @property
    def noticed(self) -> tuple[WeighedDiagnostic, ...]:
        """The facts that are off and are no cause."""
        return tuple(cause for cause in self.causes if cause not in self.slows)

    @property
    def costless(self) -> frozenset[str]:
        """Causes that cost nothing: sentences of facts, 'rate' and 'trips' of its link."""
        of_link = (s.of_link for s in self.sensitivities if round(100 * (s.factor - 1)) == 0)
        return frozenset(cause.diagnostic.text for cause in self.noticed) | frozenset(of_link)

    @property
    def unexplained(self) -> bool:
        """Tell whether it is outside its interval, and its causes do not bring it back."""
        if self.is_slow and self.prediction:
            return self.mended < self.prediction.low
        return self.verdict == "faster than predicted"

    @property
    def mended(self) -> float:
        """The most that could have been measured without the causes that no prediction includes."""
        factors = (
            inf if cause.known is None else cause.known
            for cause in self.slows
            if not cause.diagnostic.included
        )
        return self.measured * prod(factors)


def explain(path: Path) -> tuple[list[Explained], list[Unmeasured]]:
    """Explain a record, beside the others of its run, or folders; raises InputError for none."""
    run = path.parent.parent
    one_of_run = path.is_file() and (run / PLAN).exists()
    found = _with_plans(path)
    return explain_records(found, _with_plans(run) if one_of_run else ())


def explain_records(
    found: Sequence[tuple[Record, Mapping[str, object] | None]],
    beside: Sequence[tuple[Record, Mapping[str, object] | None]] = (),
) -> tuple[list[Explained], list[Unmeasured]]:
    """Explain records, each with the plan of its run where there is one.

    beside: those that they are held against, they themselves among them; empty: they alone.
    """
    plan_of = {id(record): run_plan(plan) for record, plan in found}
    measured, rest = measured_in([record for record, _ in found])
    baselines = BaselineIndex(
        measured_in([record for record, _ in beside])[0] if beside else measured
    )
    explained = [_explained(one, baselines, plan_of[id(one.record)]) for one in measured]
    return sorted(explained, key=_order), rest


def _with_plans(path: Path) -> list[tuple[Record, Mapping[str, object] | None]]:
    entries = list(read_entries(path))
    places = {entry.path.parent.parent / PLAN for entry in entries}
    plans = {place: read_plan(place) if place.exists() else None for place in places}
    return [(e.record, plans[e.path.parent.parent / PLAN]) for e in entries]


def _order(explained: Explained) -> tuple[str, str, int, str, str]:
    """Sort like cases beside each other, fewest nodes first."""
    case = explained.case
    split, fabric = case.get("parallelism", ""), case.get("fabric", "")
    return case.get("model", ""), case.get("engine", ""), case["nodes"], split, fabric


def _explained(one: MeasuredCase, baselines: BaselineIndex, plan: RunPlan) -> Explained:
    seen = (one.record, one.conditions, one.metric, one.value, one.runs)
    bare = Explained(*seen, cluster_file=plan.cluster_file)
    beside = [*baselines.beside(one), *baselines.by_other_engines(one)]
    found = (*one.diagnostics, *out_of_cache(one, baselines.of_all_models(one)))
    try:
        subject = subject_of(one.record, plan)
        setting = _setting(one, subject, baselines)
    except InputError as error:
        return replace(
            bare,
            why_not=error.message,
            causes=unpredicted(found, one.record["case"]["nodes"]),
            remedies=remedies(one, beside, None, plan),
        )
    return replace(
        bare,
        prediction=setting.prediction(),
        sensitivities=sensitivities(setting),
        roofline=roofline(setting) if subject.platforms else None,
        causes=_ordered(
            WeighedDiagnostic(fact, without(fact, setting).speed / setting.speed) for fact in found
        ),
        remedies=remedies(one, beside, setting, plan),
        calibrated=subject.platforms is None,
    )


def _setting(one: MeasuredCase, subject: CaseInputs, baselines: BaselineIndex) -> PredictionInputs:
    if one.metric == "decode" and "n_gen" not in one.conditions and batch(one.conditions) > 1:
        raise InputError("The record lacks the lengths of the concurrent sequences.")
    if one.conditions.get("requests", 1) > 1 and "concurrency" not in one.conditions:
        raise InputError(
            "The record does not state how many of its requests ran at once; it would need the "
            "client's --max-concurrency, in the output or in the command above it."
        )
    strategy = subject.strategy(one.conditions)
    if one.record["kind"] != "run" and strategy.batch > 1:
        raise InputError(
            "The record does not state whether the speed is of each sequence or of all."
        )
    platforms, constants = _machines(one, subject, baselines)
    if one.metric == "prompt":
        if not strategy.n_prompt:
            raise InputError("The record lacks the length of the prompt.")
        if slow := next((node.name for node in platforms if not node.tflops), ""):
            raise InputError(f"The compute_tflops of {slow!r} are not known.")
    return PredictionInputs(
        platforms, subject.model, strategy, subject.fabric, constants, one.metric
    )


def _machines(
    one: MeasuredCase, subject: CaseInputs, baselines: BaselineIndex
) -> tuple[tuple[PlatformFacts, ...], Constants]:
    strategy = subject.strategy(one.conditions)
    if subject.platforms:
        kind = subject.platforms[0].kind
        return subject.platforms, choose(family(strategy, kind), kind).of(strategy, subject.model)
    platform = one.record["nodes"][0]["platform"]
    if subject.nodes == 1:
        raise InputError(
            f"No facts are known for platform {platform!r}; its measured one-node speed is the "
            "baseline."
        )
    alone = baselines.on_one_node(one)
    if alone is None:
        raise InputError(
            f"No facts are known for platform {platform!r}, and this run measured no one node "
            "with the same parameters; add nodes: [1] to the sweep."
        )
    node, constants = calibrated(platform, subject.model, strategy, one.metric, *alone)
    other = baselines.on_another_fabric(one)
    link = fabric_of(other.record) if other else None
    if other and link:
        cluster = Configuration([node] * subject.nodes, subject.model, strategy, link)
        constants = with_exchanges_of(constants, cluster, one.metric, other.value)
        assumption = (
            f"{platform}: the host's time for an exchange on {one.fabric!r} is as on "
            f"{other.fabric!r} in it"
        )
        node = replace(node, assumptions=(*node.assumptions, assumption))
    return (node,) * subject.nodes, constants


def calibrated(
    name: str, model: ModelFacts, strategy: Strategy, metric: str, speed: float, error: float
) -> tuple[PlatformFacts, Constants]:
    """The platform that gives a speed on one node, and constants that take nothing off it.

    metric: what the speed, tok/s, is of: decode, prompt or serve. error: how far off it may be, as
    a share of it.

    Raises InputError: for a speed that no machine has.
    """
    if not speed > 0:
        raise InputError(f"One node was measured at {speed!r} tok/s; expected more than 0.")
    alone = replace(strategy, parallelism="single")
    unit = PlatformFacts(name, _KIND, 1.0, 1.0)
    work, tokens = total(Configuration([unit], model, alone, None), metric)
    seconds = tokens / speed
    assumption = (
        f"{name}: no published facts; the speed of one node measured in this run is taken for it"
    )
    speeds = (work.weights + work.cache) / seconds, _PERFECT
    if metric == "prompt":
        speeds = _PERFECT, (work.compute + work.attention) / seconds
    platform = PlatformFacts(name, _KIND, *speeds, assumptions=(assumption,))
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
        configurations={},
        offsets={},
        variants={},
        yearly=(),
        chips=frozenset({name}),
        models=known.models | {model.name},
    )


def with_exchanges_of(
    constants: Constants, cluster: Configuration, metric: str, speed: float
) -> Constants:
    """The constants with the host's time for an exchange such that nodes on a fabric give a speed.

    metric: what the speed, tok/s, is of: decode, prompt or serve.
    """
    free = replace(constants, hop_us=0.0, sync_us=0.0)
    without = predict(*cluster, metric=metric, constants=free)
    work, tokens = total(cluster, metric)
    microseconds = 1e6 * max(0.0, 1 / speed - 1 / without.value) * tokens
    deviations = (*constants.deviations[:4], _SEEN, _SEEN, *constants.deviations[6:])
    return replace(
        constants,
        hop_us=microseconds / (work.hops or 1.0),
        sync_us=microseconds / (work.syncs or 1.0),
        deviations=deviations,
    )
