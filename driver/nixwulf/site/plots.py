"""Which charts a set of rows gives, and what joins their marks.

A line joins rows that differ in x alone: the same platform, engine and its version, model and
weights, conditions, and who measured. What differs otherwise may stand in one chart, with other
marks, but only for the same model and amount of work.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from nixwulf.report.words import microseconds, plural
from nixwulf.site.chart import SHAPES, Chart, Mark, apart, colour, shape, svg
from nixwulf.site.rows import Row, shorten
from nixwulf.units import adds_up, better

MOST_CHARTS = 6
MOST_MARKS = 60
"""Of one chart: a mark is up to 600 bytes, and a page has up to four kinds of charts."""
_MOST_IN_LEGEND = 12
_LONGEST_WORDS = 240
_LONGEST_TITLE = 44


class LegendEntry(NamedTuple):
    """A letter like a mark, the class of its colour, and what has that mark."""

    letter: str
    colour: str
    words: str


@dataclass(frozen=True)
class Figure:
    """Charts of one kind, ready for the page; note: what is not drawn."""

    heading: str
    about: str
    legend: tuple[LegendEntry, ...]
    charts: tuple[Markup, ...]
    note: str


@dataclass(frozen=True)
class _Kind:
    """A kind of chart: its x, and which rows have no place in it."""

    heading: str
    about: str
    over: str
    x: Callable[[Row], float | None]
    wanted: Callable[[Row], bool]
    by_nodes: bool = False


_KINDS = (
    _Kind(
        "By number of nodes",
        "A line joins one node and more of them: all else is the same but the fabric, which one "
        "node has none of, and how the work is split.",
        "nodes",
        lambda row: float(row.nodes),
        lambda row: adds_up(row.unit),
        by_nodes=True,
    ),
    _Kind(
        "Against latency",
        "Over the round trip of 64-byte packets that was measured in the same run. A line joins "
        "fabrics: all else is the same.",
        "measured round trip, µs",
        lambda row: row.rtt_us,
        lambda row: row.nodes > 1 and row.metric == "decode",
    ),
    _Kind(
        "Against bandwidth",
        "Over the bandwidth of one TCP stream that was measured in the same run. A line joins "
        "fabrics: all else is the same.",
        "measured bandwidth, Gbit/s",
        lambda row: row.bandwidth_gbps,
        lambda row: row.nodes > 1 and row.metric == "prompt",
    ),
    _Kind(
        "Against the fabric's nominal speed",
        "What was sold, not what was measured. A line joins fabrics: all else is the same.",
        "nominal speed, Gbit/s",
        lambda row: row.speed_gbps,
        lambda row: row.nodes > 1 and row.metric == "prompt",
    ),
    _Kind(
        "Against watts",
        "Speed over the power that the same record gives of all nodes.",
        "power of all nodes, W",
        lambda row: row.watts,
        lambda row: adds_up(row.unit),
    ),
    _Kind(
        "Watts",
        "Power of all nodes together. A line joins numbers of nodes: all else is the same.",
        "nodes",
        lambda row: float(row.nodes),
        lambda row: row.unit == "W",
        by_nodes=True,
    ),
)


def figures(rows: Sequence[Row], href: Callable[[Row], str], name: str) -> list[Figure]:
    """The figures of a page's rows; name is the page's own model or platform, for no title.

    href gives the page of a row's record. Kinds that would be empty are left out.
    """
    found = (_figure(kind, rows, href, name) for kind in _KINDS)
    return [figure for figure in found if figure]


def _figure(
    kind: _Kind, rows: Sequence[Row], href: Callable[[Row], str], name: str
) -> Figure | None:
    panels: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        if row.value and kind.x(row) and kind.wanted(row):
            panels[_panel(row)].append(row)
    found = [(own, _lines(kind, own)) for own in panels.values()]
    found = [(own, lines) for own, lines in found if _worth(kind, own, lines)]
    found.sort(key=lambda panel: (-len(panel[1]), -len(panel[0]), _title(panel[0][0], "")))
    drawn = [(_some(own), lines) for own, lines in found[:MOST_CHARTS]]
    if not drawn:
        return None
    look = _Look([row for own, _ in drawn for row in own])
    charts = [_chart(kind, own, lines, look, href, name) for own, lines in drawn]
    return Figure(
        heading=kind.heading,
        about=kind.about,
        legend=look.legend,
        charts=tuple(map(svg, charts)),
        note=_note(len(found) - len(drawn), [len(own) for own, _ in found[:MOST_CHARTS]]),
    )


def _panel(row: Row) -> Hashable:
    """What rows of one chart have in common."""
    return (row.model, row.benchmark, row.metric, row.unit, row.state, row.work)


def _alone(row: Row) -> Hashable:
    """What rows of one line have in common, also with those on one node."""
    return (
        row.kind,
        row.source.record["cluster"]["name"],
        row.platforms,
        row.machines,
        row.engine,
        row.engine_version,
        row.weights,
        _panel(row),
        tuple(sorted((key, str(value)) for key, value in row.conditions.items())),
    )


def _crossing(row: Row) -> tuple[str, str, str]:
    return (row.parallelism, row.fabric, row.transport)


def _lines(kind: _Kind, rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that a line joins, where they have two values of x or more."""
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    crossings: dict[Hashable, set[tuple[str, str, str]]] = defaultdict(set)
    for row in rows:
        if row.nodes > 1:
            crossings[_alone(row)].add(_crossing(row))
    for row in rows:
        if not kind.by_nodes:
            groups[_alone(row), row.nodes, row.parallelism, row.transport].append(row)
        elif row.nodes > 1:
            groups[_alone(row), _crossing(row)].append(row)
        else:
            for crossing in crossings[_alone(row)]:
                groups[_alone(row), crossing].append(row)
    return [own for own in groups.values() if _joins(kind, own)]


def _joins(kind: _Kind, rows: Sequence[Row]) -> bool:
    """Whether they are at two values of x, and repeat nothing but runs.

    Two published values at one x differ in something that their sources do not say, and so they
    may differ in it from those at another x.
    """
    places = [kind.x(row) or 0.0 for row in rows]
    repeated = len(set(places)) < len(places)
    return apart(places) and not (repeated and any(row.kind != "run" for row in rows))


def _worth(kind: _Kind, rows: Sequence[Row], lines: Sequence[Sequence[Row]]) -> bool:
    """Over nodes marks that nothing joins would compare what cannot be; else two places do."""
    return bool(lines) if kind.by_nodes else apart([kind.x(row) or 0.0 for row in rows])


def _some(rows: Sequence[Row]) -> list[Row]:
    """All rows, or as many as a chart shows, evenly from the highest value to the lowest."""
    if len(rows) <= MOST_MARKS:
        return list(rows)
    ordered = sorted(rows, key=lambda row: -(row.value or 0.0))
    step = (len(ordered) - 1) / (MOST_MARKS - 1)
    return [ordered[round(index * step)] for index in range(MOST_MARKS)]


class _Look:
    """Colours and shapes of a figure's marks, by what its rows differ in."""

    def __init__(self, rows: Sequence[Row]) -> None:
        parts = [_parts(row) for row in rows]
        differing = [i for i in range(len(parts[0])) if len({part[i] for part in parts}) > 1]
        self._shown = differing
        counts = Counter(map(self._words, rows))
        while len(counts) > _MOST_IN_LEGEND and len(self._shown) > 1:
            self._shown = self._shown[:-1]
            counts = Counter(map(self._words, rows))
        named = [words for words, _ in counts.most_common(_MOST_IN_LEGEND)]
        self._styles = {words: style for style, words in enumerate(sorted(named))}
        self._others = len(counts) > len(named)

    def style(self, row: Row) -> int | None:
        """The style of a row's mark; none where there are too many."""
        return self._styles.get(self._words(row))

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        """What each style means; empty where all marks look the same."""
        if len(self._styles) == 1 and not self._others:
            return ()
        entries = [
            LegendEntry(SHAPES[shape(style)], colour(style), words)
            for words, style in self._styles.items()
        ]
        if self._others:
            entries.append(LegendEntry(SHAPES[0], colour(None), "all others"))
        return tuple(entries)

    def _words(self, row: Row) -> str:
        parts = _parts(row)
        return ", ".join(filter(None, (parts[index] for index in self._shown)))


def _parts(row: Row) -> tuple[str, ...]:
    """What may tell marks apart, the most important first."""
    return (
        "+".join(row.platforms),
        row.program,
        row.weights,
        row.link or "one node",
        row.parallelism if row.nodes > 1 else "",
    )


def _chart(
    kind: _Kind,
    rows: Sequence[Row],
    lines: Sequence[Sequence[Row]],
    look: _Look,
    href: Callable[[Row], str],
    name: str,
) -> Chart:
    first = rows[0]
    unit = first.unit_words + (", less is better" if better(first.unit) == "less" else "")
    return Chart(
        title=_title(first, name),
        unit=f"{unit}; {first.work}" if first.work else unit,
        over=kind.over,
        steps=kind.by_nodes,
        marks=[
            Mark(
                x=kind.x(row) or 0.0,
                y=row.value or 0.0,
                style=look.style(row),
                kind=row.kind,
                href=href(row),
                words=shorten(mark_words(row), _LONGEST_WORDS),
            )
            for row in rows
        ],
        lines=[
            (look.style(max(own, key=lambda row: row.nodes)), _means(kind, own))
            for own in lines[:MOST_MARKS]
        ],
    )


def _means(kind: _Kind, rows: Sequence[Row]) -> list[tuple[float, float]]:
    """A line's points: runs of one case are joined at their mean."""
    values: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        values[kind.x(row) or 0.0].append(row.value or 0.0)
    return [(x, statistics.fmean(found)) for x, found in sorted(values.items())]


def _title(row: Row, name: str) -> str:
    about = row.model or row.benchmark
    named = about in {name, row.metric}
    words = row.metric_words if named else f"{row.metric_words}, {about}"
    return shorten(words[:1].upper() + words[1:], _LONGEST_TITLE)


def mark_words(row: Row) -> str:
    """Everything about a value in one line."""
    weights = f" {row.weights}" if row.weights else ""
    version = f" {row.engine_version}" if row.engine_version else ""
    return ", ".join(
        filter(
            None,
            (
                f"{row.number} {row.unit_words} {row.metric_words} ({row.kind})",
                row.model + weights,
                f"{plural(row.nodes, 'node')} of {'+'.join(row.platforms)}",
                row.link,
                row.parallelism if row.nodes > 1 else "",
                row.program + version,
                row.condition_words,
                f"round trip {microseconds(row.rtt_us)} µs" if row.rtt_us else "",
                row.source.name,
            ),
        )
    )


def _note(undrawn: int, counts: Iterable[int]) -> str:
    notes = []
    if undrawn:
        notes.append(f"{plural(undrawn, 'more chart')} would fit here; the table has their values.")
    if any(count > MOST_MARKS for count in counts):
        notes.append(
            f"Of a chart with more than {MOST_MARKS} values as many are drawn, evenly from the "
            "highest to the lowest; the table has all."
        )
    return " ".join(notes)
