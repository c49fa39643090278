"""Charts with a line for each machine or model: what is fast, at one glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace

from nixwulf.report.site.chart import strips
from nixwulf.report.site.look import Figure, Look, panel_of, some, title_of
from nixwulf.report.site.rows import SiteRow, shorten

_MOST_CHARTS = 4
_MOST_LINES = 16
_MOST_IN_LINE = 12
_LONGEST_NAME = 24
_METRICS = ("decode", "prompt", "throughput")


def by_machines(
    rows: Sequence[SiteRow], href: Callable[[SiteRow], str], name: str
) -> Figure | None:
    """Of a model: machines, and how many of them."""
    return _figure(
        "By machines",
        "The same model and, as far as sources say it, the same work in each chart; what else "
        "differs, the marks tell.",
        rows,
        panel_of,
        lambda row: f"{row.nodes} × {'+'.join(row.platforms)}",
        ("platform",),
        href,
        name,
    )


def by_models(rows: Sequence[SiteRow], href: Callable[[SiteRow], str], name: str) -> Figure | None:
    """Of a platform: models with their weights on one node."""
    return _figure(
        "Models on one node",
        "As far as sources say it, the same work in each chart; what else differs, the marks tell.",
        [row for row in rows if row.model and row.nodes == 1],
        lambda row: panel_of(replace(row, model="")),
        _model,
        ("weights",),
        href,
        name,
    )


def _model(row: SiteRow) -> str:
    """A model and its weights, which a long name must not hide."""
    weights = f" {shorten(row.weights, 12)}" if row.weights else ""
    return shorten(row.model, _LONGEST_NAME - len(weights)) + weights


def _figure(
    heading: str,
    about: str,
    rows: Sequence[SiteRow],
    panel: Callable[[SiteRow], Hashable],
    line: Callable[[SiteRow], str],
    known: Collection[str],
    href: Callable[[SiteRow], str],
    name: str,
) -> Figure | None:
    """Charts of rows with the same panel, in which rows with the same line stand side by side.

    known: what the names of the lines tell of their marks.
    """
    panels: dict[Hashable, dict[str, list[SiteRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.value and row.metric in _METRICS:
            panels[panel(row)][line(row)].append(row)
    found = [lines for lines in panels.values() if len(lines) > 1]
    found.sort(key=lambda lines: (-len(lines), title_of(next(iter(lines.values()))[0], "")))
    shown = [_best(lines) for lines in found[:_MOST_CHARTS]]
    if not shown:
        return None
    drawn = tuple(tuple(row for own in lines.values() for row in own) for lines in shown)
    look = Look([row for rows in drawn for row in rows], known)
    charts = []
    for lines in shown:
        first = next(iter(lines.values()))[0]
        marks = [
            look.mark(row, row.value or 0.0, index, href(row))
            for index, own in enumerate(lines.values())
            for row in own
        ]
        names = [shorten(words, _LONGEST_NAME) for words in lines]
        charts.append(
            strips(title_of(first, first.model or name), first.unit_and_work, names, marks)
        )
    left_out = sum(len(found[index]) - len(lines) for index, lines in enumerate(shown))
    note = f"Not drawn, but in the table: {left_out} lines." if left_out else ""
    return Figure(heading, about, look.legend, tuple(charts), drawn, note)


def _best(lines: dict[str, list[SiteRow]]) -> dict[str, list[SiteRow]]:
    """The lines with the highest values, and of each as many marks as a chart holds of it."""

    def highest(line: str) -> float:
        return max(row.value or 0.0 for row in lines[line])

    names = sorted(lines, key=lambda line: (-highest(line), line))[:_MOST_LINES]
    return {line: some(lines[line], _MOST_IN_LINE) for line in names}
