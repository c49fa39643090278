"""Judging the model: each machine by constants that were fitted without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

from fitting.fit import KERNELS, Table, fit, overlaps, place
from fitting.published import Case
from nixwulf.perf.predict import QUANTILE_80, Prediction, doubt, predict

SAME = 0.05
"""Speeds within this share of each other are the same."""


@dataclass(frozen=True)
class Judged:
    """A case beside its prediction from facts alone.

    anchored: the prediction times what the machine's own one-node speed is over its prediction,
    where that of the same engine and model was published too.
    """

    case: Case
    prediction: Prediction
    anchored: float | None = None

    @property
    def off(self) -> float:
        """Logarithm of predicted over measured."""
        return log(self.prediction.value / self.case.value)

    @property
    def error(self) -> float:
        """Share by which the prediction is off."""
        return abs(self.prediction.value / self.case.value - 1)

    @property
    def naive_error(self) -> float:
        """Share by which bandwidth over active bytes is off."""
        return abs(self.case.roofline / self.case.value - 1)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the measurement."""
        return self.prediction.low <= self.case.value <= self.prediction.high


@dataclass(frozen=True)
class Pair:
    """Two published ways that differ in one thing, and by which factor the second is faster."""

    what: str
    first: Judged
    second: Judged

    @property
    def measured(self) -> float:
        """Factor."""
        return self.second.case.value / self.first.case.value

    @property
    def predicted(self) -> float:
        """Factor."""
        return self.second.prediction.value / self.first.prediction.value

    @property
    def right(self) -> bool:
        """Whether faster, slower or the same is said as it was measured."""
        return direction(self.predicted) == direction(self.measured)

    @property
    def near(self) -> bool:
        """Whether right, or the factor itself is predicted within the same share."""
        return self.right or abs(self.predicted / self.measured - 1) <= SAME


def direction(factor: float) -> str:
    """In a word."""
    if abs(factor - 1) <= SAME:
        return "the same"
    return "faster" if factor > 1 else "slower"


def judge(cases: Sequence[Case], more: Sequence[Case] = ()) -> list[Judged]:
    """Every case, judged by a fit of these and more cases, without its machine.

    Incomplete cases are in no fit; nor are those of more that have a row of a case's.
    """
    rows = {row for case in cases for row in case.ids}
    more = [case for case in more if not rows.intersection(case.ids)]
    complete = [case for case in (*cases, *more) if case.complete]
    judged = []
    for machine in sorted({case.machine for case in cases}):
        known = without(complete, machine)
        own = [case for case in cases if case.machine == machine]
        judged += [Judged(case, predict_case(case, known)) for case in own]
    return [anchor(one, judged) for one in judged]


def without(cases: Sequence[Case], machine: str) -> Table:
    """Constants and their spreads from all machines but one."""
    others = [case for case in cases if not overlaps(case, machine)]
    return fit(others, *spreads(others))


def spreads(cases: Sequence[Case]) -> tuple[dict[str, float], dict[str, float]]:
    """By engine, what intervals need to hold 80 % of left out machines' values: decode, prompts.

    An engine has few machines, and what they have in common is not what the next one will show: the
    larger of its own and that of all ('') counts.
    """
    decode: dict[str, list[float]] = {}
    prompts: dict[str, list[float]] = {}
    for machine in sorted({case.machine for case in cases}):
        known = fit([case for case in cases if not overlaps(case, machine)])
        for case in (case for case in cases if case.machine == machine):
            engine, kind = place(case)
            prediction = predict_case(case, known)
            off = log(prediction.value / case.value)
            longer, shorter = doubt(
                prediction.parts, known[engine][kind], case.model, case.strategy, case.metric
            )
            more = off**2 - (longer if off > 0 else shorter) ** 2
            excess = prompts if case.metric == "prompt" else decode
            excess.setdefault(engine, []).append(max(0.0, more) / QUANTILE_80**2)
    return _larger(decode), {key: max(KERNELS, one) for key, one in _larger(prompts).items()}


def _larger(excess: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Of each engine its own or that of all, as deviations."""
    everything = [one for group in excess.values() for one in group]
    if not everything:
        return {}
    of_all = _at_80(everything)
    found = {"": sqrt(of_all)}
    return found | {engine: sqrt(max(_at_80(group), of_all)) for engine, group in excess.items()}


def _at_80(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.8 * len(ordered)))]


def predict_case(case: Case, known: Table) -> Prediction:
    """Of a published case, by a fit."""
    engine, kind = place(case)
    return predict(
        case.platforms,
        case.model,
        case.strategy,
        case.fabric,
        metric=case.metric,
        constants=known[engine][kind],
    )


def anchor(one: Judged, judged: Sequence[Judged]) -> Judged:
    """With the speed that one node of the machine was measured at, where it was."""
    case = one.case
    for other in judged:
        same = (
            other.case.nodes == 1
            and other.case.machine == case.machine
            and other.case.model == case.model
            and _plain(other.case) == _plain(case)
        )
        if case.nodes > 1 and same:
            return replace(one, anchored=one.prediction.value * exp(-other.off))
    return one


def pairs(judged: Sequence[Judged]) -> list[Pair]:
    """All published pairs that differ in nodes alone, or in the link alone."""
    found = []
    ordered = sorted(judged, key=lambda one: (one.case.nodes, one.case.ids[0]))
    for number, first in enumerate(ordered):
        for second in ordered[number + 1 :]:
            what = _difference(first.case, second.case)
            if what == "link" and first.case.fabric and second.case.fabric:
                slow = first.case.fabric.rtt_us >= second.case.fabric.rtt_us
                found.append(Pair(what, *((first, second) if slow else (second, first))))
            elif what == "nodes":
                found.append(Pair(what, first, second))
    return found


def _difference(first: Case, second: Case) -> str:
    """What two cases differ in, when it is one thing and it can be judged."""
    if (
        first.machine != second.machine
        or first.metric != second.metric
        or first.metric == "prompt"
        or first.model != second.model
        or _plain(first) != _plain(second)
    ):
        return ""
    split = second.strategy.parallelism == first.strategy.parallelism
    if first.nodes == second.nodes:
        return "link" if split and first.fabric != second.fabric else ""
    single = first.nodes == 1
    link = single or (
        first.fabric is not None and second.fabric is not None and first.fabric == second.fabric
    )
    return "nodes" if (single or split) and link else ""


def _plain(case: Case) -> object:
    """What has to be equal; how many guesses were right is an outcome."""
    return replace(case.strategy, parallelism="single", graphs=None, acceptance=0.0, collectives="")
