"""A server's own counters: requests that it holds, tokens that it computed, waits for the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nixwulf.core import web
from nixwulf.core.files import shipped_table

MODELS = "/v1/models"
# A server that computes may answer late; a look may not.
ANSWER_S = 2.0
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([0-9.eE+-]+)\s*$", re.MULTILINE)
Fetch = Callable[[str], web.Reply]
"""Gives the answer to GET of a path; raises NoAnswer."""


@dataclass(frozen=True)
class ServerCounters:
    """Counters of a server; None is what it does not tell.

    requests: that it holds, queued: those of them that wait. first_token_s: seconds until their
    first token, summed over first_tokens requests.
    """

    answers: bool
    requests: int | None = None
    queued: int | None = None
    prompted: int | None = None
    generated: int | None = None
    first_tokens: int | None = None
    first_token_s: float | None = None


@dataclass(frozen=True)
class CounterSource:
    """Where a server may tell them: a path, and the keys of each counter by its name."""

    path: str
    keys: Mapping[str, Sequence[str]]


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
    return [CounterSource(row["path"], {k: row[k] for k in row if k != "path"}) for row in rows]


def _parse(row: CounterSource, reply: web.Reply) -> ServerCounters:
    """The sums under the keys of a row: of a key that is nowhere there is none.

    In JSON a server that holds nothing has no numbers of it either.
    """
    document = reply.json
    if document is not None:
        found = {name: [*_values(document, keys)] for name, keys in row.keys.items()}
        if not found["requests"]:
            return ServerCounters(True)
        return ServerCounters(True, **{name: sum(values) for name, values in found.items()})
    lines = _LINE.findall(reply.text)
    sums = {
        name: sum(values)
        for name, keys in row.keys.items()
        if (values := [float(value) for key, value in lines if key in keys])
    }
    waited = sums.pop("first_token_s", None)
    whole = {name: round(value) for name, value in sums.items()}
    return ServerCounters(True, first_token_s=waited, **whole)


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
