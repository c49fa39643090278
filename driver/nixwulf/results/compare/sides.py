"""The two sides of a comparison: the records that a path or a query names, as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_results
from nixwulf.core.query import Term, is_query, matches, parse_query
from nixwulf.results.identity import COLUMNS, OVER_OWNERS, QUANTITY, Identity, Key, identity
from nixwulf.results.record import Record, load
from nixwulf.results.session import SessionKey, session_of
from nixwulf.results.store import read_folder
from nixwulf.results.table import TIDY_COLUMNS, as_rows, tidy

# Records of 1.1 and before have among their conditions what was seen, which no two runs share.
_SEEN = frozenset({"retransmits", "lost", "stalled", "p99_us", "observed"})
_NO_QUERY = frozenset({"samples", "conditions", "observed", "parameters", "variant"})


def ordered(items: Iterable[tuple[Key, Any]]) -> Identity:
    """An identity in the order in which people read it: what is measured, where, then the rest."""
    places = {name: place for place, name in enumerate(COLUMNS)}
    return dict(
        sorted(items, key=lambda item: (item[0].group, places.get(item[0].name, 0), item[0]))
    )


@dataclass(frozen=True)
class ComparedRow:
    """A row of the tidy table, what has to be equal for it to be compared, and its session."""

    values: Mapping[str, Any]
    identity: Identity
    session: SessionKey | None = None

    @property
    def ok(self) -> bool:
        """Whether it has a number."""
        return bool(self.values["outcome"] == "ok")

    @property
    def case(self) -> Identity:
        """Its identity without what distinguishes the metrics of a run."""
        return {
            key: value
            for key, value in self.identity.items()
            if key.group != "conditions" and key.name not in QUANTITY
        }


@dataclass(frozen=True)
class Side:
    """One side of a comparison: how it was named, its records and their rows."""

    name: str
    records: tuple[Record, ...]
    rows: tuple[ComparedRow, ...]


def read_side(text: str, folder: Path) -> Side:
    """The records of a path, or of a query among those in a folder; raises InputError."""
    path, folder = find_results(Path(text)), find_results(folder)
    if path.exists():
        return side_of(text, _read(path))
    if not is_query(text):
        raise InputError(
            f"{text!r} does not exist; name a record, a run folder, a folder of those, or a query "
            "such as 'platform=dgx-spark model=qwen3*'."
        )
    if not folder.is_dir():
        raise InputError(
            f"{text!r} is a query, and there is no folder {str(folder)!r} to choose from; name one "
            "with --in."
        )
    whole = side_of(text, _read(folder))
    keys = frozenset(name for row in whole.rows for name in _queried(row))
    terms = parse_query(text, keys)
    rows = tuple(row for row in whole.rows if matches(terms, _queried(row)))
    if not rows:
        raise InputError(
            f"No record in {str(folder)!r} is {text!r}; it has {_nearest(terms, whole.rows)}."
        )
    chosen = {row.values["record"] for row in rows}
    return Side(text, tuple(r for r in whole.records if r["id"] in chosen), rows)


def side_of(name: str, records: Iterable[Record]) -> Side:
    """The side that these records make."""
    kept = tuple(records)
    rows = as_rows(tidy(_with_positions(record) for record in kept))
    identities = (identity(row, without=OVER_OWNERS) for row in rows)
    sessions = {(r["id"], r.get("started", "")): session_of(r) for r in kept}
    of_rows = (sessions[row["record"], row["started"]] for row in rows)
    return Side(name, kept, tuple(map(ComparedRow, rows, identities, of_rows)))


def split(records: Iterable[Record], ids: Collection[str], name: str) -> tuple[Side, Side]:
    """Two sides of the records of one run."""
    sides: tuple[list[Record], list[Record]] = ([], [])
    for record in records:
        sides[record["case"]["id"] not in ids].append(record)
    return side_of(name, sides[0]), side_of(f"not {name}", sides[1])


def _read(path: Path) -> Iterable[Record]:
    return [load(path)] if path.is_file() else read_folder(path).records


def _with_positions(record: Record) -> Record:
    """The record with nodes in its conditions named by their place, as other clusters have them."""
    places = {node["name"]: f"n{i + 1}" for i, node in enumerate(record.get("nodes", ()))}
    metrics = [
        {
            **metric,
            "conditions": {
                key: places.get(value, value) if isinstance(value, str) else value
                for key, value in metric["conditions"].items()
                if key not in _SEEN
            },
        }
        for metric in record["metrics"]
    ]
    return {**record, "metrics": metrics}


def _queried(row: ComparedRow) -> dict[str, Any]:
    """What a query may ask of a row: the table's columns, its parameters and its conditions."""
    columns = {name: row.values[name] for name in TIDY_COLUMNS if name not in _NO_QUERY}
    return {**{key.name: value for key, value in row.identity.items()}, **columns}


def _nearest(terms: Iterable[Term], rows: Iterable[ComparedRow]) -> str:
    """For each key of a query, the values that there are."""
    found = []
    for key in dict.fromkeys(term.key for term in terms):
        values = {str(_queried(row).get(key) or "none") for row in rows}
        found.append(f"{key} {', '.join(sorted(values)[:10])}")
    return "; ".join(found)
