"""The summary on a terminal; plain text where the output is a pipe or a file."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nixwulf.report.contents import Failure, Line, Setting, Summary
from nixwulf.report.words import clean, microseconds, percent, plural, times, with_deviation

_PIPE_WIDTH = 100
_WIDE = 96  # columns from which efficiency has its own
_OUTCOME_STYLES = {"ok": "green", "not run": "dim"}


def show(summary: Summary, console: Console | None = None) -> None:
    """Print one line a case, the failures and the counts; speeds are in tok/s."""
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_PIPE_WIDTH)
    for setting in summary.settings:
        console.print(_table(summary, setting, narrow=console.width < _WIDE))
        console.print()
    for failure in summary.failures:
        console.print(_failure(failure))
    console.print(Text(clean(summary.counts), style="bold"))


def _table(summary: Summary, setting: Setting, narrow: bool) -> Table:
    lines = [line for line in summary.lines if line.setting == setting]
    table = Table(
        title=Text(clean(summary.setting_name(setting))),
        title_justify="left",
        title_style="bold",
        caption="tok/s ± standard deviation of all samples; × and eff. against one node",
        caption_justify="left",
        box=None,
        padding=(0, 1 if narrow else 2, 0, 0),
        pad_edge=False,
    )
    metrics = [m for m in summary.metrics if any(m in line.speeds for line in lines)]
    variants = any(line.variant for line in lines)
    scaled = "decode" if "decode" in metrics else next(iter(metrics), "")
    table.add_column("nodes", no_wrap=True)
    table.add_column("fabric", overflow="fold")
    if variants:
        table.add_column("conditions", overflow="fold")
    numbers = ["RTT µs", *metrics, *([f"{scaled} ×"] if metrics else [])]
    numbers += ["eff."] if metrics and not narrow else []
    for name in numbers:
        table.add_column(Text(name), justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for line in lines:
        cells = [f"{line.nodes} {line.parallelism}", line.link, *([line.variant] * variants)]
        cells += [microseconds(line.rtt_us), *(_speed(line, metric) for metric in metrics)]
        cells += _scaling(line, scaled)[: len(numbers) - 1 - len(metrics)]
        style = _OUTCOME_STYLES.get(line.outcome, "yellow" if line.speeds else "red")
        table.add_row(*(Text(clean(cell)) for cell in cells), Text(line.outcome, style=style))
    return table


def _speed(line: Line, metric: str) -> str:
    speed = line.speeds.get(metric)
    return with_deviation(speed.mean, speed.deviation) if speed else ""


def _scaling(line: Line, metric: str) -> list[str]:
    speed = line.speeds.get(metric)
    if speed is None or speed.speed_up is None or speed.efficiency is None or line.nodes == 1:
        return ["", ""]
    flag = " !" if speed.above_linear else ""
    return [times(speed.speed_up).removesuffix(" ×"), percent(speed.efficiency) + flag]


def _failure(failure: Failure) -> Text:
    text = Text()
    text.append(f"{failure.outcome} in {failure.phase}", style="bold red")
    text.append(f", {plural(len(failure.entries), 'run')} of {clean(failure.cases)}:\n")
    text.append(f"  {clean(failure.reason).strip()}\n")
    if failure.hint:
        text.append(f"  {clean(failure.hint).strip()}\n", style="italic")
    return text
