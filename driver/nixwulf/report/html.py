"""The report as one self-contained HTML page: no script, no request, no external font."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from nixwulf.core import text
from nixwulf.core.document import Table
from nixwulf.report import provenance
from nixwulf.report.findings import findings
from nixwulf.report.lines import CaseSummary, MetricKey, MetricSummary
from nixwulf.report.panels import Plots, plots
from nixwulf.report.summary import Section, Summary
from nixwulf.report.text import costs

if TYPE_CHECKING:
    import jinja2

_MOST_ABOVE = 8  # settings of which the first finding stands above all tables


@dataclass(frozen=True)
class ScalingRow:
    """Speed-up and efficiency of a metric over one fabric, by number of nodes."""

    metric: str
    parallelism: str
    link: str
    rtt_us: float | None
    by_nodes: dict[int, MetricSummary]


@dataclass(frozen=True)
class PageSection:
    """A section with what pages alone have: its plots, and the table of scaling."""

    of: Section
    findings: list[str]
    plots: Plots
    scaling: list[list[ScalingRow]]
    scaling_nodes: list[int]
    costs: Table | None
    from_runs: bool


def to_html(summary: Summary) -> str:
    """The page; every value from a record is escaped."""
    records = summary.folder.records
    return template().render(
        css=(resources.files("nixwulf") / "report" / "page.css").read_text("utf-8"),
        summary=summary,
        most_above=_MOST_ABOVE,
        sections=[_section(section) for section in summary.sections],
        fabrics=provenance.fabrics(records),
        facts=provenance.facts(records),
        examples=provenance.examples(summary.folder.entries),
    )


def environment(folder: str) -> jinja2.Environment:
    """An environment of the templates in a folder of the package."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("nixwulf", folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def template() -> jinja2.Template:
    """The page's template, which takes longer to compile than to fill in."""
    found = environment("report")
    found.filters.update(
        clean=text.clean,
        microseconds=text.microseconds,
        percent=text.percent,
        figure=text.format_significant,
        times=text.times,
        unit=text.unit_name,
        href=_href,
        unbroken=text.unbroken,
    )
    found.globals.update(plural=text.plural, with_deviation=text.with_deviation)
    return found.get_template("page.html.j2")


def _section(section: Section) -> PageSection:
    scaling = _scaling(section.lines, section.metrics)
    return PageSection(
        of=section,
        findings=findings(section),
        plots=plots(section),
        scaling=scaling,
        scaling_nodes=sorted({nodes for rows in scaling for row in rows for nodes in row.by_nodes}),
        costs=costs(section),
        from_runs=any("source" not in entry.record for entry in section.entries),
    )


def _scaling(lines: list[CaseSummary], metrics: list[MetricKey]) -> list[list[ScalingRow]]:
    """Rows that belong together: of one metric, variant and parallelism, fabric by fabric."""
    groups: dict[tuple[int, str, str], dict[str, ScalingRow]] = {}
    for line in (line for line in lines if line.nodes > 1):
        for rank, metric in enumerate(metrics):
            value = line.values.get(metric.name)
            if value is not None and value.speed_up is not None:
                name = ", ".join(filter(None, (metric.words, line.variant)))
                rows = groups.setdefault((rank, line.variant, line.parallelism), {})
                row = rows.setdefault(
                    line.link, ScalingRow(name, line.parallelism, line.link, line.rtt_us, {})
                )
                row.by_nodes[line.nodes] = value
    ordered = sorted(groups.items(), key=lambda group: group[0][0])
    return [list(rows.values()) for _, rows in ordered]


def _href(path: PurePath) -> str:
    """A path relative to the page as a link; './' keeps a name with a colon from being a scheme."""
    return "./" + quote(path.as_posix())
