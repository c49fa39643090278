"""The plots of a report: which lines of a summary make which panel."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from nixwulf.report import svg
from nixwulf.report.summary import Line, Setting, Speed, Summary
from nixwulf.report.words import figure, microseconds, plural, with_deviation

_SPREAD = 3.0  # pixels between the series of one node count
_MOST_SPREAD = 14.0


class Quantity(NamedTuple):
    """A metric under one variant of its conditions."""

    metric: str
    variant: str

    @property
    def name(self) -> str:
        """For a panel's title."""
        return ", ".join(filter(None, self)).capitalize()


@dataclass(frozen=True)
class LegendEntry:
    """A fabric's marker, its name, and the round trip measured on it, microseconds."""

    marker: Markup
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
    lines = [line for line in summary.lines if line.setting == setting and line.speeds]
    quantities = sorted(
        {Quantity(metric, line.variant) for line in lines for metric in line.speeds},
        key=lambda q: (q.metric != "decode", q),
    )
    styles = _styles(lines)
    return Plots(
        name=summary.setting_name(setting),
        legend=tuple(
            LegendEntry(svg.marker(style), link, _rtt(lines, link))
            for link, style in styles.items()
        ),
        by_nodes=tuple(p for q in quantities for p in _by_nodes(_chosen(lines, q), q, styles)),
        by_rtt=tuple(
            p
            for q in quantities
            if q.metric != "prompt"
            for p in _by_rtt(_chosen(lines, q), q, styles)
        ),
        samples=_sample_counts(lines),
        missing=tuple(
            f"{line.what} ({line.outcome})"
            for line in summary.lines
            if line.setting == setting and line.outcomes and not line.speeds
        ),
    )


_Chosen = Sequence[tuple[Line, Speed]]


def _chosen(lines: Sequence[Line], quantity: Quantity) -> _Chosen:
    return [
        (line, line.speeds[quantity.metric])
        for line in lines
        if line.variant == quantity.variant and quantity.metric in line.speeds
    ]


def _styles(lines: Sequence[Line]) -> dict[str, int]:
    """A marker for each fabric, in the order of their round trips."""
    links = {line.link for line in lines if line.nodes > 1}
    ordered = sorted(links, key=lambda link: (_median_rtt(lines, link) or float("inf"), link))
    return {link: index for index, link in enumerate(ordered)}


def _by_nodes(chosen: _Chosen, quantity: Quantity, styles: dict[str, int]) -> list[Markup]:
    """One panel a parallelism, all on the same scale; each line starts at one node."""
    several = [(line, speed) for line, speed in chosen if line.nodes > 1]
    if not several:
        return []
    one = next(((line, speed) for line, speed in chosen if line.nodes == 1), None)
    start = [_point(*one, 1.0, None)] if one else []
    x = svg.nodes_axis([line.nodes for line, _ in chosen])
    y = svg.axis(_extent(chosen), "tok/s")
    panels = []
    for parallelism in sorted({line.parallelism for line, _ in several}):
        own = [(line, speed) for line, speed in several if line.parallelism == parallelism]
        links = [link for link in styles if any(line.link == link for line, _ in own)]
        gap = min(_SPREAD, _MOST_SPREAD / len(links))
        series = [
            svg.Series(
                points=(
                    *start,
                    *(
                        _point(line, speed, float(line.nodes), styles[link])
                        for line, speed in own
                        if line.link == link
                    ),
                ),
                style=styles[link],
                shift=gap * (index - (len(links) - 1) / 2),
            )
            for index, link in enumerate(links)
        ]
        panels.append(
            svg.Panel(
                title=f"{quantity.name}, {parallelism}",
                x=x,
                y=y,
                series=tuple(series),
                reference=_reference(one),
            )
        )
    return [svg.draw(panel) for panel in panels]


def _by_rtt(chosen: _Chosen, quantity: Quantity, styles: dict[str, int]) -> list[Markup]:
    """One panel a parallelism; lines join the cases of one number of nodes."""
    placed = [(line, speed) for line, speed in chosen if line.nodes > 1 and line.rtt_us]
    if len({line.link for line, _ in placed}) <= 1:
        return []
    one = next(((line, speed) for line, speed in chosen if line.nodes == 1), None)
    x = svg.axis([line.rtt_us or 0 for line, _ in placed], "measured round trip, µs", most_ticks=7)
    y = svg.axis(_extent([*placed, *([one] if one else [])]), "tok/s")
    panels = []
    for parallelism in sorted({line.parallelism for line, _ in placed}):
        own = [(line, speed) for line, speed in placed if line.parallelism == parallelism]
        series = [
            svg.Series(
                points=tuple(
                    _point(line, speed, line.rtt_us or 0, styles[line.link])
                    for line, speed in sorted(own, key=lambda item: item[0].rtt_us or 0)
                    if line.nodes == nodes
                ),
                label=plural(nodes, "node"),
            )
            for nodes in sorted({line.nodes for line, _ in own})
        ]
        title = f"{quantity.name}, {parallelism}"
        panels.append(svg.Panel(title, x, y, tuple(series), _reference(one)))
    return [svg.draw(panel) for panel in panels]


def _point(line: Line, speed: Speed, x: float, style: int | None) -> svg.Point:
    speed_text = f"{with_deviation(speed.mean, speed.deviation)} tok/s"
    counts = f"{plural(speed.n_samples, 'sample')} in {plural(speed.n_runs, 'run')}"
    rtt = f", round trip {microseconds(line.rtt_us)} µs" if line.rtt_us else ""
    title = f"{line.what}{rtt}: {speed_text}, {counts}"
    return svg.Point(x, speed.mean, speed.deviation, style, title)


def _reference(one: tuple[Line, Speed] | None) -> tuple[float, str] | None:
    return (one[1].mean, f"one node, {figure(one[1].mean)}") if one else None


def _extent(chosen: _Chosen) -> list[float]:
    """The values an axis has to hold: means, and the ends of their error bars."""
    values = []
    for _, speed in chosen:
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
