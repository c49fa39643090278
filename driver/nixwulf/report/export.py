"""The tidy table as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from nixwulf.record import Record
from nixwulf.table import TIDY_COLUMNS, tidy


def to_csv(records: Iterable[Record]) -> str:
    """One line per record and metric; cells without a value are empty, samples are a JSON list."""
    table = tidy(records)
    table["samples"] = [json.dumps(samples) for samples in table["samples"]]
    return str(table.to_csv(index=False, lineterminator="\n"))


def to_json(records: Iterable[Record]) -> str:
    """The columns with what they hold, and the rows; a key without a value is absent."""
    rows = [_present(row) for row in tidy(records).to_dict("records")]
    return json.dumps({"columns": TIDY_COLUMNS, "rows": rows}, indent=1, allow_nan=False) + "\n"


def _present(row: dict[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    kept = {}
    for key, value in row.items():
        if isinstance(value, tuple):
            kept[key] = list(value)
        elif not pd.isna(value) and value != "":
            kept[key] = value
    return kept
