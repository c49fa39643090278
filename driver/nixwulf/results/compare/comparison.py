"""A comparison: what two sides differ in as a whole, their pairs, and what counts as below.

What --fail-below takes as shown is of all its cases, with what it would miss.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from nixwulf.core.errors import EXIT_OK, EXIT_RUN_FAILED, InputError
from nixwulf.core.metric import rank
from nixwulf.results.compare.interval import Interval, Variance, probability, quantile, quantiles
from nixwulf.results.compare.pairs import Alone, Ending, Pair, Side, pair_up, read_side
from nixwulf.results.identity import Identity, Key
from nixwulf.results.record import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Difference:
    """What A and B differ in as a whole, with the values of each; None: not recorded."""

    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Two sides compared; over: the conditions that the user compares over."""

    a: Side
    b: Side
    over: tuple[str, ...]
    differences: tuple[Difference, ...]
    pairs: tuple[Pair, ...]
    endings: tuple[Ending, ...]
    alone: tuple[Alone, ...]

    @property
    def unjudged(self) -> tuple[Pair, ...]:
        """Pairs with too few samples for an interval."""
        return tuple(pair for pair in self.pairs if pair.interval is None)

    def below(self, limit: float) -> tuple[Pair | Ending, ...]:
        """What is shown to be below this share of A, or failed; see shown_below."""
        judged = [(pair, pair.judged) for pair in self.pairs]
        found = shown_below([interval for _, interval in judged if interval], limit)
        slow = (pair for pair, interval in judged if interval in found)
        return (*slow, *(ending for ending in self.endings if ending.worse))

    def power(self, limit: float) -> Power | None:
        """How often what truly is below this share of A is caught; None where nothing is judged."""
        judged = [(one, min(p.a.n_runs, p.b.n_runs)) for p in self.pairs if (one := p.judged)]
        fewest = min((runs for _, runs in judged), default=0)
        return power_of([one for one, _ in judged], fewest, limit)

    def exit_code(self, limit: float) -> int:
        """What --fail-below gives; raises InputError when nothing could be below at all."""
        if self.below(limit):
            return EXIT_RUN_FAILED
        if all(pair.judged is None for pair in self.pairs):
            raise InputError(
                f"--fail-below {limit:g} can judge none of the {len(self.pairs)} pairs: each lacks "
                "two runs and three samples on both sides, or a better direction; give the sweep "
                "'repetitions: 3'."
            )
        return EXIT_OK


def compare(a: Side, b: Side, over: Sequence[str] = ()) -> Comparison:
    """Compare equal conditions of two sides.

    Raises InputError: when the sides have no equal conditions.
    """
    found = pair_up(a, b, over)
    return Comparison(
        a,
        b,
        tuple(over),
        tuple(_differences(a, b, over)),
        tuple(sorted(found.pairs, key=lambda pair: _order(pair.shared))),
        tuple(sorted(found.endings, key=lambda ending: _case_order(ending.shared))),
        tuple(sorted(found.alone, key=lambda one: (one.why, _order(one.shared)))),
    )


def compare_paths(a: str, b: str, folder: Path, over: Sequence[str] = ()) -> Comparison:
    """Compare what two paths or queries name.

    a: a path, or a query of the folder's records: what is compared with. folder: where queries
    choose from.

    Raises InputError: for what names no record, and when the sides have no equal conditions.
    """
    return compare(read_side(a, folder), read_side(b, folder), over)


def _differences(a: Side, b: Side, over: Sequence[str]) -> Iterable[Difference]:
    keys = sorted({k for row in (*a.rows, *b.rows) for k in row.identity if k.is_called(over)})
    for key in keys:
        values = [sorted({_text(row.identity.get(key)) for row in s.rows}) for s in (a, b)]
        if values[0] != values[1]:
            yield Difference(key.name, *(tuple(filter(None, found)) for found in values))
    for what, read in _AROUND.items():
        one, two = (_distinct(read, side.records) for side in (a, b))
        if one != two:
            yield Difference(what, one, two)


def _distinct(
    read: Callable[[Record], Iterable[Any]], records: Iterable[Record]
) -> tuple[str, ...]:
    return tuple(sorted({_text(value) for record in records for value in read(record) if value}))


def _inside(record: Record, *keys: str) -> list[Any]:
    value: Any = record
    for key in keys:
        value = value.get(key, {}) if isinstance(value, dict) else {}
    return [value] if isinstance(value, str | int | float) else []


def _fact(name: str) -> Callable[[Record], list[Any]]:
    return lambda r: [node.get("facts", {}).get(name) for node in r.get("nodes", ())]


_AROUND: dict[str, Callable[[Record], list[Any]]] = {
    "kind of record": lambda r: [r["kind"]],
    "source": lambda r: _inside(r, "source", "name"),
    "cluster": lambda r: [r["cluster"]["name"]],
    "engine version": lambda r: _inside(r, "engine", "version"),
    "engine build": lambda r: _inside(r, "engine", "build_commit"),
    "engine image": lambda r: _inside(r, "engine", "image"),
    "backends": lambda r: _inside(r, "engine", "backends"),
    "kernel": _fact("kernel"),
    "system": _fact("os"),
    "firmware": _fact("firmware"),
    "kernel parameters": _fact("command_line"),
    "governor": _fact("governor"),
    "GPU driver": _fact("nvidia_driver"),
    "nixwulf": lambda r: [*_inside(r, "provenance", "revision"), r["provenance"]["nixwulf"]][:1],
}
"""What need not be equal, and explains a difference."""


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _order(identity: Identity) -> tuple[Any, ...]:
    metric, unit = (str(identity[Key("", name)]) for name in ("metric", "unit"))
    return (*_case_order(identity), rank(metric, unit))


def _case_order(identity: Identity) -> tuple[Any, ...]:
    """By what is measured, then nodes, then the rest; numbers by their size."""
    first = ("platform", "engine", "benchmark", "model", "weights", "nodes", "parallelism")
    named = [_sortable(identity.get(Key("", name))) for name in (*first, "fabric", "transport")]
    rest = [
        (key, _sortable(value))
        for key, value in sorted(identity.items(), key=lambda item: item[0])
        if key.group
    ]
    return (*named, rest)


def _sortable(value: object) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (0.0, _text(value))


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

    n_runs: on the side with fewer; with more of them, the other has as many times more. limit: the
    share of A.

    Returns:
        None where nothing varies or is judged.
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
