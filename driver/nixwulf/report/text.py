"""A report as text: on a terminal, as GitHub Markdown, and its tidy table as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from nixwulf.core.document import (
    Cell,
    Column,
    Styled,
    Table,
    bullets,
    escaped,
    markdown,
    output,
    pipe_table,
    rich_table,
)
from nixwulf.core.text import (
    clean,
    format_significant,
    microseconds,
    percent,
    plural,
    round_trip,
    times,
    unit_name,
)
from nixwulf.report.findings import findings
from nixwulf.report.lines import CaseSummary, MetricKey
from nixwulf.report.provenance import fabrics, facts
from nixwulf.report.summary import Failure, Section, Summary
from nixwulf.results.record import Record
from nixwulf.results.table import TIDY_COLUMNS, as_rows, tidy

_PIPE_WIDTH = 100
_WIDE = 96  # columns from which efficiency has its own
_OUTCOME_STYLES = {"ok": "green", "not run": "dim"}
_CASE = ("nodes", "parallelism", "fabric", "conditions", "RTT, µs", "link, Gbit/s")
_COSTS: tuple[Column | str, ...] = (
    "case",
    "metric",
    *(Column(n, number=True) for n in ("speed", "W", "per W", "J/token", "US$", "per US$")),
)


def to_terminal(summary: Summary, console: Console | None = None) -> None:
    """Print what was measured, setting by setting, then failures, warnings and counts."""
    console = console or output(_PIPE_WIDTH)
    for section in summary.sections:
        if section.in_rows:
            _print_rows(section, console)
        else:
            narrow = console.width < _WIDE
            console.print(rich_table(_table(section, narrow), gap=1 if narrow else 2))
        if table := costs(section):
            console.print(rich_table(table))
            console.print(Text(clean(" ".join(table.notes)), style="dim"))
        console.print()
    for failure in summary.failures:
        console.print(_failure(failure))
    for sentence, cases in summary.warnings.items():
        text = Text("warning", style="bold yellow")
        console.print(text.append(f", {clean('; '.join(cases))}: {clean(sentence)}\n", "default"))
    console.print(Text(clean(summary.counts), style="bold"))


def _table(section: Section, narrow: bool) -> Table:
    """One row a case, one column a metric."""
    lines = section.lines
    metrics = section.metrics
    scaled = next((m for m in reversed(metrics) if _scales(lines, m)), None)
    units = dict.fromkeys(unit_name(metric.unit) for metric in metrics)
    variants = any(line.axes for line in lines)
    several = len(units) > 1
    numbers = ["RTT µs"]
    spread = bool(metrics) and metrics[0] in section.spread
    numbers += [f"{m.words} {unit_name(m.unit)}" if several else m.words for m in metrics]
    numbers += ["p50", "p95", "p99"] if spread else []
    numbers += [f"{scaled.words} ×", *([] if narrow else ["eff."])] if scaled else []
    rows = []
    for line in lines:
        cells: list[Cell] = [f"{line.nodes} {line.parallelism}".strip(), line.link]
        cells += [line.variant] * variants + [microseconds(line.rtt_us)]
        values = [line.values.get(metric.name) for metric in metrics]
        cells += [value.text if value else "" for value in values]
        cells += (values[0].spread if values[0] else ("", "", "")) if spread else ()
        cells += _scaling(line, scaled)[: 1 if narrow else 2] if scaled else []
        rows.append([*cells, _outcome(line)])
    return Table(
        (
            Column("nodes", whole=True),
            "fabric",
            *(["conditions"] * variants),
            *(Column(name, number=True, whole=not several) for name in numbers),
            "outcome",
        ),
        rows,
        title=section.name,
        caption=_caption(list(units), scaled, section.as_given),
    )


def _caption(units: Sequence[str], scaled: MetricKey | None, as_given: bool) -> str:
    what = "as the sources give it" if as_given else "± standard deviation of all samples"
    one = f"{units[0]}{',' if as_given else ''} " if len(units) == 1 else ""
    against = "; × and eff. against one node" if scaled else ""
    return f"{one}{what}{against}" if units else ""


def _print_rows(section: Section, console: Console) -> None:
    """One row a metric, under each case, with percentiles."""
    lines, metrics = section.lines, section.metrics
    console.print(Text(clean(section.name), style="bold"))
    scales = any(_scales(lines, metric) for metric in metrics)
    name_width = max(len(f"{m.words} {unit_name(m.unit)}") for m in metrics) if metrics else 0
    heads = (("mean ± sd", 17), ("p50", 7), ("p95", 7), ("p99", 7), *([("×", 5)] * scales))
    columns = (
        Column("", whole=True, width=name_width + 2),
        *(Column(head, number=True, whole=True, width=width) for head, width in heads),
    )
    for index, line in enumerate(lines):
        rtt = f", round trip {round_trip(line.rtt_us)}" if line.rtt_us is not None else ""
        console.print(Text(f"{clean(line.what)}{rtt}: ").append(*_outcome(line)))
        rows = []
        for metric in (metric for metric in metrics if metric.name in line.values):
            value = line.values[metric.name]
            cells = [f"  {metric.words} {unit_name(metric.unit)}", value.text, *value.spread]
            rows.append(cells + _scaling(line, metric)[:1] * scales)
        if rows:
            console.print(rich_table(Table(columns, rows), show_header=index == 0))


def _outcome(line: CaseSummary) -> Styled:
    style = _OUTCOME_STYLES.get(line.outcome, "yellow" if line.values else "red")
    return Styled(line.outcome, style)


def _scales(lines: Sequence[CaseSummary], metric: MetricKey) -> bool:
    values = (line.values.get(metric.name) for line in lines if line.nodes > 1)
    return any(value is not None and value.speed_up is not None for value in values)


def _scaling(line: CaseSummary, metric: MetricKey) -> list[str]:
    value = line.values.get(metric.name)
    if value is None or value.speed_up is None or value.efficiency is None or line.nodes == 1:
        return ["", ""]
    flag = " !" if value.above_linear else ""
    return [times(value.speed_up).removesuffix(" ×"), percent(value.efficiency) + flag]


def _failure(failure: Failure) -> Text:
    text = Text()
    text.append(f"{failure.outcome} in {failure.phase}", style="bold red")
    text.append(f", {plural(len(failure.entries), 'run')} of {clean(failure.cases)}:\n")
    text.append(f"  {clean(failure.reason).strip()}\n")
    if failure.hint:
        text.append(f"  {clean(failure.hint).strip()}\n", style="italic")
    return text


def costs(section: Section) -> Table | None:
    """What speeds cost in watts and US$, beside what it is computed from: a row a case and speed.

    Without columns that would be empty; None where no speed has watts or a price.
    """
    rows: list[tuple[str, ...]] = []
    sources: dict[str, None] = {}
    for line in section.lines:
        for metric in section.metrics:
            value = line.values.get(metric.name)
            if value is None or value.cost is None:
                continue
            cost = value.cost
            numbers = (
                *(cost.watts, cost.per_watt, cost.joules_per_token),
                *(cost.price_usd, cost.per_usd),
            )
            texts = ("" if number is None else format_significant(number) for number in numbers)
            name = f"{metric.words}, {unit_name(metric.unit)}"
            rows.append((line.what, name, format_significant(value.mean), *texts))
            if cost.watts_source:
                sources[f"Watts: {cost.watts_source}."] = None
            if cost.price_source:
                sources[f"Price: {cost.price_source}."] = None
    if not rows:
        return None
    return Table(_COSTS, rows, notes=tuple(sources)).filled


def to_markdown(summary: Summary) -> str:
    """Findings, tables of values, failures, warnings, what was left out, fabrics and provenance."""
    records = summary.folder.records
    parts = [
        f"## {escaped(summary.folder.title)}",
        escaped(summary.folder.description),
        escaped(summary.counts) + ".",
        *(part for section in summary.sections for part in _section(section)),
        *_failures_text(summary.failures),
        *_warnings(summary),
        *_left_out(summary),
        *_fabrics(summary),
        "### What was measured on what",
        pipe_table(Table(("", ""), [(name, text) for name, text in facts(records)])),
    ]
    return markdown(parts)


def _section(section: Section) -> list[str]:
    sentences = findings(section)
    head, rows = (_rows if section.in_rows else _columns)(section)
    scaled = any(value.speed_up for line in section.lines for value in line.values.values())
    given = section.as_given
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
        f"### {escaped(section.name)}",
        bullets(sentences),
        pipe_table(Table(head, rows)),
        " ".join(filter(None, note)),
        *_predicted(section),
        *_costs(section),
    ]


def _predicted(section: Section) -> list[str]:
    about = section.summary.predicted.about(section.lines)
    if not about.inside:
        return [escaped(about.why_not)]
    text = f"Predicted, not measured: {about.inside}, by Nixwulf's performance model."
    each = " of each way to split" if len(about.why) > 1 else ""
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
        f"{escaped(about.why_not)} `nixwulf explain` says more, of every case.".strip(),
    ]


def _costs(section: Section) -> list[str]:
    found = costs(section)
    if found is None:
        return []
    return ["#### Watts and US$", pipe_table(found), escaped(" ".join(found.notes))]


def _columns(section: Section) -> tuple[list[str], list[list[str]]]:
    """One row a case, two columns a metric."""
    lines, metrics = section.lines, section.metrics
    scaled = {m for m in metrics if any(_scaling_text(line, m.name) for line in lines)}
    spread = section.spread
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
            cells += [_scaling_text(line, m.name)] if m in scaled else []
        rows.append([*_case(line), *cells, line.counts, line.outcome])
    return [*_CASE, *heads, "n", "outcome"], rows


def _rows(section: Section) -> tuple[list[str], list[list[str]]]:
    """One row a case and metric, with percentiles."""
    rows = []
    for line in section.lines:
        for m in section.metrics:
            if value := line.values.get(m.name):
                cells = [f"{m.words}, {unit_name(m.unit)}", value.text, *value.spread]
                cells += [_scaling_text(line, m.name), value.counts, line.outcome]
                rows.append([*_case(line), *cells])
        if not line.values:
            rows.append([*_case(line), *[""] * 7, line.outcome])
    head = ["metric", "mean ± sd", "p50", "p95", "p99", "× (efficiency)", "n", "outcome"]
    return [*_CASE, *head], rows


def _case(line: CaseSummary) -> list[str]:
    bandwidth = f"{line.bandwidth_gbps:.3g}" if line.bandwidth_gbps else ""
    where = [str(line.nodes), line.parallelism, line.link, line.variant]
    return [*where, microseconds(line.rtt_us), bandwidth]


def _scaling_text(line: CaseSummary, metric: str) -> str:
    value = line.values.get(metric)
    if value is None or value.speed_up is None or value.efficiency is None or line.nodes == 1:
        return ""
    above = ", above 100 %" if value.above_linear else ""
    return f"{times(value.speed_up)} ({percent(value.efficiency)}{above})"


def _warnings(summary: Summary) -> list[str]:
    if not summary.warnings:
        return []
    rows = [(sentence, "; ".join(cases)) for sentence, cases in summary.warnings.items()]
    return ["### Warnings", pipe_table(Table(("what", "cases"), rows))]


def _failures_text(failures: Sequence[Failure]) -> list[str]:
    if not failures:
        return []
    parts = ["### Failures"]
    for failure in failures:
        hint = f" {escaped(failure.hint)}" if failure.hint else ""
        parts.append(
            f"**{failure.outcome}** in {failure.phase}, {plural(len(failure.entries), 'run')} of "
            f"{escaped(failure.cases)}: {escaped(failure.reason)}{hint}"
        )
    return parts


def _left_out(summary: Summary) -> list[str]:
    if not summary.left_out:
        return []
    rows = [(left.reason, str(len(left.points)), left.words) for left in summary.left_out]
    return ["### Left out of the plan", pipe_table(Table(("reason", "points", "which"), rows))]


def _fabrics(summary: Summary) -> list[str]:
    table = fabrics(summary.folder.records)
    return ["### Fabrics", pipe_table(table)] if table.rows else []


def to_csv(records: Iterable[Record]) -> str:
    """One line per record and metric; cells without a value are empty, samples are a JSON list."""
    table = tidy(records)
    table["samples"] = [json.dumps(samples) for samples in table["samples"]]
    return str(table.to_csv(index=False, lineterminator="\n"))


def to_json(records: Iterable[Record]) -> str:
    """The columns with what they hold, and the rows; a key without a value is absent."""
    rows = [
        {name: value for name, value in row.items() if value not in (None, "")}
        for row in as_rows(tidy(records))
    ]
    return json.dumps({"columns": TIDY_COLUMNS, "rows": rows}, indent=1, allow_nan=False) + "\n"
