"""The tidy table as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable

from nixwulf.results.record import Record
from nixwulf.results.table import TIDY_COLUMNS, as_rows, tidy


def to_csv(records: Iterable[Record]) -> str:
    """One line per record and metric; cells without a value are empty, samples are a JSON list."""
    table = tidy(records)
    table["samples"] = [json.dumps(samples) for samples in table["samples"]]
    return str(table.to_csv(index=False, lineterminator="\n"))


def to_json(records: Iterable[Record]) -> str:
    """The columns with what they hold, and the rows; a key without a value is absent."""
    rows = [
        {name: value for name, value in row.items() if value not in (None, "")}
        for row in as_rows(tidy(records))
    ]
    return json.dumps({"columns": TIDY_COLUMNS, "rows": rows}, indent=1, allow_nan=False) + "\n"
