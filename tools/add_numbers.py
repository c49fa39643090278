"""Add published numbers to results/published/numbers.csv.

Usage: .venv/bin/python tools/add_numbers.py ROWS.csv [TABLE]

A row of ROWS.csv has who measured it (source), where it says so (source_url, https), the day
(date: 2026-09-13, or 2026-09 where no day is told), the machine in the source's words (platform),
and in the words of llama-bench what was measured: metric tg or pp, value, unit, n_prompt, n_gen.
What a note has as key=value (date, depth, ub, drafts, acceptance_percent, concurrency) goes into
its column. A row that lacks a source or a date, that says of itself that it needs a REVIEW, or that
the table has already, is not added; the tool says why. Then run tools/publish_numbers.py.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fitting.machines import machine_of
from nixwulf.core.errors import InputError
from nixwulf.core.text import plural
from publish_numbers import COLUMNS, PUBLISHED, read_table

_DATE = re.compile(r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")
_METRICS = {"tg": "decode", "pp": "prompt"}
_BACKENDS = ("Vulkan", "ROCm", "CUDA", "Metal")
_LINKS = {"rdma": "roce", "tcp": "ethernet"}
# By the key in a note: the column, and the key there.
_PLACES = {
    "ub": ("parameters", "n_ubatch"),
    "drafts": ("parameters", "drafts"),
    "method": ("parameters", "speculative"),
    "device": ("parameters", "device"),
    "concurrency": ("conditions", "concurrency"),
    "text": ("conditions", "text"),
    "acceptance_percent": ("observed", "acceptance_percent"),
}
_SAME = (
    *("source_url", "machine", "nodes", "transport", "engine", "backends", "parallelism", "model"),
    *("quant", "parameters", "metric", "value", "n_prompt", "n_gen", "n_depth", "conditions"),
)


def table_row(row: Mapping[str, str], name: str) -> dict[str, str]:
    """The row of the table; raises InputError for one that it may not have.

    Args:
        row: as ROWS.csv has it.
        name: the id that it is to have.
    """
    words = [word.strip() for word in row.get("note", "").split(";") if word.strip()]
    told = dict(word.split("=", 1) for word in words if "=" in word)
    label = f"Row {row.get('id') or name!r}"
    for column in ("source", "source_url", "platform", "engine", "model", "quant"):
        if not row.get(column, "").strip():
            raise InputError(f"{label}: {column} is empty; give it as the source has it.")
    if not re.fullmatch(r"https://[^\s<>\"]+", row["source_url"]):
        raise InputError(f"{label}: source_url is {row['source_url']!r}, expected https://...")
    if "/search?" in row["source_url"]:
        raise InputError(f"{label}: a page of search results is no source; give what it found.")
    date = row.get("date") or told.get("date", "")
    if not _DATE.fullmatch(date):
        raise InputError(f"{label}: date is {date!r}, expected one such as 2026-09-13 or 2026-09.")
    if "REVIEW" in row.get("note", ""):
        why = row["note"].partition("REVIEW")[2].strip(": ")
        raise InputError(f"{label} needs a review: {why}.")
    metric = _METRICS.get(re.sub(r"\d+$", "", row["metric"]))
    if metric is None or row["unit"] != "tok/s":
        raise InputError(
            f"{label}: metric {row['metric']!r} in {row['unit']!r}, expected tg or pp in 'tok/s'."
        )
    machine = machine_of(row["platform"])
    platform = (machine.get("platforms") or [machine["name"]])[0]
    if machine["name"].startswith("strix-halo"):
        platform = "strix-halo"
    prompt = row["n_prompt"] if metric == "prompt" else "0"
    answer = (row["n_gen"] or "128") if metric == "decode" else "0"
    engine = "exo" if row["engine"] == "exo" else row["engine"].split()[0]
    backend = row.get("backend") or next((b for b in _BACKENDS if b in row.get("note", "")), "")
    if not backend and engine == "llama.cpp" and platform.startswith(("dgx", "mac")):
        backend = "Metal" if platform.startswith("mac") else "CUDA"
    gigabits = re.search(r"(\d+)\s*G", row["interconnect"])
    several = int(row["nodes"]) > 1
    found = dict.fromkeys(COLUMNS, "") | {
        "id": name,
        "date": date,
        "cluster": f"{re.split(r'[ ,/]', row['source'])[0].lower()}-{platform}",
        "platform": platform,
        "machine": row["platform"],
        "engine": engine,
        "backends": f"{backend},RPC" if backend and "rpc" in row["engine"] else backend,
        "benchmark": "llama-bench" if engine == "llama.cpp" else "generation",
        "model": re.sub(r"-(it|instruct|\d{4})$", "", row["model"].lower().replace(" ", "-")),
        "metric": metric,
        "n_prompt": prompt,
        "n_gen": answer,
        "n_depth": told.get("depth", "0"),
    }
    if several:
        found |= {
            "fabric_kind": "thunderbolt5-rdma"
            if "Thunderbolt 5" in row["interconnect"]
            else _LINKS[row["transport"]],
            "fabric_gbps": gigabits[1] if gigabits else "",
        }
        found["fabric"] = f"{found['fabric_kind']}-{found['fabric_gbps']}g".removesuffix("-g")
    same = ("source", "source_url", "nodes", "interconnect", "transport", "engine_version")
    same += ("parallelism", "quant", "model_size_gib", "value", "stddev", "unit")
    found |= {column: row.get(column, "") for column in same}
    for key, (column, to) in _PLACES.items():
        if key in told:
            found[column] = ";".join(filter(None, (found[column], f"{to}={told[key]}")))
    kept = {"date", "depth", *_PLACES}
    rest = [word for word in words if word.partition("=")[0] not in kept]
    found["note"] = "; ".join(rest)
    return found


def main(arguments: Sequence[str]) -> None:
    """Add the rows, and say which were not added and why."""
    path = Path(arguments[1]) if len(arguments) > 1 else PUBLISHED / "numbers.csv"
    rows = [dict(row) for row in read_table(path)]
    known = {tuple(row[column] for column in _SAME) for row in rows}
    next_id = 1 + max(int(row["id"][1:]) for row in rows if row["id"].startswith("n"))
    added = 0
    with Path(arguments[0]).open(encoding="utf-8", newline="") as file:
        for given in csv.DictReader(file):
            try:
                row = table_row(given, f"n{next_id:04}")
                if tuple(row[column] for column in _SAME) in known:
                    raise InputError(f"Row {given.get('id')!r} is in the table already.")
            except InputError as error:
                print(error.message)
                continue
            known.add(tuple(row[column] for column in _SAME))
            rows.append(row)
            next_id, added = next_id + 1, added + 1
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{plural(added, 'row')} added to {path}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (InputError, IndexError, OSError) as error:
        usage = "Give a CSV of rows: tools/add_numbers.py ROWS.csv"
        sys.exit(getattr(error, "message", usage))
