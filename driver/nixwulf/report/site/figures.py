"""Which charts a set of rows gives, what joins their marks, and what is side by side.

A line joins rows that differ in x alone: the same platform, engine and its version, model and
weights, conditions, and who measured. What differs otherwise may stand in one chart, with other
marks, but only for the same model and amount of work.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from nixwulf.core.metric import METRICS, adds_up
from nixwulf.core.text import plural
from nixwulf.report.charts import MOST_MARKS, Chart, Curve, apart, some
from nixwulf.report.site.look import Figure, Look, note_of, title_of
from nixwulf.report.site.rows import SiteRow, shorten
from nixwulf.results.identity import DRAWN_APART, WORK, same

MOST_CHARTS = 6
_MOST_STRIPS = 4  # charts with a line for each machine or model
_MOST_LINES = 16
_MOST_IN_LINE = 12
_LONGEST_NAME = 24


@dataclass(frozen=True)
class _Kind:
    """A kind of chart: its x, which rows have a place in it, and what its lines join."""

    heading: str
    about: str
    over: str
    x: Callable[[SiteRow], float | None]
    wanted: Callable[[SiteRow], bool]
    joined: Literal["nodes", "fabrics", "nothing"]

    @property
    def by_nodes(self) -> bool:
        """Whether x is the number of nodes."""
        return self.joined == "nodes"

    def place(self, row: SiteRow) -> float | str:
        """What rows of one case share, whose mean a line passes: their nodes, or their fabric."""
        return row.nodes if self.by_nodes else row.fabric


_KINDS = (
    _Kind(
        "By number of nodes",
        "A line joins numbers of nodes where all else is the same; one node has no fabric, and "
        "nothing to split.",
        "nodes",
        lambda row: float(row.nodes),
        lambda row: adds_up(row.unit),
        "nodes",
    ),
    _Kind(
        "Against latency",
        "Over the round trip of 64-byte packets that was measured in the same run. A line joins "
        "fabrics: all else is the same.",
        "measured round trip, µs",
        lambda row: row.rtt_us,
        lambda row: row.nodes > 1 and row.metric == "decode",
        "fabrics",
    ),
    _Kind(
        "Against bandwidth",
        "Over the bandwidth of one TCP stream that was measured in the same run. A line joins "
        "fabrics: all else is the same.",
        "measured bandwidth, Gbit/s",
        lambda row: row.bandwidth_gbps,
        lambda row: row.nodes > 1 and row.metric == "prompt",
        "fabrics",
    ),
    _Kind(
        "Against the fabric's nominal speed",
        "What was sold, not what was measured. A line joins fabrics: all else is the same.",
        "nominal speed, Gbit/s",
        lambda row: row.speed_gbps,
        lambda row: row.nodes > 1 and row.metric == "prompt",
        "fabrics",
    ),
    _Kind(
        "Against watts",
        "Speed over the power that the same record gives of all nodes.",
        "power of all nodes, W",
        lambda row: row.watts,
        lambda row: adds_up(row.unit),
        "nothing",
    ),
    _Kind(
        "Watts",
        "Power of all nodes together. A line joins numbers of nodes: all else is the same.",
        "nodes",
        lambda row: float(row.nodes),
        lambda row: row.unit == "W",
        "nodes",
    ),
)


def figures(rows: Sequence[SiteRow], name: str) -> list[Figure]:
    """The figures of a page about a model or platform of a name; empty kinds are left out."""
    found = (_figure(kind, rows, name) for kind in _KINDS)
    return [figure for figure in found if figure]


def _figure(kind: _Kind, rows: Sequence[SiteRow], name: str) -> Figure | None:
    panels: dict[Hashable, list[SiteRow]] = defaultdict(list)
    for row in rows:
        if row.value and kind.x(row) and kind.wanted(row):
            panels[row.panel].append(row)
    found = [(own, _lines(kind, own)) for own in panels.values()]
    found = [(own, lines) for own, lines in found if _worth(kind, own, lines)]
    found.sort(key=lambda panel: (-len(panel[1]), -len(panel[0]), title_of(panel[0][0], "")))
    drawn = [(some(own, _value), lines) for own, lines in found[:MOST_CHARTS]]
    if not drawn:
        return None
    look = Look([row for own, _ in drawn for row in own])
    charts = [_chart(kind, own, lines, look, name) for own, lines in drawn]
    return Figure(
        heading=kind.heading,
        about=kind.about,
        legend=look.legend,
        charts=tuple(charts),
        rows=tuple(tuple(own) for own, _ in drawn),
        note=note_of(len(found) - len(drawn), [len(own) for own, _ in found[:MOST_CHARTS]]),
    )


def _crossing(row: SiteRow) -> tuple[str, str, str]:
    return (row.parallelism, row.fabric, row.transport)


def _lines(kind: _Kind, rows: Sequence[SiteRow]) -> list[list[SiteRow]]:
    """Rows that a line joins, where they have two values of x or more."""
    groups: dict[Hashable, list[SiteRow]] = defaultdict(list)
    # Not a set, whose order, and with it that of the lines, is another in each process.
    crossings: dict[Hashable, dict[tuple[str, str, str], None]] = defaultdict(dict)
    for row in rows:
        if row.nodes > 1:
            crossings[row.alone][_crossing(row)] = None
    for row in rows:
        if not kind.by_nodes:
            groups[row.line].append(row)
        elif row.nodes > 1:
            groups[row.alone, _crossing(row)].append(row)
        else:
            for crossing in crossings[row.alone]:
                groups[row.alone, crossing].append(row)
    return [own for own in groups.values() if _joins(kind, own)]


def _joins(kind: _Kind, rows: Sequence[SiteRow]) -> bool:
    """Whether they are at two places apart, and repeat nothing but runs.

    Two published values at one place differ in something that their sources do not state, and so
    they may differ in it from those at another.
    """
    places = {kind.place(row) for row in rows}
    repeated = len(places) < len(rows)
    if kind.joined == "nothing" or (repeated and any(row.kind != "run" for row in rows)):
        return False
    return len(places) > 1 and apart([x for x, _ in _means(kind, rows)])


def _worth(kind: _Kind, rows: Sequence[SiteRow], lines: Sequence[Sequence[SiteRow]]) -> bool:
    """Over nodes marks that nothing joins would compare what cannot be; else two places do."""
    return bool(lines) if kind.by_nodes else apart([kind.x(row) or 0.0 for row in rows])


def _chart(
    kind: _Kind,
    rows: Sequence[SiteRow],
    lines: Sequence[Sequence[SiteRow]],
    look: Look,
    name: str,
) -> Chart:
    first = rows[0]
    several = len({row.parallelism for own in lines for row in own}) > 1
    return Chart(
        title=title_of(first, name),
        unit=first.unit_and_work,
        over=kind.over,
        steps=kind.by_nodes,
        marks=[look.mark(row, kind.x(row) or 0.0, row.value or 0.0) for row in rows],
        curves=[_line(kind, own, look, several) for own in lines[:MOST_MARKS]],
    )


def _line(kind: _Kind, rows: Sequence[SiteRow], look: Look, several: bool) -> Curve:
    """Over nodes a line has the look of its marks; else it joins marks of several looks.

    several: whether the chart has more than one way to split the work.
    """
    points = _means(kind, rows)
    if kind.by_nodes:
        return Curve(points, look.style(max(rows, key=lambda row: row.nodes)))
    nodes, parallelism = rows[0].nodes, rows[0].parallelism
    label = f"{nodes}, {parallelism}" if several else plural(nodes, "node")
    return Curve(points, label=label)


def _means(kind: _Kind, rows: Sequence[SiteRow]) -> list[tuple[float, float]]:
    """A line's points: runs of one case are joined at their mean."""
    found: dict[float | str, list[SiteRow]] = defaultdict(list)
    for row in rows:
        found[kind.place(row)].append(row)
    return sorted(
        (
            statistics.fmean(kind.x(row) or 0.0 for row in own),
            statistics.fmean(row.value or 0.0 for row in own),
        )
        for own in found.values()
    )


def by_machines(rows: Sequence[SiteRow], name: str) -> Figure | None:
    """The chart of a model over machines and numbers of them; None where there is one only."""
    return _strips(
        "By machines",
        "The same model and, as far as sources state it, the same work in each chart; marks show "
        "what else differs.",
        rows,
        lambda row: row.panel,
        lambda row: f"{row.nodes} × {'+'.join(row.platforms)}",
        ("platform",),
        name,
    )


def by_models(rows: Sequence[SiteRow], name: str) -> Figure | None:
    """The chart of a platform over models on one node; None where there is one only."""
    return _strips(
        "Models on one node",
        "As far as sources state it, the same work in each chart; marks show what else differs.",
        [row for row in rows if row.model and row.nodes == 1],
        lambda row: same(row.columns, without=DRAWN_APART | {"model"}, conditions=WORK),
        _model,
        ("weights",),
        name,
    )


def _model(row: SiteRow) -> str:
    """A model and its weights, which a long name must not hide."""
    weights = f" {shorten(row.weights, 12)}" if row.weights else ""
    return shorten(row.model, _LONGEST_NAME - len(weights)) + weights


def _strips(
    heading: str,
    about: str,
    rows: Sequence[SiteRow],
    panel: Callable[[SiteRow], Hashable],
    line: Callable[[SiteRow], str],
    known: Collection[str],
    name: str,
) -> Figure | None:
    """Charts of rows with the same panel, in which rows with the same line stand side by side.

    known: what the names of the lines show of their marks.
    """
    panels: dict[Hashable, dict[str, list[SiteRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.value and row.metric in METRICS and METRICS[row.metric].compared:
            panels[panel(row)][line(row)].append(row)
    found = [lines for lines in panels.values() if len(lines) > 1]
    found.sort(key=lambda lines: (-len(lines), title_of(next(iter(lines.values()))[0], "")))
    shown = [_best(lines) for lines in found[:_MOST_STRIPS]]
    if not shown:
        return None
    drawn = tuple(tuple(row for own in lines.values() for row in own) for lines in shown)
    look = Look([row for rows in drawn for row in rows], known)
    charts = []
    for lines in shown:
        first = next(iter(lines.values()))[0]
        marks = [
            look.mark(row, row.value or 0.0, index)
            for index, own in enumerate(lines.values())
            for row in own
        ]
        names = [shorten(words, _LONGEST_NAME) for words in lines]
        title = title_of(first, first.model or name)
        charts.append(Chart(title, first.unit_and_work, "", marks, names=names))
    left_out = sum(len(found[index]) - len(lines) for index, lines in enumerate(shown))
    note = f"Not drawn, but in the table: {left_out} lines." if left_out else ""
    return Figure(heading, about, look.legend, tuple(charts), drawn, note)


def _best(lines: dict[str, list[SiteRow]]) -> dict[str, list[SiteRow]]:
    """The lines with the highest values, and of each as many marks as a chart holds of it."""

    def highest(line: str) -> float:
        return max(map(_value, lines[line]))

    names = sorted(lines, key=lambda line: (-highest(line), line))[:_MOST_LINES]
    return {line: some(lines[line], _value, _MOST_IN_LINE) for line in names}


def _value(row: SiteRow) -> float:
    return row.value or 0.0
