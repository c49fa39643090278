"""A comparison: what two sides differ in as a whole, their pairs, and what counts as below.

What --fail-below takes as shown, over all cases of a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core.errors import EXIT_OK, EXIT_RUN_FAILED, InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import rank
from nixwulf.results.compare.interval import Interval, probability
from nixwulf.results.compare.pairs import Alone, Ending, Pair, Side, pair_up
from nixwulf.results.identity import Identity, Key
from nixwulf.results.record import Record


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


def _differences(a: Side, b: Side, over: Sequence[str]) -> Iterable[Difference]:
    keys = sorted({k for row in (*a.rows, *b.rows) for k in row.identity if k.is_called(over)})
    for key in keys:
        values = [sorted({_text(row.identity.get(key)) for row in s.rows}) for s in (a, b)]
        if values[0] != values[1]:
            yield Difference(key.name, *(tuple(filter(None, found)) for found in values))
    for what, paths in _AROUND.items():
        one, two = (_distinct(paths, side.records) for side in (a, b))
        if one != two:
            yield Difference(what, one, two)


def _distinct(paths: str, records: Iterable[Record]) -> tuple[str, ...]:
    """What records have at the first of some paths where there is anything."""
    found = (next(filter(None, (_at(r, path) for path in paths.split())), ()) for r in records)
    return tuple(sorted({_text(value) for values in found for value in values if value}))


_AROUND: dict[str, str] = read_toml(DATA / "columns.toml")["around"]
"""Where a record has what need not be equal, and explains a difference."""


def _at(found: Any, path: str) -> Iterable[Any]:
    """The values at a path, of each in a list; what is no text and no number has none."""
    if isinstance(found, list):
        return [value for one in found for value in _at(one, path)]
    if not path:
        return [found] if isinstance(found, str | int | float) else []
    key, _, rest = path.partition(".")
    return _at(found[key], rest) if isinstance(found, dict) and key in found else []


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
