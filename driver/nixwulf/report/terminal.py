"""The summary on a terminal; plain text where the output is a pipe or a file."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nixwulf.report.summary import Failure, Line, Setting, Summary
from nixwulf.report.words import clean, microseconds, percent, plural, times, with_deviation

_PIPE_WIDTH = 100
_MOST_NAMED = 4
_OUTCOME_STYLES = {"ok": "green", "not run": "dim"}


def show(summary: Summary, console: Console | None = None) -> None:
    """Print one line a case, the failures and the counts; speeds are in tok/s."""
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_PIPE_WIDTH)
    for setting in summary.settings:
        console.print(_table(summary, setting))
    for failure in summary.failures:
        console.print(_failure(failure))
    console.print(Text(clean(summary.counts), style="bold"))


def _table(summary: Summary, setting: Setting) -> Table:
    lines = [line for line in summary.lines if line.setting == setting]
    table = Table(
        title=Text(clean(summary.setting_name(setting))),
        title_justify="left",
        title_style="bold",
        caption="speeds in tok/s ± standard deviation of all samples; × and % against one node",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    metrics = [m for m in summary.metrics if any(m in line.speeds for line in lines)]
    variants = any(line.variant for line in lines)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("parallelism", no_wrap=True)
    table.add_column("fabric", overflow="fold")
    if variants:
        table.add_column("conditions", overflow="fold")
    table.add_column("RTT µs", justify="right", no_wrap=True)
    for metric in metrics:
        table.add_column(Text(metric), justify="right", no_wrap=True)
    scaled = "decode" if "decode" in metrics else next(iter(metrics), "")
    if metrics:
        table.add_column(Text(f"{scaled} ×"), justify="right", no_wrap=True)
        table.add_column("eff.", justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for line in lines:
        cells = [str(line.nodes), line.parallelism, line.link, microseconds(line.rtt_us)]
        cells[3:3] = [line.variant] if variants else []
        cells += [_speed(line, metric) for metric in metrics]
        cells += _scaling(line, scaled) if metrics else []
        row = [Text(clean(cell)) for cell in cells]
        style = _OUTCOME_STYLES.get(line.outcome, "yellow" if line.speeds else "red")
        table.add_row(*row, Text(line.outcome, style=style))
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
    names = [entry.record["id"] for entry in failure.entries]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    text = Text()
    text.append(f"{failure.outcome} in {failure.phase}", style="bold red")
    text.append(f", {plural(len(names), 'run')} ({', '.join(names[:_MOST_NAMED])}{more}):\n")
    text.append(f"  {clean(failure.reason).strip()}\n")
    if failure.hint:
        text.append(f"  {clean(failure.hint).strip()}\n", style="italic")
    return text
