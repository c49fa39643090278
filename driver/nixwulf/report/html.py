"""The report as one self-contained HTML page: no script, no request, no external font."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from nixwulf.core import text
from nixwulf.core.document import Table
from nixwulf.report import provenance, tables
from nixwulf.report.findings import findings
from nixwulf.report.markup import html_table
from nixwulf.report.panels import MOST_PANELS, Plots, plots
from nixwulf.report.summary import Section, Summary
from nixwulf.results.store import progress

if TYPE_CHECKING:
    import jinja2

_MANY_CASES = 500  # of which nobody looks through 48 charts
_MOST_ABOVE = 8  # settings of which the first finding is above all tables


@dataclass(frozen=True)
class PageSection:
    """A section with what pages alone have: its plots, and the tables of scaling and of runs."""

    of: Section
    findings: list[str]
    plots: Plots
    cases: Table
    scaling: Table
    costs: Table | None
    runs: Table


def to_html(summary: Summary) -> str:
    """The page; every value from a record is escaped."""
    records = summary.folder.records
    most = MOST_PANELS if len(summary.lines) < _MANY_CASES else MOST_PANELS // 2
    left, number = iter(range(most)), len(summary.sections)
    with progress(summary.sections, "Drawing", number, len(records)) as shown:
        sections = [_section(section, left) for section in shown]
    return template().render(
        css=(resources.files("nixwulf") / "report" / "page.css").read_text("utf-8"),
        summary=summary,
        most_above=_MOST_ABOVE,
        most_panels=most,
        sections=sections,
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
    found.filters.update(clean=text.clean, href=tables.href, unbroken=text.unbroken)
    found.globals.update(plural=text.plural, html_table=html_table)
    return found.get_template("page.html.j2")


def _section(section: Section, left: Iterator[int]) -> PageSection:
    scaled = {head for metric in section.metrics for head in tables.scaling_heads(metric)}
    return PageSection(
        of=section,
        findings=findings(section),
        plots=plots(section, left),
        cases=tables.cases(section).without(scaled),  # it has a table
        scaling=tables.scaling(section),
        costs=tables.costs_of(section),
        runs=tables.runs(section),
    )
