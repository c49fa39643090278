"""The summary as GitHub Markdown, to paste into an issue."""

from __future__ import annotations

from collections.abc import Sequence

from nixwulf.core.pipes import escaped as _text
from nixwulf.core.pipes import pipe_table as _table
from nixwulf.core.text import microseconds, percent, plural, times, unit_name
from nixwulf.report.contents import Failure, Summary
from nixwulf.report.costs import costs
from nixwulf.report.findings import findings
from nixwulf.report.lines import CaseSummary
from nixwulf.report.provenance import fabrics, facts
from nixwulf.results.identity import Setting

_CASE = ("nodes", "parallelism", "fabric", "conditions", "RTT, µs", "link, Gbit/s")


def to_markdown(summary: Summary) -> str:
    """Findings, tables of values, failures, warnings, what was left out, fabrics and provenance."""
    records = summary.folder.records
    parts = [
        f"## {_text(summary.folder.title)}",
        _text(summary.folder.description),
        _text(summary.counts) + ".",
        *(part for setting in summary.settings for part in _setting(summary, setting)),
        *_failures(summary.failures),
        *_warnings(summary),
        *_left_out(summary),
        *_fabrics(summary),
        "### What was measured on what",
        _table(("", ""), [(name, text) for name, text in facts(records)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _setting(summary: Summary, setting: Setting) -> list[str]:
    sentences = findings(summary).get(setting, [])
    head, rows = (_rows if summary.in_rows(setting) else _columns)(summary, setting)
    scaled = any(
        value.speed_up for line in summary.lines_of(setting) for value in line.values.values()
    )
    given = summary.as_given(setting)
    note = [
        "Values are as their sources give them."
        if given
        else "Values are means over all samples of all runs that ended ok, ± their standard "
        "deviation; n is samples (runs).",
        "× is against one node, efficiency is × over the number of nodes." if scaled else "",
        ""
        if given
        else "RTT is the median round trip measured in those runs, link what one TCP stream "
        "carried.",
    ]
    return [
        f"### {_text(summary.setting_name(setting))}",
        "\n".join(f"* {_text(sentence)}" for sentence in sentences),
        _table(head, rows),
        " ".join(filter(None, note)),
        *_predicted(summary, setting),
        *_costs(summary, setting),
    ]


def _predicted(summary: Summary, setting: Setting) -> list[str]:
    about = summary.predicted.about(summary.lines_of(setting))
    if not about.inside:
        return [_text(about.why_not)]
    text = f"Predicted, not measured: {about.inside}, by Nixwulf's performance model."
    each = " of each way to split" if len(about.why) > 1 else ""
    text += f" The slowest case{each}:" if about.why else ""
    rows = [
        [line.what, name, value.text, value.predicted.text]
        for line in map(summary.predicted.beside, summary.lines_of(setting))
        for name, value in line.values.items()
        if value.predicted
    ]
    return [
        _table(("case", "tok/s of", "measured", "predicted (80 %)"), rows),
        text,
        *(["\n".join(f"* {_text(sentence)}" for sentence in about.why)] if about.why else []),
        f"{_text(about.why_not)} `nixwulf explain` says more, of every case.".strip(),
    ]


def _costs(summary: Summary, setting: Setting) -> list[str]:
    found = costs(summary, setting)
    if found is None:
        return []
    return ["#### Watts and US$", _table(found.heads, found.rows), _text(" ".join(found.sources))]


def _columns(summary: Summary, setting: Setting) -> tuple[list[str], list[list[str]]]:
    """One row a case, two columns a metric."""
    lines, metrics = summary.lines_of(setting), summary.metrics(setting)
    scaled = {m for m in metrics if any(_scaling(line, m.name) for line in lines)}
    spread = {m for m in metrics if summary.has_spread(setting, m)}
    heads: list[str] = []
    for m in metrics:
        heads += [f"{m.words}, {unit_name(m.unit)}"]
        heads += ["p50", "p95", "p99"] if m in spread else []
        heads += [f"{m.words} × (efficiency)"] if m in scaled else []
    rows = []
    for line in lines:
        cells: list[str] = []
        for m in metrics:
            value = line.values.get(m.name)
            cells += [value.text if value else ""]
            cells += (value.spread if value else ("", "", "")) if m in spread else ()
            cells += [_scaling(line, m.name)] if m in scaled else []
        rows.append([*_case(line), *cells, line.counts, line.outcome])
    return [*_CASE, *heads, "n", "outcome"], rows


def _rows(summary: Summary, setting: Setting) -> tuple[list[str], list[list[str]]]:
    """One row a case and metric, with percentiles."""
    rows = []
    for line in summary.lines_of(setting):
        for m in summary.metrics(setting):
            if value := line.values.get(m.name):
                cells = [f"{m.words}, {unit_name(m.unit)}", value.text, *value.spread]
                cells += [_scaling(line, m.name), value.counts, line.outcome]
                rows.append([*_case(line), *cells])
        if not line.values:
            rows.append([*_case(line), *[""] * 7, line.outcome])
    head = ["metric", "mean ± sd", "p50", "p95", "p99", "× (efficiency)", "n", "outcome"]
    return [*_CASE, *head], rows


def _case(line: CaseSummary) -> list[str]:
    bandwidth = f"{line.bandwidth_gbps:.3g}" if line.bandwidth_gbps else ""
    where = [str(line.nodes), line.parallelism, line.link, line.variant]
    return [*where, microseconds(line.rtt_us), bandwidth]


def _scaling(line: CaseSummary, metric: str) -> str:
    value = line.values.get(metric)
    if value is None or value.speed_up is None or value.efficiency is None or line.nodes == 1:
        return ""
    above = ", above 100 %" if value.above_linear else ""
    return f"{times(value.speed_up)} ({percent(value.efficiency)}{above})"


def _warnings(summary: Summary) -> list[str]:
    if not summary.warnings:
        return []
    rows = [(sentence, "; ".join(cases)) for sentence, cases in summary.warnings.items()]
    return ["### Warnings", _table(("what", "cases"), rows)]


def _failures(failures: Sequence[Failure]) -> list[str]:
    if not failures:
        return []
    parts = ["### Failures"]
    for failure in failures:
        hint = f" {_text(failure.hint)}" if failure.hint else ""
        parts.append(
            f"**{failure.outcome}** in {failure.phase}, {plural(len(failure.entries), 'run')} of "
            f"{_text(failure.cases)}: {_text(failure.reason)}{hint}"
        )
    return parts


def _left_out(summary: Summary) -> list[str]:
    if not summary.left_out:
        return []
    rows = [(left.reason, str(len(left.points)), left.words) for left in summary.left_out]
    return ["### Left out of the plan", _table(("reason", "points", "which"), rows)]


def _fabrics(summary: Summary) -> list[str]:
    rows = [(f.name, f.sold, f.asked, f.rtt, f.bandwidth) for f in fabrics(summary.folder.records)]
    head = ("fabric", "kind", "asked", "measured RTT, median (range)")
    return (
        ["### Fabrics", _table((*head, "measured bandwidth, median (range)"), rows)] if rows else []
    )
