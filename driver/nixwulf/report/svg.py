"""One panel of a plot as inline SVG: axes, lines, markers, error bars and a reference line.

Drawn by hand because the page's own fonts and colours (light and dark) then apply to the plot, and
a panel takes 3 kB. Colours are CSS classes c0 ... c5; page.css gives them for both schemes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 360.0, 262.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 14.0, 46.0, 40.0
_LABEL_ROOM = 52.0  # for labels at the ends of lines
_LABEL_HEIGHT = 13.0
_CAP = 2.5  # half the width of an error bar's end
_LOG_ABOVE = 12.0
_MOST_LINEAR_STEPS = 5
_THOUSANDS_FROM = 10_000
COLOURS = 6

MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # circle
    "M-3.6-3.6h7.2v7.2h-7.2z",  # square
    "M0-4.6L4.4 3.4H-4.4z",  # triangle
    "M0-5L5 0L0 5L-5 0z",  # diamond
    "M0 4.6L4.4-3.4H-4.4z",  # triangle down
    "M-1.4-4.4h2.8v3h3v2.8h-3v3h-2.8v-3h-3v-2.8h3z",  # cross
    "M0-5L1.4-1.6L4.8-1.6L2.1.6L3.1 4.2L0 2L-3.1 4.2L-2.1.6L-4.8-1.6L-1.4-1.6z",  # star
)
"""Paths of markers about 9 px wide. 7 markers by 6 colours give 42 different pairs."""


@dataclass(frozen=True)
class Axis:
    """A scale: low and high in data units; ticks are values."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]
    label: str

    def at(self, value: float) -> float:
        """Where a value lies, from 0 (low) to 1 (high); clipped to the axis."""
        low, high, value = (
            (math.log(self.low), math.log(self.high), math.log(max(value, self.low)))
            if self.log
            else (self.low, self.high, value)
        )
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True)
class Point:
    """A mean at x with its deviation (both ways), its marker's number and its words.

    Without a style it is a plain circle: one node, which crosses no fabric.
    """

    x: float
    y: float
    deviation: float | None
    style: int | None
    title: str


@dataclass(frozen=True)
class Series:
    """Points joined by a line; a style gives the line the colour of a marker, none leaves it grey.

    shift moves the points sideways by so many pixels, so that error bars do not hide each other.
    """

    points: tuple[Point, ...]
    style: int | None = None
    label: str = ""
    shift: float = 0.0


@dataclass(frozen=True)
class Panel:
    """A plot; reference is a level across it and its label."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    reference: tuple[float, str] | None = None


def linear_axis(values: Sequence[float], label: str) -> Axis:
    """From zero to a round number above the values, with three to six ticks."""
    high = max(values) * 1.05
    power = 10.0 ** math.floor(math.log10(high))
    step = next(
        s * power for s in (0.2, 0.25, 0.5, 1.0, 2.0) if high / (s * power) <= _MOST_LINEAR_STEPS
    )
    count = math.ceil(high / step)
    return Axis(0.0, count * step, False, tuple(i * step for i in range(count + 1)), label)


def log_axis(values: Sequence[float], label: str, most_ticks: int) -> Axis:
    """Around the values, with ticks at 1, 2 and 5, or at powers of ten where those are too many."""
    low, high = min(values) / 1.25, max(values) * 1.25
    digits = (1.0, 2.0, 5.0) if 3 * math.log10(high / low) < most_ticks else (1.0,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = tuple(d * 10.0**p for p in powers for d in digits if low <= d * 10.0**p <= high)
    return Axis(low, high, True, ticks, f"{label}, log scale")


def axis(values: Sequence[float], label: str, most_ticks: int = 10) -> Axis:
    """Linear from zero, or logarithmic where the values span more than a factor of 12."""
    if max(values) > _LOG_ABOVE * min(values):
        return log_axis(values, label, most_ticks)
    return linear_axis(values, label)


def nodes_axis(counts: Sequence[int]) -> Axis:
    """Node counts on a scale on which doubling is one step."""
    ordered = sorted({float(count) for count in counts})
    return Axis(ordered[0] / 1.25, ordered[-1] * 1.25, True, tuple(ordered), "nodes")


def tick_label(value: float) -> str:
    """A tick without needless digits: '0.5', '200', '10k'."""
    return f"{value / 1000:g}k" if value >= _THOUSANDS_FROM else f"{value:g}"


def draw(panel: Panel) -> Markup:
    """The panel as one svg element; every text in it is escaped."""
    room = _LABEL_ROOM if any(series.label for series in panel.series) else 0.0
    frame = _Frame(panel.x, panel.y, WIDTH - _RIGHT - room, HEIGHT - _BOTTOM)
    parts = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _n(WIDTH), _n(HEIGHT), f"{panel.title}: {panel.y.label} by {panel.x.label}"
        ),
        Markup('<text class="panel" x="0" y="14">{}</text>').format(panel.title),
        Markup('<text class="axis" x="0" y="32">{}</text>').format(panel.y.label),
        *frame.grid(),
        *([frame.reference(*panel.reference)] if panel.reference else []),
        *(frame.line(series) for series in panel.series),
        *dict.fromkeys(frame.point(point, s) for s in panel.series for point in s.points),
        *frame.labels(panel.series),
        Markup("</svg>"),
    ]
    return Markup("").join(parts)


def marker(style: int) -> Markup:
    """A marker of a legend."""
    return Markup(
        '<svg class="key" viewBox="-7 -7 14 14" aria-hidden="true"><path class="c{}" d="{}"/></svg>'
    ).format(style % COLOURS, MARKERS[style % len(MARKERS)])


@dataclass(frozen=True)
class _Frame:
    x: Axis
    y: Axis
    right: float
    bottom: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + self.x.at(x) * (self.right - _LEFT),
            self.bottom - self.y.at(y) * (self.bottom - _TOP),
        )

    def grid(self) -> list[Markup]:
        parts = []
        for tick in self.y.ticks:
            y = self.at(self.x.low, tick)[1]
            parts.append(
                Markup('<path class="grid" d="M{} {}H{}"/>').format(
                    _n(_LEFT), _n(y), _n(self.right)
                )
                + Markup('<text class="tick end" x="{}" y="{}">{}</text>').format(
                    _n(_LEFT - 6), _n(y + 4), tick_label(tick)
                )
            )
        for tick in self.x.ticks:
            x = self.at(tick, self.y.low)[0]
            parts.append(
                Markup('<path class="rule" d="M{} {}v4"/>').format(_n(x), _n(self.bottom))
                + Markup('<text class="tick mid" x="{}" y="{}">{}</text>').format(
                    _n(x), _n(self.bottom + 17), tick_label(tick)
                )
            )
        parts.append(
            Markup('<path class="rule" d="M{} {}H{}"/>').format(
                _n(_LEFT), _n(self.bottom), _n(self.right)
            )
            + Markup('<text class="axis mid" x="{}" y="{}">{}</text>').format(
                _n((_LEFT + self.right) / 2), _n(HEIGHT - 5), self.x.label
            )
        )
        return parts

    def reference(self, level: float, label: str) -> Markup:
        y = self.at(self.x.low, level)[1]
        return Markup(
            '<path class="reference" d="M{} {}H{}"/><text class="note end" x="{}" y="{}">{}</text>'
        ).format(_n(_LEFT), _n(y), _n(self.right), _n(self.right), _n(y - 5), label)

    def line(self, series: Series) -> Markup:
        path = "L".join("{} {}".format(*self.place(point, series)) for point in series.points)
        return Markup('<path class="line {}" d="M{}"/>').format(_colour(series.style), path)

    def place(self, point: Point, series: Series) -> tuple[str, str]:
        """Where a point is drawn; a plain one, which all series share, is not shifted."""
        x, y = self.at(point.x, point.y)
        return _n(x + (0.0 if point.style is None else series.shift)), _n(y)

    def point(self, point: Point, series: Series) -> Markup:
        y = self.at(point.x, point.y)[1]
        bar = Markup("")
        if point.deviation:
            top = self.at(point.x, point.y + point.deviation)[1] - y
            low = self.at(point.x, point.y - point.deviation)[1] - y
            bar = Markup('<path class="bar" d="M0 {t}V{l}M-{c} {t}h{w}M-{c} {l}h{w}"/>').format(
                t=_n(top), l=_n(low), c=_CAP, w=_CAP * 2
            )
        return Markup(
            '<g class="{}" transform="translate({} {})"><title>{}</title>{}<path d="{}"/></g>'
        ).format(
            _colour(point.style),
            *self.place(point, series),
            point.title,
            bar,
            MARKERS[(point.style or 0) % len(MARKERS)],
        )

    def labels(self, series: Sequence[Series]) -> list[Markup]:
        """Labels beside the last points, moved apart where they would overlap."""
        ends = [(self.at(s.points[-1].x, s.points[-1].y)[1], s) for s in series if s.label]
        parts, above = [], -_LABEL_HEIGHT
        for y, one in sorted(ends, key=lambda end: end[0]):
            above = max(y, above + _LABEL_HEIGHT)
            parts.append(
                Markup('<text class="note" x="{}" y="{}">{}</text>').format(
                    _n(self.right + 6), _n(above + 4), one.label
                )
            )
        return parts


def _colour(style: int | None) -> str:
    return "plain" if style is None else f"c{style % COLOURS}"


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
