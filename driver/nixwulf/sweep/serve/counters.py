"""A server's own counters: what it holds, and the tokens that it has computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core import web
from nixwulf.core.files import shipped_table

MODELS = "/v1/models"
# A server that computes may answer late; a look may not.
ANSWER_S = 2.0
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([0-9.eE+-]+)\s*$", re.MULTILINE)
Fetch = Callable[[str], web.Reply]
"""Gives the answer to GET of a path; raises NoAnswer."""


@dataclass(frozen=True)
class CounterSource:
    """A path of a server, and the keys of what it tells there."""

    path: str
    requests: tuple[str, ...]
    prompted: tuple[str, ...]
    generated: tuple[str, ...]


@dataclass(frozen=True)
class ServerCounters:
    """What a server tells; None is what it does not."""

    answers: bool
    requests: int | None = None
    prompted: int | None = None
    generated: int | None = None


def sources() -> list[CounterSource]:
    """All that are known."""
    rows: list[dict[str, Any]] = shipped_table("serving")["counters"]
    return [
        CounterSource(
            row["path"], tuple(row["requests"]), tuple(row["prompted"]), tuple(row["generated"])
        )
        for row in rows
    ]


def find_source(fetch: Fetch) -> CounterSource | None:
    """The counters that a server has, or None; raises NoAnswer where it does not answer at all."""
    for source in sources():
        reply = fetch(source.path)
        if reply.ok and parse(source, reply).requests is not None:
            return source
    return None


def read(fetch: Fetch, source: CounterSource | None) -> ServerCounters:
    """What a server tells now; source: None where it has no counters, and is only asked at all."""
    try:
        reply = fetch(source.path if source else MODELS)
    except web.NoAnswer:
        return ServerCounters(answers=False)
    if not reply.ok:
        return ServerCounters(answers=False)
    return parse(source, reply) if source else ServerCounters(answers=True)


def parse(source: CounterSource, reply: web.Reply) -> ServerCounters:
    """The counters of an answer; of a key that is nowhere there is none, but of one that may be 0.

    A server that holds nothing has no numbers of it either.
    """
    document = reply.json
    if document is None:
        lines = _LINE.findall(reply.text)

        def total(keys: Sequence[str]) -> int | None:
            values = [float(value) for name, value in lines if name in keys]
            return round(sum(values)) if values else None

        keys = (source.requests, source.prompted, source.generated)
        return ServerCounters(True, *map(total, keys))
    held = list(_values(document, source.requests))
    if not held:
        return ServerCounters(answers=True)
    return ServerCounters(
        True,
        sum(map(bool, held)),
        sum(map(int, _values(document, source.prompted))),
        sum(map(int, _values(document, source.generated))),
    )


def _values(document: object, keys: Sequence[str]) -> Iterator[int | float]:
    """The numbers and truths under some keys, wherever they are."""
    if isinstance(document, list):
        for one in document:
            yield from _values(one, keys)
    elif isinstance(document, dict):
        for key, value in document.items():
            if key in keys and isinstance(value, int | float):
                yield value
            else:
                yield from _values(value, keys)
