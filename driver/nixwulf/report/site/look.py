"""How rows look in charts: marks, legends, titles, and which rows may share a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from nixwulf.core.text import microseconds, plural, unit_name
from nixwulf.report.charts import MOST_MARKS, Chart, LegendEntry, Mark, entry, inline
from nixwulf.report.predicted import About
from nixwulf.report.site.rows import SiteRow, shorten

_MOST_IN_LEGEND = 12
_LONGEST_WORDS = 240
_LONGEST_TITLE = 44


@dataclass(frozen=True)
class Figure:
    """Charts of one kind, each with the rows of its marks.

    drawn: those that stand on the page, as it has them; note: what is not drawn;
    prediction_notes: about the predictions of the rows.
    """

    heading: str
    about: str
    legend: tuple[LegendEntry, ...]
    charts: tuple[Chart, ...]
    rows: tuple[tuple[SiteRow, ...], ...]
    note: str
    drawn: tuple[Markup, ...] = ()
    prediction_notes: About | None = None

    @property
    def predicted(self) -> bool:
        """Whether predictions stand behind marks."""
        return any(row.predicted for rows in self.rows for row in rows)


def within(figures: Iterable[Figure], most: int) -> list[Figure]:
    """Figures with as many of their charts drawn, in their order, as have so many bytes together.

    Drawing takes most of the time of a site, so the first chart without room ends it.
    """
    kept: list[Figure] = []
    left = most
    for figure in figures:
        drawn: list[tuple[Markup, tuple[SiteRow, ...]]] = []
        for chart, rows in zip(figure.charts, figure.rows, strict=True):
            text = inline(chart) if left > 0 else Markup()
            left -= len(text.encode())
            if left > 0:
                drawn.append((text, rows))
        undrawn = len(figure.charts) - len(drawn)
        note = " ".join(filter(None, (figure.note, note_of(undrawn, ()))))
        if drawn:
            texts, of = zip(*drawn, strict=True)
            kept.append(replace(figure, drawn=texts, rows=of, note=note))
    return kept


class Look:
    """Colours and shapes of a figure's marks, by what its rows differ in."""

    def __init__(self, rows: Sequence[SiteRow], known: Collection[str] = ()) -> None:
        """Known: which of the parts the chart shows otherwise."""
        parts = [_parts(row) for row in rows]
        self._shown = [
            name for name in parts[0] if name not in known and len({p[name] for p in parts}) > 1
        ]
        counts = Counter(map(self._words, rows))
        while len(counts) > _MOST_IN_LEGEND and len(self._shown) > 1:
            self._shown = self._shown[:-1]
            counts = Counter(map(self._words, rows))
        named = [words for words, _ in counts.most_common(_MOST_IN_LEGEND)]
        self._styles = {words: style for style, words in enumerate(sorted(named))}
        self._others = len(counts) > len(named)

    def style(self, row: SiteRow) -> int | None:
        """The style of a row's mark; None where there are too many."""
        return self._styles.get(self._words(row))

    def mark(self, row: SiteRow, x: float, y: float) -> Mark:
        """The mark of a row, with a link from a page of a folder to that of its record."""
        band = row.predicted
        return Mark(
            x,
            y,
            self.style(row),
            shorten(mark_words(row), _LONGEST_WORDS),
            kind=row.kind,
            href=f"../records/{row.source.page}.html",
            predicted=band,
            predicted_words=f"predicted, not measured: {band.text}" if band else "",
        )

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        """What each style means; empty where all marks look the same."""
        if len(self._styles) == 1 and not self._others:
            return ()
        others = (entry(None, "all others"),) if self._others else ()
        return (*(entry(style, words) for words, style in self._styles.items()), *others)

    def _words(self, row: SiteRow) -> str:
        parts = _parts(row)
        return ", ".join(filter(None, (parts[name] for name in self._shown)))


def _parts(row: SiteRow) -> dict[str, str]:
    """What may distinguish marks, the most important first."""
    return {
        "platform": "+".join(row.platforms),
        "program": row.program,
        "weights": row.weights,
        "fabric": row.link or "one node",
        "parallelism": row.parallelism if row.nodes > 1 else "",
    }


def title_of(row: SiteRow, name: str) -> str:
    """The title of a row's chart: its metric, and its model where the page is not about that."""
    about = row.model or row.benchmark
    named = about in {name, row.metric}
    words = row.key.words if named else f"{row.key.words}, {about}"
    return shorten(words[:1].upper() + words[1:], _LONGEST_TITLE)


def mark_words(row: SiteRow) -> str:
    """Everything about a value in one line."""
    weights = f" {row.weights}" if row.weights else ""
    version = f" {row.engine_version}" if row.engine_version else ""
    return ", ".join(
        filter(
            None,
            (
                f"{row.number} {unit_name(row.unit)} {row.key.words} ({row.kind})",
                row.model + weights,
                f"{plural(row.nodes, 'node')} of {'+'.join(row.platforms)}",
                row.link,
                row.parallelism if row.nodes > 1 else "",
                row.program + version,
                row.condition_words,
                f"round trip {microseconds(row.rtt_us)} µs" if row.rtt_us else "",
                row.source.name,
            ),
        )
    )


def note_of(undrawn: int, counts: Iterable[int]) -> str:
    """What is left out of charts: whole ones, and marks of those with so many."""
    notes = []
    if undrawn:
        notes.append(
            f"{plural(undrawn, 'more chart')} would belong here; the table has their values."
        )
    if any(count > MOST_MARKS for count in counts):
        notes.append(
            f"Of a chart with more than {MOST_MARKS} values as many are drawn, evenly from the "
            "highest to the lowest; the table has all."
        )
    return " ".join(notes)
