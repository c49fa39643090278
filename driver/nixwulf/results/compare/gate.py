"""What --fail-below takes as shown, over all cases of a comparison, and what it would miss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from nixwulf.results.compare.interval import Interval, Variance, total
from nixwulf.results.compare.student import power, probability, quantile

FALSE_ALARMS = 0.05
"""How often a comparison of equal sides may fail, whatever the number of its cases."""
ENOUGH = 0.8
_MOST_RUNS = 50
_NEXT = 0.95


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
    """How probable such a ratio, or a lower one, would be if B were like A, or at the limit."""
    distance = interval.centre - math.log(max(1.0, limit))
    if interval.error == 0:
        return 0.0 if distance < 0 else 1.0
    return probability(distance / interval.error, interval.freedom)


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
    """The power of a comparison, by the mean noise of its cases.

    Args:
        intervals: of the pairs that are held to the limit.
        n_runs: on each side.
        limit: the share of A.

    Returns:
        None where nothing varies or is judged.
    """
    noisy = [one for one in intervals if one.error > 0]
    if not noisy:
        return None
    variances = [(one.runs, one.sessions) for one in noisy]
    of_runs, of_sessions = (
        Variance(fmean(v.of for v in found), fmean(v.freedom for v in found))
        for found in zip(*variances, strict=True)
    )
    target = limit * min(limit, _NEXT)
    # What is assumed is the same in every comparison.
    assumed = all(one.basis == "assumed" for one in noisy)

    def caught(count: int, sessions: Variance) -> float:
        more = (count - 1) / (n_runs - 1)
        runs = Variance(of_runs.of * n_runs / count, of_runs.freedom * more)
        whole = total(runs, sessions)
        held_to = {limit: 0.975, max(1.0, limit): 1 - FALSE_ALARMS / len(intervals)}
        thresholds = [
            (math.log(at / target) / math.sqrt(whole.of), quantile(share, whole.freedom))
            for at, share in held_to.items()
        ]
        estimate = total(runs, replace(sessions, freedom=math.inf)) if assumed else whole
        return power(thresholds, estimate.freedom)

    def enough(sessions: Variance) -> int | None:
        counts = range(2, _MOST_RUNS + 1)
        return next((n for n in counts if caught(n, sessions) >= ENOUGH), None)

    in_turn = enough(replace(of_sessions, of=0.0))
    return Power(target, n_runs, caught(n_runs, of_sessions), enough(of_sessions), in_turn)
