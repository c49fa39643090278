"""File names of pages, and rows over as many of them as no browser finds too large."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nixwulf.core.text import slug

PAGE_BYTES = 250_000
"""Of the rows of one page."""
_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_LONGEST_WORDS = 60
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
    words = slug(name, _LONGEST_WORDS, also="_") or "page"
    # Records hold any text that JSON can, also halves of surrogate pairs.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{words}-{digest[:digits]}"
