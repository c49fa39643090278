"""Panels of a metric drawn with matplotlib, inline for the page or as a file.

Everything is drawn in the light colours of page.css. On the page each becomes its CSS variable, so
that plots follow light and dark mode, and page.css gives their text the page's font.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from importlib import resources
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from markupsafe import Markup

from nixwulf.core.text import clean, format_significant
from nixwulf.report.lines import Band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = (
    ("o", 8.0, "●"),
    ("s", 6.5, "■"),
    ("^", 8.0, "▲"),
    ("D", 6.5, "◆"),
    ("v", 8.0, "▼"),
    ("P", 8.0, "✚"),
    ("*", 10.5, "★"),
)
"""matplotlib's names, sizes, letters like them; 7 markers by 6 colours give 42 different pairs."""
COLOURS = 6
"""c0 ... c5 of page.css."""

_WIDTH, _HEIGHT = 360, 262  # of a panel, in points of 1/72 inch
_LABEL_HEIGHT = 13  # of the labels at the ends of curves
_LOG_ABOVE = 12.0
_LOG_MARGIN = 1.25
_MOST_FINE_DECADES = 3.0  # with ticks at 1, 2 and 5, not only at powers of ten
_K_FROM = 10_000
_MOST_TICKS = 8
_MOST_IN_LABEL = 56


class Point(NamedTuple):
    """A value at x, how far it spreads down and up, and its words; one node has no style.

    predicted: what stands behind it as a pale bar, where the model says anything.
    """

    x: float
    y: float
    spread: tuple[float, float] | None
    style: int | None
    words: str
    predicted: Band | None = None
    predicted_words: str = ""


class Curve(NamedTuple):
    """Points joined by a line; without a style the line is grey; a label stands at its end."""

    points: tuple[Point, ...]
    style: int | None = None
    label: str = ""


class Panel(NamedTuple):
    """A metric over the number of nodes, the round trip in microseconds or a parameter.

    variant: what tells it from other panels beside its title, may be empty; unit: of the metric,
    for people; steps: whether x has few values, each with a tick; xs and ys are the values that
    the scales have to hold; one is the value of one node.
    """

    title: str
    variant: str
    unit: str
    over: str
    steps: bool
    xs: Sequence[float]
    ys: Sequence[float]
    curves: Sequence[Curve]
    one: float | None


def inline(panel: Panel, salt: str) -> Markup:
    """A panel as an svg element of a page; the salt tells its ids from those of other panels."""
    svg = _svg([panel], (), "", f"{salt} {panel.title} {panel.variant} {panel.over}")
    for name, colour in _colours().items():
        svg = svg.replace(colour, f"var(--{name})")
    return Markup(svg)  # noqa: S704 - _svg and matplotlib escaped every text in it


def to_file(panels: Sequence[Panel], names: Sequence[str], caption: str) -> str:
    """Panels side by side on white, under a caption and the names of styles 0, 1, ..."""
    return f"{_svg(panels, names, caption, '')}\n"


def _svg(panels: Sequence[Panel], names: Sequence[str], caption: str, salt: str) -> str:
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    colours = _colours()
    width, height = _WIDTH * len(panels), _HEIGHT
    columns = max(1, width // (40 + 7 * max(map(len, names), default=0)))
    if names:
        height += 52 + 18 * math.ceil(len(names) / columns)
    padding = 0.15 if names else 0.03  # inches
    own = {
        "svg.hashsalt": salt,
        "figure.constrained_layout.w_pad": padding,
        "figure.constrained_layout.h_pad": padding,
    }
    with style.context(["default", _settings(colours), own]):
        sheet = Figure(figsize=(width / 72, height / 72), dpi=72)
        for index, panel in enumerate(panels):
            _draw(sheet.add_subplot(1, len(panels), index + 1), panel, colours)
        if names:
            keys = [
                Line2D([], [], linestyle="none", label=name, **_marker(number, colours))
                for number, name in enumerate(names)
            ]
            if any(p.predicted for panel in panels for c in panel.curves for p in c.points):
                keys.append(Line2D([], [], label="predicted (80 %)", **_band(colours, None)))
            legend = sheet.legend(handles=keys, ncols=columns, loc="outside upper left")
            legend.set(title=caption, alignment="left")
        for artist in sheet.findobj():
            artist.set_clip_on(False)  # nothing is outside its axes, and a clip path needs an id
        out = io.StringIO()
        sheet.savefig(out, format="svg", facecolor="white" if names else "none")
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">'
    ).format(width, height, "; ".join(map(_label, panels)))
    # matplotlib's own head has the date, and a style for '*' that would apply to the whole page.
    body = " ".join(out.getvalue().split("</defs>", 1)[1].split())
    return str(head) + re.sub(r"""<g id=("[^"]*"|'[^']*')(/?)>""", _group, body)


def _label(panel: Panel) -> str:
    """What a panel shows, for readers who do not see it."""
    what = ", ".join(filter(None, (panel.title, panel.variant)))
    return f"{clean(what)}: {panel.unit} by {panel.over}"


def _group(start: re.Match[str]) -> str:
    """A group without its id; that of a point, which has spaces, is its words: a title."""
    words = start[1][1:-1]
    return f"<g{start[2]}>" + (f"<title>{words}</title>" if " " in words else "")


def _colours() -> dict[str, str]:
    """The light colours of page.css by name."""
    css = (resources.files("nixwulf") / "report" / "page.css").read_text("utf-8")
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", css.partition("@media")[0]))


def _settings(colours: dict[str, str]) -> dict[str, Any]:
    quiet = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return dict.fromkeys(quiet, colours["quiet"]) | {
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same layout everywhere
        "font.size": 11.5,
        "figure.constrained_layout.use": True,
        "axes.facecolor": "none",
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlecolor": colours["ink"],
        "axes.titlesize": 13,
        "axes.titleweight": "bold",
        "axes.titlepad": 30,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": colours["faint"],
        "ytick.major.size": 0,
        "errorbar.capsize": 2.5,
        "lines.linewidth": 1.4,
        "legend.frameon": False,
        "legend.borderpad": 0,
        "legend.borderaxespad": 1,
        "legend.handlelength": 0.8,
        "legend.handletextpad": 0.4,
        "legend.labelcolor": colours["ink"],
    }


def _colour(style: int | None) -> str:
    return "quiet" if style is None else f"c{style % COLOURS}"


def _marker(style: int | None, colours: dict[str, str]) -> dict[str, Any]:
    marker, size, _ = MARKERS[(style or 0) % len(MARKERS)]
    return {
        "marker": marker,
        "markersize": size,
        "color": colours[_colour(style)],
        "markeredgecolor": colours["paper"],
        "markeredgewidth": 0.7,
    }


def _draw(axes: Axes, panel: Panel, colours: dict[str, str]) -> None:
    y_label = panel.unit + _scale(axes, "y", panel.ys)
    y_label += f"; {clean(panel.variant)}" if panel.variant else ""
    floor, top = axes.get_ylim()
    axes.set_title(clean(panel.title))
    _text(axes, shorten(y_label, _MOST_IN_LABEL, placeholder=" …"), (0, top), (0, 12), size=11.5)
    if panel.steps:  # a doubling is one step
        axes.set(xscale="log", xlim=(min(panel.xs) / _LOG_MARGIN, max(panel.xs) * _LOG_MARGIN))
        shown = panel.xs if len(panel.xs) <= _MOST_TICKS else panel.xs[:: -(-len(panel.xs) // 6)]
        axes.set_xticks(shown, [_short(x) for x in shown])
        axes.minorticks_off()
        axes.set_xlabel(panel.over)
    else:
        axes.set_xlabel(panel.over + _scale(axes, "x", panel.xs))
    if panel.one:
        axes.axhline(panel.one, color=colours["ink"], linewidth=1.1, dashes=(4, 3))
        _text(
            axes, f"one node, {format_significant(panel.one)}", (1, panel.one), (0, 5), ha="right"
        )
    points = dict.fromkeys(point for curve in panel.curves for point in curve.points)
    for point in points:
        if point.predicted:
            _draw_band(axes, point, point.predicted, colours)
    for curve in panel.curves:
        xs, ys = zip(*((point.x, point.y) for point in curve.points), strict=True)
        axes.plot(xs, ys, color=colours[_colour(curve.style)], alpha=0.75)
    for point in points:
        down, up = point.spread or (0.0, 0.0)
        bar = ([max(0.0, min(down, point.y - floor))], [up]) if up or down else None
        marker = _marker(point.style, colours)
        drawn = axes.errorbar(point.x, point.y, bar, elinewidth=1.1, **marker)
        drawn.lines[0].set_gid(clean(point.words))
    below = -math.inf
    ends = [(curve.points[-1].y, curve.label) for curve in panel.curves if curve.label]
    for level, label in sorted(ends):
        height = axes.transData.transform((1, level))[1]
        below = max(height, below + _LABEL_HEIGHT)
        _text(axes, label, (1, level), (6, below - height - 4))


def _draw_band(axes: Axes, point: Point, band: Band, colours: dict[str, str]) -> None:
    """A pale bar with a dash at its middle, behind all that was measured."""
    (bar,) = axes.plot([point.x] * 3, band, markevery=[1], **_band(colours, point.style))
    bar.set_gid(clean(point.predicted_words))


def _band(colours: dict[str, str], style: int | None) -> dict[str, Any]:
    colour = colours[_colour(style)]
    return {
        "color": (colour, 0.3),
        "linewidth": 7,
        "solid_capstyle": "butt",
        "marker": "_",
        "markersize": 7,
        "markeredgewidth": 1.2,
        "markeredgecolor": colour,
        "zorder": 1.1,
    }


def _text(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    ha: Literal["left", "right"] = "left",
    size: float = 11,
) -> None:
    """A text at an offset in points from the left (0) or right (1) end of a level."""
    side = axes.get_yaxis_transform()
    axes.annotate(text, at, offset, xycoords=side, textcoords="offset points", ha=ha, size=size)


def _short(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= _K_FROM else f"{value:g}"


def _scale(axes: Axes, name: Literal["x", "y"], values: Sequence[float]) -> str:
    """Linear from zero, or logarithmic where the values span a lot; what to add to the label."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = min(values), max(values) or 1.0
    axis = axes.xaxis if name == "x" else axes.yaxis
    log = high > _LOG_ABOVE * low > 0
    if log:
        low, high = low / _LOG_MARGIN, high * _LOG_MARGIN
        fine = math.log10(high / low) < _MOST_FINE_DECADES
        axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if fine else (1,)))
    else:
        ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(0, high * 1.05)
        axes.set(**{f"{name}ticks": ticks, f"{name}lim": (0, ticks[-1])})
    axis.set_major_formatter(lambda at, _: _short(at))
    axes.minorticks_off()
    return ", log scale" if log else ""
