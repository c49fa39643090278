"""The static site of records: a table of all, and a page for each model, platform and fabric."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nixwulf.report.site.folder import check_out, replaced
from nixwulf.report.site.pages import Site, unscrubbed
from nixwulf.results.store import read_entries


@dataclass(frozen=True)
class Made:
    """What was made: counts of records and values, and of runs that hold private texts."""

    records: int
    values: int
    unscrubbed: int


def make(paths: Sequence[Path], out: Path) -> Made:
    """Make the site of all records in files and folders in the folder `out`, as a whole or not.

    Raises InputError for a bad record, and for a folder that is not a site's.
    """
    check_out(out, paths)
    site = Site(read_entries(paths))
    with replaced(out) as folder:
        for name, text in site.files():
            file = folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
        for source in site.sources:
            shutil.copyfile(source.entry.path, folder / "records" / f"{source.page}.json")
    return Made(
        records=len(site.sources),
        values=sum(row.value is not None for row in site.rows),
        unscrubbed=unscrubbed(source.record for source in site.sources),
    )
