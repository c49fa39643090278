"""The search: what is measured, what the rest should give, which strategy is next, when to stop.

It measures with the sessions and runs of `nixwulf bench`.

The prior is what is expected of a strategy before it is measured, and how long measuring it takes.
The posterior is what measurements teach about the strategies that were not measured: the logarithm
of a time is that of the sum of its parts, each over or times a constant of its engine, plus what
all strategies on these machines have in common, plus what is its own. Constants are known with a
deviation (nixwulf.perf.inputs), so each measured strategy narrows them for the others: one node
determines the weights and the dispatch, a pipeline its hops, a split of tensors its sums.
Least squares of the logarithms with the constants' deviations as priors, by Gauss and Newton.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.core.errors import InputError
from nixwulf.core.interrupts import Pool, held_back
from nixwulf.core.text import Band
from nixwulf.nodes.facts import gather
from nixwulf.perf import inputs as facts
from nixwulf.perf.inputs import choose, fabric_facts, family
from nixwulf.perf.predict import QUANTILE_80
from nixwulf.perf.scenarios.candidates import Candidate, LeftOut, backends_of
from nixwulf.perf.scenarios.facts import kind_of, stated_links
from nixwulf.perf.scenarios.forecast import Forecast, forecast
from nixwulf.perf.work import PARTS, least_squares
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.case import Case, Limits
from nixwulf.plugins.runtime.run import slots_of
from nixwulf.results.identity import REPLICAS
from nixwulf.results.record import Record, save
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.session import Observer, Session, of_used_nodes, record_path, run_one, session
from nixwulf.tune.options import (
    REQUESTS_A_SLOT,
    SERVE,
    Measurement,
    Option,
    PredictedTime,
    Request,
    assumed,
    assumption_sentences,
    measurement_of,
    options,
    predicted_time,
    question,
    widened,
)

if TYPE_CHECKING:
    from nixwulf.perf.work import Array

_START_S = 15.0  # chosen; facts, gates, and the link before a run and after it
_LAB_START_S = 4.0
_DISK = 2e9  # bytes a second: chosen, half of what an NVMe disk reads
_LOADS = 3  # one node for the text to compare with, the strategy itself for its own, the benchmark
_CHECKED = 64  # tokens: twice phases.SANITY_TOKENS
_PROMPT_OVER_DECODE = 10.0  # of machines whose compute is not known


@dataclass(frozen=True)
class Prior:
    """A strategy before it is measured: its prior, how long measuring takes, what is assumed."""

    model: OptionModel
    seconds: float
    assumptions: tuple[str, ...]


def prior_of(
    request: Request, option: Option, links: Mapping[str, Mapping[str, float]]
) -> Prior | None:
    """The prior of a strategy, of links by fabric; None where it cannot be predicted."""
    asked = question(request, option.engine, links)
    found = forecast(asked, option.candidate, assumed(request.cluster))
    beside = option.candidate.parallelism == REPLICAS
    slots = slots_of(request.batch, len(option.candidate.servers))
    time = predicted_time(request.goal, found, request.n_prompt, request.n_gen, slots)
    if time is None:
        return None
    kind = kind_of(option.candidate.nodes[0].platform)
    split = "single" if beside else option.candidate.parallelism
    backend = next(iter(backends_of(option.candidate.nodes[0].platform)), "")
    strategy = facts.Strategy(option.engine, split, backend=backend)
    name = family(strategy, kind)
    constants = choose(name, kind).of(strategy, request.subject.model.facts)
    platforms = sorted({node.platform for node in option.candidate.nodes})
    published = dict(zip(PARTS, constants.deviations, strict=True))
    deviations, least = widened(published, platforms)
    model = OptionModel(name, time.parts, deviations, max(least, unexplained(time, published)))
    # predict's own options do not exist here.
    known = (one.partition("; give --what-if")[0] for one in found.assumptions)
    assumptions = dict.fromkeys((*known, *assumption_sentences(platforms)))
    cost = _seconds(request, option, found, links)
    return Prior(model, cost, tuple(assumptions))


def _seconds(
    request: Request, option: Option, found: Forecast, links: Mapping[str, Mapping[str, float]]
) -> float:
    """The estimated duration of one run; weights are read, and llama.cpp's cross the fabric."""
    weight_bytes = request.subject.model.facts.weight_bytes
    once = weight_bytes / _DISK
    if share := _moved(option):
        once += share * weight_bytes / _bytes_a_second(option.candidate, links)
    decode = found.decode.value / request.batch
    prompt = found.prompt.value / request.batch if found.prompt else 0.0
    one_pass = request.n_prompt / (prompt or _PROMPT_OVER_DECODE * decode) + request.n_gen / decode
    # Throughput is of all requests at once, so of each slot's one after the other.
    each = REQUESTS_A_SLOT if option.case.benchmark == SERVE else 1
    start = _LAB_START_S if request.cluster.is_lab else _START_S
    passes = request.samples * each + 1.0  # one warms up
    return start + _LOADS * once + _CHECKED / decode + passes * one_pass


def _bytes_a_second(candidate: Candidate, links: Mapping[str, Mapping[str, float]]) -> float:
    """Return bytes a second of one stream over the fabric, measured or usual; 0 on one node."""
    fabric, transport = candidate.fabric, candidate.transport
    if fabric is None or transport is None:
        return 0.0
    known = links.get(fabric.name, {}) if transport == "tcp" else {}
    facts = fabric_facts(
        fabric.kind, transport, fabric.speed_gbps, bandwidth_gbps=known.get("bandwidth_gbps")
    )
    return facts.bandwidth_gbps * 1e9 / 8


def _moved(option: Option) -> float:
    """Share of the weights that the head sends over the fabric: llama.cpp's workers have none."""
    each = len(option.candidate.servers[0].nodes)
    if engines.find(option.engine).model_on_every_node:
        return 0.0
    return (each - 1) / each


# What one node and what several of the same machine are off go together by 0.23 (published numbers,
# docs/model.md): a fifth of the variance that constants do not explain is common to a machine.
_COMMON = 0.22
_BELIEVED = 4.0  # chosen: the intervals weigh as much as so many measurements
_LONGEST = 1.0
_SETTLED = 1e-6
_LEAST = 1e-4
_MACHINE = ("", "")


@dataclass(frozen=True)
class OptionModel:
    """A strategy as the model sees it.

    family: of its engine, whose constants it shares; parts: seconds a token; deviations: of the
    constants' logarithms, by part; rest: variance of the time's logarithm beside theirs.
    """

    family: str
    parts: Mapping[str, float]
    deviations: Mapping[str, float]
    rest: float


def update(models: Sequence[OptionModel], measured: Mapping[int, Measurement]) -> list[Band]:
    """Estimate each strategy, tok/s, given what some gave; measured ones by their place.

    What is off by more than the deviations allow widens all intervals by as much.
    """
    import numpy as np

    index = {_MACHINE: 0}
    for model in models:
        for part in PARTS:
            index.setdefault((model.family, part), len(index))
    prior = np.zeros(len(index))
    prior[0] = _COMMON * max((model.rest for model in models), default=0.0)
    for model in models:
        for part in PARTS:
            prior[index[model.family, part]] = model.deviations[part] ** 2 + _SETTLED

    seen = list(measured.items())
    noise = np.array([(1 - _COMMON) * models[n].rest + one.deviation**2 for n, one in seen])

    def linear(state: Array) -> tuple[Array, Array]:
        rows = [_linear(models[n], index, state) for n, _ in seen]
        off = [-log(one.speed) - time for (_, one), (time, _) in zip(seen, rows, strict=True)]
        return np.array(off), np.array([slope for _, slope in rows])

    state, covariance, widened = np.zeros(len(index)), np.diag(prior), 1.0
    if seen:
        state, covariance = least_squares(
            linear, np.sqrt(noise), state, np.diag(1 / prior), longest=_LONGEST, settled=_SETTLED
        )
        off, _ = linear(state)
        misfit = float((state**2 / prior).sum() + (off**2 / noise).sum())
        widened = max(1.0, (_BELIEVED + misfit) / (_BELIEVED + len(seen)))

    found = []
    for number, model in enumerate(models):
        if number in measured:
            known = measured[number]
            width, value = exp(QUANTILE_80 * known.deviation), known.speed
        else:
            time, slope = _linear(model, index, state)
            variance = float(slope @ covariance @ slope) + (1 - _COMMON) * model.rest
            width, value = exp(QUANTILE_80 * sqrt(widened * variance)), exp(-time)
        found.append(Band(value, value / width, value * width))
    return found


def unexplained(expected: PredictedTime, deviations: Mapping[str, float]) -> float:
    """Variance of a time's logarithm that the deviations of its constants do not explain."""
    whole = sum(expected.parts.values())
    shares = {part: expected.parts.get(part, 0.0) / whole for part in PARTS}
    known = sum((share * deviations[part]) ** 2 for part, share in shares.items())
    return max(_LEAST, expected.deviation**2 - known)


def _linear(
    model: OptionModel, index: Mapping[tuple[str, str], int], state: Array
) -> tuple[float, Array]:
    """Logarithm of a strategy's time at a state of the constants, and its slope by each of them."""
    import numpy as np

    parts = {
        part: seconds * exp(state[index[model.family, part]]) if part in PARTS else seconds
        for part, seconds in model.parts.items()
    }
    whole = sum(parts.values())
    slope = np.zeros(len(index))
    slope[0] = 1.0
    for part in PARTS:
        slope[index[model.family, part]] = parts.get(part, 0.0) / whole
    return log(whole) + float(state[0]), slope


USED_UP = "the budget is used up"
_ENDED = "the budget ended before its run"
_WATTS_DEVIATION = 0.15  # chosen: of a node's watts from one strategy to another


@dataclass(frozen=True)
class Ranked:
    """A strategy while the search goes on: seconds are what measuring it should take."""

    estimate: Band
    seconds: float
    single: bool
    engine: str
    measured: bool = False
    out: str = ""
    """Why it is out of the search, such as how its run failed; empty: it is not."""

    @property
    def open(self) -> bool:
        """Tell whether it can still be measured."""
        return not self.measured and not self.out


@dataclass(frozen=True)
class Decision:
    """The strategy to measure next, by its place; None: stop, and why."""

    next: int | None
    why: str


def best(ranked: Sequence[Ranked]) -> int | None:
    """The fastest that was measured."""
    done = [n for n, one in enumerate(ranked) if one.measured]
    return max(done, key=lambda n: ranked[n].estimate.value, default=None)


def contenders(ranked: Sequence[Ranked]) -> list[int]:
    """Open strategies that could be best: above the low end of the leader, quickest first."""
    alive = [one for one in ranked if not one.out]
    if not alive:
        return []
    leader = max(alive, key=lambda one: one.estimate.value)
    least = leader.estimate.value if leader.measured else leader.estimate.low
    done = best(ranked)
    if done is not None:
        least = max(least, ranked[done].estimate.value)
    could = [
        n
        for n, one in enumerate(ranked)
        if one.open and (one is leader or one.estimate.high > least)
    ]
    return sorted(could, key=lambda n: (ranked[n].seconds, n))


def order(ranked: Sequence[Ranked]) -> list[int]:
    """Order contenders; one node of an engine comes first, even if not the best: it calibrates."""
    could = contenders(ranked)
    known = {one.engine for one in ranked if one.measured}
    unknown = {ranked[n].engine for n in could} - known
    first = [n for n, one in enumerate(ranked) if one.open and one.single and one.engine in unknown]
    return [*first, *(n for n in could if n not in first)]


def decide(ranked: Sequence[Ranked], left_s: float) -> Decision:
    """The next strategy within the time that is left."""
    queue = order(ranked)
    if not queue:
        if best(ranked) is None:
            return Decision(None, "no strategy could be measured")
        return Decision(None, "no interval of the others reaches the best measured one")
    found = next((n for n in queue if ranked[n].seconds <= left_s), None)
    return Decision(found, USED_UP if found is None else "")


@dataclass
class SearchState:
    """The strategies of a request, in the order in which they were found, and all that is known."""

    request: Request
    options: tuple[Option, ...]
    left_out: tuple[LeftOut[str], ...]
    priors: list[Prior]
    links: dict[str, dict[str, float]]
    measurements: dict[int, Measurement] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    out: dict[int, str] = field(default_factory=dict)
    took: dict[int, float] = field(default_factory=dict)
    first: list[Band] = field(default_factory=list)

    @property
    def watts_a_node(self) -> float:
        """Mean of what was measured, 0 where nothing was."""
        known = [
            one.watts / self.options[n].count for n, one in self.measurements.items() if one.watts
        ]
        return sum(known) / len(known) if known else 0.0

    @property
    def unit(self) -> str:
        """The unit of the estimates; for efficiency, nodes stand for unknown watts."""
        goal = self.request.goal
        if goal.name != "efficiency" or self.watts_a_node:
            return goal.unit
        return "tok/s a node"

    @property
    def lacks_watts(self) -> bool:
        """Tell whether the goal is about watts and what was measured has none."""
        efficiency = self.request.goal.name == "efficiency"
        return efficiency and bool(self.measurements) and not self.watts_a_node

    def shown(self, estimate: Band) -> Band:
        """Convert to `unit`: a time is the reciprocal of the speed that ranks strategies."""
        if not self.request.goal.of_time:
            return estimate
        return Band(1000 / estimate.value, 1000 / estimate.high, 1000 / estimate.low)

    def estimates(self) -> list[Band]:
        """Estimates of each strategy, by all that is known."""
        speeds = update([one.model for one in self.priors], self.measurements)
        if self.request.goal.name != "efficiency":
            return speeds
        return [self._a_watt(n, one) for n, one in enumerate(speeds)]

    def _a_watt(self, n: int, speed: Band) -> Band:
        own = self.measurements[n].watts if n in self.measurements else 0.0
        watts = own or (self.watts_a_node or 1.0) * self.options[n].count
        wider = 1.0 if own else exp(QUANTILE_80 * _WATTS_DEVIATION)
        return Band(speed.value / watts, speed.low / watts / wider, speed.high / watts * wider)

    def ranked(self) -> list[Ranked]:
        """Rank the strategies as the search does."""
        planned = [one.seconds for one in self.priors]
        known = sum(planned[n] for n in self.took)
        factor = sum(self.took.values()) / known if known else 1.0  # longer than estimated so far
        return [
            Ranked(
                estimate,
                planned[n] * factor,
                single=self.options[n].count == 1,
                engine=self.options[n].engine,
                measured=n in self.measurements,
                out=self.out.get(n, ""),
            )
            for n, estimate in enumerate(self.estimates())
        ]

    def decide(self, left_s: float) -> Decision:
        """The next strategy within the time left; what the budget ended may have been better."""
        found = decide(self.ranked(), left_s)
        if found.next is None and _ENDED in self.out.values():
            return Decision(None, USED_UP)
        return found

    def add(self, n: int, record: Record, took: float) -> None:
        """Take a record of `took` seconds: it updates its strategy, its fabric and the others."""
        self.records[n], self.took[n] = record, took
        found = measurement_of(self.request.goal, record) if record["outcome"] == "ok" else None
        if found is None:
            failure: Mapping[str, object] = record.get("failure", {})
            reason = failure.get("reason", f"its record has no {self.request.goal.metric}")
            ended = record["outcome"] == "timeout"  # no run is longer than what is left of it
            self.out[n] = _ENDED if ended else f"{record['outcome']}: {reason}"
        else:
            self.measurements[n] = found
        fabric = self.options[n].candidate.fabric
        # What is measured is TCP, and not valid for RDMA.
        if fabric is not None and self.options[n].candidate.transport == "tcp":
            trip, rate = record_rtt_us(record), record_bandwidth_gbps(record)
            known = self.links.setdefault(fabric.name, {})
            known |= {"rtt_us": trip} if trip else {}
            known |= {"bandwidth_gbps": rate} if rate else {}
            for other, option in enumerate(self.options):
                if prior := prior_of(self.request, option, self.links):
                    self.priors[other] = prior


def begin(request: Request) -> SearchState:
    """Find all strategies before anything is measured; raises InputError where there is none."""
    found, left_out = options(request)
    links = stated_links(request.cluster)
    views = [(option, prior_of(request, option, links)) for option in found]
    reason = "its prompts cannot be predicted: no platform's compute is known"
    lacking = [LeftOut(option.words, reason) for option, view in views if view is None]
    kept = [(option, view) for option, view in views if view is not None]
    if not kept:
        raise InputError(
            f"No strategy can be predicted for {request.goal.name}: {lacking[0].reason}."
        )
    state = SearchState(
        request,
        tuple(option for option, _ in kept),
        (*left_out, *lacking),
        [view for _, view in kept],
        links,
    )
    state.first = state.estimates()
    return state


def ranking(estimates: Sequence[Band]) -> list[int]:
    """Places of strategies from the fastest."""
    return sorted(range(len(estimates)), key=lambda n: -estimates[n].value)


_PROGRESS_S = 120.0


def measure(
    state: SearchState,
    plan: Plan,
    folder: Path,
    budget_s: float,
    observer: Observer,
    on_run_end: Callable[[int], None],
    beside: Callable[[], None] = lambda: None,
) -> Decision:
    """Measure until no other strategy can be better or the time is up; gives why it stopped.

    budget_s: seconds from when the nodes are up; no run outlives it. on_run_end: gets the place of
    each strategy whose run has ended. beside: called while the nodes are brought up: nothing may
    run beside a measurement.

    Raises GateError: where nodes cannot be reached.
    """
    cases = [option.case for option in state.options]
    with ExitStack() as stack:
        with Pool(1) as pool:
            pool.submit(beside)
            used = of_used_nodes(plan, [(case, 0) for case in cases])
            connected = stack.enter_context(session(used, observer))
        _leave_out_lacking(state, connected)
        end = time.monotonic() + budget_s
        done: list[tuple[Case, int]] = []
        while True:
            left = end - time.monotonic()
            decision = state.decide(left)
            if decision.next is None:
                return decision
            n = decision.next
            to_come = [n, *(other for other in order(state.ranked()) if other != n)]
            observer.sweep_starts([*done, *((cases[other], 0) for other in to_come)])
            observer.run_starts(cases[n], 0)
            limits = Limits(round(left, 1), min(round(left, 1), _PROGRESS_S))
            within = replace(plan, sweep=replace(plan.sweep, limits=limits))
            begin = time.monotonic()
            record = run_one(connected, within, folder, cases[n], 0, observer.phase_starts)
            took = time.monotonic() - begin
            with held_back():  # a record in the folder that the search does not know is lost
                save(record, record_path(folder, cases[n], 0))
                state.add(n, record, took)
            done.append((cases[n], 0))
            observer.run_ends(record, took)
            on_run_end(n)
            if state.lacks_watts:
                return Decision(None, "no meter gives watts")


def _leave_out_lacking(state: SearchState, connected: Session) -> None:
    """Engines that a node has not, by the facts of all nodes."""
    names = dict.fromkeys(option.engine for option in state.options)
    programs = [program for name in names for program in engines.find(name).programs]
    facts = gather(connected.nodes.values(), programs)
    for n, option in enumerate(state.options):
        engine = engines.find(option.engine)
        for node in option.candidate.nodes:
            if node.name not in facts:
                continue
            lacks = engine.missing(facts[node.name].programs)
            if lacks and n not in state.out:
                state.out[n] = f"node {node.name!r} lacks {lacks}"
