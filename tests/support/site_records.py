"""Records of all kinds for the tests of the site; their numbers mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nixwulf.llm.catalog import find, is_known
from nixwulf.report.site import make
from nixwulf.results import record
from nixwulf.results.record import Record
from record_factory import case, failed, machines, metric, ok

SOURCE = "https://example.org/numbers?of=this&and=that"


def foreign(
    id: str,  # noqa: A002 - the record's own word
    metrics: list[dict[str, Any]],
    *,
    of: dict[str, Any] | None = None,
    kind: str = "published",
    platforms: tuple[str, ...] = ("dgx-spark",),
    weights: str = "q4_0",
    fabric: dict[str, Any] | None = None,
    url: str = SOURCE,
    version: str = "b1234",
    machine: str = "",
) -> Record:
    """A sealed record that is no run: published, or imported."""
    of = of or case(model="big")
    named = {"name": "Somebody", "url": url}
    read = {"tool": "llama-bench", "file": "out.txt", "sha256": "0" * 64}
    document: dict[str, Any] = {
        "schema_version": "1.2",
        "kind": kind,
        "id": id,
        "case": {k: v for k, v in of.items() if k not in {"seed", "samples", "warm_up"}},
        "outcome": "ok",
        "source": named if kind == "published" else read,
        "cluster": {"name": "Somebody", "platforms": list(platforms), "lab": False},
        "metrics": metrics,
        "provenance": {"nixwulf": "0.1.0"},
    }
    if "engine" in of:
        document["engine"] = {"name": of["engine"], "version": version}
        name = of["model"]
        count = find(name).parameters if is_known(name) else 120_000_000_000
        document["model"] = {"name": name, "weights": weights, "parameters": round(count)}
    if machine:
        document["cluster"]["machine"] = machine
    if of["nodes"] > 1:
        document["fabric"] = fabric or {"name": of["fabric"], "kind": "roce", "speed_gbps": 200}
    return record.sealed(document)


def value(
    name: str, number: float, unit: str = "tok/s", **conditions: int | float | str
) -> dict[str, Any]:
    """A metric without samples."""
    return {"name": name, "unit": unit, "value": number, "conditions": conditions}


def mixed() -> list[Record]:
    """Runs on three fabrics with repetitions, failures, imports, and published numbers."""
    runs = []
    for nodes, fabric, rtt, gbps, speed in (
        (1, "", 0, 0, 410),
        (2, "cable", 20, 40, 330),
        (2, "office", 300, 2.4, 90),
        (4, "cable", 25, 40, 250),
        (4, "office", 320, 2.4, 40),
    ):
        runs += [
            ok(
                case(nodes, fabric or "cable", model="big"),
                {"decode": [speed, speed + run], "prompt": [speed * 6.0]},
                repetition=run,
                rtt_us=rtt or 1,
                gbps=gbps or 1,
            )
            for run in range(2)
        ]
    runs.append(failed(case(4, "radio", model="big"), "hang", reason="Silence for 120 s."))
    runs.append(
        ok(
            machines("hpl", 1, {"n": 4096}),
            [
                metric("gflops", [52.0], unit="Gflop/s", conditions={}),
                metric("power", [65.0], unit="W", conditions={}),
            ],
        )
    )
    others = [
        foreign(f"spark-{nodes}", [value("decode", 20.0 * nodes, n_gen=128, depth=0)], of=of)
        for nodes in (1, 2)
        for of in [case(nodes, "qsfp", model="big", parameters={}, transport="rdma")]
    ]
    others.append(foreign("imported", [value("prompt", 900.5, n_prompt=512)], kind="imported"))
    return [*runs, *others]


def write(folder: Path, records: list[Record]) -> Path:
    """A folder with these records, each in a file of its own."""
    for number, one in enumerate(records):
        record.save(one, folder / "records" / f"{number:05}.json")
    return folder


def site_of(folder: Path, records: list[Record]) -> Path:
    """The folder of the site of these records."""
    make([write(folder / "results", records)], folder / "site")
    return folder / "site"
