"""The plots of a report: which cases of a summary make which panel."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from nixwulf.errors import InputError
from nixwulf.report.contents import Line, Setting, Summary
from nixwulf.report.drawing import COLOURS, MARKERS, Curve, Panel, Point, inline, to_file
from nixwulf.report.words import clean, microseconds, plural, with_deviation

_APART = 1.02  # between the fabrics of one number of nodes: about 3 points of the drawing


class LegendEntry(NamedTuple):
    """A fabric, a letter like its marker with its colour (c0 ...), and its measured round trip."""

    letter: str
    colour: str
    name: str
    rtt: str


@dataclass(frozen=True)
class Plots:
    """The panels of one setting, ready for the page."""

    name: str
    legend: tuple[LegendEntry, ...]
    by_nodes: tuple[Markup, ...]
    by_rtt: tuple[Markup, ...]
    samples: str
    missing: tuple[str, ...]


def plots(summary: Summary, setting: Setting) -> Plots:
    """The plots of a setting; those that would be empty are left out."""
    lines = _measured(summary, setting)
    quantities = sorted(
        {(metric, line.variant) for line in lines for metric in line.speeds},
        key=lambda quantity: (quantity[0] != "decode", quantity),
    )
    name = summary.setting_name(setting)
    return Plots(
        name=name,
        legend=tuple(
            LegendEntry(MARKERS[i % len(MARKERS)][2], f"c{i % COLOURS}", link, _rtt(lines, link))
            for i, link in enumerate(_links(lines))
        ),
        by_nodes=tuple(inline(p, name) for q in quantities for p in _by_nodes(lines, *q)),
        by_rtt=tuple(
            inline(p, name) for q in quantities if q[0] != "prompt" for p in _by_rtt(lines, *q)
        ),
        samples=_sample_counts(lines),
        missing=tuple(
            f"{line.what} ({line.outcome})"
            for line in summary.lines
            if line.setting == setting and line.outcomes and not line.speeds
        ),
    )


def decode_by_rtt(summary: Summary) -> str:
    """Decode against the measured round trip, as an SVG file.

    Raises InputError unless exactly one setting has that plot.
    """
    found = []
    for setting in summary.settings:
        lines = _measured(summary, setting)
        variants = sorted({line.variant for line in lines})
        panels = [panel for one in variants for panel in _by_rtt(lines, "decode", one)]
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
    return [line for line in summary.lines if line.setting == setting and line.speeds]


def _links(lines: Sequence[Line]) -> list[str]:
    """The fabrics in the order of their round trips, in which they get their markers."""
    links = {line.link for line in lines if line.nodes > 1}
    return sorted(links, key=lambda link: (_median_rtt(lines, link) or float("inf"), link))


def _by_nodes(lines: Sequence[Line], metric: str, variant: str) -> Iterator[Panel]:
    """One panel a parallelism, all on the same scale; each curve is a fabric, from one node on."""
    cases = [line for line in lines if line.variant == variant and metric in line.speeds]
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
            title=_title(metric, variant, parallelism),
            over="nodes",
            xs=sorted({line.nodes for line in cases}),
            ys=_extent(cases, metric),
            curves=curves,
            one=start[0].y if start else None,
        )


def _by_rtt(lines: Sequence[Line], metric: str, variant: str) -> Iterator[Panel]:
    """One panel a parallelism, all on the same scale; each curve is a number of nodes."""
    cases = [line for line in lines if line.variant == variant and metric in line.speeds]
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
            title=_title(metric, variant, parallelism),
            over="measured round trip, µs",
            xs=[line.rtt_us or 0.0 for line in placed],
            ys=_extent([*one, *placed], metric),
            curves=curves,
            one=one[0].speeds[metric].mean if one else None,
        )


def _by_parallelism(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    """The cases of several nodes, parallelism by parallelism."""
    for parallelism in sorted({line.parallelism for line in lines if line.nodes > 1}):
        own = [line for line in lines if line.parallelism == parallelism and line.nodes > 1]
        yield parallelism, own


def _title(*parts: str) -> str:
    return ", ".join(filter(None, parts)).capitalize()


def _point(line: Line, metric: str, x: float, style: int | None) -> Point:
    speed = line.speeds[metric]
    speed_text = f"{with_deviation(speed.mean, speed.deviation)} tok/s"
    counts = f"{plural(speed.n_samples, 'sample')} in {plural(speed.n_runs, 'run')}"
    rtt = f", round trip {microseconds(line.rtt_us)} µs" if line.rtt_us else ""
    words = f"{line.what}{rtt}: {speed_text}, {counts}"
    return Point(x, speed.mean, speed.deviation, style, words)


def _extent(lines: Sequence[Line], metric: str) -> list[float]:
    """The values a scale has to hold: means, and the ends of their error bars."""
    values = []
    for speed in (line.speeds[metric] for line in lines):
        deviation = speed.deviation or 0.0
        values += [speed.mean, speed.mean + deviation]
        values += [speed.mean - deviation] if deviation < speed.mean / 2 else []
    return values


def _median_rtt(lines: Sequence[Line], link: str) -> float | None:
    values = [line.rtt_us for line in lines if line.link == link and line.rtt_us]
    return statistics.median(values) if values else None


def _rtt(lines: Sequence[Line], link: str) -> str:
    rtt = _median_rtt(lines, link)
    return f"{microseconds(rtt)} µs" if rtt else "not measured"


def _sample_counts(lines: Sequence[Line]) -> str:
    """'9 samples in 3 runs', or the range over the points."""
    speeds = [speed for line in lines for speed in line.speeds.values()]
    samples = _span([speed.n_samples for speed in speeds], "sample")
    return f"{samples} in {_span([speed.n_runs for speed in speeds], 'run')}"


def _span(counts: Sequence[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return plural(low, noun) if low == high else f"{low} to {plural(high, noun)}"
