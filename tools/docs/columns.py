"""The columns of the tables that are made from records."""

from __future__ import annotations

from markdown import code, table

from nixwulf.table import OF_CASE_COLUMNS, TIDY_COLUMNS

_TIDY = """# Columns

`nixwulf.load` and `nixwulf report --format csv|json` give one row for each record and metric, and
one for each record without any. Numbers keep the record's unit, which is in the column `unit`;
what a record does not say is empty, NaN or NA.

"""
_CASES = """
## Of cases

`nixwulf.table.by_case` gives one row for each case, metric, state and variant: the columns that
tell them apart, as above, and

"""


def pages() -> dict[str, str]:
    """The page of both tables."""
    tables = [
        table(["column", "what"], ([code(name), text] for name, text in columns.items()))
        for columns in (TIDY_COLUMNS, OF_CASE_COLUMNS)
    ]
    return {"columns.md": _TIDY + tables[0] + _CASES + tables[1]}
