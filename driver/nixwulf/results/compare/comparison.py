"""A comparison: its two sides, and their pairs of equal conditions.

A side is what a path or a query names. Also what the two differ in as a whole, what has no partner,
runs that failed, and what counts as below.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from nixwulf.core.errors import EXIT_OK, EXIT_RUN_FAILED, InputError
from nixwulf.core.files import DATA, find_results, read_toml
from nixwulf.core.metric import Better, better, is_time, rank
from nixwulf.core.query import Term, grouped, is_query, matches, parse_query
from nixwulf.core.text import did_you_mean
from nixwulf.results.compare.interval import Interval, ratio_interval, shown_below, typical
from nixwulf.results.identity import (
    COLUMNS,
    OVER_OWNERS,
    QUANTITY,
    Identity,
    Key,
    SessionKey,
    identity,
    session_of,
)
from nixwulf.results.record import Record, RecordedMetric, load
from nixwulf.results.store import read_folder
from nixwulf.results.table import TIDY_COLUMNS, as_rows, tidy


@dataclass(frozen=True)
class Difference:
    """A difference of A and B as a whole, with the values of each; None: not recorded."""

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
        """List what is shown to be below this share of A, or failed; see shown_below."""
        judged = [(pair, pair.judged) for pair in self.pairs]
        found = shown_below([interval for _, interval in judged if interval], limit)
        slow = (pair for pair, interval in judged if interval in found)
        return (*slow, *(ending for ending in self.endings if ending.worse))

    def exit_code(self, limit: float) -> int:
        """Return the exit code of --fail-below; raises InputError if nothing can be judged."""
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
    """Compare what is equal on two sides in all but the keys of over.

    Where a side has several values of such a key, it is not compared: which of them is meant?

    Raises InputError: when the sides have no equal conditions.
    """
    pairs, endings, alone = _paired(a, b, over)
    return Comparison(
        a,
        b,
        tuple(over),
        tuple(_differences(a, b, over)),
        tuple(sorted(pairs, key=lambda pair: _order(pair.shared))),
        tuple(sorted(endings, key=lambda ending: _case_order(ending.shared))),
        tuple(sorted(alone, key=lambda one: (one.why, _order(one.shared)))),
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
    """Return the distinct values of records at the first of some paths where there is anything."""
    found = (next(filter(None, (_at(r, path) for path in paths.split())), ()) for r in records)
    return tuple(sorted({_text(value) for values in found for value in values if value}))


_AROUND: dict[str, str] = read_toml(DATA / "columns.toml")["around"]
"""Where a record has what need not be equal, and explains a difference."""


def _at(found: object, path: str) -> Iterable[object]:
    """The values at a path, of each in a list; what is no text and no number has none."""
    if isinstance(found, list):
        return [value for one in found for value in _at(one, path)]
    if not path:
        return [found] if isinstance(found, str | int | float) else []
    key, _, rest = path.partition(".")
    return _at(found[key], rest) if isinstance(found, dict) and key in found else []


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _order(identity: Identity) -> tuple[object, ...]:
    metric, unit = (str(identity[Key("", name)]) for name in ("metric", "unit"))
    return (*_case_order(identity), rank(metric, unit))


def _case_order(identity: Identity) -> tuple[object, ...]:
    """Sort by what is measured, then nodes, then the rest; numbers by their size."""
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


Shared = frozenset[tuple[Key, object]]
Why = Literal[
    "only in A", "only in B", "several values in A", "several values in B", "as no model is stated"
]
_MOST_LOOKED_AT = 300


@dataclass(frozen=True)
class SideValue:
    """A metric on one side: mean or median, its samples, runs and acceptance of drafts."""

    value: float
    n_samples: int
    n_runs: int
    acceptance: str = ""


@dataclass(frozen=True)
class Pair:
    """A metric under conditions that both sides have; interval: None where none can be given."""

    shared: Identity
    unit: str
    a: SideValue
    b: SideValue
    interval: Interval | None

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return str(self.shared[Key("", "metric")])

    @property
    def better(self) -> Better:
        """The direction of it that is better."""
        return better(self.metric, self.unit)

    @property
    def ratio(self) -> float | None:
        """B over A; None where A is 0."""
        return self.b.value / self.a.value if self.a.value else None

    @property
    def word(self) -> str:
        """B in a word: 'faster', 'slower', 'more', 'less', 'no difference shown'; may be empty."""
        if self.interval is None:
            return ""
        if not self.interval.shows_difference:
            return "no difference shown"
        more = self.interval.low > 1
        if is_time(self.unit):
            return "slower" if more else "faster"
        if self.unit.endswith("/s"):
            return "faster" if more else "slower"
        return "more" if more else "less"

    @property
    def judgement(self) -> Literal["better", "worse", ""]:
        """Judge the difference that is shown: better or worse; empty where neither can be."""
        if self.interval is None or not self.interval.shows_difference or not self.better:
            return ""
        return "better" if (self.interval.low > 1) == (self.better == "more") else "worse"

    @property
    def single(self) -> bool:
        """Tell whether a side is one run: its interval lacks the noise between runs."""
        return min(self.a.n_runs, self.b.n_runs) == 1

    @property
    def judged(self) -> Interval | None:
        """The interval of how good B is, 1 being as good as A, which can be held to a limit.

        None where neither direction is better, and where a side is one run.
        """
        if self.interval is None or self.single or not self.better:
            return None
        centre = self.interval.centre
        return replace(self.interval, centre=centre if self.better == "more" else -centre)


@dataclass(frozen=True)
class Ending:
    """A case in which a run failed, with how the runs of each side ended."""

    shared: Identity
    a: Mapping[str, int]
    b: Mapping[str, int]

    @property
    def worse(self) -> bool:
        """Tell whether all runs of A ended ok, and not all of B."""
        return set(self.a) == {"ok"} and set(self.b) != {"ok"}


@dataclass(frozen=True)
class Alone:
    """A metric that was not compared, and why."""

    why: Why
    shared: Identity


def _paired(
    a: Side, b: Side, over: Sequence[str]
) -> tuple[list[Pair], tuple[Ending, ...], list[Alone]]:
    _check_over(over, (*a.rows, *b.rows))
    metrics_a, metrics_b = (
        grouped((frozenset(r.identity.items()), r) for r in s.rows if r.ok) for s in (a, b)
    )
    groups_a, groups_b = (_without(groups, over) for groups in (metrics_a, metrics_b))
    endings = _endings(a, b, over)
    failed = {frozenset(ending.shared.items()) for ending in endings}
    alone = []
    pairs = []
    for shared in {**groups_a, **groups_b}:
        one, two = groups_a.get(shared, []), groups_b.get(shared, [])
        why = "as no model is stated" if _any_model(dict(shared)) else _why_not(one, two)
        if not why:
            pairs.append(_pair(ordered(shared), one, two))
        elif frozenset(ComparedRow({}, dict(shared)).case.items()) not in failed:
            alone.append(Alone(why, ordered(shared)))
    if not pairs and not endings:
        raise InputError(_nothing(a, b, list(metrics_a), list(metrics_b), alone, over))
    return pairs, endings, alone


def _without(
    groups: Mapping[Shared, list[ComparedRow]], over: Sequence[str]
) -> dict[Shared, list[list[ComparedRow]]]:
    """The groups by what is left of their conditions without some keys."""
    found: dict[Shared, list[list[ComparedRow]]] = defaultdict(list)
    for conditions, rows in groups.items():
        found[frozenset(item for item in conditions if not item[0].is_called(over))].append(rows)
    return found


def _any_model(shared: Identity) -> bool:
    """Tell whether an engine ran an unnamed model, so that each side may have another."""
    return bool(shared.get(Key("", "engine"))) and not shared.get(Key("", "model"))


def _why_not(a: list[list[ComparedRow]], b: list[list[ComparedRow]]) -> Why | None:
    if not a or not b:
        return "only in B" if not a else "only in A"
    if len(a) > 1:
        return "several values in A"
    return "several values in B" if len(b) > 1 else None


def _pair(shared: Identity, a: list[list[ComparedRow]], b: list[list[ComparedRow]]) -> Pair:
    (one,), (two,) = a, b
    distribution = any(row.values["p50"] is not None for row in (*one, *two))
    complete = all(row.values["samples"] for row in (*one, *two))
    runs_a, runs_b = _in_sessions(one, two)
    return Pair(
        shared,
        str(shared[Key("", "unit")]),
        _value(one, distribution, complete),
        _value(two, distribution, complete),
        ratio_interval(runs_a, runs_b, distribution) if complete else None,
    )


def _in_sessions(
    one: Iterable[ComparedRow], two: Iterable[ComparedRow]
) -> Iterator[dict[Hashable, list[list[float]]]]:
    """The samples of the runs of each side by their sessions.

    What one side measured before the other began is of a session of its own: a machine heats up.
    """
    sides = [grouped((row.session, row) for row in rows) for rows in (one, two)]
    for place, side in enumerate(sides):
        yield {
            session if _in_turn(*(s.get(session, ()) for s in sides)) else (session, place): [
                list(row.values["samples"]) for row in rows
            ]
            for session, rows in side.items()
        }


def _in_turn(one: Iterable[ComparedRow], two: Iterable[ComparedRow]) -> bool:
    """Tell whether the runs of one began before the last of the other, and the other way round."""
    a, b = ([str(row.values["started"]) for row in rows] for rows in (one, two))
    return bool(a and b) and max(min(a), min(b)) < min(max(a), max(b))


def _value(rows: list[ComparedRow], distribution: bool, complete: bool) -> SideValue:
    """Pool all samples where both sides have them, else what each record gives."""
    samples = [sample for row in rows for sample in row.values["samples"]]
    acceptance = ", ".join(dict.fromkeys(row.values["acceptance"] for row in rows))
    if complete:
        return SideValue(typical(samples, distribution), len(samples), len(rows), acceptance)
    given = [row.values["p50"] if distribution else None for row in rows]
    values = [p50 or row.values["value"] for p50, row in zip(given, rows, strict=True)]
    return SideValue(typical(values, False), len(samples), len(rows), acceptance)


def _endings(a: Side, b: Side, over: Sequence[str]) -> tuple[Ending, ...]:
    """The cases that both sides have and in which a run of one of them failed."""
    found_a, found_b = (_outcomes(side, over) for side in (a, b))
    return tuple(
        Ending(ordered(case), dict(found_a[case]), dict(found_b[case]))
        for case in found_a
        if case in found_b and set(found_a[case]) | set(found_b[case]) != {"ok"}
    )


def _outcomes(side: Side, over: Sequence[str]) -> dict[Shared, Counter[str]]:
    runs: dict[Shared, dict[tuple[str, str], str]] = defaultdict(dict)
    for row in side.rows:
        case = frozenset(item for item in row.case.items() if not item[0].is_called(over))
        run = (row.values["record"], row.values["started"])
        runs[case][run] = row.values["outcome"]
    return {case: Counter(outcomes.values()) for case, outcomes in runs.items()}


def _check_over(over: Sequence[str], rows: Iterable[ComparedRow]) -> None:
    known = {name for row in rows for key in row.identity for name in (key.name, key.group)}
    known -= {"", "metric", "unit"}
    for name in over:
        if name not in known:
            raise InputError(f"Unknown key {name!r} of --over; {did_you_mean(name, sorted(known))}")


def _nothing(
    a: Side,
    b: Side,
    metrics_a: list[Shared],
    metrics_b: list[Shared],
    alone: Sequence[Alone],
    over: Sequence[str],
) -> str:
    """Say why nothing pairs, with the options that would pair the two that are nearest."""
    for side, found in (("A", metrics_a), ("B", metrics_b)):
        if not found:
            return f"{side} ({(a if side == 'A' else b).name}) has no number: no run ended ok."
    several = sorted({one.why for one in alone if one.why.startswith("several")})
    if several:
        side = several[0][-1]
        return (
            f"{side} ({(a if side == 'A' else b).name}) has several values of "
            f"{', '.join(over)} for each condition: choose one by a query, such as "
            f"'{over[0]}=...' --in DIR."
        )
    if any(_any_model(dict(one)) for one in (*metrics_a, *metrics_b)):
        return "No model is stated, and each side may have another; import with --model."
    nearest = _nearest(metrics_a[:_MOST_LOOKED_AT], metrics_b[:_MOST_LOOKED_AT])
    if not nearest:
        metric = Key("", "metric")
        names = [{str(dict(one)[metric]) for one in found} for found in (metrics_a, metrics_b)]
        one, two = (", ".join(sorted(found)) for found in names)
        return f"A and B have no metric in common: A has {one}; B has {two}."
    words = ", ".join(f"{key} ({one} -> {two})" for key, (one, two) in nearest.items())
    keys = [name for name in nearest if name not in over]
    options = " ".join(f"--over {name}" for name in (*over, *keys))
    return f"Nothing pairs: the nearest differ in {words}; to compare over that, give {options}."


def _nearest(a: list[Shared], b: list[Shared]) -> dict[str, tuple[str, str]]:
    """The keys in which the two most similar differ, each with its two values."""
    best: dict[str, tuple[str, str]] = {}
    for one in map(dict, a):
        for two in map(dict, b):
            if any(one[Key("", name)] != two[Key("", name)] for name in ("metric", "unit")):
                continue
            keys = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))
            found = {key.name: (_or_none(one.get(key)), _or_none(two.get(key))) for key in keys}
            if not best or len(found) < len(best):
                best = found
    return best


def _or_none(value: object) -> str:
    return "none" if value in (None, "") else str(value)


# Records of 1.1 and before have among their conditions what was seen, which no two runs share.
_SEEN = frozenset({"retransmits", "lost", "stalled", "p99_us", "observed"})
_NO_QUERY = frozenset({"samples", "conditions", "observed", "parameters", "variant"})


def ordered(items: Iterable[tuple[Key, object]]) -> Identity:
    """An identity in the order in which people read it: what is measured, where, then the rest."""
    places = {name: place for place, name in enumerate(COLUMNS)}
    return dict(
        sorted(items, key=lambda item: (item[0].group, places.get(item[0].name, 0), item[0]))
    )


@dataclass(frozen=True)
class ComparedRow:
    """A row of the tidy table, what has to be equal for it to be compared, and its session."""

    values: Mapping[str, Any]
    identity: Identity
    session: SessionKey | None = None

    @property
    def ok(self) -> bool:
        """Tell whether it has a number."""
        return bool(self.values["outcome"] == "ok")

    @property
    def case(self) -> Identity:
        """The identity without what distinguishes the metrics of a run."""
        return {
            key: value
            for key, value in self.identity.items()
            if key.group != "conditions" and key.name not in QUANTITY
        }


@dataclass(frozen=True)
class Side:
    """A side of a comparison: how it was named, its records and their rows."""

    name: str
    records: tuple[Record, ...]
    rows: tuple[ComparedRow, ...]


def read_side(text: str, folder: Path) -> Side:
    """The records of a path, or of a query among those in a folder; raises InputError."""
    path, folder = find_results(Path(text)), find_results(folder)
    if path.exists():
        return side_of(text, _read(path))
    if not is_query(text):
        raise InputError(
            f"{text!r} does not exist; name a record, a run folder, a folder of those, or a query "
            "such as 'platform=dgx-spark model=qwen3*'."
        )
    if not folder.is_dir():
        raise InputError(
            f"{text!r} is a query, and there is no folder {str(folder)!r} to choose from; name one "
            "with --in."
        )
    whole = side_of(text, _read(folder))
    keys = frozenset(name for row in whole.rows for name in _queried(row))
    terms = parse_query(text, keys)
    rows = tuple(row for row in whole.rows if matches(terms, _queried(row)))
    if not rows:
        raise InputError(
            f"No record in {str(folder)!r} is {text!r}; it has {_near_values(terms, whole.rows)}."
        )
    chosen = {row.values["record"] for row in rows}
    return Side(text, tuple(r for r in whole.records if r["id"] in chosen), rows)


def side_of(name: str, records: Iterable[Record]) -> Side:
    """The side that these records make."""
    kept = tuple(records)
    rows = as_rows(tidy(_with_positions(record) for record in kept))
    identities = (identity(row, without=OVER_OWNERS) for row in rows)
    sessions = {(r["id"], r.get("started", "")): session_of(r) for r in kept}
    of_rows = (sessions[row["record"], row["started"]] for row in rows)
    return Side(name, kept, tuple(map(ComparedRow, rows, identities, of_rows)))


def split(records: Iterable[Record], ids: Collection[str], name: str) -> tuple[Side, Side]:
    """Two sides of the records of one run."""
    sides: tuple[list[Record], list[Record]] = ([], [])
    for record in records:
        sides[record["case"]["id"] not in ids].append(record)
    return side_of(name, sides[0]), side_of(f"not {name}", sides[1])


def _read(path: Path) -> Iterable[Record]:
    return [load(path)] if path.is_file() else read_folder(path).records


def _with_positions(record: Record) -> Record:
    """The record with nodes in its conditions named by their place, as other clusters have them."""
    places = {node["name"]: f"n{i + 1}" for i, node in enumerate(record.get("nodes", ()))}
    metrics: list[RecordedMetric] = [
        {
            **metric,
            "conditions": {
                key: places.get(value, value) if isinstance(value, str) else value
                for key, value in metric["conditions"].items()
                if key not in _SEEN
            },
        }
        for metric in record["metrics"]
    ]
    return {**record, "metrics": metrics}


def _queried(row: ComparedRow) -> dict[str, object]:
    """List what a query may ask of a row: the table's columns, parameters and conditions."""
    columns = {name: row.values[name] for name in TIDY_COLUMNS if name not in _NO_QUERY}
    return {**{key.name: value for key, value in row.identity.items()}, **columns}


def _near_values(terms: Iterable[Term], rows: Iterable[ComparedRow]) -> str:
    """List the values that there are of each key of a query."""
    found = []
    for key in dict.fromkeys(term.key for term in terms):
        values = {str(_queried(row).get(key) or "none") for row in rows}
        found.append(f"{key} {', '.join(sorted(values)[:10])}")
    return "; ".join(found)
