"""Charts of a set of rows: what joins their marks, and what is side by side.

A line joins rows that differ in x alone: the same platform, engine and its version, model and
weights, conditions, and who measured. What differs otherwise may stand in one chart, with other
marks, but only for the same model and amount of work. Predictions stand beside the values.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import METRICS, adds_up, is_predicted, speed_of
from nixwulf.core.query import grouped
from nixwulf.core.text import plural
from nixwulf.perf.explain.explanation import Explained, explain_records
from nixwulf.perf.explain.text import measured, sentences
from nixwulf.report.charts import MOST_MARKS, Chart, Curve, apart, some
from nixwulf.report.lines import About, about
from nixwulf.report.site.look import Figure, Look, note_of, title_of
from nixwulf.report.site.rows import SiteRow, Source, shorten
from nixwulf.results.identity import DRAWN_APART, WORK, case_id, one_name, same
from nixwulf.results.store import PLAN, read_plan

MOST_CHARTS = 6
_MOST_STRIPS = 4  # charts with a line for each machine or model
_MOST_LINES = 16
_MOST_IN_LINE = 12
_LONGEST_NAME = 24
_COMPARED = {name for name, known in METRICS.items() if known.compared}


@dataclass(frozen=True)
class _Kind:
    """A kind of chart, as data/site.toml has it: its x, which rows have a place in it, its lines.

    metric, unit: of its rows, empty for any; rate: they add up; several: they are of more nodes.
    """

    heading: str
    about: str
    over: str
    x: str
    joined: Literal["nodes", "fabrics", "nothing"]
    metric: str = ""
    unit: str = ""
    rate: bool = False
    several: bool = False

    @property
    def by_nodes(self) -> bool:
        return self.joined == "nodes"

    def at(self, row: SiteRow) -> float:
        """The x of a row, 0 where it is not known."""
        return float(getattr(row, self.x) or 0.0)

    def wanted(self, row: SiteRow) -> bool:
        known = row.value and self.at(row) and (row.nodes > 1 or not self.several)
        of = self.metric in ("", row.metric) and self.unit in ("", row.unit)
        return bool(known) and of and (adds_up(row.unit) or not self.rate)

    def place(self, row: SiteRow) -> float | str:
        """The place on the axis that rows of one case share: their nodes, or their fabric."""
        return row.nodes if self.by_nodes else row.fabric


_SITE = read_toml(DATA / "site.toml")
_KINDS = tuple(_Kind(**row) for row in _SITE["charts"])


def figures(rows: Sequence[SiteRow], name: str) -> list[Figure]:
    """The figures of a page about a model or platform of a name; empty kinds are left out."""
    found = (_figure(kind, rows, name) for kind in _KINDS)
    return [figure for figure in found if figure]


def _figure(kind: _Kind, rows: Sequence[SiteRow], name: str) -> Figure | None:
    panels = grouped((row.panel, row) for row in rows if kind.wanted(row))
    found = [(own, _lines(kind, own)) for own in panels.values()]
    found = [
        (own, lines)
        for own, lines in found
        # Over nodes marks that nothing joins would compare what cannot be; else two places do.
        if (lines if kind.by_nodes else apart([kind.at(row) for row in own]))
    ]
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
    """Tell whether they are at two places apart, and repeat nothing but runs.

    Two published values at one place differ in something that their sources do not state, and so
    they may differ in it from those at another.
    """
    places = {kind.place(row) for row in rows}
    repeated = len(places) < len(rows)
    if kind.joined == "nothing" or (repeated and any(row.kind != "run" for row in rows)):
        return False
    return len(places) > 1 and apart([x for x, _ in _means(kind, rows)])


def _chart(
    kind: _Kind, rows: Sequence[SiteRow], lines: Sequence[Sequence[SiteRow]], look: Look, name: str
) -> Chart:
    first = rows[0]
    several = len({row.parallelism for own in lines for row in own}) > 1
    return Chart(
        title=title_of(first, name),
        unit=first.unit_and_work,
        over=kind.over,
        steps=kind.by_nodes,
        marks=[look.mark(row, kind.at(row), row.value or 0.0) for row in rows],
        curves=[_line(kind, own, look, several) for own in lines[:MOST_MARKS]],
    )


def _line(kind: _Kind, rows: Sequence[SiteRow], look: Look, several: bool) -> Curve:
    """A line, over nodes as its marks look, else joining looks; several: ways to split the work."""
    points = _means(kind, rows)
    if kind.by_nodes:
        return Curve(points, look.style(max(rows, key=lambda row: row.nodes)))
    nodes, parallelism = rows[0].nodes, rows[0].parallelism
    label = f"{nodes}, {parallelism}" if several else plural(nodes, "node")
    return Curve(points, label=label)


def _means(kind: _Kind, rows: Sequence[SiteRow]) -> list[tuple[float, float]]:
    """A line's points: runs of one case are joined at their mean."""
    found = grouped((kind.place(row), row) for row in rows)
    return sorted(
        (statistics.fmean(kind.at(row) for row in own), speed_of(row.value or 0.0 for row in own))
        for own in found.values()
    )


def _model(row: SiteRow) -> str:
    """A model and its weights, which a long name must not hide."""
    weights = f" {shorten(row.weights, 12)}" if row.weights else ""
    return shorten(row.model, _LONGEST_NAME - len(weights)) + weights


@dataclass(frozen=True)
class _Strips:
    """Charts with a line for each machine or model, of the rows that share a panel.

    panel, line: what rows of a chart and of a line share; known: what the lines' names show.
    """

    heading: str
    about: str
    wanted: Callable[[SiteRow], bool]
    panel: Callable[[SiteRow], Hashable]
    line: Callable[[SiteRow], str]
    known: Collection[str]


_STRIPS = {
    "models": _Strips(
        **_SITE["strips"]["models"],
        wanted=lambda row: True,
        panel=lambda row: row.panel,
        line=lambda row: f"{row.nodes} × {'+'.join(row.platforms)}",
    ),
    "platforms": _Strips(
        **_SITE["strips"]["platforms"],
        wanted=lambda row: bool(row.model) and row.nodes == 1,
        panel=lambda row: same(row.columns, without=DRAWN_APART | {"model"}, conditions=WORK),
        line=_model,
    ),
}


def overview(folder: str, rows: Sequence[SiteRow], name: str) -> Figure | None:
    """Draw a model over machines, or a platform over models on one node; None for one of them."""
    strips = _STRIPS.get(folder)
    if strips is None:
        return None
    panels: dict[Hashable, dict[str, list[SiteRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.value and row.metric in _COMPARED and strips.wanted(row):
            panels[strips.panel(row)][strips.line(row)].append(row)
    found = [lines for lines in panels.values() if len(lines) > 1]
    found.sort(key=lambda lines: (-len(lines), title_of(next(iter(lines.values()))[0], "")))
    shown = [_best(lines) for lines in found[:_MOST_STRIPS]]
    if not shown:
        return None
    drawn = tuple(tuple(row for own in lines.values() for row in own) for lines in shown)
    look = Look([row for rows in drawn for row in rows], strips.known)
    charts = tuple(_strip_chart(lines, look, name) for lines in shown)
    left_out = sum(map(len, found[:_MOST_STRIPS])) - sum(map(len, shown))
    note = f"Not drawn, but in the table: {left_out} lines." if left_out else ""
    return Figure(strips.heading, strips.about, look.legend, charts, drawn, note)


def _strip_chart(lines: dict[str, list[SiteRow]], look: Look, name: str) -> Chart:
    first = next(iter(lines.values()))[0]
    marks = [
        look.mark(row, row.value or 0.0, index)
        for index, own in enumerate(lines.values())
        for row in own
    ]
    names = [shorten(words, _LONGEST_NAME) for words in lines]
    title = title_of(first, first.model or name)
    return Chart(title, first.unit_and_work, "", marks, names=names)


def _best(lines: dict[str, list[SiteRow]]) -> dict[str, list[SiteRow]]:
    """The lines with the highest values, and of each as many marks as a chart holds of it."""

    def highest(line: str) -> float:
        return max(map(_value, lines[line]))

    names = sorted(lines, key=lambda line: (-highest(line), line))[:_MOST_LINES]
    return {line: some(lines[line], _value, _MOST_IN_LINE) for line in names}


def _value(row: SiteRow) -> float:
    return row.value or 0.0


def explained(rows: Iterable[SiteRow], sources: Iterable[Source]) -> list[SiteRow]:
    """Rows, each with its explanation; a run folder is explained as a whole."""
    folders = grouped((_folder(source), source) for source in sources)
    found: defaultdict[tuple[Path, str, str], list[Explained]] = defaultdict(list)
    for folder, own in folders.items():
        place = folder.parent / PLAN
        plan = read_plan(place) if place.exists() else None
        for one in explain_records([(source.record, plan) for source in own])[0]:
            found[folder, case_id(one.record), one.metric].append(one)
    return [replace(row, explained=_explanation_of(row, found)) for row in rows]


def words(rows: Sequence[SiteRow]) -> list[tuple[str, list[str]]]:
    """Say each value's prediction, where there is one to show, with the sentences beside it."""
    return [
        (f"{row.key.words}: {measured(row.explained)}", list(sentences(row.explained)))
        for row in rows
        if row.explained and row.predicted
    ]


def with_words(figures: Iterable[Figure]) -> list[Figure]:
    """Figures with their prediction notes; a sentence is in those of the first figure only."""
    found: list[Figure] = []
    shown: set[str] = set()
    for figure in figures:
        own = _about([row for rows in figure.rows for row in rows])
        new = tuple(sentence for sentence in own.why if sentence not in shown)
        shown.update(new)
        found.append(replace(figure, prediction_notes=replace(own, why=new)))
    return found


def _name(row: SiteRow) -> str:
    """'gpt-oss-120b, 4 × framework-desktop, ethernet, pipeline, llama.cpp'."""
    machines = f"{row.nodes} × {'+'.join(row.platforms)}"
    split = row.parallelism if row.nodes > 1 else ""
    return ", ".join(filter(None, (row.model, machines, row.link, split, row.program)))


def _about(rows: Sequence[SiteRow]) -> About:
    named = [(_name(row), one) for row in rows if (one := _speed(row))]
    return about(named, [(row.value, row.predicted) for row in rows if row.value and row.predicted])


def _speed(row: SiteRow) -> Explained | None:
    """The explanation of a row, if its metric can be predicted."""
    return row.explained if is_predicted(row.metric, row.unit) else None


def why_not(rows: Sequence[SiteRow]) -> str:
    """Say why no speed of a record has a prediction; empty where one has, or none is."""
    reasons = [one.why_not for row in rows if (one := _speed(row)) and one.why_not]
    return "" if not reasons or any(row.predicted for row in rows) else reasons[0]


def _folder(source: Source) -> Path:
    return source.entry.path.parent


def _explanation_of(
    row: SiteRow, found: Mapping[tuple[Path, str, str], Sequence[Explained]]
) -> Explained | None:
    for one in found.get((_folder(row.source), case_id(row.source.record), row.metric), ()):
        asked = one_name(one.conditions)
        if row.unit == "tok/s" and all(row.conditions.get(k) == v for k, v in asked.items()):
            return one
    return None
