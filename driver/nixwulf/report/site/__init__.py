"""The static site of records: a table of all, and a page for each model, platform and fabric.

The pages as text are a pure function of the records.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from markupsafe import Markup

from nixwulf.core.document import Column, Value
from nixwulf.core.errors import InputError
from nixwulf.core.files import shipped_text
from nixwulf.core.query import grouped
from nixwulf.core.text import clean, plural, unbroken, unit_name
from nixwulf.report.render import environment
from nixwulf.report.site import look
from nixwulf.report.site.figures import explained, figures, overview, why_not, with_words, words
from nixwulf.report.site.rows import (
    Group,
    SiteRow,
    Source,
    by_value,
    count_words,
    fabric_name,
    groups,
    rows_of,
    shorten,
)
from nixwulf.report.tables import html_head, html_rows, html_table
from nixwulf.results.identity import record_key
from nixwulf.results.record import Record
from nixwulf.results.store import Entry, progress, read_entries

if TYPE_CHECKING:
    import jinja2

FOLDERS = {"models": "model", "platforms": "platform", "fabrics": "fabric"}
MOST_BYTES = 500_000
"""Of any page; a record whose page would be longer leaves its details to its JSON."""
_FIGURES_BYTES = 180_000  # beside 250,000 of rows
_MOST_WAYS = 12
_MOST_EXPLAINED = 12
_MOST_OPTIONS = 300
_MOST_HIGHLIGHTS = 5
_SHOWN_ABOVE = frozenset({"schema_version", "kind", "id", "outcome", "failure", "metrics"})

_FACETS: dict[str, Callable[[SiteRow], Sequence[str]]] = {
    "kind": lambda row: (row.kind,),
    "platform": lambda row: row.platforms,
    "model": lambda row: (row.model,),
    "engine": lambda row: (row.program,),
    "nodes": lambda row: (str(row.nodes),),
    "metric": lambda row: (row.key.words or "no number",),
}


class Site:
    """The pages of records: `files` gives each with its name in the site's folder."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        keys = ((record_key(entry.record), entry) for entry in entries)
        found = {"-".join(filter(None, key)).removesuffix("Z"): entry for key, entry in keys}
        names = look.page_names(found)
        self.sources = [Source(entry, names[key]) for key, entry in found.items()]
        self.rows = explained(rows_of(self.sources), self.sources)
        self.groups = groups(self.rows)
        # A row stands in the tables of its model, its platforms and its fabric.
        self._cells: dict[tuple[int, str], dict[str, Value]] = {}

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of tables of rows; those of watts and prices where any row has them."""
        costs = [row.measured.cost for row in self.rows if row.measured and row.measured.cost]
        empty = {
            "per W": all(cost.per_watt is None for cost in costs),
            "per 1000 US$": all(cost.per_usd is None for cost in costs),
        }
        return [column for column in look.COLUMNS if not empty.get(column.head)]

    @cached_property
    def pages(self) -> dict[str, dict[str, str]]:
        """The file name without suffix of each model, platform and kind of fabric."""
        return {
            folder: look.page_names(group.name for group in self.groups if group.folder == folder)
            for folder in FOLDERS
        }

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield every file but the records' own JSON: its name and its text."""
        yield "site.css", shipped_text("report/page.css") + shipped_text("report/site/site.css")
        yield "site.js", shipped_text("report/site/site.js")
        yield from self._index()
        for folder in FOLDERS:
            yield from self._list(folder)
        for group in self.groups:
            yield from self._group(group)
        yield from self._records()

    @cached_property
    def _environment(self) -> jinja2.Environment:
        found = environment("report/site/templates")
        found.filters.update(brief=shorten, clean=clean, tree=look.Trees().of, unbroken=unbroken)
        found.globals.update(
            plural=plural,
            pages=self.pages,
            records=len(self.sources),
            root="../",
            html_head=html_head,
            html_table=html_table,
        )
        return found

    def _render(self, template: str, **context: object) -> str:
        return self._environment.get_template(template).render(context)

    def _table(self, rows: Iterable[SiteRow], columns: Sequence[Column], root: str) -> list[Markup]:
        links = look.Links(root, self.pages)
        found = []
        for row in rows:
            if (key := (id(row), root)) not in self._cells:
                self._cells[key] = look.cells(row, links)
            found.append([self._cells[key][column.head] for column in columns])
        return html_rows(columns, found)

    def _index(self) -> Iterator[tuple[str, str]]:
        parts = look.paged("index", [("", self._table(self.rows, self.columns, "./"))])
        later = {f"rows~{number}.js": part for number, part in enumerate(parts[1:], 2)}
        for name, part in later.items():
            yield name, f"nixwulfRows({json.dumps(name)}, {json.dumps(''.join(part.rows))});\n"
        context = {
            "root": "./",
            "files": [part.file for part in parts],
            "columns": self.columns,
            "counts": count_words(self.rows),
            "total": len(self.rows),
            "rest": " ".join(later),
            "ways": list(self._ways()),
            "highlights": list(self._highlights()),
            "facets": {column: _options(self.rows, of) for column, of in _FACETS.items()},
        }
        for number, part in enumerate(parts, 1):
            yield part.file, self._render("index.html.j2", number=number, rows=part.rows, **context)

    def _ways(self) -> Iterator[tuple[str, list[Group], int]]:
        """Yield each folder's pages with most rows, and how many there are when they are more."""
        for folder in FOLDERS:
            own = [group for group in self.groups if group.folder == folder]
            most = sorted(own, key=lambda group: -len(group.rows))[:_MOST_WAYS]
            yield folder, most, len(own) if len(own) > len(most) else 0

    def _highlights(self) -> Iterator[tuple[str, str, list[Markup]]]:
        newest: dict[str, SiteRow] = {}
        for row in sorted(self.rows, key=lambda row: row.started, reverse=True):
            if row.started:
                newest.setdefault(row.source.page, row)
        shown = list(newest.values())[:_MOST_HIGHLIGHTS]
        yield "Newest", "The runs that started last.", self._table(shown, self.columns, "./")
        models = [group for group in self.groups if group.folder == "models"]
        models.sort(key=lambda group: -len(group.rows))
        best = [best_decode(group.rows) for group in models[:_MOST_HIGHLIGHTS]]
        yield (
            "Best",
            "The fastest decode of each of the models with most values, with whatever nodes, "
            "weights and conditions that took: where to look first, not a ranking of machines.",
            self._table([row for row in best if row], self.columns, "./"),
        )

    def _paged(
        self,
        place: str,
        name: str,
        template: str,
        tables: Sequence[tuple[str, Sequence[str]]],
        **context: object,
    ) -> Iterator[tuple[str, str]]:
        """The pages of a folder's list or of a group, as many as its tables take."""
        parts = look.paged(name, tables)
        context["files"] = [part.file for part in parts]
        for number, part in enumerate(parts, 1):
            shown = {"number": number, "tables": part.tables, "rows": part.rows}
            yield f"{place}/{part.file}", self._render(template, **context, **shown)

    def _list(self, folder: str) -> Iterator[tuple[str, str]]:
        own = [group for group in self.groups if group.folder == folder]
        links = look.Links("../", self.pages)
        found = (look.of_group(group, best_decode(group.rows), links) for group in own)
        tables = [("", html_rows(look.LIST_COLUMNS, found))]
        context = {"folder": folder, "total": len(own), "columns": look.LIST_COLUMNS}
        yield from self._paged(folder, "index", "list.html.j2", tables, **context)

    def _group(self, group: Group) -> Iterator[tuple[str, str]]:
        own = FOLDERS[group.folder]
        # A platform's and a fabric's own column stay: they say what they worked with.
        left_out = {"metric", "model"} if own == "model" else {"metric"}
        columns = [column for column in self.columns if column.head not in left_out]
        tables = grouped((_heading(row), row) for row in sorted(group.rows, key=by_value))
        yield from self._paged(
            group.folder,
            self.pages[group.folder][group.name],
            "group.html.j2",
            [(heading, self._table(rows, columns, "../")) for heading, rows in tables.items()],
            group=group,
            kind=own if own != "fabric" else "kind of fabric",
            query=urlencode({own if own != "fabric" else "q": shorten(group.name)}),
            figures=_figures(group),
            columns=columns,
        )

    def _records(self) -> Iterator[tuple[str, str]]:
        rows = grouped((row.source.page, row) for row in self.rows)
        for source in self.sources:
            own = rows[source.page]
            context = {
                "source": source,
                "record": source.record,
                "first": own[0],
                "values": look.values(own),
                "costs": look.costs_of(own),
                "explained": words(own)[:_MOST_EXPLAINED],
                "why_not": why_not(own),
                "fabric": fabric_name(own[0]) if own[0].crosses else "",
            }
            details = {k: one for k, one in source.record.items() if k not in _SHOWN_ABOVE}
            text = self._render("record.html.j2", **context, details=details)
            if len(text.encode()) >= MOST_BYTES:
                text = self._render("record.html.j2", **context, details={})
            yield f"records/{source.page}.html", text


def best_decode(rows: Iterable[SiteRow]) -> SiteRow | None:
    """The fastest decode of one stream among rows."""
    decode = [row for row in rows if row.metric == "decode" and row.unit == "tok/s"]
    return max(decode, key=lambda row: row.value or 0.0, default=None)


def _figures(group: Group) -> list[look.Figure]:
    """Draw a page's figures: what is fast first, then what it depends on."""
    first = overview(group.folder, group.rows, group.name)
    rest = figures(group.rows, group.name)
    return with_words(look.within([first, *rest] if first else rest, _FIGURES_BYTES))


def _heading(row: SiteRow) -> str:
    if row.value is None:
        return "Without a number"
    words = row.key.words
    return f"{words[:1].upper()}{words[1:]}, {unit_name(row.unit)}"


def _options(
    rows: Iterable[SiteRow], of: Callable[[SiteRow], Sequence[str]]
) -> list[tuple[str, int]]:
    """The values that a filter offers with their numbers of rows, digits in order of their size."""
    counts = Counter(value for row in rows for value in of(row) if value)
    common = counts.most_common(_MOST_OPTIONS)
    return sorted(common, key=lambda option: (option[0].isdigit() * len(option[0]), option[0]))


def unscrubbed(records: Iterable[Record]) -> int:
    """Count the records of runs outside the lab that hold what 'nixwulf publish' takes out."""
    return sum(
        record["kind"] == "run" and not record["cluster"]["lab"] and "scrubbed" not in record
        for record in records
    )


MARKER = ".nixwulf-site"
_ABOUT = "Made by 'nixwulf site', which replaces this folder as a whole.\n"


@dataclass(frozen=True)
class Made:
    """A made site: counts of records and values, and of runs that hold private texts."""

    records: int
    values: int
    unscrubbed: int


def make(paths: Sequence[Path], out: Path) -> Made:
    """Make the whole site in `out` or nothing; raises InputError for a bad record or folder."""
    check_out(out, paths)
    site = Site(read_entries(paths))
    with replaced(out) as folder:
        steps = len(site.groups) + (records := len(site.sources))
        with progress(site.files(), "Writing", steps, records) as shown:
            for name, text in shown:
                file = folder / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8", errors="backslashreplace")
        for source in site.sources:
            shutil.copyfile(source.entry.path, folder / "records" / f"{source.page}.json")
    return Made(
        records=len(site.sources),
        values=sum(row.value is not None for row in site.rows),
        unscrubbed=unscrubbed(source.record for source in site.sources),
    )


def check_out(out: Path, inputs: Iterable[Path]) -> None:
    """Raise InputError unless a site may be written to a folder."""
    name = str(out)
    for path in inputs:
        if out.resolve().is_relative_to(path.resolve()):
            raise InputError(
                f"{name!r} lies in {str(path)!r}, whose records would then be read twice; "
                "name a folder beside it with --out."
            )
        if path.resolve().is_relative_to(out.resolve()):
            raise InputError(
                f"{str(path)!r} lies in {name!r}, and all of a site's folder is replaced; name "
                "another one with --out."
            )
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"{name!r} is not a folder; name another one with --out.")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise InputError(
            f"{name!r} holds files that 'nixwulf site' did not make (it has no {MARKER}), and all "
            "of a site's folder is replaced; name another one with --out."
        )


@contextmanager
def replaced(out: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `out` when all went well, and is gone otherwise."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise InputError(
            f"Cannot make a folder in {str(out.parent)!r}: {error.strerror}; name another one "
            "with --out."
        ) from None
    try:
        (new / MARKER).write_text(_ABOUT, encoding="utf-8")
        yield new
        new.chmod(0o755)
        _swap(new, out)
    except OSError as error:
        raise InputError(
            f"Cannot write {str(out)!r}: {error.strerror}; free some space or name another folder "
            "with --out."
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _swap(new: Path, out: Path) -> None:
    """Put `new` where `out` is, and what was there where `new` was."""
    old = new.with_name(f"{new.name}.old")
    if out.exists():
        out.replace(old)
    try:
        new.replace(out)
    except OSError:
        if old.exists():
            old.replace(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
