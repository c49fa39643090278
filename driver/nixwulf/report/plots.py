"""The plots of a report: which cases of a summary make which panel."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from nixwulf.errors import InputError
from nixwulf.report.contents import Line, Metric, Setting, Summary
from nixwulf.report.drawing import COLOURS, MARKERS, Curve, Panel, Point, inline, to_file
from nixwulf.report.words import amount, clean, figure, microseconds, plural, unit_name
from nixwulf.units import better

_DECODE = Metric("decode", "tok/s")
_MOST_QUANTITIES = 6  # of metric and variant, each with a panel for each parallelism
_FEWEST_IN_CURVE = 3
_APART = 1.02  # between the fabrics of one number of nodes: about 3 points of the drawing


class LegendEntry(NamedTuple):
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
    legend: tuple[LegendEntry, ...]
    by_axis: dict[str, tuple[Markup, ...]]
    by_nodes: tuple[Markup, ...]
    by_rtt: tuple[Markup, ...]
    samples: str
    percentiles: bool
    missing: tuple[str, ...]
    undrawn: tuple[str, ...]


def plots(summary: Summary, setting: Setting) -> Plots:
    """The plots of a setting; those that would be empty are left out."""
    lines = _measured(summary, setting)
    metrics = sorted(summary.headline(setting), key=lambda metric: metric.name != "decode")
    variants = list(dict.fromkeys(line.variant for line in lines))
    drawn = variants[: max(1, _MOST_QUANTITIES // max(1, len(metrics)))]
    quantities = [(metric, variant) for metric in metrics for variant in drawn]
    name = summary.setting_name(setting)
    return Plots(
        name=name,
        legend=tuple(
            LegendEntry(MARKERS[i % len(MARKERS)][2], f"c{i % COLOURS}", link, _rtt(lines, link))
            for i, link in enumerate(_links(lines))
        ),
        by_axis={
            axis: tuple(inline(p, name) for m in metrics for p in _by_axis(lines, m, axis))
            for axis in _numeric_axes(lines)
        },
        by_nodes=tuple(inline(p, name) for q in quantities for p in _by_nodes(lines, *q)),
        by_rtt=tuple(
            inline(p, name) for q in quantities if q[0].name != "prompt" for p in _by_rtt(lines, *q)
        ),
        samples=_sample_counts(lines),
        percentiles=any(
            line.values[m.name].percentiles
            for m in metrics
            for line in lines
            if m.name in line.values
        ),
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
        panels = [panel for one in variants for panel in _by_rtt(lines, _DECODE, one)]
        if panels:
            caption = f"Means ± one standard deviation, n = {_sample_counts(lines)}"
            names = [f"{clean(link)} {_rtt(lines, link)}" for link in _links(lines)]
            found.append((panels, names, caption))
    if len(found) != 1:
        raise InputError(
            f"{summary.folder.title!r} has {plural(len(found), 'setting')} with decode over two "
            "fabrics, and the SVG shows one setting; --format html shows what there is."
        )
    return to_file(*found[0])


def _measured(summary: Summary, setting: Setting) -> list[Line]:
    return [line for line in summary.lines_of(setting) if line.values]


def _links(lines: Sequence[Line]) -> list[str]:
    """The fabrics in the order of their round trips, in which they get their markers."""
    links = {line.link for line in lines if line.nodes > 1}
    return sorted(links, key=lambda link: (_median_rtt(lines, link) or float("inf"), link))


def _numeric_axes(lines: Sequence[Line]) -> list[str]:
    """The parameters and conditions with enough numbers to draw a curve over them."""
    values: dict[str, set[float]] = defaultdict(set)
    for line in lines:
        for key, value in line.axes.items():
            if isinstance(value, int | float) and value > 0:
                values[key].add(value)
    return [key for key, found in values.items() if len(found) >= _FEWEST_IN_CURVE]


def _by_axis(lines: Sequence[Line], metric: Metric, axis: str) -> Iterator[Panel]:
    """One panel for each number of nodes, parallelism and other axes; each curve is a fabric."""
    cases = [line for line in lines if metric.name in line.values and line.axes.get(axis, 0)]
    links = _links(lines)
    panels: dict[tuple[int, str, str], list[Line]] = defaultdict(list)
    for line in cases:
        others = ", ".join(f"{k} {v}" for k, v in line.axes.items() if k != axis)
        panels[line.nodes, line.parallelism, others].append(line)
    for (nodes, parallelism, others), own in list(panels.items())[:_MOST_QUANTITIES]:
        curves = []
        for link in dict.fromkeys(line.link for line in own):
            style = links.index(link) if link else None
            shown = [line for line in own if line.link == link]
            points = [_point(line, metric, float(line.axes[axis]), style) for line in shown]
            curves.append(Curve(tuple(sorted(points, key=lambda point: point.x)), style))
        split = parallelism if nodes > 1 else ""
        yield Panel(
            title=_title(metric.words, others, plural(nodes, "node"), split),
            unit=_unit(metric),
            over=axis,
            steps=True,
            xs=sorted({float(line.axes[axis]) for line in cases}),
            ys=_extent(cases, metric),
            curves=curves,
            one=None,
        )


def _by_nodes(lines: Sequence[Line], metric: Metric, variant: str) -> Iterator[Panel]:
    """One panel a parallelism, all on the same scale; each curve is a fabric, from one node on."""
    cases = [line for line in lines if line.variant == variant and metric.name in line.values]
    if len({line.nodes for line in cases}) <= 1:
        return
    start = [_point(line, metric, 1.0, None) for line in cases if line.nodes == 1][:1]
    links = _links(lines)
    for parallelism, own in _by_parallelism(cases):
        here = [link for link in links if any(line.link == link for line in own)]
        curves = []
        for index, link in enumerate(here):
            apart, style = _APART ** (index - (len(here) - 1) / 2), links.index(link)
            shown = [line for line in own if line.link == link]
            points = [_point(line, metric, line.nodes * apart, style) for line in shown]
            curves.append(Curve((*start, *points), style))
        yield Panel(
            title=_title(metric.words, variant, parallelism),
            unit=_unit(metric),
            over="nodes",
            steps=True,
            xs=sorted({line.nodes for line in cases}),
            ys=_extent(cases, metric),
            curves=curves,
            one=start[0].y if start else None,
        )


def _by_rtt(lines: Sequence[Line], metric: Metric, variant: str) -> Iterator[Panel]:
    """One panel a parallelism, all on the same scale; each curve is a number of nodes."""
    cases = [line for line in lines if line.variant == variant and metric.name in line.values]
    one = [line for line in cases if line.nodes == 1][:1]
    links = _links(lines)
    placed = [line for line in cases if line.nodes > 1 and line.rtt_us]
    if len({line.link for line in placed}) <= 1:
        return
    for parallelism, own in _by_parallelism(placed):
        curves = []
        for nodes in sorted({line.nodes for line in own}):
            points = [
                _point(line, metric, line.rtt_us or 0.0, links.index(line.link))
                for line in own
                if line.nodes == nodes
            ]
            points.sort(key=lambda point: point.x)
            curves.append(Curve(tuple(points), label=plural(nodes, "node")))
        yield Panel(
            title=_title(metric.words, variant, parallelism),
            unit=_unit(metric),
            over="measured round trip, µs",
            steps=False,
            xs=[line.rtt_us or 0.0 for line in placed],
            ys=_extent([*one, *placed], metric),
            curves=curves,
            one=one[0].values[metric.name].typical if one else None,
        )


def _by_parallelism(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    """The cases of several nodes, parallelism by parallelism."""
    for parallelism in sorted({line.parallelism for line in lines if line.nodes > 1}):
        own = [line for line in lines if line.parallelism == parallelism and line.nodes > 1]
        yield parallelism, own


def _title(*parts: str) -> str:
    text = ", ".join(filter(None, parts))
    return text[:1].upper() + text[1:]


def _unit(metric: Metric) -> str:
    less = ", less is better" if better(metric.unit) == "less" else ""
    return unit_name(metric.unit) + less


def _point(line: Line, metric: Metric, x: float, style: int | None) -> Point:
    """A mean ± its deviation, or a median with what reaches up to the 95th percentile."""
    value = line.values[metric.name]
    text = f"{value.text} {unit_name(metric.unit)}"
    spread = (value.deviation, value.deviation) if value.deviation else None
    if value.percentiles:
        p50, p95, p99 = value.percentiles
        spread = (0.0, p95 - p50)
        text = f"median {amount(p50, metric.unit)}, p95 {figure(p95)}, p99 {figure(p99)}"
    counts = f"{plural(value.n_samples, 'sample')} in {plural(value.n_runs, 'run')}"
    rtt = f", round trip {microseconds(line.rtt_us)} µs" if line.rtt_us else ""
    return Point(x, value.typical, spread, style, f"{line.what}{rtt}: {text}, {counts}")


def _extent(lines: Sequence[Line], metric: Metric) -> list[float]:
    """The values a scale has to hold: points, and the ends of their bars."""
    values = []
    for line in lines:
        value, point = line.values[metric.name], _point(line, metric, 0.0, None)
        down, up = point.spread or (0.0, 0.0)
        values += [value.typical, value.typical + up]
        values += [value.typical - down] if down < value.typical / 2 else []
    return values


def _median_rtt(lines: Sequence[Line], link: str) -> float | None:
    values = [line.rtt_us for line in lines if line.link == link and line.rtt_us]
    return statistics.median(values) if values else None


def _rtt(lines: Sequence[Line], link: str) -> str:
    rtt = _median_rtt(lines, link)
    return f"{microseconds(rtt)} µs" if rtt else "not measured"


def _sample_counts(lines: Sequence[Line]) -> str:
    """'9 samples in 3 runs', or the range over the points."""
    values = [value for line in lines for value in line.values.values()]
    samples = _span([value.n_samples for value in values], "sample")
    return f"{samples} in {_span([value.n_runs for value in values], 'run')}"


def _span(counts: Sequence[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return plural(low, noun) if low == high else f"{low} to {plural(high, noun)}"
