"""How rows look in charts: marks, legends, titles, and which rows may share a chart.

File names of pages, and rows over as many of them as no browser finds too large.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from nixwulf.core.text import microseconds, plural, slug, unit_name
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
    parts = (
        f"{row.number} {unit_name(row.unit)} {row.key.words} ({row.kind})",
        row.model + weights,
        f"{plural(row.nodes, 'node')} of {'+'.join(row.platforms)}",
        row.link,
        row.parallelism if row.nodes > 1 else "",
        row.program + version,
        row.condition_words,
        f"round trip {microseconds(row.rtt_us)} µs" if row.rtt_us else "",
        row.source.name,
    )
    return ", ".join(filter(None, parts))


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


PAGE_BYTES = 250_000
"""Of the rows of one page."""
_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_LONGEST_SLUG = 60
_SHORT_HASH, _WHOLE_HASH = 8, 64  # hexadecimal digits of a sha256
_TAKEN = frozenset({"index"})


@dataclass(frozen=True)
class TablePart:
    """Rows of one table that stand on one page; whole: whether those are all of it."""

    heading: str
    rows: tuple[str, ...]
    whole: bool


@dataclass(frozen=True)
class Page:
    """The file of a page, and the parts of tables on it."""

    file: str
    tables: list[TablePart]

    @property
    def rows(self) -> list[str]:
        """Of all its tables."""
        return [row for table in self.tables for row in table.rows]


def paged(
    name: str, tables: Iterable[tuple[str, Sequence[str]]], limit: int = PAGE_BYTES
) -> list[Page]:
    """Tables, each with its heading, over as many pages as they need; at least one.

    name: of the first page without suffix; none has a '~', which those of the others have. limit:
    of the rows of a page, each a piece of HTML, bytes.
    """
    pages = [Page(f"{name}.html", [])]
    left = limit
    for heading, rows in tables:
        for chunk in _chunks(rows, left, limit):
            size = sum(map(_size, chunk))
            if size > left and pages[-1].tables:
                pages.append(Page(f"{name}~{len(pages) + 1}.html", []))
                left = limit
            pages[-1].tables.append(TablePart(heading, tuple(chunk), len(chunk) == len(rows)))
            left -= size
    return pages


def _chunks(rows: Sequence[str], first: int, limit: int) -> Iterator[list[str]]:
    """Rows in lists of at most so many bytes, the first into what is left of a page."""
    chunk: list[str] = []
    left = limit if sum(map(_size, rows)) <= limit else first
    for row in rows:
        if chunk and _size(row) > left:
            yield chunk
            chunk, left = [], limit
        chunk.append(row)
        left -= _size(row)
    if chunk:
        yield chunk


def _size(row: str) -> int:
    return len(row.encode())


def page_names(names: Iterable[str]) -> dict[str, str]:
    """A file name without its suffix for each name; the same whatever the other names are.

    It has lower case letters, digits, '.', '_' and '-' only, so that it is one file on every file
    system and nothing else in a URL. A name that had to be changed ends in 8 digits of its
    sha256, and in all 64 where another has the same.
    """
    distinct = sorted(set(names))
    counts = Counter(map(_name, distinct))
    return {
        name: _name(name) if counts[_name(name)] == 1 else _hashed(name, _WHOLE_HASH)
        for name in distinct
    }


def _name(name: str) -> str:
    lossless = _SAFE.fullmatch(name) and name not in _TAKEN and ".." not in name
    return name if lossless else _hashed(name, _SHORT_HASH)


def _hashed(name: str, digits: int) -> str:
    words = slug(name, _LONGEST_SLUG, also="_") or "page"
    # Records hold any text that JSON can, also halves of surrogate pairs.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{words}-{digest[:digits]}"
