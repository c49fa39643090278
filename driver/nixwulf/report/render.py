"""A report as text: on a terminal, as GitHub Markdown, its tidy table as CSV and JSON; and as HTML.

The page is self-contained: no script, no request, no external font.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nixwulf.core.document import Table, bullets, escaped, markdown, output, pipe_table, print_table
from nixwulf.core.files import as_json, shipped_text, titled
from nixwulf.core.text import clean, plural, unbroken
from nixwulf.outputs import present
from nixwulf.report import tables
from nixwulf.report.findings import examples, fabrics, facts, findings
from nixwulf.report.panels import MOST_PANELS, Plots, plots
from nixwulf.report.summary import Failure, Section, Summary
from nixwulf.report.tables import cases, costs_of, html_table, scaling_heads
from nixwulf.results.record import Record
from nixwulf.results.store import progress
from nixwulf.results.table import TIDY_COLUMNS, as_rows, tidy

if TYPE_CHECKING:
    import jinja2

_WIDE = 96  # columns from which efficiency has its own


def to_terminal(summary: Summary, console: Console | None = None) -> None:
    """Print what was measured, setting by setting, then failures, warnings and counts."""
    console = console or output()
    narrow = console.width < _WIDE
    for section in summary.sections:
        print_table(console, _narrowed(section, narrow), gap=1 if narrow else 2)
        if table := costs_of(section):
            print_table(console, table)
            console.print(Text(clean(" ".join(table.notes)), style="dim"))
        console.print()
    for failure in summary.failures:
        console.print(_failure(failure))
    for sentence, named in summary.warnings.items():
        text = Text("warning", style="bold yellow")
        console.print(text.append(f", {clean('; '.join(named))}: {clean(sentence)}\n", "default"))
    console.print(Text(clean(summary.counts), style="bold"))


def _narrowed(section: Section, narrow: bool) -> Table:
    """The cases without what pages have room for: of scaling, that of one metric stays."""
    table = cases(section)
    speed_ups = [scaling_heads(metric) for metric in section.metrics]
    scaled = [heads for heads in speed_ups if heads[0] in table.heads]
    gone = {head for heads in scaled[:-1] for head in heads}
    gone |= {heads[1] for heads in scaled if narrow}
    return table.without({*gone, "link", "n", "eff."})


def _failure(failure: Failure) -> Text:
    text = Text()
    text.append(f"{failure.outcome} in {failure.phase}", style="bold red")
    text.append(f", {plural(len(failure.entries), 'run')} of {clean(failure.cases)}:\n")
    text.append(f"  {clean(failure.reason).strip()}\n")
    if failure.hint:
        text.append(f"  {clean(failure.hint).strip()}\n", style="italic")
    return text


def to_markdown(summary: Summary) -> str:
    """Findings, tables of values, failures, warnings, what was left out, fabrics and provenance."""
    records = summary.folder.records
    warnings = [(sentence, "; ".join(cases)) for sentence, cases in summary.warnings.items()]
    left_out = [(left.reason, str(len(left.points)), left.words) for left in summary.left_out]
    parts = [
        f"## {escaped(summary.folder.title)}",
        escaped(summary.folder.description),
        escaped(summary.counts) + ".",
        *(part for section in summary.sections for part in _section(section)),
        *_failures_text(summary.failures),
        *_titled("### Warnings", Table(("what", "cases"), warnings)),
        *_titled("### Left out of the plan", Table(("reason", "points", "which"), left_out)),
        *_titled("### Fabrics", fabrics(records)),
        "### What was measured on what",
        pipe_table(Table(("", ""), [(name, text) for name, text in facts(records)])),
    ]
    return markdown(parts)


def _section(section: Section) -> list[str]:
    given = section.as_given
    scaled = any(value.speed_up for line in section.lines for value in line.values.values())
    note = [
        "Values are as their sources give them."
        if given
        else "Values are means over all samples of all runs that ended ok, ± their standard "
        "deviation; n is samples (runs).",
        "× is against one node, efficiency (eff.) is × over the number of nodes; above 100 % it is "
        "marked !."
        if scaled
        else "",
        ""
        if given
        else "RTT is the median round trip measured in those runs, link what one TCP stream "
        "carried.",
    ]
    return [
        f"### {escaped(section.name)}",
        bullets(findings(section)),
        pipe_table(cases(section)),
        " ".join(filter(None, note)),
        *_predicted(section),
        *_costs(section),
    ]


def _predicted(section: Section) -> list[str]:
    about = section.summary.predicted.about(section.lines)
    if not about.inside:
        return [escaped(about.why_not)]
    text = f"Predicted, not measured: {about.inside}, by Nixwulf's performance model."
    each = " of each parallelism" if len(about.why) > 1 else ""
    text += f" The slowest case{each}:" if about.why else ""
    rows = [
        [line.what, name, value.text, value.predicted.text]
        for line in section.predicted
        for name, value in line.values.items()
        if value.predicted
    ]
    return [
        pipe_table(Table(("case", "tok/s of", "measured", "predicted (80 %)"), rows)),
        text,
        bullets(about.why),
        f"{escaped(about.why_not)} `nixwulf explain` has more, of every case.".strip(),
    ]


def _costs(section: Section) -> list[str]:
    found = costs_of(section)
    notes = [escaped(" ".join(found.notes))] if found else []
    return [*_titled("#### Watts and US$", found), *notes]


def _titled(title: str, table: Table | None) -> list[str]:
    return [title, pipe_table(table)] if table and table.rows else []


def _failures_text(failures: Sequence[Failure]) -> list[str]:
    parts = ["### Failures"] if failures else []
    for failure in failures:
        hint = f" {escaped(failure.hint)}" if failure.hint else ""
        parts.append(
            f"**{failure.outcome}** in {failure.phase}, {plural(len(failure.entries), 'run')} of "
            f"{escaped(failure.cases)}: {escaped(failure.reason)}{hint}"
        )
    return parts


def to_csv(records: Iterable[Record]) -> str:
    """Write a line per record and metric; cells without a value are empty, samples a JSON list."""
    table = tidy(records)
    table["samples"] = [json.dumps(samples) for samples in table["samples"]]
    for name in table.columns:
        table[name] = [
            _not_a_formula(value) if isinstance(value, str) else value for value in table[name]
        ]
    return str(table.to_csv(index=False, lineterminator="\n"))


def _not_a_formula(text: str) -> str:
    """Add the apostrophe that keeps a text from being computed; a carriage return ends a row."""
    text = text.replace("\r", " ")
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", " =")) else text


def to_json(records: Iterable[Record]) -> str:
    """The columns with what they hold, and the rows; a key without a value is absent."""
    rows = list(map(present, as_rows(tidy(records))))
    return as_json(titled("table", {"columns": TIDY_COLUMNS, "rows": rows}))


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
        sections = [_page_section(section, left) for section in shown]
    return template().render(
        css=shipped_text("report/page.css"),
        summary=summary,
        most_above=_MOST_ABOVE,
        most_panels=most,
        sections=sections,
        fabrics=fabrics(records),
        facts=facts(records),
        examples=examples(summary.folder.entries),
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
    found.filters.update(clean=clean, href=tables.href, unbroken=unbroken)
    found.globals.update(plural=plural, html_table=html_table)
    return found.get_template("page.html.j2")


def _page_section(section: Section, left: Iterator[int]) -> PageSection:
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
