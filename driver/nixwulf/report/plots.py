"""The plots of a report: which panels of a setting are drawn, and what stands beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from nixwulf.core.errors import InputError
from nixwulf.core.text import clean, microseconds, plural
from nixwulf.core.units import adds_up
from nixwulf.report import panels
from nixwulf.report.contents import Summary
from nixwulf.report.drawing import COLOURS, MARKERS, inline, to_file
from nixwulf.report.lines import CaseSummary, Conditions, MetricKey
from nixwulf.report.predicted import About

_DECODE = MetricKey("decode", "tok/s")


class FabricLegendEntry(NamedTuple):
    """A fabric, a letter like its marker with its colour (c0 ...), and its measured round trip."""

    letter: str
    colour: str
    name: str
    rtt: str


@dataclass(frozen=True)
class Plots:
    """The panels of one setting, ready for the page.

    by_axis: by the name of a parameter or condition, over which its panels are; undrawn: variants
    of which no panel is drawn, because they are too many.
    """

    name: str
    legend: tuple[FabricLegendEntry, ...]
    by_axis: dict[str, tuple[Markup, ...]]
    by_nodes: tuple[Markup, ...]
    by_rtt: tuple[Markup, ...]
    samples: str
    percentiles: bool
    predicted: About
    missing: tuple[str, ...]
    undrawn: tuple[str, ...]


def plots(summary: Summary, setting: Conditions) -> Plots:
    """The plots of a setting; those that would be empty are left out."""
    lines = _measured(summary, setting)
    metrics = sorted(summary.headline(setting), key=lambda metric: metric.name != "decode")
    variants = list(dict.fromkeys(line.variant for line in lines))
    axes = panels.numeric_axes(lines)
    drawn = variants[: 1 if axes else max(1, panels.MOST_QUANTITIES // max(1, len(metrics)))]
    quantities = [(metric, variant) for metric in metrics for variant in drawn]
    name = summary.setting_name(setting)
    return Plots(
        name=name,
        legend=tuple(
            FabricLegendEntry(
                MARKERS[i % len(MARKERS)][2], f"c{i % COLOURS}", link, _rtt(lines, link)
            )
            for i, link in enumerate(panels.links_of(lines))
        ),
        by_axis={
            axis: tuple(inline(p, name) for m in metrics for p in panels.by_axis(lines, m, axis))
            for axis in axes
        },
        by_nodes=tuple(inline(p, name) for q in quantities for p in panels.by_nodes(lines, *q)),
        by_rtt=tuple(
            inline(panel, name)
            for metric, variant in quantities
            if metric.name != "prompt" and (setting.engine or adds_up(metric.unit))
            for panel in panels.by_rtt(lines, metric, variant)
        ),
        samples=_sample_counts(lines),
        percentiles=any(
            line.values[m.name].percentiles
            for m in metrics
            for line in lines
            if m.name in line.values
        ),
        predicted=summary.predicted.about(lines),
        missing=tuple(
            f"{line.what} ({line.outcome})"
            for line in summary.lines_of(setting)
            if line.outcomes and not line.values
        ),
        undrawn=tuple(variants[len(drawn) :]),
    )


def decode_by_rtt(summary: Summary) -> str:
    """Decode against the measured round trip, as an SVG file.

    Raises InputError unless exactly one setting has that plot.
    """
    found = []
    for setting in summary.settings:
        lines = _measured(summary, setting)
        variants = sorted({line.variant for line in lines})
        drawn = [panel for one in variants for panel in panels.by_rtt(lines, _DECODE, one)]
        if drawn:
            caption = f"Means ± one standard deviation, n = {_sample_counts(lines)}"
            names = [f"{clean(link)} {_rtt(lines, link)}" for link in panels.links_of(lines)]
            found.append((drawn, names, caption))
    if len(found) != 1:
        raise InputError(
            f"{summary.folder.title!r} has {plural(len(found), 'setting')} with decode over two "
            "fabrics, and the SVG shows one setting; --format html shows what there is."
        )
    return to_file(*found[0])


def _measured(summary: Summary, setting: Conditions) -> list[CaseSummary]:
    lines = summary.lines_of(setting)
    return [summary.predicted.beside(line) for line in lines if line.values]


def _rtt(lines: Sequence[CaseSummary], link: str) -> str:
    rtt = panels.median_rtt(lines, link)
    return f"{microseconds(rtt)} µs" if rtt else "not measured"


def _sample_counts(lines: Sequence[CaseSummary]) -> str:
    """'9 samples in 3 runs', or the range over the points; '3 runs' where no samples are known."""
    values = [value for line in lines for value in line.values.values()]
    known = [value.n_samples for value in values if value.n_samples]
    runs = _span([value.n_runs for value in values], "run")
    return f"{_span(known, 'sample')} in {runs}" if known else runs


def _span(counts: Sequence[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return plural(low, noun) if low == high else f"{low} to {plural(high, noun)}"
