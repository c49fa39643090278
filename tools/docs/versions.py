"""Versions of foreign programs that the driver can drive."""

from __future__ import annotations

from collections.abc import Iterator

from markdown import code, table

from nixwulf.plugins.runtime import upstream
from nixwulf.plugins.runtime.upstream import Family

_INTRODUCTION = """# Versions of foreign programs

Each flag, variable and endpoint that the driver gives to a program of others is a row of
[data/upstream](../../driver/nixwulf/data/upstream): the first version that has it, the last one
where upstream took it away, and where that was read. The gate `versions` refuses a node with an
engine outside the range before anything is launched; so does `nixwulf preflight`. Not refused: a
version that cannot be read (a development build; distributed-llama prints none), a word that is
`optional`, and an image, whose digest names one build.

"""


def pages() -> dict[str, str]:
    """The page of versions."""
    rows = [
        [
            each.name,
            each.engine or "",
            _range_of(each),
            "; ".join(_more(each)),
            f"{each.read[0]} to {each.read[-1]}",
        ]
        for each in upstream.families()
    ]
    head = ["programs", "engine", "every case needs", "some need more", "read"]
    return {"versions.md": _INTRODUCTION + table(head, rows)}


def _more(family: Family) -> Iterator[str]:
    """What single cases need beyond that."""
    whens = [dict(row.when) for row in family.rows if row.when and not row.optional]
    for number, when in enumerate(whens):
        wanted = _range_of(family, **when)
        if when not in whens[:number] and wanted != _range_of(family):
            (pair,) = when.items()
            yield f"{code(f'{pair[0]}: {pair[1]}')}: {wanted}"


def _range_of(family: Family, **when: str) -> str:
    """The versions that have what the cases of a `when` need, such as '0.11.1 or later'."""
    rows = upstream.needed(family.rows, when)
    first, last = upstream.first_of(rows), upstream.last_of(rows)
    bounds = [f"{first.since} or later"] if first else []
    bounds += [f"{last.until} or earlier"] if last else []
    return " and ".join(bounds) or "any"
