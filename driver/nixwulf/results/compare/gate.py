"""What --fail-below takes as shown, over all cases of a comparison, and what it would miss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nixwulf.results.compare.interval import Interval, Variance, total
from nixwulf.results.compare.student import power, probability, quantile

FALSE_ALARMS = 0.05
"""How often a comparison of equal sides may fail, whatever the number of its cases."""
ENOUGH = 0.8
_MOST_RUNS = 50
_NEXT = 0.95


def shown_below(intervals: Sequence[Interval], limit: float) -> list[Interval]:
    """Those whose ratio is below a limit, by one-sided tests of which one in twenty sets errs.

    Holm's: the least probable is held to a share of 5 % that all have, the next to that of all but
    one, until one is not below. That holds however the cases depend on each other.
    """
    ordered = sorted(intervals, key=lambda one: _chance(one, limit))
    found = []
    for place, one in enumerate(ordered):
        if _chance(one, limit) > FALSE_ALARMS / (len(ordered) - place):
            break
        found.append(one)
    return found


def _chance(interval: Interval, limit: float) -> float:
    """How probable such a ratio, or a lower one, would be if it truly were at the limit."""
    distance = interval.centre - math.log(limit)
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
    """The power of a comparison, by the noise of its middle case.

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
    middle = sorted(noisy, key=lambda one: one.error)[len(noisy) // 2]
    target = limit * min(limit, _NEXT)

    def caught(count: int, sessions: Variance) -> float:
        runs = Variance(middle.runs.of * n_runs / count, 2 * (count - 1))
        whole = total(runs, sessions)
        critical = quantile(1 - FALSE_ALARMS / len(intervals), whole.freedom)
        return power(math.log(limit / target) / math.sqrt(whole.of), critical, whole.freedom)

    def enough(sessions: Variance) -> int | None:
        counts = range(2, _MOST_RUNS + 1)
        return next((n for n in counts if caught(n, sessions) >= ENOUGH), None)

    none = replace(middle.sessions, of=0.0)
    now = caught(n_runs, middle.sessions)
    return Power(target, n_runs, now, enough(middle.sessions), enough(none))
