"""Keep which engines ran, of records of this project's own runs.

Usage: .venv/bin/python tools/engines_ran.py RUN_FOLDER...

Each run that ended `ok` is a row of driver/nixwulf/data/engines_ran.toml: the newest of its engine,
version, nodes, split, devices and place. The driver says by it of which engines there is none, and
docs/reference/engines-ran.md is made of it. Numbers that somebody else posted are no runs of ours.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nixwulf.results.store import read_records

TABLE = Path("driver/nixwulf/data/engines_ran.toml")
KEYS = ("engine", "version", "nodes", "parallelism", "devices", "place", "day")
_HEAD = "# Made by tools/engines_ran.py of records of this project's own runs; do not edit.\n"


def row_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a record shows of an engine; None of a run that did not end ok, or was not ours."""
    case, engine = record["case"], record.get("engine", {})
    if record["outcome"] != "ok" or "source" in record or not case.get("engine"):
        return None
    devices = re.findall(r": (\S+?)(?:,|$)", engine.get("devices", "").lower())
    return {
        "engine": case["engine"],
        "version": engine.get("version", "unknown"),
        "nodes": case["nodes"],
        "parallelism": case["parallelism"],
        "devices": " ".join(sorted(set(devices))) or "unknown",
        "place": "lab" if record["cluster"]["lab"] else "machines",
        "day": record["started"][:10],
    }


def merged(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows sorted, of those that differ in their day alone the newest."""
    newest: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: str(row["day"])):
        newest[tuple(row[key] for key in KEYS[:-1])] = row
    return [newest[key] for key in sorted(newest, key=str)]


def text_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """The table as TOML."""
    shown = ("\n".join(f"{key} = {row[key]!r}" for key in KEYS) for row in rows)
    return _HEAD + "".join(f"\n[[runs]]\n{one}\n" for one in shown)


def main(folders: list[str]) -> None:
    """Add the runs of some folders."""
    before = tomllib.loads(TABLE.read_text("utf-8"))["runs"] if TABLE.exists() else []
    records = read_records([Path(folder) for folder in folders])
    found = [row for row in map(row_of, records) if row]
    TABLE.write_text(text_of(merged([*before, *found])), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
