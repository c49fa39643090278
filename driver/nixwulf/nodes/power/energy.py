"""Averages, peaks and energies of series of points over windows of time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from nixwulf.nodes.power.samples import Point

Window = tuple[float, float]
"""Begin and end, seconds of the clock of the points."""

PEAK_S = 1.0
# An average over fewer points than this depends more on the moments of sampling.
LEAST_POINTS = 5
_LEAST_SHARE = 0.9


def integral(watts: Sequence[Point]) -> list[Point]:
    """Joules since the first point, by trapezoids."""
    joules, total = [], 0.0
    for index, (time, value) in enumerate(watts):
        if index:
            before, earlier = watts[index - 1]
            total += (time - before) * (value + earlier) / 2
        joules.append((time, total))
    return joules


def average(joules: Sequence[Point], windows: Sequence[Window]) -> float | None:
    """Mean watts over windows; None where the points do not cover nine tenths of them.

    Joules between two points are as if the power had been constant there.
    """
    covered = energy = 0.0
    for begin, end in windows:
        start, stop = (
            max(begin, joules[0][0]) if joules else end,
            min(end, joules[-1][0]) if joules else begin,
        )
        if stop > start:
            covered += stop - start
            energy += _at(joules, stop) - _at(joules, start)
    asked = sum(end - begin for begin, end in windows)
    return energy / covered if covered > 0 and covered >= _LEAST_SHARE * asked else None


def peak(joules: Sequence[Point], window: Window) -> float | None:
    """The highest mean over a second inside a window; None where no second is."""
    begin, end = window
    times = [time for time, _ in joules]
    rates = []
    for index in range(bisect.bisect_left(times, begin), len(times)):
        later = bisect.bisect_left(times, times[index] + PEAK_S)
        if later == len(times) or times[later] > end:
            break
        rates.append((joules[later][1] - joules[index][1]) / (times[later] - times[index]))
    return max(rates, default=None)


def total(channels: Sequence[Sequence[Point]]) -> list[Point]:
    """The joules of several channels together, at the moments of the first."""
    first, *others = channels
    return [(t, joules + sum(_at(other, t) for other in others)) for t, joules in first]


def merged(windows: Sequence[Window], gap: float) -> list[Window]:
    """Windows in order, those with no more than a gap between them as one."""
    result: list[Window] = []
    for begin, end in sorted(windows):
        if result and begin - result[-1][1] <= gap:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def resolved(points: Sequence[Point], windows: Sequence[Window]) -> bool:
    """Whether enough points lie in each window for an average."""
    return all(
        sum(begin <= time <= end for time, _ in points) >= LEAST_POINTS for begin, end in windows
    )


def _at(joules: Sequence[Point], moment: float) -> float:
    index = max(1, bisect.bisect_left(joules, (moment, float("-inf"))))
    (before, low), (after, high) = joules[index - 1], joules[min(index, len(joules) - 1)]
    return low if after == before else low + (high - low) * (moment - before) / (after - before)
