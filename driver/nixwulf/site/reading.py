"""The records of a site with the files that hold them, validated, each counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from nixwulf import record
from nixwulf.errors import InputError
from nixwulf.report.folder import Entry, record_paths


def read_entries(paths: Iterable[Path]) -> Iterator[Entry]:
    """Every record of files and folders with its file; raises InputError for a bad one."""
    seen: set[str] = set()
    for path in paths:
        found = [path] if path.is_file() else record_paths(path)
        if not found:
            raise InputError(
                f"{str(path)!r} holds no record (no file records/*.json); name a record, or the "
                "folder that 'nixwulf bench' wrote."
            )
        for file in found:
            document = record.load(file)
            if document["digest"] not in seen:
                seen.add(document["digest"])
                yield Entry(file, document)
