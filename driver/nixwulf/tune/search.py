"""The search: what is measured, what the rest should give, which strategy is next, when to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.perf.predict import QUANTILE_80
from nixwulf.perf.scenarios.candidates import LeftOut
from nixwulf.perf.scenarios.facts import stated_links
from nixwulf.results.fabrics import record_bandwidth_gbps, record_rtt_us
from nixwulf.results.record import Record
from nixwulf.tune.goals import Measurement, measurement_of
from nixwulf.tune.options import Option, Request, options
from nixwulf.tune.posterior import Estimate, update
from nixwulf.tune.prior import Prior, correction, prior_of

USED_UP = "the budget is used up"
_ENDED = "the budget ended before its run"
_WATTS_DEVIATION = 0.15  # chosen: of a node's watts from one strategy to another


@dataclass(frozen=True)
class Ranked:
    """A strategy while the search goes on: seconds are what measuring it should take."""

    estimate: Estimate
    seconds: float
    single: bool
    engine: str
    measured: bool = False
    out: str = ""
    """Why it is out of the search, such as how its run failed; empty: it is not."""

    @property
    def open(self) -> bool:
        """Whether it can still be measured."""
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
    """Contenders in the order of measuring: one node of an engine comes first, for it calibrates.

    It does so even where it could not be best itself.
    """
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
    for n in queue:
        if ranked[n].seconds <= left_s:
            return Decision(n, "")
    return Decision(None, USED_UP)


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
    first: list[Estimate] = field(default_factory=list)

    @property
    def watts_a_node(self) -> float:
        """Mean of what was measured, 0 where nothing was."""
        known = [
            one.watts / self.options[n].count for n, one in self.measurements.items() if one.watts
        ]
        return sum(known) / len(known) if known else 0.0

    @property
    def unit(self) -> str:
        """Of the estimates: of efficiency, before watts are known, nodes stand for them."""
        goal = self.request.goal
        if goal.name != "efficiency" or self.watts_a_node:
            return goal.unit
        return "tok/s a node"

    @property
    def lacks_watts(self) -> bool:
        """Whether the goal is about watts and what was measured has none."""
        efficiency = self.request.goal.name == "efficiency"
        return efficiency and bool(self.measurements) and not self.watts_a_node

    def shown(self, estimate: Estimate) -> Estimate:
        """In `unit`: a time is the reciprocal of the speed by which strategies are ranked."""
        if not self.request.goal.of_time:
            return estimate
        return Estimate(1000 / estimate.value, 1000 / estimate.high, 1000 / estimate.low)

    def estimates(self) -> list[Estimate]:
        """What each strategy gives, by all that is known."""
        speeds = update([one.model for one in self.priors], self.measurements)
        if self.request.goal.name != "efficiency":
            return speeds
        return [self._a_watt(n, one) for n, one in enumerate(speeds)]

    def _a_watt(self, n: int, speed: Estimate) -> Estimate:
        own = self.measurements[n].watts if n in self.measurements else 0.0
        watts = own or (self.watts_a_node or 1.0) * self.options[n].count
        wider = 1.0 if own else exp(QUANTILE_80 * _WATTS_DEVIATION)
        return Estimate(speed.value / watts, speed.low / watts / wider, speed.high / watts * wider)

    def ranked(self) -> list[Ranked]:
        """For the search."""
        planned = [one.seconds for one in self.priors]
        factor = correction(planned, self.took)
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
        """Take the record of a strategy: it updates the strategy, its fabric and the others.

        Args:
            took: duration of the run, seconds.
        """
        self.records[n], self.took[n] = record, took
        found = measurement_of(self.request.goal, record) if record["outcome"] == "ok" else None
        if found is None:
            failure: Mapping[str, Any] = record.get("failure", {})
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
            self._look()

    def _look(self) -> None:
        for n, option in enumerate(self.options):
            found = prior_of(self.request, option, self.links)
            if found is not None:
                self.priors[n] = found


def begin(request: Request) -> SearchState:
    """All strategies before anything is measured; raises InputError when there is none."""
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


def ranking(estimates: Sequence[Estimate]) -> list[int]:
    """Places of strategies from the fastest."""
    return sorted(range(len(estimates)), key=lambda n: -estimates[n].value)
