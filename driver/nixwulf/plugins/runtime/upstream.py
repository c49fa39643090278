"""In which versions of a foreign program the words that the driver uses are there.

data/upstream has a table a family of programs: flags, variables and endpoints, each with the first
version that has it, the last one where upstream took it away, and where that was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.schema import check

if TYPE_CHECKING:
    from nixwulf.plugins.runtime.case import Case

_FOLDER = DATA / "upstream"
_SEVERAL = "several"


@dataclass(frozen=True)
class VersionRow:
    """Words that came with one version; when: what a case must be for it to need them."""

    words: tuple[str, ...]
    since: str
    source: str
    programs: tuple[str, ...] = ()
    until: str | None = None
    optional: bool = False
    when: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """Programs of one project; engine is None where no node is asked for their version.

    read: the versions that were read, the oldest first: older ones may have what it has.
    """

    name: str
    read: tuple[str, ...]
    rows: tuple[VersionRow, ...]
    engine: str | None = None
    printed: tuple[str, ...] = ()
    credible_from: str | None = None
    fix: str = ""


@cache
def families() -> tuple[Family, ...]:
    """Every table; raises InputError."""
    return tuple(map(_load, sorted(_FOLDER.glob("*.toml"))))


def problem(engine: str, printed: str, given: Mapping[str, str]) -> str | None:
    """Why an engine of the version that a node printed cannot be driven, or None.

    A development build, and a text without a version, are accepted: their number does not show
    what is in them.

    given: what is known of the cases, by the names in a row's `when`.
    """
    found = (_problem(each, printed, given) for each in families() if each.engine == engine)
    return next(filter(None, found), None)


def splits(engine: str, version: str, parallelism: str) -> bool:
    """Whether a version can split so over nodes; False where that came later, or is not stated."""
    rows = [
        row
        for family in families()
        for row in family.rows
        if family.engine == engine and row.when.get("parallelism") == parallelism
    ]
    return all(number(version) >= number(row.since) for row in rows)


def number(version: str) -> tuple[int, ...]:
    """A version to compare: of b6688, v0.11.0 or 0.11 the numbers, without zeros at the end."""
    leading = re.match(r"[bv]?([0-9]+(?:[.-][0-9]+)*)", version)
    numbers = [int(part) for part in re.split("[.-]", leading[1])] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def version_in(family: Family, printed: str) -> str | None:
    """The version in what a node printed, where it is that of a release or a numbered build."""
    matches = (re.search(pattern, printed, re.MULTILINE) for pattern in family.printed)
    match = next(filter(None, matches), None)
    if match is None or not number(match[1]) or "dev" in match[1]:
        return None
    if family.credible_from and number(match[1]) < number(family.credible_from):
        return None
    return match[1]


def of_cluster(nodes: int) -> dict[str, str]:
    """What is known of the cases of so many nodes."""
    return {"nodes": _SEVERAL} if nodes > 1 else {}


def of_case(case: Case) -> dict[str, str]:
    """What a row's `when` can name of a case; what it can name of its fabric, the gate adds."""
    values = {**case.parameters, "benchmark": case.benchmark, "transport": case.transport}
    values |= {"parallelism": case.parallelism, **of_cluster(case.nodes)}
    return {key: str(value) for key, value in values.items()}


def needed(rows: Iterable[VersionRow], given: Mapping[str, str]) -> list[VersionRow]:
    """The rows that a version has to have for such cases."""
    return [row for row in rows if not row.optional and row.when.items() <= given.items()]


def first_of(rows: Iterable[VersionRow]) -> VersionRow | None:
    """The row whose words came last."""
    return max(rows, key=lambda row: number(row.since), default=None)


def last_of(rows: Iterable[VersionRow]) -> VersionRow | None:
    """The row whose words went first."""
    gone = [row for row in rows if row.until]
    return min(gone, key=lambda row: number(row.until or ""), default=None)


def _problem(family: Family, printed: str, given: Mapping[str, str]) -> str | None:
    version = version_in(family, printed)
    if version is None:
        return None
    rows = needed(family.rows, given)
    first, last = first_of(rows), last_of(rows)
    if first and number(version) < number(first.since):
        return _sentence(family, version, first, first.since, "later")
    if last and last.until and number(version) > number(last.until):
        return _sentence(family, version, last, last.until, "earlier")
    return None


def _sentence(family: Family, version: str, row: VersionRow, bound: str, side: str) -> str:
    of = f" of {row.programs[0]}" if row.programs else ""
    wanted = bound.removeprefix("v")
    why = f"for {row.words[0]!r}{of}"
    if bound == family.read[0]:
        why = f"(the oldest that was read) for {row.words[0]!r}{of}"
    return (
        f"{family.name} {version!r}, and nixwulf needs {wanted} or {side} {why} ({row.source}); "
        f"{family.fix.format(wanted=wanted)}."
    )


def _load(path: Path) -> Family:
    document = read_toml(path)
    check(document, "upstream", str(path))
    rows = tuple(VersionRow(**_tuples(row)) for row in document.pop("rows"))
    return Family(**_tuples(document), rows=rows)


def _tuples(table: Mapping[str, object]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
