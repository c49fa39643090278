"""The ratio of two measured values, and its confidence interval.

Two variances are in it. That between runs of one session is by bootstrap: percentile intervals of
three to five samples hold the true ratio in 80 % of cases, not 95 %, so that the bootstrap gives
the variance only, and Student's t the width for so few. That between sessions (heat, a reboot,
another kernel) cannot be seen in one session a side; see _of_sessions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from nixwulf.core.metric import percentile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Runs = Sequence[Sequence[float]]
Sessions = Mapping[Any, Runs]
"""The samples of each run of a side, by the session of the run."""
Basis = Literal["in turn", "assumed", "repeated"]

ASSUMED = 0.02
"""Standard deviation between sessions, of a value, where none are repeated. From the published
table (tools/sessions.py): one toolbox on one cluster differs by 2.8 % between weeks, its new builds
included, and by 0.3 % within a day."""
_ASSUMED_FREEDOM = 4
"""For how many more sessions that is taken: with it 3 % are still covered in 94 of 100 cases."""
_FEWEST_REPEATED = 2  # degrees of freedom
_NO_WEIGHT = 1e-9  # of rounding
_RESAMPLES = 1000
_SEED = 1
_FEWEST_SAMPLES = 3
_MOST_AT_ONCE = 1_000_000  # numbers in memory
_POINTS = 4001
_MOST_FREEDOM = 1000.0  # as good as normal
_LEAST_FREEDOM = 1.0


@dataclass(frozen=True)
class Variance:
    """A variance of the logarithm of a ratio, and its degrees of freedom."""

    of: float
    freedom: float


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval of a ratio.

    centre: its logarithm; runs, sessions: the variances of that. basis: whether the sessions cancel
    out since both sides were run in turn in them, are assumed to differ, or were seen to.
    alike: what each side adds to the variance by runs if those of both vary alike.
    """

    centre: float
    runs: Variance
    sessions: Variance
    basis: Basis
    alike: tuple[Variance, ...]

    @property
    def error(self) -> float:
        """Standard error of the logarithm."""
        return math.sqrt(self.runs.of + self.sessions.of)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of that."""
        return total(self.runs, self.sessions).freedom

    @property
    def low(self) -> float:
        """The lower end."""
        return math.exp(self.centre - quantile(0.975, self.freedom) * self.error)

    @property
    def high(self) -> float:
        """The upper end."""
        return math.exp(self.centre + quantile(0.975, self.freedom) * self.error)

    @property
    def shows_difference(self) -> bool:
        """Tell whether 1 is outside."""
        return not self.low <= 1 <= self.high


def total(*variances: Variance) -> Variance:
    """The sum of independent variances, with the degrees of freedom of Satterthwaite."""
    of = sum(one.of for one in variances)
    spread = sum(one.of**2 / one.freedom for one in variances)
    return Variance(of, of**2 / spread if spread else math.inf)


def typical(samples: Sequence[float], distribution: bool) -> float:
    """The typical value of samples: the median of a distribution, else the mean."""
    return percentile(samples, 50) if distribution else math.fsum(samples) / len(samples)


def ratio_interval(a: Sessions, b: Sessions, distribution: bool) -> Interval | None:
    """The 95 % confidence interval of B over A.

    Several runs are resampled first, then the samples in each of them, for samples of one run are
    correlated; of one run, its samples are. The same numbers always give the same interval.

    None where a side has under 3 samples, or none above 0. In a session that both have they were
    run in turn. distribution: whether the median is compared, and not the mean.
    """
    sides = [_side(side, distribution) for side in (a, b)]
    if None in sides:
        return None
    one, two = (side for side in sides if side is not None)
    noise = total(*_noises(one, two))
    if math.isnan(noise.of):
        return None
    shares = [one.shares.get(key, 0) - two.shares.get(key, 0) for key in {**a, **b}]
    sessions, in_them, basis = _of_sessions(one, two, math.fsum(share**2 for share in shares))
    runs = Variance(max(0.0, noise.of - in_them), noise.freedom)
    both = alike(*((side.noise, sum(side.runs)) for side in (one, two)))
    return Interval(two.centre - one.centre, runs, sessions, basis, both)


@dataclass(frozen=True)
class _Side:
    """Logarithms of the value of a side and of each of its sessions, and what they rest on.

    noise: the variance of the value by its runs; None where each session is of one run.
    shares: which part of the samples is of a session; runs: how many runs each session has.
    """

    centre: float
    means: tuple[float, ...]
    noise: Variance | None
    shares: Mapping[Hashable, float]
    runs: tuple[int, ...]

    @property
    def of_a_mean(self) -> float:
        """The variance of the value of a session by its runs."""
        per_run = self.noise.of * sum(self.runs) if self.noise else 0.0
        return math.fsum(per_run / count for count in self.runs) / len(self.runs)


def _side(side: Sessions, distribution: bool) -> _Side | None:
    """Summarize a side; None where it has too little for an interval."""
    pooled = [[sample for run in found for sample in run] for found in side.values()]
    samples = [sample for found in pooled for sample in found]
    if len(samples) < _FEWEST_SAMPLES:
        return None
    values = [typical(one, distribution) for one in (samples, *pooled)]
    if min(values) <= 0:
        return None
    alike = [
        [[sample * values[0] / middle for sample in run] for run in found]
        for middle, found in zip(values[1:], side.values(), strict=True)
    ]
    return _Side(
        math.log(values[0]),
        tuple(map(math.log, values[1:])),
        _noise([run for found in alike for run in found], len(side), distribution),
        {key: len(one) / len(samples) for key, one in zip(side, pooled, strict=True)},
        tuple(len(found) for found in side.values()),
    )


def _noises(one: _Side, two: _Side) -> Iterator[Variance]:
    """The variance of each side by its runs; where only the other's is known, runs are alike."""
    for side, other in ((one, two), (two, one)):
        if side.noise is not None:
            yield side.noise
        elif other.noise is not None:
            per_run = other.noise.of * sum(other.runs)
            yield Variance(per_run / sum(side.runs), other.noise.freedom)


def alike(*sides: tuple[Variance | None, int]) -> tuple[Variance, ...]:
    """Return each side's variance by its runs if those of both vary alike; sides: seen, runs."""
    freedom = math.fsum(noise.freedom for noise, _ in sides if noise)
    squares = math.fsum(noise.of * runs * noise.freedom for noise, runs in sides if noise)
    of_a_run = squares / freedom if freedom else 0.0
    return tuple(Variance(of_a_run / n, noise.freedom if noise else 0) for noise, n in sides)


def _of_sessions(one: _Side, two: _Side, weight: float) -> tuple[Variance, float, Basis]:
    """The variance by sessions, what of the runs' variance is in it, and what it is based on.

    Repeated sessions of a side show how much their values differ, runs and all. Where there are
    too few of them it is assumed.

    weight: the sum of the squares of what each session adds to the ratio; 0 where each adds the
    same to both sides.
    """
    if weight < _NO_WEIGHT:
        return Variance(0.0, 1.0), 0.0, "in turn"
    freedom = sum(len(side.means) - 1 for side in (one, two))
    if freedom < _FEWEST_REPEATED:
        return Variance(weight * ASSUMED**2, _ASSUMED_FREEDOM), 0.0, "assumed"
    squares, runs = 0.0, 0.0
    for side in (one, two):
        middle = math.fsum(side.means) / len(side.means)
        squares += math.fsum((mean - middle) ** 2 for mean in side.means)
        runs += (len(side.means) - 1) * side.of_a_mean
    seen = weight * max(squares, runs) / freedom
    return Variance(seen, freedom), weight * runs / freedom, "repeated"


def _noise(runs: Runs, sessions: int, distribution: bool) -> Variance | None:
    """The variance of a side's value by its runs, of which those of a session are alike.

    None where each session is of one run; not a number where a resample has no logarithm. runs:
    their samples, all sessions brought to one level.
    """
    import numpy as np

    units = len(runs) if len(runs) > 1 else len(runs[0])
    freedom = units - sessions
    if not freedom:
        return None
    values = _resampled([np.asarray(run, dtype=float) for run in runs], distribution)
    if values.min() <= 0:
        return Variance(math.nan, freedom)
    if values.min() == values.max():
        return Variance(0.0, freedom)
    # A resample is as far from the samples as those from the truth, but for this factor.
    return Variance(float(np.log(values).var(ddof=1)) * units / freedom, freedom)


def _resampled(runs: list[NDArray[np.float64]], distribution: bool) -> NDArray[np.float64]:
    """The value of each resample; of runs of unequal length the same number of samples is drawn."""
    import numpy as np

    random = np.random.default_rng(_SEED)
    lengths = np.array([len(run) for run in runs])
    starts = np.cumsum(lengths) - lengths
    samples = np.concatenate(runs)
    of_each = -(-len(samples) // len(runs))
    block = max(1, _MOST_AT_ONCE // (of_each * len(runs)))
    values = []
    for done in range(0, _RESAMPLES, block):
        count = min(block, _RESAMPLES - done)
        chosen = random.integers(0, len(runs), (count, len(runs), 1)) if len(runs) > 1 else [[[0]]]
        places = random.random((count, len(runs), of_each)) * lengths[chosen]
        drawn = samples[starts[chosen] + places.astype(int)].reshape(count, -1)
        values.append(_middle(drawn, distribution))
    return np.concatenate(values)


def _middle(samples: NDArray[np.float64], distribution: bool) -> NDArray[np.float64]:
    import numpy as np

    if not distribution:
        return np.asarray(samples.mean(axis=-1))
    rank = max(0, -(-samples.shape[-1] // 2) - 1)
    return np.asarray(np.partition(samples, rank, axis=-1)[..., rank])


def probability(t: float, freedom: float) -> float:
    """Integrate Student's t: the probability of a value of at most t.

    scipy, which has it for any degrees of freedom, is too large for this alone.
    """
    import numpy as np

    angles, below = _distribution(_within(freedom))
    return float(np.interp(math.atan(t / math.sqrt(_within(freedom))), angles, below))


def quantile(share: float, freedom: float) -> float:
    """The value below which this share of all is."""
    import numpy as np

    angles, below = _distribution(_within(freedom))
    return math.tan(float(np.interp(share, below, angles))) * math.sqrt(_within(freedom))


def _within(freedom: float) -> float:
    return min(max(freedom, _LEAST_FREEDOM), _MOST_FREEDOM)


@lru_cache(maxsize=128)
def _distribution(freedom: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Angles, and the probability below each: t is their tangent by the root of freedom."""
    import numpy as np

    angles = np.linspace(-math.pi / 2, math.pi / 2, _POINTS)
    density = np.maximum(np.cos(angles), 0.0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return angles, below / below[-1]


FALSE_ALARMS = 0.05
"""How often a comparison of equal sides may fail, whatever the number of its cases."""


def shown_below(intervals: Sequence[Interval], limit: float) -> list[Interval]:
    """Return intervals wholly below a limit; any is so by chance alone in at most 5 %.

    An interval alone errs in one of 40 cases, some of 20 cases by far more often. By Holm's method,
    which holds however cases depend on each other, the least probable of them if nothing had
    changed is held to a share of 5 % that all have, the next to that of all but one, and so on.
    """
    ordered = sorted(intervals, key=lambda one: _chance(one, limit))
    slower = []
    for place, one in enumerate(ordered):
        if _chance(one, limit) > FALSE_ALARMS / (len(ordered) - place):
            break
        slower.append(one)
    return [one for one in slower if one.high < limit]


def _chance(interval: Interval, limit: float) -> float:
    """Return the probability of such a ratio, or a lower one, if B were like A, or at the limit.

    The degrees of freedom of the interval's error rest on variances that were seen: where the few
    runs of a side are close by chance, both are too good. Runs of equal sides vary alike, and the
    variance of all of them has degrees of freedom that rest on their number alone: the more
    probable by either counts.
    """
    distance = interval.centre - math.log(max(1.0, limit))
    alike = math.sqrt(sum(side.of for side in interval.alike))
    tests = (
        (interval.error, interval.freedom),
        (alike, sum(side.freedom for side in interval.alike)),
    )
    return max(_at_most(distance, error, freedom) for error, freedom in tests)


def _at_most(distance: float, error: float, freedom: float) -> float:
    if error == 0:
        return 0.0 if distance < 0 else 1.0
    return probability(distance / error, freedom)
