"""What --fail-below takes as shown, over all cases of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nixwulf.results.compare.interval import Interval, probability

FALSE_ALARMS = 0.05
"""How often a comparison of equal sides may fail, whatever the number of its cases."""


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
