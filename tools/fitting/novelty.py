"""What a prediction's configuration has new, and how far off predictions are for it.

A fit leaves out every case that shares one of some traits with the case that it judges. How far off
such fits are gives the spreads: a source and a build are always new, a chip and a model may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import log, sqrt
from typing import Any

from fitting.fit import Table, fit, place
from fitting.machines import chip
from fitting.published import Case
from nixwulf.perf.inputs import Spread, Spreads
from nixwulf.perf.predict import QUANTILE_80, THIN, Prediction, doubt, predict

TRAITS = ("source", "chip", "model")
"""What a case may share with another: who measured it, the chip, the model."""
# How far off predictions are of what a source measures that had no part: that is a user's case.
# Chips and models that have none either are rare among them, so they are left out as well.
_LEARNED_FROM = (("source",),)
GROUPS = ("decode_one", "decode_several", "prompt_one", "prompt_several")
# Chosen: no interval says less than a few percent, and beyond a factor of e it says nothing.
_BASES = (0.05, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.22, 0.25, 0.28, 0.32, 0.36, 0.4, 0.5, 0.6)
_ADDED = (0.0, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0)
_TRIED = tuple(product(_BASES, _ADDED, _ADDED, _ADDED))
_FEW = 8  # cases that a spread is learned from at least
_INSIDE = 0.8
_OUTSIDE = 2 / (1 - _INSIDE)


@dataclass(frozen=True)
class Residual:
    """A case by a fit without what is like it.

    off: logarithm of predicted over measured. longer and shorter: what the constants' own
    uncertainty explains, logarithms of 80 %.
    """

    case: Case
    off: float
    longer: float
    shorter: float
    new_chip: bool
    new_model: bool
    thin: bool


@cache
def _machines(machine: str) -> frozenset[str]:
    return frozenset(machine.split(" and "))


@cache
def _chips(machine: str) -> frozenset[str]:
    return frozenset(
        name for one in (machine, *_machines(machine)) for name in _machines(chip(one))
    )


def alike(first: Case, second: Case, traits: Sequence[str]) -> bool:
    """Whether two cases are the same or share one of the traits; none is shared if not stated."""
    return (
        not set(first.ids).isdisjoint(second.ids)
        or ("chip" in traits and bool(_chips(first.machine) & _chips(second.machine)))
        or ("model" in traits and first.model.name == second.model.name)
        or ("source" in traits and bool(first.sources & second.sources))
    )


class Fits:
    """Fits of cases without some of them, each made once."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self._fits: dict[tuple[int, ...], Table] = {}
        self._residuals: list[Residual] = []
        self._spreads: dict[frozenset[int], Spreads] = {}
        self._learner: Learner | None = None
        self._near: dict[Any, float] = {}

    def without(self, case: Case, traits: Sequence[str]) -> Table:
        """Constants from all cases that share none of the traits with one; without traits, all."""
        kept = tuple(
            n for n, other in enumerate(self.cases) if not (traits and alike(case, other, traits))
        )
        if not self._near:
            fit(self.cases, near=self._near)
        if kept not in self._fits:
            self._fits[kept] = fit([self.cases[number] for number in kept], near=self._near)
        return self._fits[kept]

    def residuals(self) -> Sequence[Residual]:
        """Of all cases by each of _LEARNED_FROM, one after the other."""
        if not self._residuals:
            self._residuals = [
                _residual(case, self.without(case, traits))
                for traits in _LEARNED_FROM
                for case in self.cases
            ]
        return self._residuals

    def spreads(self, judged: Case | None = None, traits: Sequence[str] = ()) -> Spreads:
        """The spreads that cases show, of those alone that share none of the traits with one.

        Others' residuals are from fits that had that one among their cases; its own have no part.
        """
        kept = frozenset(
            n for n, o in enumerate(self.cases) if judged is None or not alike(judged, o, traits)
        )
        if self._learner is None:
            self._learner = Learner(self.residuals())
        if kept not in self._spreads:
            count = len(self.cases)
            self._spreads[kept] = self._learner.spreads(
                [n % count in kept for n in range(count * len(_LEARNED_FROM))]
            )
        return self._spreads[kept]


def _residual(case: Case, known: Table) -> Residual:
    engine, kind = place(case)
    constants = known[engine][kind].of(case.strategy, case.model)
    prediction = predict_case(case, known)
    longer, shorter = doubt(prediction.parts, constants, case.model, case.strategy, case.metric)
    return Residual(
        case,
        log(prediction.value / case.value),
        longer,
        shorter,
        any(platform.chip not in constants.chips for platform in case.platforms),
        case.model.name not in constants.models,
        constants.alike(case.platforms[0].chip, case.strategy, case.model) <= THIN,
    )


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


def group_of(case: Case) -> str:
    """The spread that a case belongs to."""
    metric = "prompt" if case.metric == "prompt" else "decode"
    return f"{metric}_{'one' if case.nodes == 1 else 'several'}"


class Learner:
    """The spreads whose 80 % intervals score best over residuals, or over some of them.

    The score is that of Gneiting and Raftery for intervals
    (https://doi.org/10.1198/016214506000001437, 6.2): the width, and 2 / 0.2 times what a value is
    outside. It is least where 80 % are inside if all weigh the same; those of one block do not, so
    the least a source adds is then raised until 80 % of the cases are, and as much more as one
    source that is not among them may take away (https://arxiv.org/abs/2107.07511, 1).
    """

    def __init__(self, residuals: Sequence[Residual]) -> None:
        self._groups = [
            [n for n, one in enumerate(residuals) if group_of(one.case) == group]
            for group in GROUPS
        ]
        tried = [_scores([residuals[n] for n in group]) for group in self._groups]
        self._scores = [scores for scores, _ in tried]
        self._inside = [inside for _, inside in tried]
        self._blocks = [_block(one.case) for one in residuals]
        self._sources = [one.case.sources for one in residuals]

    def spreads(self, used: Sequence[bool]) -> Spreads:
        """Of the residuals that are used, true or false of each."""
        sums = [
            scores @ self._weights(group, used)
            for group, scores in zip(self._groups, self._scores, strict=True)
        ]
        few = [sum(used[n] for n in group) < _FEW for group in self._groups]
        chosen = [sum(sums) if is_few else own for own, is_few in zip(sums, few, strict=True)]
        found = [int(scores.argmin()) for scores in chosen]
        for index, group in enumerate(self._groups):
            if not few[index]:
                mask = [used[n] for n in group]
                sources = len({self._sources[n] for n in group if used[n]})
                found[index] = _raised(found[index], self._inside[index][:, mask], sources)
        return Spreads(*(_spread(number) for number in found))

    def _weights(self, group: Sequence[int], used: Sequence[bool]) -> Any:
        """Rows of one model on one machine by one source are off together."""
        import numpy as np

        sizes = Counter(self._blocks[n] for n in group if used[n])
        return np.array([1 / sqrt(sizes[self._blocks[n]]) if used[n] else 0.0 for n in group])


def learn(residuals: Sequence[Residual]) -> Spreads:
    """The spreads that all residuals show."""
    return Learner(residuals).spreads([True] * len(residuals))


def _scores(group: Sequence[Residual]) -> Any:
    """Of each spread that is tried (rows) over each residual (columns), and which are inside."""
    import numpy as np

    columns = [(o.off, o.longer, o.shorter, o.new_chip, o.new_model, o.thin) for o in group]
    off, longer, shorter, *new = np.array(columns, dtype=float).reshape(len(group), 6).T
    own = QUANTILE_80**2 * np.array(_TRIED) ** 2 @ np.array([np.ones_like(off), *new])
    up, down = np.sqrt(own + longer**2), np.sqrt(own + shorter**2)
    outside = np.maximum(0.0, np.abs(off) - np.where(off > 0, up, down))
    return up + down + _OUTSIDE * outside, outside == 0


def _raised(number: int, inside: Any, sources: int) -> int:
    """The spread with the first base from its own on that has enough of the cases inside."""
    more = range(number, len(_TRIED), len(_TRIED) // len(_BASES))
    enough = _INSIDE * (sources + 1) / sources
    return next((one for one in more if inside[one].mean() >= enough), more[-1])


def _spread(number: int) -> Spread:
    return Spread(*_TRIED[number])


def _block(case: Case) -> tuple[object, ...]:
    return case.strategy.engine, case.sources, case.machine, case.model.name
