"""How rows look: in tables, of the columns that reports have too; in charts, by marks and legends.

File names of pages, and rows over as many of them as no browser finds too large.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from markupsafe import Markup, escape

from nixwulf.core.document import Cell, Column, Table, Value
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import format_significant, microseconds, plural, slug, unit_name
from nixwulf.report.charts import MOST_MARKS, Chart, LegendEntry, Mark, entry, inline
from nixwulf.report.lines import About
from nixwulf.report.site.rows import Group, SiteRow, fabric_name, scalar, shorten, web_address
from nixwulf.report.tables import METRIC_COLUMNS, costs, html_link, metric_cells
from nixwulf.results.table import PERCENTILES

_MOST_IN_LEGEND = 12
_LONGEST_WORDS = 240
_LONGEST_TITLE = 44


@dataclass(frozen=True)
class Figure:
    """Charts of one kind, each with the rows of its marks.

    drawn: those on the page, as it has them; note: what is not; prediction_notes: of the rows.
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
        """Tell whether predictions stand behind marks."""
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
        """Explain each style; empty where all marks look the same."""
        if len(self._styles) == 1 and not self._others:
            return ()
        others = (entry(None, "all others"),) if self._others else ()
        return (*(entry(style, words) for words, style in self._styles.items()), *others)

    def _words(self, row: SiteRow) -> str:
        parts = _parts(row)
        return ", ".join(filter(None, (parts[name] for name in self._shown)))


def _parts(row: SiteRow) -> dict[str, str]:
    """The parts that may distinguish marks, the most important first."""
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
    """Note what is left out of charts: whole ones, and marks of those with so many."""
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
        """The rows of all its tables."""
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


_MOST_VALUES = 200
_LONGEST_TEXT = 1500
_MOST_MADE = 2_000  # with all 50,000 of 5,000 records a site took 30 MB more
_MOST_LEVELS, _MOST_KEYS, _MOST_NESTED, _MOST_IN_LIST = 6, 60, 12, 24  # of a record's own

_SITE = read_toml(DATA / "site.toml")
COLUMNS = tuple(Column(**row) for row in _SITE["columns"])
LIST_COLUMNS = tuple(Column(**row) for row in _SITE["lists"])


class Links(NamedTuple):
    """Addresses of pages: root is that of the site, pages the file names by folder and name."""

    root: str
    pages: Mapping[str, Mapping[str, str]]

    def page(self, folder: str, name: str) -> str:
        """Return the address of a model's, a platform's or a kind of fabric's page."""
        return f"{self.root}{folder}/{self.pages[folder][name]}.html"

    def record(self, row: SiteRow) -> str:
        """Return the address of the page of a row's record."""
        return f"{self.root}records/{row.source.page}.html"


class Trees:
    """Trees of a record's values, list in list; of what is long or deep the first.

    Records that were read together hold what is equal in them once, so it is made once.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], str] = {}

    def of(self, values: Mapping[str, object]) -> Markup:
        """Draw values of a record that lives as long as this."""
        return Markup(self._dict(values, 0))  # noqa: S704 - made of escaped texts

    def _dict(self, values: Mapping[str, object], depth: int) -> str:
        parts = [
            f"<dt>{_leaf(key)}</dt><dd>{self._of(inner, depth + 1)}</dd>\n"
            for key, inner in islice(values.items(), _MOST_KEYS)
        ]
        more = f"<dt>…</dt><dd>{len(values)} in all</dd>\n" if len(values) > _MOST_KEYS else ""
        return f'<dl class="tree">\n{"".join(parts)}{more}</dl>\n'

    def _of(self, value: object, depth: int) -> str:
        if depth > _MOST_LEVELS:
            return "…"
        if isinstance(value, dict):
            known = (id(value), depth)
            if known not in self._made:
                if len(self._made) > _MOST_MADE:
                    self._made.clear()
                self._made[known] = self._dict(value, depth)
            return self._made[known]
        if isinstance(value, list):
            nested = bool(value) and isinstance(value[0], dict)
            most = _MOST_NESTED if nested else _MOST_IN_LIST
            more = f" … {len(value)} in all" if len(value) > most else ""
            if nested:
                return "".join(self._of(inner, depth + 1) for inner in value[:most]) + more
            return _leaf(" ".join(map(str, value[:most])), _LONGEST_TEXT) + more
        if isinstance(value, str):
            return html_link(value, value) if web_address(value) else _leaf(value, _LONGEST_TEXT)
        return scalar(value)


@lru_cache(4096)  # records of one cluster hold the same texts
def _leaf(text: str, *longest: int) -> str:
    return str(escape(shorten(text, *longest)))


def cells(row: SiteRow, links: Links) -> dict[str, Value]:
    """The cells of a row by the heads of COLUMNS."""
    cost = row.measured.cost if row.measured else None
    per_watt = per_usd = Cell("")
    if cost and cost.per_watt is not None and cost.watts:
        of = f"of {format_significant(cost.watts)} W"
        per_watt = Cell(format_significant(cost.per_watt), of)
    if cost and cost.per_usd is not None and cost.price_usd:
        of = f"of {cost.price_usd:,.0f} US$"
        per_usd = Cell(format_significant(1000 * cost.per_usd), of)
    split = row.parallelism if row.nodes > 1 else ""
    fabric = links.page("fabrics", fabric_name(row)) if row.crosses else ""
    spread = row.measured.spread if row.measured and row.measured.percentiles else ("", "", "")
    named = zip(PERCENTILES, spread, strict=True)
    percentiles = ", ".join(f"{name} {text}" for name, text in named if text)
    model = links.page("models", row.model) if row.model else ""
    return {
        "model": Cell(shorten(row.model), shorten(row.weights), href=model),
        "metric": shorten(row.key.words) if row.metric else "no number",
        "value": _value(row, links),
        "per W": per_watt,
        "per 1000 US$": per_usd,
        "nodes": str(row.nodes),
        "platform": Cell(
            Markup(" + ").join(
                html_link(links.page("platforms", name), shorten(name)) for name in row.platforms
            ),
            shorten(row.machines),
        ),
        "fabric": Cell(shorten(row.link), split, href=fabric),
        "engine": Cell(shorten(row.program), _version(row)),
        "conditions": Cell(
            shorten(row.condition_words if row.measured else row.reason), percentiles
        ),
        "kind": row.kind,
        "source": Cell(shorten(row.source.name) or row.started[:10], href=row.source.url),
    }


def _value(row: SiteRow, links: Links) -> Cell:
    if row.measured is None:
        return Cell(row.outcome, style=f"kind {row.kind} bad", href=links.record(row))
    unit = unit_name(row.unit)
    return Cell(row.number, unit, style=f"kind {row.kind}", href=links.record(row))


def _version(row: SiteRow) -> str:
    if not (row.engine or row.engine_version):
        return ""
    version = shorten(row.engine_version) or "version not stated"
    shown = row.engine and row.benchmark not in {row.engine, "llama-bench"}
    return f"{version}, {shorten(row.benchmark)}" if shown else version


def of_group(group: Group, best: SiteRow | None, links: Links) -> list[Value]:
    """The cells of LIST_COLUMNS; best: its fastest decode, None without any."""
    kinds = Counter(row.kind for row in group.rows)
    return [
        Cell(shorten(group.name), shorten(group.about), href=links.page(group.folder, group.name)),
        str(sum(row.value is not None for row in group.rows)),
        shorten(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))),
        _value(best, links) if best else "",
        f"{best.kind}: {shorten(best.where)}" if best else "",
    ]


def values(rows: Iterable[SiteRow]) -> Table:
    """Yield the measured values of a record."""
    found: list[Sequence[Value]] = [
        [
            *metric_cells(row.key, row.measured),
            shorten(row.condition_words),
            str(row.measured.n_samples or "not stated"),
        ]
        for row in rows
        if row.measured
    ]
    columns = (*METRIC_COLUMNS, Column("conditions"), Column("samples", whole=True))
    return Table(columns, found[:_MOST_VALUES]).filled


def costs_of(rows: Iterable[SiteRow]) -> Table | None:
    """Yield the costs of a record's speeds, in watts and US$."""
    measured = [(row.condition_words, row.key, row.measured) for row in rows if row.measured]
    return costs(((shorten(what), key, value) for what, key, value in measured), "conditions")
