"""Charts of report and site, drawn by matplotlib: as an element of a page, or as a file.

matplotlib draws in the light colours of page.css, and marks carry their gid. What it wrote is then
read back as XML: on a page colours become the variables of its style, so that they follow light and
dark mode, and marks get their words as titles. Nothing of it needs an id, a script or an inline
style, which the site's policy forbids.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from xml.etree import ElementTree as ET

from markupsafe import Markup

from nixwulf.core.files import DATA, read_toml, shipped_text
from nixwulf.core.text import Band, clean, format_significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_LOOKS = read_toml(DATA / "chart_marks.toml")
MARKERS: Sequence[tuple[str, float, str]] = _LOOKS["markers"]
"""matplotlib's names, sizes, letters like them; 7 markers by 6 colours give 42 different pairs."""
COLOURS = 6
"""c0 ... c5 of page.css."""

# In points of 1/72 inch.
_WIDTH, _HEIGHT = 360.0, 252.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 14.0, 50.0, 42.0
_NAMES, _STRIP = 168.0, 19.0  # where the names of strips end, and how high each is
_LABELS, _LABEL_HEIGHT = 70.0, 12.5  # beside the ends of curves that have labels
_TICK = 34.0  # of a label, along x
_EDGE = 12.0  # of a file
_LEGEND, _LEGEND_LINE = 36.0, 18.0

_LOG_ABOVE = 12.0
_LOG_MARGIN = 1.25
_MOST_TICKS = 6
_THOUSANDS_FROM = 10_000
_MOST_IN_LABEL = 62
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"


class Mark(NamedTuple):
    """A value at x: how far it spreads down and up, how it looks, and words for who points at it.

    style is an index into colours and markers, None for grey; kind is that of its record; href is
    the page that it leads to, if any; predicted is behind it as a pale bar, along the axis of
    the values.
    """

    x: float
    y: float
    style: int | None
    words: str
    kind: str = "run"
    href: str = ""
    spread: tuple[float, float] | None = None
    predicted: Band | None = None
    predicted_words: str = ""


MOST_MARKS = 60
"""Of one chart; a mark is up to 600 bytes, and takes 5 ms."""
_T = TypeVar("_T")


def some(found: Sequence[_T], value: Callable[[_T], float], most: int = MOST_MARKS) -> list[_T]:
    """Choose as many as a chart shows, evenly from the highest value to the lowest."""
    if len(found) <= most:
        return list(found)
    ordered = sorted(found, key=value, reverse=True)
    step = (len(ordered) - 1) / (most - 1)
    return [ordered[round(index * step)] for index in range(most)]


class Curve(NamedTuple):
    """Points joined by a line; without a style it is grey; a label is at its end."""

    points: Sequence[tuple[float, float]]
    style: int | None = None
    label: str = ""


class Chart(NamedTuple):
    """Marks, and lines through some of them.

    unit: of the values, for people; variant: more of its title, may be empty; steps: whether x has
    few values, each with a tick, a doubling being one step; names: of lines for marks one below the
    other, y being an index of them, and x the value; xs and ys: what the scales have to hold beside
    the marks; one: the value of one node.
    """

    title: str
    unit: str
    over: str
    marks: Sequence[Mark]
    curves: Sequence[Curve] = ()
    variant: str = ""
    steps: bool = False
    names: Sequence[str] = ()
    xs: Sequence[float] = ()
    ys: Sequence[float] = ()
    one: float | None = None

    @property
    def label(self) -> str:
        """The label of the drawing, for readers who do not see it."""
        over = f" by {self.over}" if self.over else ""
        what = ", ".join(filter(None, (self.title, self.variant)))
        return f"{clean(what)}: {clean(self.unit)}{over}"

    @property
    def height(self) -> float:
        """The height of the whole drawing, points."""
        return _TOP + _STRIP * len(self.names) + 32 if self.names else _HEIGHT


class LegendEntry(NamedTuple):
    """A letter like a mark, the class of its colour, and what has that mark."""

    letter: str
    colour: str
    words: str
    note: str = ""


def entry(style: int | None, words: str, note: str = "") -> LegendEntry:
    """The entry of a style in the legend of a page.

    style: place in the list of looks; None: of marks without a name. note: more of it, or empty.
    """
    return LegendEntry(MARKERS[(style or 0) % len(MARKERS)][2], colour(style), words, note)


def colour(style: int | None) -> str:
    """The name of a style's colour: the class on a page."""
    return "quiet" if style is None else f"c{style % COLOURS}"


def apart(values: Sequence[float]) -> bool:
    """Tell whether there are two values or more that a chart can show apart."""
    return any(second > first * 1.001 for first, second in pairwise(sorted(set(values))))


def inline(chart: Chart) -> Markup:
    """A chart as an svg element of a page, its text escaped, its colours those of the page."""
    root = _drawn([chart], (), "")
    names = {value: f"var(--{name})" for name, value in _colours().items()}
    for element in root.iter():
        element.attrib.pop("font-family", None)
        for key in element.attrib.keys() & {"fill", "stroke"}:
            element.set(key, names.get(element.attrib[key], element.attrib[key]))
    return Markup(ET.tostring(root, "unicode"))  # noqa: S704 - ElementTree escaped every text


def to_file(charts: Sequence[Chart], names: Sequence[str], caption: str) -> str:
    """Charts side by side on white, as an SVG file; names: of the styles 0, 1, ..."""
    return ET.tostring(_drawn(charts, names, caption), "unicode") + "\n"


class DrawnPart(NamedTuple):
    """A group of the drawing: its class, words and link."""

    look: str
    words: str = ""
    href: str = ""


class _DrawnParts(dict[str, Sequence[DrawnPart]]):
    """Parts of a drawing by matplotlib's gid; several of one gid are its markers, in order."""

    def gid(self, *parts: DrawnPart) -> str:
        name = f"part-{len(self)}"
        self[name] = parts
        return name


def _drawn(charts: Sequence[Chart], names: Sequence[str], caption: str) -> ET.Element:
    from matplotlib import style
    from matplotlib.figure import Figure

    edge = _EDGE if names else 0.0
    width, height = _WIDTH * len(charts) + 2 * edge, edge + max(c.height for c in charts)
    columns = max(1, int(width / (40 + 7 * max(map(len, names), default=0))))
    above = _LEGEND + _LEGEND_LINE * math.ceil(len(names) / columns) if names else 0.0
    parts = _DrawnParts()
    with style.context(["default", _settings()]), warnings.catch_warnings():
        # Its font measures texts only: who looks at them has fonts of their own.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        sheet = Figure(figsize=(width / 72, (height + above) / 72), dpi=72)
        for index, chart in enumerate(charts):
            labels = any(curve.label for curve in chart.curves)
            left, right = _NAMES if chart.names else _LEFT, _LABELS if labels else _RIGHT
            bottom = 24.0 if chart.names else _BOTTOM
            place = (
                (edge + index * _WIDTH + left) / width,
                (edge + bottom) / (height + above),
                (_WIDTH - left - right) / width,
                (height - edge - _TOP - bottom) / (height + above),
            )
            _draw(sheet.add_axes(place), chart, left, parts)
        if names:
            kinds = {mark.kind for chart in charts for mark in chart.marks}
            kind = kinds.pop() if len(kinds) == 1 else "run"
            keys = [_key(name, **_marker(number, kind)) for number, name in enumerate(names)]
            if any(mark.predicted for chart in charts for mark in chart.marks):
                keys.append(_key("predicted (80 %)", **_band(None)))
            legend = sheet.legend(handles=keys, ncols=columns, loc="upper left")
            legend.set(title=caption, alignment="left")
        out = io.BytesIO()
        none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        sheet.savefig(out, format="svg", facecolor="white" if names else "none", metadata=none)
    return plain_svg(out.getvalue(), parts, "; ".join(chart.label for chart in charts))


def _key(name: str, **look: Any) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=clean(name), **look)


@cache
def _colours() -> dict[str, str]:
    """The light colours of page.css by name."""
    css = shipped_text("report/page.css")
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", css.partition("@media")[0]))


def _settings() -> dict[str, object]:
    colours = _colours()
    quiet = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    own = {"grid.color": colours["faint"], "legend.labelcolor": colours["ink"]}
    return read_toml(DATA / "chart_style.toml") | dict.fromkeys(quiet, colours["quiet"]) | own


def _marker(style: int | None, kind: str) -> dict[str, Any]:
    """A run's is filled, a published number's hollow, an imported one's pale."""
    marker, size, _ = MARKERS[(style or 0) % len(MARKERS)]
    own, paper = _colours()[colour(style)], _colours()["paper"]
    face, edge, width = {
        "run": (own, paper, 0.7),
        "published": (paper, own, 1.3),
        "imported": ((own, 0.4), own, 1.3),
    }[kind]
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": size,
        "markerfacecolor": face,
        "markeredgecolor": edge,
        "markeredgewidth": width,
    }


def _band(style: int | None) -> dict[str, Any]:
    """Return the style of a pale bar with a dash at its middle, behind all that was measured."""
    own = _colours()[colour(style)]
    return {**_LOOKS["band"], "color": (own, 0.3), "markeredgecolor": own}


def _draw(axes: Axes, chart: Chart, left: float, parts: _DrawnParts) -> None:
    """Draw a chart; left: how far its drawing begins to the left of the axes, points."""
    colours = _colours()
    unit = "; ".join(filter(None, (_draw_scales(axes, chart), clean(chart.variant))))
    unit = shorten(unit, _MOST_IN_LABEL, placeholder=" …")
    for text, height in ((clean(chart.title), 33), (unit, 15)):
        axes.annotate(text, (0, 1), (-left, height), "axes fraction", textcoords="offset points")
    axes.texts[0].set(size=13, weight="bold", color=colours["ink"])
    if chart.one:
        axes.axhline(chart.one, color=colours["ink"], linewidth=1.1, dashes=(4, 3))
        text, side = f"one node, {format_significant(chart.one)}", axes.get_yaxis_transform()
        axes.annotate(text, (1, chart.one), (0, 5), side, textcoords="offset points", ha="right")
    _draw_predicted(axes, chart, parts)
    for curve in chart.curves:
        own, part = colours[colour(curve.style)], DrawnPart(f"line {colour(curve.style)}")
        axes.plot(*zip(*curve.points, strict=True), color=own, alpha=0.75, gid=parts.gid(part))
    _draw_marks(axes, chart.marks, parts)
    _draw_labels(axes, [curve for curve in chart.curves if curve.label])


def _draw_predicted(axes: Axes, chart: Chart, parts: _DrawnParts) -> None:
    drawn = set()
    for mark in chart.marks:
        across = mark.y if chart.names else mark.x
        place = (across, mark.style, mark.predicted)
        if mark.predicted and place not in drawn:
            drawn.add(place)  # of one on another neither would be pale
            band = mark.predicted
            ends = ((band.low, band.value, band.high), [across] * 3)
            look = _band(mark.style) | ({"marker": "|"} if chart.names else {})
            part = DrawnPart(f"band {colour(mark.style)}", clean(mark.predicted_words))
            (pale,) = axes.plot(*(ends if chart.names else ends[::-1]), markevery=[1], **look)
            pale.set_gid(parts.gid(part))


def _draw_marks(axes: Axes, marks: Sequence[Mark], parts: _DrawnParts) -> None:
    colours, floor = _colours(), axes.get_ylim()[0]
    bars: dict[str, list[tuple[float, float]]] = defaultdict(list)
    looks: dict[tuple[int | None, str], list[Mark]] = defaultdict(list)
    for mark in marks:
        down, up = mark.spread or (0.0, 0.0)
        if down or up:
            own = colours[colour(mark.style)]
            low = mark.y - max(0.0, min(down, mark.y - floor))
            bars[own] += (mark.x, low), (mark.x, mark.y + up), (mark.x, math.nan)
        looks[mark.style, mark.kind].append(mark)
    for own, bar_ends in bars.items():  # as errorbar() draws them, in a tenth of its 8 ms
        axes.plot(*zip(*bar_ends, strict=True), color=own, linewidth=1.1, marker="_", markersize=5)
    for (style, kind), alike in looks.items():  # each alone takes 2 ms
        name = f"{colour(style)} {kind}"
        gid = parts.gid(*(DrawnPart(name, clean(one.words), one.href) for one in alike))
        points = [one.x for one in alike], [one.y for one in alike]
        axes.plot(*points, **_marker(style, kind), gid=gid, zorder=3)


def _draw_scales(axes: Axes, chart: Chart) -> str:
    """The scales of both axes; gives the text above the chart: the unit of its values."""
    points = [mark.x for mark in chart.marks]
    points += [x for curve in chart.curves for x, _ in curve.points]
    xs, ys = {*chart.xs, *points}, {*chart.ys, *(mark.y for mark in chart.marks)}
    (xs if chart.names else ys).update(v for mark in chart.marks for v in mark.predicted or ())
    if chart.names:
        axes.set_yticks(range(len(chart.names)), list(map(clean, chart.names)), size=10.5)
        axes.set_ylim(len(chart.names) - 0.5, -0.5)
        unit = _scale(axes, "x", xs, (_WIDTH - _NAMES) / _TICK)
    else:
        over = ""
        if chart.steps:
            shown = sorted(set(chart.xs) or xs)
            shown = shown[:: -(-len(shown) // _MOST_TICKS)]
            axes.set(xscale="log", xlim=(min(xs) / _LOG_MARGIN, max(xs) * _LOG_MARGIN))
            axes.set_xticks(shown, list(map(_short, shown)))
        else:
            over = _scale(axes, "x", xs, (_WIDTH - _LEFT - _RIGHT) / _TICK)
        axes.set_xlabel(clean(chart.over) + over)
        unit = _scale(axes, "y", ys, (_HEIGHT - _TOP - _BOTTOM) / _LABEL_HEIGHT)
    axes.minorticks_off()
    return clean(chart.unit) + unit


def _scale(axes: Axes, name: Literal["x", "y"], values: set[float], room: float) -> str:
    """Scale from zero, or by logarithms for a wide span, with room for so many labels; names it."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = min(values), max(values) or 1.0
    log = high > _LOG_ABOVE * low > 0
    axis = axes.xaxis if name == "x" else axes.yaxis
    if log:
        low, high = low / _LOG_MARGIN, high * _LOG_MARGIN
        fine = 3 * math.log10(high / low) < room
        axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if fine else (1,)))
    else:
        ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(0, high * 1.05)
        axes.set(**{f"{name}ticks": ticks, f"{name}lim": (0, ticks[-1])})
    axis.set_major_formatter(lambda at, _: _short(at))
    return ", log scale" if log else ""


def _short(value: float) -> str:
    return f"{value / 1000:.4g}k" if value >= _THOUSANDS_FROM else f"{value:.4g}"


def _draw_labels(axes: Axes, curves: Sequence[Curve]) -> None:
    ends = []
    for curve in curves:
        x, y = axes.transData.transform(curve.points[-1])
        ends.append((float(x) + 8, float(y) - 4, curve.label))
    for x, y, label in side_by_side(ends):
        axes.annotate(clean(label), (x, y), xycoords="figure pixels")


def side_by_side(ends: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Labels from the lowest, each as far above those beside it as its letters are high."""
    placed: list[tuple[float, float, str]] = []
    for x, y, label in sorted(ends, key=lambda end: end[1]):
        for other_x, other_y, _ in placed:
            if abs(x - other_x) < _LABELS and y < other_y + _LABEL_HEIGHT:
                y = other_y + _LABEL_HEIGHT  # noqa: PLW2901 - the next may be in its way too
        placed.append((x, y, label))
    return placed


def plain_svg(text: bytes, parts: Mapping[str, Sequence[DrawnPart]], label: str) -> ET.Element:
    """Return matplotlib's drawing as plain paths and texts; groups are its parts."""
    root = ET.fromstring(text)  # noqa: S314 - written by matplotlib just now
    shapes = {path.get("id", ""): path.get("d", "") for path in root.iter(f"{_SVG}path")}
    size = {key: root.get(key, "").removesuffix("pt") for key in ("width", "height", "viewBox")}
    plain = ET.Element("svg", {"xmlns": _SVG[1:-1], **size, "role": "img", "aria-label": label})

    def copy(element: Iterable[ET.Element], into: ET.Element) -> None:
        for child in element:
            kind, own = child.tag.removeprefix(_SVG), parts.get(child.get("id", ""), ())
            drawn: Sequence[Iterable[ET.Element]] = [child] if own else ()
            if len(own) > 1:
                drawn = [[marker] for marker in child.iter(f"{_SVG}use")]
            for part, inner in zip(own, drawn, strict=True):
                link = {"href": part.href, "tabindex": "-1"} if part.href else {}
                group = ET.SubElement(into, "a" if link else "g", {"class": part.look, **link})
                if part.words:
                    ET.SubElement(group, "title").text = part.words
                copy(inner, group)
            if kind in {"g", "a"} and not own:
                copy(child, into)
            elif kind in {"path", "use", "text"}:
                _copy_shape(child, into, shapes)

    copy(root, plain)
    return plain


def _copy_shape(shape: ET.Element, into: ET.Element, shapes: Mapping[str, str]) -> None:
    """A path or text with attributes in place of its style; a use as the path that it uses."""
    own = {key: value for key, value in shape.items() if key in {"d", "x", "y"}}
    own |= dict(pair.split(": ", 1) for pair in shape.get("style", "").split("; "))
    if own.get("fill") == "none" and "stroke" not in own:
        return
    used = shape.get(f"{_XLINK}href")
    if used:
        own["transform"] = f"translate({own.pop('x')} {own.pop('y')})"
        own["d"] = shapes[used[1:]]
    if "d" in own:
        own["d"] = " ".join(own["d"].split())
    if "font" in own:  # of matplotlib before 3.11: weight, size and family in one
        *weight, size, family = re.split(r" (?=\S*px )|(?<=px) ", own.pop("font"))
        own |= {"font-size": size, "font-family": family}
        own |= {"font-weight": weight[-1].split()[-1]} if weight else {}
    ET.SubElement(into, "path" if used else shape.tag.removeprefix(_SVG), own).text = shape.text
