"""Judging the model: each case by constants that were fitted without what is like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

from fitting.fit import place
from fitting.novelty import Fits, predict_case
from fitting.published import Case
from nixwulf.perf.inputs import Constants, Spreads, load
from nixwulf.perf.predict import Prediction

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


def judge(cases: Sequence[Case], fits: Fits, traits: Sequence[str] = ("source",)) -> list[Judged]:
    """Every case, judged by a fit without all that share one of the traits with it.

    Args:
        cases: those to judge; incomplete ones too.
        fits: of complete cases, these among them.
        traits: of novelty.TRAITS, what had no part in the constants and in the intervals.
    """
    judged = []
    for case in cases:
        spreads = fits.spreads(case, traits)
        known = fits.without(case, traits)
        engine, kind = place(case)
        constants = with_spreads(known[engine][kind], spreads)
        judged.append(Judged(case, predict_case(case, {engine: {kind: constants}})))
    return [anchor(one, judged) for one in judged]


def with_spreads(constants: Constants, spreads: Spreads) -> Constants:
    """Constants and their variants with other spreads."""
    variants = {name: replace(one, spreads=spreads) for name, one in constants.variants.items()}
    return replace(constants, spreads=spreads, variants=variants)


def judge_shipped(cases: Sequence[Case]) -> list[Judged]:
    """Every case by the shipped constants, which it may have had a part in."""
    return [Judged(case, predict_case(case, load())) for case in cases]


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
    """All published pairs that differ in nodes alone, in the link alone, or in the split alone."""
    found = []
    ordered = sorted(judged, key=lambda one: (one.case.nodes, one.case.ids[0]))
    for number, first in enumerate(ordered):
        for second in ordered[number + 1 :]:
            what = _difference(first.case, second.case)
            if what == "link" and first.case.fabric and second.case.fabric:
                slow = first.case.fabric.rtt_us >= second.case.fabric.rtt_us
                found.append(Pair(what, *((first, second) if slow else (second, first))))
            elif what in ("nodes", "split"):
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
        if split:
            return "link" if first.fabric != second.fabric else ""
        return "split" if first.fabric == second.fabric and first.sources & second.sources else ""
    single = first.nodes == 1
    link = single or (
        first.fabric is not None and second.fabric is not None and first.fabric == second.fabric
    )
    return "nodes" if (single or split) and link else ""


def _plain(case: Case) -> object:
    """What has to be equal; how many guesses were right is an outcome."""
    return replace(
        case.strategy, parallelism="single", graphs=None, acceptance=0.0, collectives="", age=0.0
    )
