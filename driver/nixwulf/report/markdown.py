"""The summary as GitHub Markdown, to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nixwulf.report.contents import Failure, Line, Setting, Summary
from nixwulf.report.findings import findings
from nixwulf.report.provenance import fabrics, facts
from nixwulf.report.words import clean, microseconds, percent, plural, times, with_deviation

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@])")


def to_markdown(summary: Summary) -> str:
    """Findings, tables of speeds, failures, what was left out, fabrics and provenance."""
    records = summary.folder.records
    parts = [
        f"## {_text(summary.folder.title)}",
        _text(summary.folder.description),
        _text(summary.counts) + ".",
        *(part for setting in summary.settings for part in _setting(summary, setting)),
        *_failures(summary.failures),
        *_left_out(summary),
        *_fabrics(summary),
        "### What was measured on what",
        _table(("", ""), [(name, text) for name, text in facts(records)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _setting(summary: Summary, setting: Setting) -> list[str]:
    sentences = findings(summary).get(setting, [])
    lines = [line for line in summary.lines if line.setting == setting]
    metrics = [m for m in summary.metrics if any(m in line.speeds for line in lines)]
    variants = any(line.variant for line in lines)
    head = ["nodes", "parallelism", "fabric", *(["conditions"] if variants else [])]
    head += ["RTT, µs", "bandwidth, Gbit/s"]
    head += [h for m in metrics for h in (f"{m}, tok/s", f"{m} × (efficiency)")]
    rows = [
        [
            str(line.nodes),
            line.parallelism,
            line.link,
            *([line.variant] if variants else []),
            microseconds(line.rtt_us),
            f"{line.bandwidth_gbps:.3g}" if line.bandwidth_gbps else "",
            *(cell for metric in metrics for cell in _speed(line, metric)),
            line.counts,
            line.outcome,
        ]
        for line in lines
    ]
    note = (
        "Speeds are means over all samples of all runs that ended ok, ± their standard deviation; "
        "n is samples (runs). × is against one node, efficiency is × over the number of nodes. "
        "RTT is the median round trip measured in those runs."
    )
    return [
        f"### {_text(summary.setting_name(setting))}",
        "\n".join(f"* {_text(sentence)}" for sentence in sentences),
        _table([*head, "n", "outcome"], rows),
        note,
    ]


def _speed(line: Line, metric: str) -> tuple[str, str]:
    speed = line.speeds.get(metric)
    if speed is None:
        return "", ""
    text = with_deviation(speed.mean, speed.deviation)
    if speed.speed_up is None or speed.efficiency is None or line.nodes == 1:
        return text, ""
    above = ", above 100 %" if speed.above_linear else ""
    return text, f"{times(speed.speed_up)} ({percent(speed.efficiency)}{above})"


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


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _text(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))
