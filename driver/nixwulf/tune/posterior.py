"""What measurements teach about the strategies that were not measured.

The logarithm of a time is that of the sum of its parts, each over or times a constant of its
engine, plus what all strategies on these machines have in common, plus what is its own. Constants
are known with a deviation (nixwulf.perf.constants), so each measured strategy narrows them for the
others: one node determines the weights and the dispatch, a pipeline its hops, a split of tensors
its sums.
Least squares of the logarithms with the constants' deviations as priors, by Gauss and Newton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from nixwulf.perf import least_squares
from nixwulf.perf.predict import QUANTILE_80
from nixwulf.perf.work import PARTS
from nixwulf.tune.goals import Measurement, PredictedTime

if TYPE_CHECKING:
    from nixwulf.perf.least_squares import Array

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


@dataclass(frozen=True)
class Estimate:
    """Tokens a second, and the interval that should hold 80 % of measurements."""

    value: float
    low: float
    high: float


def update(models: Sequence[OptionModel], measured: Mapping[int, Measurement]) -> list[Estimate]:
    """What each strategy should give, given what some of them gave; measured ones by their place.

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
        state, covariance = least_squares.solve(
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
        found.append(Estimate(value, value / width, value * width))
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
