"""The columns of tables: those made from records, and that of the published numbers."""

from __future__ import annotations

import tomllib
from pathlib import Path

from markdown import code, table

from nixwulf.results.table import OF_CASE_COLUMNS, TIDY_COLUMNS

_TIDY = """# Columns

`nixwulf.load` and `nixwulf report --format csv|json` give one row for each record and metric, and
one for each record without any. Numbers keep the record's unit, which is in the column `unit`;
what a record does not say is empty, NaN or NA.

"""
_CASES = """
## Of cases

`nixwulf.results.table.by_case` gives one row for each case, metric, state and variant: the columns
that tell them apart, as above, and

"""


_PUBLISHED = """# Columns of the published numbers

Of `results/published/numbers.csv`. Rows that agree in all columns down to `parameters` are one
run, and so one record.

"""
_NAMED = Path(__file__).parents[2] / "results" / "published" / "columns.toml"


def pages() -> dict[str, str]:
    """The pages of the tables made from records, and of the published numbers' table."""
    tables = [
        table(["column", "what"], ([code(name), text] for name, text in columns.items()))
        for columns in (TIDY_COLUMNS, OF_CASE_COLUMNS)
    ]
    named = tomllib.loads(_NAMED.read_text(encoding="utf-8")).items()
    published = table(["column", "what"], ([code(name), text] for name, text in named))
    return {
        "columns.md": _TIDY + tables[0] + _CASES + tables[1],
        "published-columns.md": _PUBLISHED + published,
    }
