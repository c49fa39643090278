"""The tables of a report, each described once for pages, a terminal and Markdown; and as HTML.

Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import quote

from markupsafe import Markup, escape

from nixwulf.core.document import Cell, Column, Row, RowGroup, Table, Value
from nixwulf.core.metric import accepted
from nixwulf.core.text import (
    clean,
    format_significant,
    microseconds,
    percent,
    plural,
    round_trip,
    times,
    unit_name,
    with_deviation,
)
from nixwulf.report.lines import CaseSummary, MetricKey, MetricSummary
from nixwulf.report.summary import Section
from nixwulf.results.store import Entry
from nixwulf.results.table import PERCENTILES


def html_table(table: Table, label: str) -> Markup:
    """A table in a region that scrolls sideways; label: the region's name."""
    bodies = "".join(
        f"<tbody{'' if group is None else _class('group')}>\n"
        f"{_group(group, len(table.columns))}{''.join(html_rows(table.shape, rows))}</tbody>\n"
        for group, rows in table.groups
    )
    return Markup(  # noqa: S704 - made of escaped texts
        f'<div class="wide" role="region" aria-label="{_escaped(label)}" tabindex="0">\n'
        f"<table>\n{html_head(table.shape)}\n{bodies}</table>\n</div>"
    )


def html_head(columns: Iterable[Column]) -> Markup:
    """The head of a table; scripts find a column by its data-column."""
    cells = (
        f'<th scope="col"{_class("number" if column.number else "")} data-column="{name}">{name}'
        f"{_note(unit_name(column.unit))}</th>"
        for column in columns
        for name in (_escaped(column.head),)
    )
    return Markup(f"<thead><tr>{''.join(cells)}</tr></thead>")  # noqa: S704 - escaped texts


def html_rows(columns: Sequence[Column], rows: Iterable[Row]) -> list[Markup]:
    """Render the rows; the first cell of each is its head."""
    return [
        Markup(f"<tr>{''.join(_cells(columns, row))}</tr>\n")  # noqa: S704 - escaped texts
        for row in rows
    ]


def _cells(columns: Sequence[Column], row: Row) -> Iterable[str]:
    for index, (column, value) in enumerate(zip(columns, row, strict=True)):
        cell = Cell(value) if isinstance(value, str) else value
        kind = "number" if column.number else "" if column.whole or not index else "wrap"
        text = html_link(cell.href, cell.text, cell.style) if cell.href else _escaped(cell.text)
        kinds = _class(f"{kind} {'' if cell.href else cell.style}".strip())
        tag, scope = ("td", "") if index else ("th", ' scope="row"')
        yield f"<{tag}{scope}{kinds}>{text}{_note(cell.note)}</{tag}>"


def html_link(href: str, text: str, style: str = "") -> Markup:
    """A link; one that leaves the pages does not tell where it comes from."""
    leaves = ' rel="noopener noreferrer external"' if "://" in href else ""
    return Markup(  # noqa: S704 - escaped texts
        f'<a{_class(style)} href="{escape(href)}"{leaves}>{_escaped(text)}</a>'
    )


def _group(group: RowGroup | None, width: int) -> str:
    if group is None or not group.text:
        return ""
    note = f" <small{_class(group.style)}>{_escaped(group.note)}</small>"
    head = f'<th scope="rowgroup" colspan="{width}" class="case">{_escaped(group.text)}{note}</th>'
    return f"<tr>{head}</tr>\n"


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else _escaped_text(text)


@lru_cache(4096)  # never of Markup, which is equal to a text that is not escaped
def _escaped_text(text: str) -> str:
    return str(escape(clean(text)))


@lru_cache(256)
def _class(names: str) -> str:
    return f' class="{escape(names)}"' if names else ""


def _note(text: str) -> str:
    return f" <small>{_escaped(text)}</small>" if text else ""


_STYLES = {"ok": "good", "not run": "quiet"}


def _number(head: str, unit: str = "") -> Column:
    return Column(head, unit, number=True, whole=True)


METRIC_COLUMNS = (Column("metric", whole=True), *map(_number, ("mean ± sd", *PERCENTILES)))
"""Of tables with a row for each metric; metric_cells fills them."""
_COSTS = (Column("metric"), *map(_number, ("speed", "W", "per W", "J/token", "US$", "per US$")))


def metric_cells(metric: MetricKey, value: MetricSummary) -> list[Value]:
    """A metric and its value: the cells of METRIC_COLUMNS."""
    return [Cell(metric.words, unit_name(metric.unit)), value.text, *value.spread]


def cases(section: Section) -> Table:
    """The cases of a setting with all that was measured of them."""
    return (_metrics_in_rows if section.in_rows else _metrics_in_columns)(section).filled


def _metrics_in_columns(section: Section) -> Table:
    metrics: list[Column] = []
    units = {metric.unit for metric in section.metrics}
    for metric in section.metrics:
        spread = PERCENTILES if metric in section.spread else ()
        heads = (*spread, *scaling_heads(metric))
        first = _number(metric.words, metric.unit)._replace(whole=len(units) == 1)
        metrics += [first, *map(_number, heads)]
    rows: list[list[Value] | RowGroup] = []
    before = None
    for line in section.lines:
        cells: list[Value] = [f"{line.nodes} {line.parallelism}".strip(), line.link, line.variant]
        cells += [microseconds(line.rtt_us), _bandwidth(line)]
        for metric in section.metrics:
            value = line.values.get(metric.name)
            cells.append(value.text if value else "")
            if metric in section.spread:
                cells += value.spread if value else ("", "", "")
            cells += _scaling_cells(line, value)
        rows += [] if before in {None, line.nodes} else [RowGroup()]
        rows.append([*cells, line.counts, Cell(line.outcome, style=_style(line))])
        before = line.nodes
    about = (Column("nodes", whole=True), Column("fabric"), Column("conditions"))
    links = (_number("RTT", "µs"), _number("link", "Gbit/s"))
    columns = (*about, *links, *metrics, _number("n"), Column("outcome"))
    return Table(columns, rows, title=section.name, caption=_caption(section))


def _metrics_in_rows(section: Section) -> Table:
    rows: list[list[Value] | RowGroup] = []
    for line in section.lines:
        trip = f"round trip {round_trip(line.rtt_us)}" if line.rtt_us is not None else ""
        link = f"{_bandwidth(line)} Gbit/s" if line.bandwidth_gbps else ""
        note = "; ".join(filter(None, (trip, link, line.outcome)))
        rows.append(RowGroup(line.what, note, _style(line)))
        for metric in section.metrics:
            value = line.values.get(metric.name)
            if value:
                scaling = _scaling_cells(line, value)
                rows.append([*metric_cells(metric, value), *scaling, value.counts])
    columns = (*METRIC_COLUMNS, _number("×"), _number("eff."), _number("n"))
    return Table(columns, rows, title=section.name)


def scaling_heads(metric: MetricKey) -> tuple[str, str]:
    """Heads of a metric's speed-up against one node and its efficiency."""
    return f"{metric.words} ×", f"{metric.words} eff."


def _scaling_cells(line: CaseSummary, value: MetricSummary | None) -> tuple[str, str]:
    if value is None or value.speed_up is None or value.efficiency is None or line.nodes == 1:
        return "", ""
    flag = " !" if value.above_linear else ""
    return times(value.speed_up).removesuffix(" ×"), percent(value.efficiency) + flag


def _style(line: CaseSummary) -> str:
    return _STYLES.get(line.outcome, "warning" if line.values else "bad")


def _bandwidth(line: CaseSummary) -> str:
    return format_significant(line.bandwidth_gbps) if line.bandwidth_gbps else ""


def _caption(section: Section) -> str:
    if not section.metrics:
        return ""
    what = "as the sources give it" if section.as_given else "± standard deviation of all samples"
    scaled = any(value.speed_up for line in section.lines for value in line.values.values())
    return f"{what}; × and eff. (efficiency) against one node" if scaled else what


def scaling(section: Section) -> Table:
    """Speed-up and efficiency of each metric, variant and parallelism: fabrics by nodes."""
    counts = sorted({line.nodes for line in section.lines if line.nodes > 1})
    found: dict[tuple[int, str, str], dict[str, dict[int, Cell]]] = {}
    trips: dict[str, str] = {}
    for line in section.lines:
        for rank, metric in enumerate(section.metrics):
            speed_up, efficiency = _scaling_cells(line, line.values.get(metric.name))
            if speed_up:
                by_link = found.setdefault((rank, line.variant, line.parallelism), {})
                by_link.setdefault(line.link, {})[line.nodes] = Cell(f"{speed_up} ×", efficiency)
                trips.setdefault(line.link, microseconds(line.rtt_us))
    rows: list[list[Value] | RowGroup] = []
    for (rank, variant, parallelism), by_link in sorted(found.items(), key=lambda one: one[0][0]):
        name = ", ".join(filter(None, (section.metrics[rank].words, variant)))
        rows.append(RowGroup())
        rows += [
            [name, parallelism, link, trips[link], *(cells.get(n, "") for n in counts)]
            for link, cells in by_link.items()
        ]
    places = (Column("parallelism", whole=True), Column("fabric", whole=True), _number("RTT", "µs"))
    columns = (Column("metric"), *places, *(_number(f"{count} nodes") for count in counts))
    return Table(columns, rows).filled


def costs(
    values: Iterable[tuple[str, MetricKey, MetricSummary]], what: str = "case"
) -> Table | None:
    """Tabulate what speeds cost, each with the name of its case, beside what it is computed from.

    Without columns that would be empty; None where no speed has watts or a price.
    """
    rows: list[tuple[str, ...]] = []
    sources: dict[str, None] = {}
    for name, metric, value in values:
        cost = value.cost
        if cost is None:
            continue
        numbers = (
            *(value.mean, cost.watts, cost.per_watt, cost.joules_per_token),
            *(cost.price_usd, cost.per_usd),
        )
        texts = ("" if number is None else format_significant(number) for number in numbers)
        rows.append((name, f"{metric.words}, {unit_name(metric.unit)}", *texts))
        if cost.watts_source:
            sources[f"Watts: {cost.watts_source}."] = None
        if cost.price_source:
            sources[f"Price: {cost.price_source}."] = None
    return Table((what, *_COSTS), rows, notes=tuple(sources)).filled if rows else None


def costs_of(section: Section) -> Table | None:
    """Tabulate the costs of the cases of a setting."""
    return costs(
        (line.what, metric, line.values[metric.name])
        for line in section.lines
        for metric in section.metrics
        if metric.name in line.values
    )


def runs(section: Section) -> Table:
    """Tabulate the runs of a setting, with links to each record and to what it left."""
    from_runs = any("source" not in entry.record for entry in section.entries)
    rows = [
        [
            Cell(entry.record["id"], href=href(entry.path.as_posix())),
            section.summary.name_of(entry),
            Cell(entry.record["outcome"], style="" if entry.record["outcome"] == "ok" else "bad"),
            *(_of_run(entry, metric) for metric in section.headline),
            _origin(entry),
            _raw(entry),
        ]
        for entry in section.entries
    ]
    origin = Column("started", "UTC", whole=True) if from_runs else Column("source", whole=True)
    metrics = (_number(metric.words, metric.unit) for metric in section.headline)
    before = (Column("record"), Column("case", whole=True), Column("outcome"))
    columns = (*before, *metrics, origin, Column("raw output"))
    return Table(columns, rows)


def _of_run(entry: Entry, wanted: MetricKey) -> str:
    if entry.record["outcome"] != "ok":
        return ""
    return "; ".join(
        with_deviation(metric["value"], metric.get("stddev"))
        + accepted(metric.get("observed", {}).get("acceptance", ""))
        for metric in entry.record["metrics"]
        if metric["name"] == wanted.name
    )


def _origin(entry: Entry) -> Value:
    source = entry.record.get("source")
    if source is None:
        return entry.started[:19].replace("T", " ")
    if "url" in source:
        return Cell(source.get("name", "source"), href=source["url"])
    return str(source.get("file", ""))


def _raw(entry: Entry) -> Markup:
    found = entry.raw if entry.record["kind"] == "run" else ()
    if not found:
        return Markup()
    links = (html_link(href(raw.as_posix()), raw.name) for raw in found)
    return Markup("<details><summary>{}</summary>{}</details>").format(
        plural(len(found), "file"), Markup("<br>").join(links)
    )


def href(path: str) -> str:
    """A path relative to the page as a link; './' keeps a name with a colon from being a scheme."""
    return "./" + quote(path)
