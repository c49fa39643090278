"""Splitting rows over pages, so that no page is larger than a browser likes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

PAGE_BYTES = 250_000
"""Of the rows of one page."""


@dataclass(frozen=True)
class Part:
    """Rows of one table that stand on one page; whole: whether those are all of it."""

    heading: str
    rows: tuple[str, ...]
    whole: bool


def paged(tables: Iterable[tuple[str, Sequence[str]]], limit: int = PAGE_BYTES) -> list[list[Part]]:
    """Tables of rows, each a piece of HTML, over as many pages as they need; at least one."""
    pages: list[list[Part]] = [[]]
    left = limit
    for heading, rows in tables:
        for chunk in _chunks(rows, left, limit):
            if sum(map(_size, chunk)) > left and pages[-1]:
                pages.append([])
                left = limit
            pages[-1].append(Part(heading, tuple(chunk), len(chunk) == len(rows)))
            left -= sum(map(_size, chunk))
    return pages


def page_file(name: str, number: int) -> str:
    """The file of a page's Nth part, from 1 on; no name of a page has a '~'."""
    return f"{name}.html" if number == 1 else f"{name}~{number}.html"


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
