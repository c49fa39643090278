"""The panels of a report: which lines of a setting make which, over what."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from nixwulf.core.text import amount, format_significant, microseconds, plural, unit_name
from nixwulf.core.units import better
from nixwulf.report.drawing import Curve, Panel, Point
from nixwulf.report.lines import CaseSummary, MetricKey

MOST_QUANTITIES = 6
"""Of metric and variant, each with a panel for each parallelism."""
_FEWEST_IN_CURVE = 3
_APART = 1.02  # between the fabrics of one number of nodes: about 3 points of the drawing


def links_of(lines: Sequence[CaseSummary]) -> list[str]:
    """The fabrics in the order of their round trips, in which they get their markers."""
    links = {line.link for line in lines if line.nodes > 1}
    return sorted(links, key=lambda link: (median_rtt(lines, link) or float("inf"), link))


def median_rtt(lines: Sequence[CaseSummary], link: str) -> float | None:
    """The median of what was measured on a fabric, microseconds."""
    values = [line.rtt_us for line in lines if line.link == link and line.rtt_us]
    return statistics.median(values) if values else None


def numeric_axes(lines: Sequence[CaseSummary]) -> list[str]:
    """The parameters and conditions with enough numbers to draw a curve over them."""
    values: dict[str, set[float]] = defaultdict(set)
    for line in lines:
        for key, value in line.axes.items():
            if isinstance(value, int | float) and value > 0:
                values[key].add(value)
    return [key for key, found in values.items() if len(found) >= _FEWEST_IN_CURVE]


def by_axis(lines: Sequence[CaseSummary], metric: MetricKey, axis: str) -> Iterator[Panel]:
    """One panel for each number of nodes, parallelism and other axes; each curve is a fabric."""
    cases = [line for line in lines if metric.name in line.values and line.axes.get(axis, 0)]
    links = links_of(lines)
    panels: dict[tuple[int, str, str], list[CaseSummary]] = defaultdict(list)
    for line in cases:
        panels[line.nodes, line.parallelism, _others(line, axis)].append(line)
    several = {key: own for key, own in panels.items() if key[0] > 1} or panels
    for (nodes, parallelism, others), own in list(several.items())[:MOST_QUANTITIES]:
        alone = [line for line in cases if line.nodes == 1 and _others(line, axis) == others]
        curves = []
        for link in dict.fromkeys(line.link for line in (*alone, *own)):
            style = links.index(link) if link else None
            shown = [line for line in (*alone, *own) if line.link == link]
            points = [_point(line, metric, float(line.axes[axis]), style) for line in shown]
            points.sort(key=lambda point: point.x)
            curves.append(Curve(tuple(points), style, "" if link else "one node"))
        on = [plural(nodes, "node"), parallelism] if nodes > 1 else []
        yield Panel(
            title=_title(metric.words, *on),
            variant=others,
            unit=_unit(metric),
            over=axis.replace("_", " "),
            steps=True,
            xs=sorted({float(line.axes[axis]) for line in cases}),
            ys=_extent(cases, metric),
            curves=curves,
            one=None,
        )


def _others(line: CaseSummary, axis: str) -> str:
    """What tells a line from others of its case but for one axis."""
    return ", ".join(f"{key} {value}" for key, value in line.axes.items() if key != axis)


def by_nodes(lines: Sequence[CaseSummary], metric: MetricKey, variant: str) -> Iterator[Panel]:
    """One panel a parallelism, all on the same scale; each curve is a fabric, from one node on."""
    cases = [line for line in lines if line.variant == variant and metric.name in line.values]
    if len({line.nodes for line in cases}) <= 1:
        return
    start = [_point(line, metric, 1.0, None) for line in cases if line.nodes == 1][:1]
    links = links_of(lines)
    for parallelism, own in _by_parallelism(cases):
        here = [link for link in links if any(line.link == link for line in own)]
        curves = []
        for index, link in enumerate(here):
            apart, style = _APART ** (index - (len(here) - 1) / 2), links.index(link)
            shown = [line for line in own if line.link == link]
            points = [_point(line, metric, line.nodes * apart, style) for line in shown]
            curves.append(Curve((*start, *points), style))
        yield Panel(
            title=_title(metric.words, parallelism),
            variant=variant,
            unit=_unit(metric),
            over="nodes",
            steps=True,
            xs=sorted({line.nodes for line in cases}),
            ys=_extent(cases, metric),
            curves=curves,
            one=start[0].y if start else None,
        )


def by_rtt(lines: Sequence[CaseSummary], metric: MetricKey, variant: str) -> Iterator[Panel]:
    """One panel a parallelism, all on the same scale; each curve is a number of nodes."""
    cases = [line for line in lines if line.variant == variant and metric.name in line.values]
    one = [line for line in cases if line.nodes == 1][:1]
    links = links_of(lines)
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
            title=_title(metric.words, parallelism),
            variant=variant,
            unit=_unit(metric),
            over="measured round trip, µs",
            steps=False,
            xs=[line.rtt_us or 0.0 for line in placed],
            ys=_extent([*one, *placed], metric),
            curves=curves,
            one=one[0].values[metric.name].typical if one else None,
        )


def _by_parallelism(lines: Sequence[CaseSummary]) -> Iterator[tuple[str, list[CaseSummary]]]:
    """The cases of several nodes, parallelism by parallelism."""
    for parallelism in sorted({line.parallelism for line in lines if line.nodes > 1}):
        own = [line for line in lines if line.parallelism == parallelism and line.nodes > 1]
        yield parallelism, own


def _title(*parts: str) -> str:
    text = ", ".join(filter(None, parts))
    return text[:1].upper() + text[1:]


def _unit(metric: MetricKey) -> str:
    less = ", less is better" if better(metric.unit) == "less" else ""
    return unit_name(metric.unit) + less


def _point(line: CaseSummary, metric: MetricKey, x: float, style: int | None) -> Point:
    """A mean ± its deviation, or a median with what reaches up to the 95th percentile."""
    value = line.values[metric.name]
    text = f"{value.text} {unit_name(metric.unit)}"
    spread = (value.deviation, value.deviation) if value.deviation else None
    if value.percentiles:
        p50, p95, p99 = value.percentiles
        spread = (0.0, p95 - p50)
        high, highest = format_significant(p95), format_significant(p99)
        text = f"median {amount(p50, metric.unit)}, p95 {high}, p99 {highest}"
    samples = f"{plural(value.n_samples, 'sample')} in " if value.n_samples else ""
    counts = f"{samples}{plural(value.n_runs, 'run')}"
    rtt = f", round trip {microseconds(line.rtt_us)} µs" if line.rtt_us else ""
    band = value.predicted
    prediction = (
        f"{line.what}: predicted, not measured: {band.text} {unit_name(metric.unit)}"
        if band
        else ""
    )
    words = f"{line.what}{rtt}: {text}, {counts}"
    return Point(x, value.typical, spread, style, words, band, prediction)


def _extent(lines: Sequence[CaseSummary], metric: MetricKey) -> list[float]:
    """The values a scale has to hold: points, the ends of their bars, and what is predicted."""
    values = []
    for line in lines:
        value, point = line.values[metric.name], _point(line, metric, 0.0, None)
        down, up = point.spread or (0.0, 0.0)
        values += [value.typical, value.typical + up, *(value.predicted or ())]
        values += [value.typical - down] if down < value.typical / 2 else []
    return values
