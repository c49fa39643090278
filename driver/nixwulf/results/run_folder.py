"""A run folder: its plan, where there is one, and the records in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.results.record import Record
from nixwulf.results.store import PLAN, Entry, read_entries, read_plan


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
        """The sweep's description; may be empty."""
        return str(self._sweep.get("description", ""))

    @property
    def planned_runs(self) -> int | None:
        """Runs in the plan; None without a plan."""
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
    entries = (
        Entry(entry.path.relative_to(folder), entry.record) for entry in read_entries(folder)
    )
    return RunFolder(folder, tuple(entries), plan)
