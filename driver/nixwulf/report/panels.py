"""The charts of a report: which lines of a setting make which, over what, with what beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import TypedDict

from markupsafe import Markup

from nixwulf.core.errors import InputError
from nixwulf.core.metric import adds_up
from nixwulf.core.query import grouped
from nixwulf.core.text import amount, clean, format_significant, microseconds, plural, unit_name
from nixwulf.report.charts import Chart, Curve, LegendEntry, Mark, entry, inline, some, to_file
from nixwulf.report.lines import About, CaseSummary, MetricKey
from nixwulf.report.summary import Section, Summary
from nixwulf.results.table import rtt_order

_DECODE = MetricKey("decode", "tok/s")
MOST_QUANTITIES = 6
"""Of metric and variant, each with a panel for each parallelism."""
MOST_PANELS = 48
"""Of a report: each takes 0.1 s."""
_FEWEST_IN_CURVE = 3
_APART = 1.02  # between the fabrics of one number of nodes: about 3 points of the drawing


@dataclass(frozen=True)
class Plots:
    """The panels of one setting, ready for the page.

    by_axis: by the name of a parameter or condition, over which its panels are; undrawn: variants
    of which no panel is drawn, because they are too many; full: whether the report may have no
    panel more.
    """

    legend: tuple[LegendEntry, ...]
    by_axis: dict[str, tuple[Markup, ...]]
    by_nodes: tuple[Markup, ...]
    by_rtt: tuple[Markup, ...]
    samples: str
    percentiles: bool
    predicted: About
    missing: tuple[str, ...]
    undrawn: tuple[str, ...]
    full: bool


def plots(section: Section, left: Iterator[int]) -> Plots:
    """Draw a setting's plots, without empty ones; left yields while there is room for panels."""

    def drawn_of(charts: Iterable[Chart]) -> tuple[Markup, ...]:
        return tuple(inline(chart) for chart, _ in zip(charts, left, strict=False))

    lines = _measured(section)
    metrics = sorted(section.headline, key=lambda metric: metric.name != "decode")
    variants = list(dict.fromkeys(line.variant for line in lines))
    axes = numeric_axes(lines)
    drawn = variants[: 1 if axes else max(1, MOST_QUANTITIES // max(1, len(metrics)))]
    quantities = [(metric, variant) for metric in metrics for variant in drawn]
    return Plots(
        legend=tuple(
            entry(style, link, _rtt(lines, link)) for style, link in enumerate(links_of(lines))
        ),
        by_axis={
            axis: drawn_of(p for m in metrics for p in by_axis(lines, m, axis)) for axis in axes
        },
        by_nodes=drawn_of(p for q in quantities for p in by_nodes(lines, *q)),
        by_rtt=drawn_of(
            panel
            for metric, variant in quantities
            if metric.name != "prompt" and (section.setting.engine or adds_up(metric.unit))
            for panel in by_rtt(lines, metric, variant)
        ),
        samples=_sample_counts(lines),
        percentiles=any(metric in section.spread for metric in metrics),
        predicted=section.summary.predicted.about(lines),
        missing=tuple(
            f"{line.what} ({line.outcome})"
            for line in section.lines
            if line.outcomes and not line.values
        ),
        undrawn=tuple(variants[len(drawn) :]),
        full=not length_hint(left),
    )


def decode_by_rtt(summary: Summary) -> str:
    """Draw decode over the measured round trip as SVG; raises InputError but for one setting."""
    found = []
    for section in summary.sections:
        lines = _measured(section)
        variants = sorted({line.variant for line in lines})
        drawn = [panel for one in variants for panel in by_rtt(lines, _DECODE, one)]
        if drawn:
            caption = f"Means ± one standard deviation, n = {_sample_counts(lines)}"
            names = [f"{clean(link)} {_rtt(lines, link)}" for link in links_of(lines)]
            found.append((drawn, names, caption))
    if len(found) != 1:
        raise InputError(
            f"{summary.folder.title!r} has {plural(len(found), 'setting')} with decode over two "
            "fabrics, and the SVG shows one setting; --format html shows what there is."
        )
    return to_file(*found[0])


def _measured(section: Section) -> list[CaseSummary]:
    return [line for line in section.predicted if line.values]


def _rtt(lines: Sequence[CaseSummary], link: str) -> str:
    """Return the round trip as the table of fabrics has it: of several shapings, each."""
    fabrics = next(line.fabrics for line in lines if line.link == link)
    rtts = dict.fromkeys(f"{microseconds(one.rtt_us)} µs" for one in fabrics if one.rtt_us)
    return ", ".join(rtts) or "not measured"


def _sample_counts(lines: Sequence[CaseSummary]) -> str:
    """'9 samples in 3 runs', or the range over the points; '3 runs' where no samples are known."""
    values = [value for line in lines for value in line.values.values()]
    known = [value.n_samples for value in values if value.n_samples]
    runs = _span([value.n_runs for value in values], "run")
    return f"{_span(known, 'sample')} in {runs}" if known else runs


def _span(counts: Sequence[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return plural(low, noun) if low == high else f"{low} to {plural(high, noun)}"


def links_of(lines: Sequence[CaseSummary]) -> list[str]:
    """The fabrics in the order of their round trips, in which they get their markers."""
    rtts = {
        line.link: min(map(rtt_order, line.fabrics), default=float("inf"))
        for line in lines
        if line.nodes > 1
    }
    return sorted(rtts, key=lambda link: (rtts[link], link))


def numeric_axes(lines: Sequence[CaseSummary]) -> list[str]:
    """The parameters and conditions with enough numbers to draw a curve over them."""
    values: dict[str, set[float]] = defaultdict(set)
    for line in lines:
        for key, value in line.axes.items():
            if _is_point(value):
                values[key].add(value)
    return [key for key, found in values.items() if len(found) >= _FEWEST_IN_CURVE]


def _is_point(value: object) -> bool:
    """Tell whether a value of an axis has a place on a curve: labels and 0 have none."""
    return isinstance(value, int | float) and value > 0


def by_axis(lines: Sequence[CaseSummary], metric: MetricKey, axis: str) -> Iterator[Chart]:
    """Yield a panel for each number of nodes, parallelism and other axes; curves are fabrics."""
    cases = [
        line for line in lines if metric.name in line.values and _is_point(line.axes.get(axis))
    ]
    links = links_of(lines)
    panels = grouped(((line.nodes, line.parallelism, _others(line, axis)), line) for line in cases)
    several = {key: own for key, own in panels.items() if key[0] > 1} or panels
    for (nodes, parallelism, others), own in list(several.items())[:MOST_QUANTITIES]:
        alone = [line for line in cases if line.nodes == 1 and _others(line, axis) == others]
        curves: dict[str, tuple[list[Mark], int | None, str]] = {}
        for line in (*alone, *own):
            style = links.index(line.link) if line.link else None
            curve = curves.setdefault(line.link, ([], style, "" if line.link else "one node"))
            curve[0].append(_mark(line, metric, float(line.axes[axis]), style))
        on = [plural(nodes, "node"), parallelism] if nodes > 1 else []
        yield Chart(
            title=_title(metric, *on),
            unit=_unit(metric),
            over=axis.replace("_", " "),
            steps=True,
            xs=sorted({float(line.axes[axis]) for line in cases}),
            ys=_extent(cases, metric),
            **_joined(list(curves.values()), others),
        )


def _others(line: CaseSummary, axis: str) -> str:
    """Describe what distinguishes a line from others of its case but for one axis."""
    return ", ".join(f"{key} {value}" for key, value in line.axes.items() if key != axis)


def by_nodes(lines: Sequence[CaseSummary], metric: MetricKey, variant: str) -> Iterator[Chart]:
    """Yield a panel a parallelism, on one scale; each curve is a fabric, from one node on."""
    cases = [line for line in lines if line.variant == variant and metric.name in line.values]
    if len({line.nodes for line in cases}) <= 1:
        return
    start = [_mark(line, metric, 1.0, None) for line in cases if line.nodes == 1][:1]
    links = links_of(lines)
    for parallelism, own in _by_parallelism(cases):
        here = [link for link in links if any(line.link == link for line in own)]
        curves = []
        for index, link in enumerate(here):
            apart, style = _APART ** (index - (len(here) - 1) / 2), links.index(link)
            shown = [line for line in own if line.link == link]
            marks = [_mark(line, metric, line.nodes * apart, style) for line in shown]
            curves.append(([*start, *marks], style, ""))
        yield Chart(
            title=_title(metric, parallelism),
            unit=_unit(metric),
            over="nodes",
            steps=True,
            xs=sorted({line.nodes for line in cases}),
            ys=_extent(cases, metric),
            one=start[0].y if start else None,
            **_joined(curves, variant),
        )


def by_rtt(lines: Sequence[CaseSummary], metric: MetricKey, variant: str) -> Iterator[Chart]:
    """Yield a panel a parallelism, on one scale; each curve is a number of nodes."""
    cases = [line for line in lines if line.variant == variant and metric.name in line.values]
    one = [line for line in cases if line.nodes == 1][:1]
    links = links_of(lines)
    placed = [line for line in cases if line.nodes > 1 and line.rtt_us]
    if len({line.link for line in placed}) <= 1:
        return
    for parallelism, own in _by_parallelism(placed):
        curves = []
        for nodes in sorted({line.nodes for line in own}):
            marks = [
                _mark(line, metric, line.rtt_us or 0.0, links.index(line.link))
                for line in own
                if line.nodes == nodes
            ]
            curves.append((marks, None, plural(nodes, "node")))
        yield Chart(
            title=_title(metric, parallelism),
            unit=_unit(metric),
            over="measured round trip, µs",
            xs=[line.rtt_us or 0.0 for line in placed],
            ys=_extent([*one, *placed], metric),
            one=one[0].values[metric.name].typical if one else None,
            **_joined(curves, variant),
        )


def _by_parallelism(lines: Sequence[CaseSummary]) -> Iterator[tuple[str, list[CaseSummary]]]:
    for parallelism in sorted({line.parallelism for line in lines if line.nodes > 1}):
        own = [line for line in lines if line.parallelism == parallelism and line.nodes > 1]
        yield parallelism, own


def _title(metric: MetricKey, *parts: str) -> str:
    text = ", ".join(filter(None, (metric.words, *parts)))
    return text[:1].upper() + text[1:]


def _unit(metric: MetricKey) -> str:
    less = ", less is better" if metric.better == "less" else ""
    return unit_name(metric.unit) + less


class _Joined(TypedDict):
    variant: str
    marks: Sequence[Mark]
    curves: Sequence[Curve]


def _joined(found: Sequence[tuple[Sequence[Mark], int | None, str]], variant: str) -> _Joined:
    """Join marks by x, each with a style and a label; variant gets how many of them are drawn."""
    every = list(dict.fromkeys(mark for marks, *_ in found for mark in marks))
    shown = dict.fromkeys(some(every, lambda mark: mark.y))
    curves = [
        Curve(sorted((mark.x, mark.y) for mark in marks if mark in shown), style, label)
        for marks, style, label in found
    ]
    if len(shown) < len(every):
        few = f"{len(shown)} of {len(every):,} points, the table has all"
        variant = ", ".join(filter(None, (variant, few)))
    return {"variant": variant, "marks": list(shown), "curves": [c for c in curves if c.points]}


def _mark(line: CaseSummary, metric: MetricKey, x: float, style: int | None) -> Mark:
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
    rtt = f", round trip {microseconds(line.rtt_us)} µs" if line.rtt_us else ""
    band = value.predicted
    return Mark(
        x,
        value.typical,
        style,
        f"{line.what}{rtt}: {text}, {samples}{plural(value.n_runs, 'run')}",
        spread=spread,
        predicted=band,
        predicted_words=f"{line.what}: predicted, not measured: {band.text} "
        f"{unit_name(metric.unit)}"
        if band
        else "",
    )


def _extent(lines: Sequence[CaseSummary], metric: MetricKey) -> list[float]:
    """The values a scale has to hold: points, the ends of their bars, and what is predicted."""
    values = []
    for line in lines:
        value, mark = line.values[metric.name], _mark(line, metric, 0.0, None)
        down, up = mark.spread or (0.0, 0.0)
        values += [value.typical, value.typical + up, *(value.predicted or ())]
        values += [value.typical - down] if down < value.typical / 2 else []
    return values
