"""Make the records of results/published from its table, numbers.csv.

Usage: .venv/bin/python tools/publish_numbers.py [TABLE [FOLDER]]

Rows that agree in everything but the number and its conditions are one run, and so one record. The
same table gives the same files, byte for byte, in whatever order its rows are; files of FOLDER that
it does not give are removed. docs/reference/published-columns.md says what the columns hold.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import write_json
from nixwulf.results.importing import external_record
from nixwulf.results.record import Record, validate

PUBLISHED = Path(__file__).parents[1] / "results" / "published"
PRICE = "price_usd"
GIB = 2**30

Row = Mapping[str, str]
RUN = (
    *("source", "source_url", "date", "cluster", "platform", "machine", "nodes"),
    *("interconnect", "fabric", "fabric_kind", "fabric_gbps", "mtu", "stack", "transport"),
    *("engine", "engine_version", "engine_commit", "backends", "executor"),
    *("benchmark", "parallelism", "samples"),
    *("model", "quant", "model_params_b", "active_params_b", "model_size_gib", "parameters"),
)
"""Columns that rows of one run have in common."""
NUMBER = ("metric", "value", "stddev", "unit")
TOKENS = ("n_prompt", "n_gen", "n_depth")
COLUMNS = ("id", "same_as", *RUN, *NUMBER, *TOKENS, "conditions", "observed", "note")


def read_table(path: Path) -> list[Row]:
    """The rows; raises InputError, naming the row, when one cannot be what it says."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise InputError(f"{path}: the columns are not {', '.join(COLUMNS)}.")
        rows: list[Row] = list(reader)
    known: set[str] = set()
    for row in rows:
        if None in row or None in row.values():
            raise InputError(f"{path}: row {row['id']!r} has not {len(COLUMNS)} fields.")
        if row["id"] in known:
            raise InputError(f"{path}: two rows have the id {row['id']!r}.")
        known.add(row["id"])
    for row in rows:
        if row["same_as"] and row["same_as"] not in known:
            raise InputError(f"{path}: row {row['id']!r} is the same as no row {row['same_as']!r}.")
    return rows


def records(rows: Iterable[Row]) -> list[Record]:
    """The records of a table, sorted by id; raises InputError for what contradicts itself."""
    told = [row for row in rows if not row["same_as"]]
    prices = _prices(row for row in told if row["metric"] == PRICE)
    runs = sorted((row for row in told if row["metric"] != PRICE), key=_key)
    made = [_record(list(group), prices) for _, group in groupby(runs, key=_run)]
    ids = Counter(record["id"] for record in made)
    for record in made:
        validate(record, f"the record {record['id']!r}")
        if ids[record["id"]] > 1:
            raise InputError(
                f"Two runs of {record['source']['url']} give the id {record['id']!r}; say in "
                "'parameters' or 'machine' what differs."
            )
    return sorted(made, key=lambda record: str(record["id"]))


def write(made: Iterable[Record], folder: Path) -> None:
    """Write each record to a file of its id, and remove the other records of the folder."""
    names = {f"{record['id']}.json": record for record in made}
    for path in folder.glob("*.json"):
        if path.name not in names:
            path.unlink()
    for name, record in names.items():
        write_json(folder / name, record)


def _prices(rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        other = found.setdefault((row["cluster"], row["nodes"]), row)
        if other is not row:
            raise InputError(
                f"Rows {other['id']!r} and {row['id']!r} price {row['nodes']} nodes of "
                f"{row['cluster']!r}; keep one."
            )
    return found


def _run(row: Row) -> tuple[str, ...]:
    return tuple(row[column] for column in RUN)


def _key(row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Runs side by side, and in a run an order that is not the table's: lengths by length."""
    lengths = tuple(row[column].zfill(8) for column in TOKENS)
    return _run(row), (row["metric"], *lengths, row["conditions"], row["value"])


def _record(rows: Sequence[Row], prices: Mapping[tuple[str, str], Row]) -> Record:
    row = rows[0]
    return external_record(
        "published",
        source=_present(
            name=row["source"], url=row["source_url"], date=row["date"], note=_note(rows)
        ),
        case=_case(row),
        cluster=_cluster(row, prices),
        metrics=_metrics(rows),
        fabric=_fabric(row),
        engine=_engine(row),
        model=_model(row),
    )


def _case(row: Row) -> dict[str, Any]:
    return {
        **_present(engine=row["engine"], benchmark=row["benchmark"], model=row["model"]),
        "nodes": _finite(row, "nodes"),
        **_present(
            fabric=row["fabric"], transport=row["transport"], parallelism=row["parallelism"]
        ),
        "parameters": _pairs(row, "parameters"),
        **_numbers(row, {"samples": "samples"}),
    }


def _cluster(row: Row, prices: Mapping[tuple[str, str], Row]) -> dict[str, Any]:
    price = prices.get((row["cluster"], row["nodes"]))
    return {
        "name": row["cluster"],
        "platforms": row["platform"].split(";"),
        "lab": False,
        "machine": row["machine"],
        **({} if price is None else {"price_usd": _finite(price, "value")}),
    }


def _fabric(row: Row) -> dict[str, Any]:
    return {
        **_present(name=row["fabric"], kind=row["fabric_kind"], stack=row["stack"]),
        **_numbers(row, {"fabric_gbps": "speed_gbps", "mtu": "mtu"}),
    }


def _engine(row: Row) -> dict[str, Any]:
    return _present(
        name=row["engine"],
        version=row["engine_version"],
        build_commit=row["engine_commit"],
        backends=row["backends"],
        executor=row["executor"],
    )


def _model(row: Row) -> dict[str, Any]:
    if not row["model"]:
        return {}
    scales = {
        "bytes": ("model_size_gib", GIB),
        "parameters": ("model_params_b", 1e9),
        "active_parameters": ("active_params_b", 1e9),
    }
    counts = {
        key: round(_finite(row, column) * scale)
        for key, (column, scale) in scales.items()
        if row[column]
    }
    return {**_present(name=row["model"], weights=row["quant"]), **counts}


def _metrics(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        tokens = _numbers(row, {column: column for column in TOKENS})
        metric: dict[str, Any] = {
            "name": row["metric"],
            "unit": row["unit"],
            "value": _finite(row, "value"),
            **_numbers(row, {"stddev": "stddev"}),
            "conditions": {**tokens, **_pairs(row, "conditions")},
            **({"observed": _pairs(row, "observed")} if row["observed"] else {}),
        }
        for other in found:
            if all(other[key] == metric[key] for key in ("name", "conditions")):
                raise InputError(
                    f"Row {row['id']!r} gives {row['metric']!r} of a run that has it under the "
                    "same conditions; say in 'conditions' or 'parameters' what differs, or in "
                    "'same_as' which row has the same number."
                )
        found.append(metric)
    return found


def _note(rows: Sequence[Row]) -> str:
    """What no other key of a record holds, each part once."""
    parts = [rows[0]["interconnect"], *(part for row in rows for part in row["note"].split("; "))]
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _present(**values: str) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}


def _numbers(row: Row, columns: Mapping[str, str]) -> dict[str, int | float]:
    return {key: _finite(row, column) for column, key in columns.items() if row[column]}


def _finite(row: Row, column: str) -> int | float:
    """A cell's number; raises InputError when it is none, or not finite."""
    try:
        number = _number(row[column])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"Row {row['id']!r}: {column} is {row[column]!r}, expected a number.")
    return number


def _pairs(row: Row, column: str) -> dict[str, str | int | float | bool]:
    pairs = (pair.split("=", 1) for pair in row[column].split(";") if pair)
    try:
        return {key: _value(text) for key, text in pairs}
    except ValueError:
        raise InputError(
            f"Row {row['id']!r}: {column} is {row[column]!r}, expected key=value;key=value."
        ) from None


def _value(text: str) -> str | int | float | bool:
    if text in {"true", "false"}:
        return text == "true"
    try:
        return _number(text)
    except ValueError:
        return text


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


def main(arguments: Sequence[str]) -> None:
    """Make the records, and say how many."""
    table = Path(arguments[0]) if arguments else PUBLISHED / "numbers.csv"
    folder = Path(arguments[1]) if len(arguments) > 1 else PUBLISHED / "records"
    made = records(read_table(table))
    write(made, folder)
    metrics = sum(len(record["metrics"]) for record in made)
    print(f"{len(made)} records with {metrics} numbers in {os.path.relpath(folder)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        sys.exit(error.format_message())
