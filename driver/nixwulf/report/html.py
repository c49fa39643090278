"""The report as one self-contained HTML page: no script, no request, no external font."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePath
from urllib.parse import quote

from nixwulf.report import provenance, words
from nixwulf.report.contents import Line, Metric, Setting, Summary, Value
from nixwulf.report.findings import findings
from nixwulf.report.folder import Entry
from nixwulf.report.plots import Plots, plots


@dataclass(frozen=True)
class ScalingRow:
    """Speed-up and efficiency of a metric over one fabric, by number of nodes."""

    metric: str
    parallelism: str
    link: str
    rtt_us: float | None
    by_nodes: dict[int, Value]


@dataclass(frozen=True)
class Section:
    """One setting: its plots and tables; spread: metrics with percentiles; in_rows: one a row."""

    setting: Setting
    name: str
    findings: list[str]
    plots: Plots
    lines: list[Line]
    metrics: list[Metric]
    headline: list[Metric]
    spread: list[Metric]
    in_rows: bool
    scaling: list[ScalingRow]
    scaling_nodes: list[int]
    entries: list[Entry]


def to_html(summary: Summary) -> str:
    """The page; every value from a record is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nixwulf", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clean=words.clean,
        microseconds=words.microseconds,
        percent=words.percent,
        figure=words.figure,
        times=words.times,
        unit=words.unit_name,
        href=_href,
        unbroken=_unbroken,
    )
    environment.globals.update(plural=words.plural, with_deviation=words.with_deviation)
    records = summary.folder.records
    found = findings(summary)
    return environment.get_template("page.html.j2").render(
        css=(resources.files("nixwulf") / "report" / "page.css").read_text("utf-8"),
        summary=summary,
        sections=[
            _section(summary, setting, found.get(setting, [])) for setting in summary.settings
        ],
        fabrics=provenance.fabrics(records),
        facts=provenance.facts(records),
        examples=provenance.examples(summary.folder.entries),
    )


def _section(summary: Summary, setting: Setting, sentences: list[str]) -> Section:
    lines = summary.lines_of(setting)
    scaling = _scaling(lines)
    return Section(
        setting=setting,
        name=summary.setting_name(setting),
        findings=sentences,
        plots=plots(summary, setting),
        lines=lines,
        metrics=summary.metrics(setting),
        headline=summary.headline(setting),
        spread=[m for m in summary.metrics(setting) if summary.has_spread(setting, m)],
        in_rows=summary.in_rows(setting),
        scaling=scaling,
        scaling_nodes=sorted({nodes for row in scaling for nodes in row.by_nodes}),
        entries=summary.entries_of(setting),
    )


def _scaling(lines: list[Line]) -> list[ScalingRow]:
    rows: dict[tuple[str, str, str], dict[int, Value]] = defaultdict(dict)
    rtts: dict[tuple[str, str, str], float] = {}
    for line in lines:
        for metric, value in line.values.items():
            if line.nodes > 1 and value.speed_up is not None:
                name = metric.replace("_", " ")
                key = (", ".join(filter(None, (name, line.variant))), line.parallelism, line.link)
                rows[key][line.nodes] = value
                if line.rtt_us is not None:
                    rtts[key] = line.rtt_us
    found = [ScalingRow(*key, rtts.get(key), by_nodes) for key, by_nodes in rows.items()]
    unknown = float("inf")
    return sorted(found, key=lambda r: (r.metric, r.parallelism, r.rtt_us or unknown, r.link))


def _href(path: PurePath) -> str:
    """A path relative to the page as a link; './' keeps a name with a colon from being a scheme."""
    return "./" + quote(path.as_posix())


def _unbroken(text: str) -> str:
    """No line break between a number and its unit."""
    return re.sub(
        r"(\d) (?=(µs|ms|s|tok/s|Gbit/s|GB/s|Gflop/s|%|×|nodes?)\b|%|×)", "\\1\u00a0", text
    )
