"""The summary on a terminal; plain text where the output is a pipe or a file."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nixwulf.core.console import output
from nixwulf.core.text import clean, microseconds, percent, plural, round_trip, times, unit_name
from nixwulf.report.contents import Failure, Summary
from nixwulf.report.costs import costs
from nixwulf.report.lines import CaseSummary, MetricKey
from nixwulf.results.identity import Setting

_PIPE_WIDTH = 100
_WIDE = 96  # columns from which efficiency has its own
_OUTCOME_STYLES = {"ok": "green", "not run": "dim"}


def show(summary: Summary, console: Console | None = None) -> None:
    """Print what was measured, setting by setting, then failures, warnings and counts."""
    console = console or output(_PIPE_WIDTH)
    for setting in summary.settings:
        if summary.in_rows(setting):
            _print_rows(summary, setting, console)
        else:
            console.print(_table(summary, setting, narrow=console.width < _WIDE))
        _print_costs(summary, setting, console)
        console.print()
    for failure in summary.failures:
        console.print(_failure(failure))
    for sentence, cases in summary.warnings.items():
        text = Text("warning", style="bold yellow")
        console.print(text.append(f", {clean('; '.join(cases))}: {clean(sentence)}\n", "default"))
    console.print(Text(clean(summary.counts), style="bold"))


def _table(summary: Summary, setting: Setting, narrow: bool) -> Table:
    """One row a case, one column a metric."""
    lines = summary.lines_of(setting)
    metrics = summary.metrics(setting)
    scaled = next((m for m in reversed(metrics) if _scales(lines, m)), None)
    units = dict.fromkeys(unit_name(metric.unit) for metric in metrics)
    table = Table(
        title=Text(clean(summary.setting_name(setting))),
        title_justify="left",
        title_style="bold",
        caption=_caption(list(units), scaled, summary.as_given(setting)),
        caption_justify="left",
        box=None,
        padding=(0, 1 if narrow else 2, 0, 0),
        pad_edge=False,
    )
    variants = any(line.axes for line in lines)
    table.add_column("nodes", no_wrap=True)
    table.add_column("fabric", overflow="fold")
    if variants:
        table.add_column("conditions", overflow="fold")
    several = len(units) > 1
    numbers = ["RTT µs"]
    spread = bool(metrics) and summary.has_spread(setting, metrics[0])
    numbers += [f"{m.words} {unit_name(m.unit)}" if several else m.words for m in metrics]
    numbers += ["p50", "p95", "p99"] if spread else []
    numbers += [f"{scaled.words} ×", *([] if narrow else ["eff."])] if scaled else []
    for name in numbers:
        table.add_column(Text(name), justify="right", no_wrap=not several)
    table.add_column("outcome", overflow="fold")
    for line in lines:
        cells = [f"{line.nodes} {line.parallelism}".strip(), line.link]
        cells += [line.variant] * variants + [microseconds(line.rtt_us)]
        values = [line.values.get(metric.name) for metric in metrics]
        cells += [value.text if value else "" for value in values]
        cells += (values[0].spread if values[0] else ("", "", "")) if spread else ()
        cells += _scaling(line, scaled)[: 1 if narrow else 2] if scaled else []
        table.add_row(*(Text(clean(cell)) for cell in cells), _outcome(line))
    return table


def _caption(units: Sequence[str], scaled: MetricKey | None, as_given: bool) -> str:
    what = "as the sources give it" if as_given else "± standard deviation of all samples"
    one = f"{units[0]}{',' if as_given else ''} " if len(units) == 1 else ""
    against = "; × and eff. against one node" if scaled else ""
    return f"{one}{what}{against}" if units else ""


def _print_rows(summary: Summary, setting: Setting, console: Console) -> None:
    """One row a metric, under each case, with percentiles."""
    lines, metrics = summary.lines_of(setting), summary.metrics(setting)
    console.print(Text(clean(summary.setting_name(setting)), style="bold"))
    scales = any(_scales(lines, metric) for metric in metrics)
    name_width = max(len(f"{m.words} {unit_name(m.unit)}") for m in metrics) if metrics else 0
    for index, line in enumerate(lines):
        rtt = f", round trip {round_trip(line.rtt_us)}" if line.rtt_us is not None else ""
        console.print(Text(f"{clean(line.what)}{rtt}: ").append(_outcome(line)))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=index == 0)
        table.add_column("", min_width=name_width + 2, no_wrap=True)
        heads = (("mean ± sd", 17), ("p50", 7), ("p95", 7), ("p99", 7), ("×", 5))
        for head, width in heads if scales else heads[:-1]:
            table.add_column(Text(head), justify="right", min_width=width, no_wrap=True)
        for metric in (metric for metric in metrics if metric.name in line.values):
            value = line.values[metric.name]
            cells = [f"  {metric.words} {unit_name(metric.unit)}", value.text, *value.spread]
            table.add_row(*map(Text, cells + _scaling(line, metric)[:1] * scales))
        if table.rows:
            console.print(table)


def _print_costs(summary: Summary, setting: Setting, console: Console) -> None:
    """The small table of watts and US$, where there are any."""
    found = costs(summary, setting)
    if found is None:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, head in enumerate(found.heads):
        table.add_column(Text(head), justify="right" if index > 1 else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console.print(table)
    console.print(Text(clean(" ".join(found.sources)), style="dim"))


def _outcome(line: CaseSummary) -> Text:
    style = _OUTCOME_STYLES.get(line.outcome, "yellow" if line.values else "red")
    return Text(line.outcome, style=style)


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
