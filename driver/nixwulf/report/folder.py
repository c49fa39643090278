"""A run folder: its plan, where there is one, and the records in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf import record
from nixwulf.errors import InputError
from nixwulf.plan import read_plan
from nixwulf.record import Record

PLAN = "plan.json"


@dataclass(frozen=True)
class Entry:
    """A validated record and where it lies, relative to the run folder."""

    path: Path
    record: Record

    @property
    def raw(self) -> tuple[Path, ...]:
        """The raw outputs of the run, relative to the run folder."""
        return tuple(self.path.parent.parent / name for name in self.record["raw"])


@dataclass(frozen=True)
class RunFolder:
    """The records of a folder, sorted by path, and its plan where there is one."""

    path: Path
    entries: tuple[Entry, ...]
    plan: dict[str, Any] | None

    @property
    def records(self) -> tuple[Record, ...]:
        """The records alone."""
        return tuple(entry.record for entry in self.entries)

    @property
    def title(self) -> str:
        """The sweep's name, else that of the folder."""
        return str(self._sweep.get("name") or self.path.resolve().name)

    @property
    def description(self) -> str:
        """What the sweep says about itself; may be empty."""
        return str(self._sweep.get("description", ""))

    @property
    def planned_runs(self) -> int | None:
        """Runs in the plan; none without a plan."""
        return len(self.plan["cases"]) * self.plan["repetitions"] if self.plan else None

    @property
    def _sweep(self) -> dict[str, Any]:
        document: dict[str, Any] = self.plan["sweep"]["document"] if self.plan else {}
        return document


def read_folder(folder: Path) -> RunFolder:
    """Read a run folder; raises InputError when it is none, is empty or holds a bad record."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{str(folder)!r} {problem}; name the folder that 'nixwulf bench' wrote.")
    plan = read_plan(folder / PLAN) if (folder / PLAN).exists() else None
    entries = tuple(
        Entry(path.relative_to(folder), record.load(path)) for path in record_paths(folder)
    )
    if not entries:
        raise InputError(
            f"{str(folder)!r} holds no record (no file records/*.json); name the folder that "
            "'nixwulf bench' wrote, or run it again with --resume."
        )
    return RunFolder(folder, entries, plan)


def record_paths(folder: Path) -> list[Path]:
    """The record files of a run folder, of a folder of those, or lying loose in a folder."""
    inside = sorted(folder.glob("**/records/*.json"))
    return inside or sorted(path for path in folder.glob("*.json") if path.name != PLAN)
