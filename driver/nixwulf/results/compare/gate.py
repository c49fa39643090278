"""What --fail-below takes as shown, over all cases of a comparison, and what it would miss."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from nixwulf.results.compare.interval import (
    Interval,
    Variance,
    probability,
    quantile,
    quantiles,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FALSE_ALARMS = 0.05
"""How often a comparison of equal sides may fail, whatever the number of its cases."""
ENOUGH = 0.8
_MOST_RUNS = 50
_NEXT = 0.95
_DRAWS = 4000
_SEED = 1


def shown_below(intervals: Sequence[Interval], limit: float) -> list[Interval]:
    """Those whose whole interval is below a limit, though something is so only by chance in 5 %.

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
    """How probable such a ratio, or a lower one, would be if B were like A, or at the limit.

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


@dataclass(frozen=True)
class Power:
    """How often a case that truly is at `target` of A is caught.

    caught: the share with the runs there are; runs: on each side, with which ENOUGH are caught,
    None where no number of them is enough; in_turn: the same with both sides in one session.
    """

    target: float
    n_runs: int
    caught: float
    runs: int | None
    in_turn: int | None


def power_of(intervals: Sequence[Interval], n_runs: int, limit: float) -> Power | None:
    """The power of a comparison, by the mean noise of its cases, were that normal.

    None where nothing varies or is judged. n_runs: on the side with fewer; with more of them, the
    other has as many times more. limit: the share of A.
    """
    noisy = [one for one in intervals if one.error > 0]
    if not noisy:
        return None
    sides = [_mean(side) for side in zip(*(one.alike for one in noisy), strict=True)]
    sessions = _mean([one.sessions for one in noisy])
    # What is assumed is the same in every comparison.
    assumed = all(one.basis == "assumed" for one in noisy)
    target = limit * min(limit, _NEXT)

    def caught(count: int, sessions: Variance) -> float:
        more = (count - 1) / (n_runs - 1)
        runs = [Variance(one.of * n_runs / count, one.freedom * more) for one in sides]
        noise = _Noise(runs, sessions, assumed)
        return noise.caught(target, limit, FALSE_ALARMS / len(intervals))

    def enough(sessions: Variance) -> int | None:
        counts = range(2, _MOST_RUNS + 1)
        place = bisect_left(counts, ENOUGH, key=lambda count: caught(count, sessions))
        return counts[place] if place < len(counts) else None

    by_runs = any(one.of for one in sides)
    in_turn = enough(replace(sessions, of=0.0)) if by_runs else None
    return Power(target, n_runs, caught(n_runs, sessions), enough(sessions), in_turn)


def _mean(variances: Sequence[Variance]) -> Variance:
    return Variance(fmean(one.of for one in variances), fmean(one.freedom for one in variances))


@dataclass(frozen=True)
class _Noise:
    """The true noise of a case: of each side by its runs, and by sessions, seen or assumed."""

    runs: Sequence[Variance]
    sessions: Variance
    assumed: bool

    def caught(self, target: float, limit: float, chance: float) -> float:
        """How often shown_below catches a case, over all variances that may be seen of it.

        target: its true share of A. chance: how probable it may be if nothing had changed.
        """
        import numpy as np

        random = np.random.default_rng(_SEED)
        parts = (*self.runs, self.sessions)
        factors = [_estimates(random, one.freedom) for one in parts]
        if self.assumed:
            factors[-1] = np.ones(_DRAWS)
        seen = [one.of * factor for one, factor in zip(parts, factors, strict=True)]
        error = np.sqrt(np.sum(seen, axis=0))
        spread = [of**2 / max(one.freedom, 1) for of, one in zip(seen, parts, strict=True)]
        freedom = error**4 / np.sum(spread, axis=0)
        weights = [one.freedom for one in self.runs]
        pooled = np.average(factors[:-1], axis=0, weights=weights) if any(weights) else 0.0
        alike = np.sqrt(pooled * math.fsum(one.of for one in self.runs))
        by_chance = np.maximum(
            quantiles(1 - chance, freedom) * error, quantile(1 - chance, sum(weights)) * alike
        )
        reached = np.minimum(
            math.log(limit) - quantiles(0.975, freedom) * error,
            math.log(max(1.0, limit)) - by_chance,
        )
        distances = (math.log(target) - reached) / math.sqrt(2 * math.fsum(p.of for p in parts))
        return fmean(0.5 * math.erfc(one) for one in distances.tolist())


def _estimates(random: np.random.Generator, freedom: float) -> NDArray[np.float64]:
    """Estimates of a variance of 1; itself where it is never estimated."""
    import numpy as np

    return random.chisquare(freedom, _DRAWS) / freedom if freedom else np.ones(_DRAWS)
