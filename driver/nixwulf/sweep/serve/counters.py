"""A server's own counters: the requests that it holds, and the tokens that it has computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nixwulf.core import web
from nixwulf.core.files import shipped_table

MODELS = "/v1/models"
# A server that computes may answer late; a look may not.
ANSWER_S = 2.0
_KEYS = ("requests", "prompted", "generated")
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([0-9.eE+-]+)\s*$", re.MULTILINE)
Fetch = Callable[[str], web.Reply]
"""Gives the answer to GET of a path; raises NoAnswer."""


@dataclass(frozen=True)
class ServerCounters:
    """What a server tells of itself; None is what it does not."""

    answers: bool
    requests: int | None = None
    prompted: int | None = None
    generated: int | None = None


@dataclass(frozen=True)
class CounterSource:
    """Where a server may tell them: a path, and the keys of each counter in their order."""

    path: str
    keys: tuple[Sequence[str], ...]


def find_path(fetch: Fetch) -> str:
    """Where a server has counters; of one without, where it answers at all. Raises NoAnswer."""
    for row in _rows():
        reply = fetch(row.path)
        if reply.ok and _parse(row, reply).requests is not None:
            return row.path
    return MODELS


def read(fetch: Fetch, path: str) -> ServerCounters:
    """What a server tells at a path, one that `find_path` gave."""
    try:
        reply = fetch(path)
    except web.NoAnswer:
        return ServerCounters(answers=False)
    row = next((row for row in _rows() if row.path == path), None)
    return _parse(row, reply) if row and reply.ok else ServerCounters(reply.ok)


def _rows() -> list[CounterSource]:
    rows = shipped_table("serving")["counters"]
    return [CounterSource(row["path"], tuple(row[key] for key in _KEYS)) for row in rows]


def _parse(row: CounterSource, reply: web.Reply) -> ServerCounters:
    """The sums under the keys of a row: of a key that is nowhere there is none.

    In JSON a server that holds nothing has no numbers of it either.
    """
    document = reply.json
    if document is not None:
        held, *tokens = ([*_values(document, keys)] for keys in row.keys)
        return ServerCounters(True, *map(sum, (held, *tokens))) if held else ServerCounters(True)
    lines = _LINE.findall(reply.text)
    found = ([float(value) for name, value in lines if name in keys] for keys in row.keys)
    return ServerCounters(True, *(round(sum(one)) if one else None for one in found))


def _values(document: object, keys: Sequence[str]) -> Iterator[int]:
    """The whole numbers and truths under some keys, wherever they are."""
    if isinstance(document, list):
        for one in document:
            yield from _values(one, keys)
    elif isinstance(document, dict):
        for key, value in document.items():
            if key in keys and isinstance(value, int):
                yield int(value)
            else:
                yield from _values(value, keys)
