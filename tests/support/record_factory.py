"""Synthetic records for tests: they pass the schema, and their numbers mean nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nixwulf.core.metric import Metric
from nixwulf.results import record
from nixwulf.results.record import Record

# no output: parameters of a case
PARAMETERS = {"n_prompt": 128, "n_gen": 32, "depth": 0}
Samples = Mapping[str, Sequence[float]]


def case(
    nodes: int = 1,
    fabric: str = "lan",
    parallelism: str = "tensor",
    *,
    model: str = "tiny",
    engine: str = "llama.cpp",
    transport: str = "tcp",
    parameters: Mapping[str, Any] | None = None,
    benchmark: str = "llama-bench",
) -> dict[str, Any]:
    """A case with its id; on one node without fabric and transport."""
    values: dict[str, Any] = {
        "engine": engine,
        "benchmark": benchmark,
        "model": model,
        "nodes": nodes,
        "parallelism": parallelism if nodes > 1 else "single",
        "parameters": dict(PARAMETERS if parameters is None else parameters),
        "seed": 1,
        "samples": 3,
        "warm_up": True,
    }
    if nodes > 1:
        values |= {"fabric": fabric, "transport": transport}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return {"id": digest[:12], **values}


def machines(
    benchmark: str, nodes: int, parameters: Mapping[str, Any], fabric: str = "lan"
) -> dict[str, Any]:
    """A case of a benchmark that measures the machines: no engine, model or parallelism."""
    full = case(nodes, fabric, parameters=parameters, benchmark=benchmark)
    return {key: full[key] for key in full.keys() - {"engine", "model", "parallelism"}}


def metric(
    name: str,
    samples: Sequence[float],
    depth: int = 0,
    *,
    unit: str = "tok/s",
    distribution: bool = False,
    conditions: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A metric, unless told otherwise with the conditions that llama-bench gives it."""
    lengths = {"n_prompt": 128, "n_gen": 0} if name == "prompt" else {"n_prompt": 0, "n_gen": 32}
    if conditions is None:
        conditions = {**lengths, "n_depth": depth, "n_threads": 1}
    return Metric(name, unit, tuple(samples), "warm", conditions, distribution).document()


def link(rtt_us: float, gbps: float, source: str = "n1", to: str = "n2") -> dict[str, Any]:
    """A link with the same round trips before and after."""
    trips = {"unit": "us", "median": rtt_us, "p95": rtt_us * 1.2, "samples": [rtt_us], "lost": 0}
    bandwidth = {"unit": "Gbit/s", "value": gbps, "tool": "iperf3", "retransmits": 0}
    return {
        "from": source,
        "to": to,
        "rtt_before": trips,
        "rtt_after": trips,
        "bandwidth": bandwidth,
    }


def ok(
    of: Mapping[str, Any],
    measured: Samples | Sequence[Mapping[str, Any]],
    *,
    repetition: int = 0,
    rtt_us: float = 100.0,
    gbps: float = 9.4,
    asked: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
) -> Record:
    """A sealed record of a run that ended ok, with metrics or samples of those of llama-bench."""
    if isinstance(measured, Mapping):
        measured = [metric(name, values) for name, values in measured.items()]
    ending = {"outcome": "ok", "metrics": list(measured)}
    ending |= {"warnings": list(warnings)} if warnings else {}
    return _sealed(of, ending, repetition=repetition, rtt_us=rtt_us, gbps=gbps, asked=asked)


def published(
    of: Mapping[str, Any],
    measured: Samples | Sequence[Mapping[str, Any]],
    *,
    id: str = "",  # noqa: A002 - the record's own word
    price_usd: float | None = None,
    platforms: Sequence[str] = ("dgx-spark",),
    fabric: Mapping[str, Any] | None = None,
) -> Record:
    """A sealed record of numbers that a source gives: no samples, no state, no run."""
    if isinstance(measured, Mapping):
        measured = [metric(name, values) for name, values in measured.items()]
    without = {"seed", "samples", "warm_up"}
    document: dict[str, Any] = {
        "schema_version": record.SCHEMA_VERSION,
        "kind": "published",
        "id": id or f"published-{of['id']}",
        "case": {key: value for key, value in of.items() if key not in without},
        "outcome": "ok",
        "source": {"name": "Somebody", "url": "https://example.org/numbers"},
        "cluster": {"name": "Somebody", "platforms": list(platforms), "lab": False},
        "metrics": [
            {key: value for key, value in one.items() if key not in {"samples", "state"}}
            for one in measured
        ],
        "provenance": {"nixwulf": "0.1.0"},
    }
    if "engine" in of:
        document["engine"] = {"name": of["engine"]}
        document["model"] = {"name": of["model"]}
    if "fabric" in of:
        document["fabric"] = dict(fabric or {"name": of["fabric"]})
    if price_usd is not None:
        document["cluster"]["price_usd"] = price_usd
    return record.sealed(document)


def make_record() -> Record:
    """A record that ended ok, for a test that needs any."""
    return ok(case(), {"prompt": [2600.0, 2650.0], "decode": [410.0, 420.0]})


def failed(
    of: Mapping[str, Any],
    outcome: str = "failed",
    *,
    phase: str = "measure",
    reason: str = "llama-bench ended with 134.",
    hint: str = "",
    log_tail: str = "",
    repetition: int = 0,
    rtt_us: float = 100.0,
    asked: Mapping[str, float] | None = None,
) -> Record:
    """A sealed record of a run that did not."""
    failure = {"phase": phase, "reason": reason, **({"hint": hint} if hint else {})}
    ending = {"outcome": outcome, "failure": failure, "metrics": []}
    probes = {"rtt_us": rtt_us, "gbps": 9.4, "asked": asked}
    return _sealed(of, ending, repetition=repetition, log_tail=log_tail, **probes)


def _sealed(
    of: Mapping[str, Any],
    ending: Mapping[str, Any],
    *,
    repetition: int,
    rtt_us: float,
    gbps: float,
    asked: Mapping[str, float] | None,
    log_tail: str = "",
) -> Record:
    nodes = of["nodes"]
    names = [f"n{index + 1}" for index in range(nodes)]
    document: dict[str, Any] = {
        "schema_version": "1.0",
        "kind": "run",
        "id": f"{of['id']}-r{repetition}",
        "case": dict(of),
        "repetition": repetition,
        "started": f"2026-01-02T0{repetition}:00:00Z",
        "finished": f"2026-01-02T0{repetition}:00:09Z",
        "phases": {"measure": 2.5},
        "cluster": {"name": "lab", "platforms": ["lab"], "lab": True},
        "nodes": [
            {
                "name": name,
                "platform": "lab",
                "role": "worker" if index else "head",
                "facts": {
                    "kernel": "6.1.0",
                    "cpu": "Synthetic CPU",
                    "cpus": 2,
                    "memory_total_bytes": 8 * 2**30,
                    "memory_available_bytes": (7 * 2**30) + index,
                },
                **({"log_tail": log_tail} if log_tail else {}),
            }
            for index, name in enumerate(names)
        ],
        "commands": [
            {"node": name, "argv": ["ggml-rpc-server", "-H", f"10.0.0.{i}"], "seconds": 3.0}
            for i, name in enumerate(names[1:], 12)
        ]
        + [{"node": "n1", "argv": ["llama-bench", "-m", "a model"], "returncode": 0, "seconds": 2}],
        "provenance": {"nixwulf": "0.1.0", "revision": "f00d", "driver": {"kernel": "6.1.0"}},
        "raw": [f"raw/{of['id']}-r{repetition}/llama-bench.jsonl"],
        **ending,
    }
    if "engine" in of:
        document["engine"] = {"name": of["engine"], "version": "b1", "build_commit": "abc123"}
        document["model"] = {"name": of["model"], "random_weights": True, "parameters": 11_000_000}
    if nodes > 1:
        document["fabric"] = {
            "name": of["fabric"],
            "kind": "ethernet",
            "speed_gbps": 10,
            "mtu": 9000,
            "links": [link(rtt_us, gbps, "n1", name) for name in names[1:]],
            **({"shaped_by": "switch", "asked": dict(asked)} if asked else {}),
        }
    return record.sealed(document)


def plan(
    cases: Sequence[Mapping[str, Any]],
    repetitions: int = 1,
    left_out: Sequence[Mapping[str, Any]] = (),
    description: str = "",
) -> dict[str, Any]:
    """A sealed plan."""
    sweep: dict[str, Any] = {
        "name": "demo",
        "description": description,
        "matrix": {"benchmark": ["iperf3"], "nodes": [2]},
    }
    cluster = {"name": "lab", "lab": {"nodes": 2}, "fabrics": {}}
    return record.sealed(
        {
            "schema_version": "1.0",
            "sweep": {"source": "sweeps/demo.yaml", "document": sweep},
            "cluster": {"source": "clusters/lab.toml", "document": cluster},
            "repetitions": repetitions,
            "cases": [dict(one) for one in cases],
            "left_out": [dict(one) for one in left_out],
        }
    )


def write_run(
    folder: Path, records: Sequence[Record], the_plan: Mapping[str, Any] | None = None
) -> Path:
    """A run folder with these records, and the plan where one is given."""
    for one in records:
        record.save(one, folder / "records" / f"{one['id']}.json")
    if the_plan is not None:
        (folder / "plan.json").write_text(json.dumps(the_plan))
    return folder
