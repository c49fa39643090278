"""Image, measure and explain small desk-side clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from nixwulf.results.store import Paths

__version__ = "0.2.0"


def load(paths: Paths) -> pd.DataFrame:
    """The tidy table of record files, run folders and folders of those: one of them, or several.

    One row for each record and metric, one for each record that has none; the columns and their
    units are nixwulf.results.table.TIDY_COLUMNS. Every record is validated, and the same record
    counts once. Raises nixwulf.core.errors.InputError, naming the file, for anything that is not
    as it should.
    """
    from nixwulf.results.store import read_records
    from nixwulf.results.table import tidy

    return tidy(read_records(paths))
