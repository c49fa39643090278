"""Small charts as SVG elements of a page: marks that link to records, colours from the page's CSS.

The report's plots are matplotlib's. A site has some hundred charts, each with a link at every
mark: they are written here, in a few milliseconds and kilobytes each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from nixwulf.report.lines import Band

COLOURS = 6
"""c0 ... c5 of the report's page.css."""
SHAPES = ("●", "■", "▲", "◆", "▼")

# In the order of SHAPES, around the point where the mark stands.
_PATHS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "m-3.5-3.5h7v7h-7z",
    "m0-4.6l4.4 8h-8.8z",
    "m0-4.9l4.9 4.9-4.9 4.9-4.9-4.9z",
    "m0 4.6l4.4-8h-8.8z",
)
_WIDTH, _HEIGHT = 360, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 46, 40
_NAMES, _STRIP = 168, 19  # where the names of strips end, and how high each is
_LABELS = 70  # beside the ends of lines that have labels
_LABEL_HEIGHT = 12.0
_LOG_ABOVE = 12.0
_LOG_MARGIN = 1.25
_FINE_DECADES = 2.0  # up to which a log scale has ticks at 1, 2 and 5
_MOST_TICKS = 6
_THOUSANDS_FROM = 10_000


class Mark(NamedTuple):
    """A value at x: how it looks, the record's page, and words for who points at it.

    style is an index into colours and shapes, none for grey; predicted stands behind it as a pale
    bar, along the axis of the values.
    """

    x: float
    y: float
    style: int | None
    kind: str
    href: str
    words: str
    predicted: Band | None = None


class ChartLine(NamedTuple):
    """Points in the order of x, and what they have in common where marks do not tell it."""

    style: int | None
    points: Sequence[tuple[float, float]]
    label: str


class Chart(NamedTuple):
    """Marks, and lines through those that differ in x alone.

    steps: whether x has few values, each with a tick, a doubling being one step.
    """

    title: str
    unit: str
    over: str
    steps: bool
    marks: Sequence[Mark]
    lines: Sequence[ChartLine]


def colour(style: int | None) -> str:
    """The class of a style's colour."""
    return "grey" if style is None else f"c{style % COLOURS}"


def shape(style: int | None) -> int:
    """The number of a style's shape: colours and shapes both change from style to style."""
    return 0 if style is None else style % len(SHAPES)


class _Scale:
    """From values to coordinates: linear from zero, or logarithmic where they span a lot."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, steps: bool) -> None:
        low, high = min(values), max(values)
        self.log = low > 0 and (steps or high > _LOG_ABOVE * low)
        self.start, self.length = start, end - start
        if self.log:
            self.low, self.high = low / _LOG_MARGIN, high * _LOG_MARGIN
            self.ticks = sorted(set(values)) if steps else _log_ticks(self.low, self.high)
        else:
            self.ticks = _linear_ticks(high)
            self.low, self.high = 0.0, self.ticks[-1]
        if steps:
            self.ticks = self.ticks[:: -(-len(self.ticks) // _MOST_TICKS)]

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + self.length * (value - low) / (high - low)


def _linear_ticks(high: float) -> list[float]:
    high = high if high > 0 else 1.0
    size = 10.0 ** math.floor(math.log10(high / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor * 4.5 >= high)
    return [step * index for index in range(math.ceil(round(high / step, 9)) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    factors = (1, 2, 5) if math.log10(high / low) < _FINE_DECADES else (1,)
    ticks: list[float] = []
    for exponent in count(math.floor(math.log10(low))):
        if 10.0**exponent > high:
            break
        ticks += [factor * 10.0**exponent for factor in factors]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return ticks[:: -(-len(ticks) // _MOST_TICKS)] if ticks else [low * _LOG_MARGIN]


def _short(value: float) -> str:
    if value >= _THOUSANDS_FROM:
        return f"{value / 1000:.4g}k"
    return f"{value:.4g}"


def _at(x: float, y: float) -> str:
    return f"{x:.1f} {y:.1f}"


def _text(name: str, x: float, y: float, words: str) -> str:
    return f'<text class="{name}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _mark(mark: Mark, x: float, y: float) -> str:
    return (
        f'<a href="{escape(mark.href)}" tabindex="-1" class="{colour(mark.style)} '
        f'{escape(mark.kind)}"><title>{escape(mark.words)}</title>'
        f'<path d="M{_at(x, y)}{_PATHS[shape(mark.style)]}"/></a>'
    )


def _band(mark: Mark, band: Band, start: str, end: str) -> str:
    """A pale bar, and in words that nobody measured it."""
    words = f"predicted, not measured: {band.text}"
    return (
        f'<path class="band {colour(mark.style)}" d="M{start}{end}"><title>{escape(words)}</title>'
        "</path>"
    )


def _reach(values: Iterable[float], marks: Sequence[Mark]) -> list[float]:
    """The values that a scale has to hold."""
    return [*values, *(end for mark in marks for end in mark.predicted or ())]


def _start(height: float, title: str, words: str) -> str:
    label = escape(f"{title}: {words}")
    return f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{label}">'


def strips(title: str, unit: str, names: Sequence[str], marks: Sequence[Mark]) -> Markup:
    """Marks on a line for each name, one below the other: y of a mark is the index of its name."""
    height = _TOP + _STRIP * len(names) + _BOTTOM - 8
    bottom, right = height - _BOTTOM + 8, _WIDTH - _RIGHT
    x = _Scale(_reach((mark.x for mark in marks), marks), _NAMES, right, steps=False)
    words = unit + (", log scale" if x.log else "")
    rows = [_TOP + _STRIP * (index + 0.5) for index in range(len(names))]
    grid = "".join(f"M{_NAMES} {row:.1f}H{right}" for row in rows)
    feet = "".join(f"M{x.at(tick):.1f} {bottom}v4" for tick in x.ticks)
    parts = [
        _start(height, title, words),
        _text("title", 0, 13, title),
        _text("unit", 0, 31, words),
        f'<path class="grid" d="{grid}"/>',
        f'<path class="axis" d="M{_NAMES} {bottom}H{right}{feet}"/>',
    ]
    parts += [_text("x", x.at(tick), bottom + 17, _short(tick)) for tick in x.ticks]
    parts += [
        _text("name", _NAMES - 8, row + 4, name) for row, name in zip(rows, names, strict=True)
    ]
    bands = [
        _band(mark, band, _at(x.at(band.low), rows[int(mark.y)]), f"H{x.at(band.high):.1f}")
        for mark in marks
        if (band := mark.predicted)
    ]
    parts += dict.fromkeys(bands)  # of one on another neither would be pale
    parts += [_mark(mark, x.at(mark.x), rows[int(mark.y)]) for mark in marks]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - every text in it is escaped


def svg(chart: Chart) -> Markup:
    """A chart as an svg element; every text in it is escaped."""
    labels = any(line.label for line in chart.lines)
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - (_LABELS if labels else _RIGHT)
    x = _Scale([mark.x for mark in chart.marks], _LEFT, right, steps=chart.steps)
    heights = _reach((mark.y for mark in chart.marks), chart.marks)
    y = _Scale(heights, bottom, _TOP, steps=False)
    y_words = chart.unit + (", log scale" if y.log else "")
    x_words = chart.over + (", log scale" if x.log and not chart.steps else "")
    parts = [
        _start(_HEIGHT, chart.title, f"{y_words} by {x_words}"),
        _text("title", 0, 13, chart.title),
        _text("unit", 0, 31, y_words),
    ]
    grid = "".join(f"M{_LEFT} {y.at(tick):.1f}H{right}" for tick in y.ticks)
    feet = "".join(f"M{x.at(tick):.1f} {bottom}v4" for tick in x.ticks)
    parts.append(f'<path class="grid" d="{grid}"/>')
    parts.append(f'<path class="axis" d="M{_LEFT} {bottom}H{right}{feet}"/>')
    parts += [_text("y", _LEFT - 6, y.at(tick) + 4, _short(tick)) for tick in y.ticks]
    parts += [_text("x", x.at(tick), bottom + 17, _short(tick)) for tick in x.ticks]
    parts.append(_text("x", (_LEFT + right) / 2, _HEIGHT - 5, x_words))
    bands = [
        _band(mark, band, _at(x.at(mark.x), y.at(band.low)), f"V{y.at(band.high):.1f}")
        for mark in chart.marks
        if (band := mark.predicted)
    ]
    parts += dict.fromkeys(bands)
    ends: list[tuple[float, float, str]] = []
    for line in chart.lines:
        places = [(x.at(one), y.at(other)) for one, other in line.points]
        path = "L".join(_at(*place) for place in places)
        parts.append(f'<path class="line {colour(line.style)}" d="M{path}"/>')
        if line.label:
            ends.append((places[-1][0] + 8, places[-1][1] + 4, line.label))
    parts += [_text("label", *end) for end in side_by_side(ends)]
    parts += [_mark(mark, x.at(mark.x), y.at(mark.y)) for mark in chart.marks]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - every text in it is escaped


def side_by_side(ends: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Labels from the lowest, each as far above those beside it as its letters are high."""
    placed: list[tuple[float, float, str]] = []
    for x, y, label in sorted(ends, key=lambda end: -end[1]):
        for other_x, other_y, _ in placed:
            if abs(x - other_x) < _LABELS and y > other_y - _LABEL_HEIGHT:
                y = other_y - _LABEL_HEIGHT  # noqa: PLW2901 - the next may be in its way too
        placed.append((x, y, label))
    return placed


def apart(values: Sequence[float]) -> bool:
    """Whether there are two values or more that a chart can show apart."""
    distinct = sorted(set(values))
    return any(second > first * 1.001 for first, second in pairwise(distinct))
