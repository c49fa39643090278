"""The sweep of a record's conditions on a cluster: what others ran, as far as it is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.metric import better
from nixwulf.core.registry import Parameter
from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.inventory.fabric_kinds import KINDS
from nixwulf.plugins import benchmarks, engines
from nixwulf.results.identity import REPLICAS, one_name
from nixwulf.results.record import Record, load
from nixwulf.results.store import RunFolder
from nixwulf.sweep.plan import Plan, make_plan
from nixwulf.sweep.reproduce.expected import expectations, metrics_of, published
from nixwulf.sweep.sweep_file import Sweep, parse_sweep

TOLERANCE = 0.15
"""Of a record for which nobody gave one: other builds of one engine differ by that much."""
_SERVE = "serve"
# What a source calls the measurement, where it is not the benchmark's own name.
_SAME = {"bandwidth": "iperf3"}
_LIMITS = {"wall_s": 14400, "progress_s": 3600}
_COORDINATES = ("engine", "benchmark", "model", "nodes", "fabric", "transport", "parallelism")


def sweep_of_record(record: Record, cluster: Cluster, model: str = "") -> Sweep:
    """The sweep that repeats a published record on a cluster.

    Args:
        cluster: where it is to run; it has the record's platforms.
        model: path on the nodes or name on Hugging Face; empty: a file named as the record has it.

    Raises:
        InputError: why the record cannot be repeated there.
    """
    case, name = record["case"], record["id"]
    here = {node.platform for node in cluster.nodes[: case["nodes"]]}
    if here != set(record["cluster"]["platforms"]):
        raise InputError("it is of other machines")
    benchmark = _benchmark(case)
    axes: dict[str, Any] = {"benchmark": [benchmark], "nodes": [case["nodes"]]}
    models: dict[str, Any] = {}
    known: dict[str, Parameter] = dict(benchmarks.find(benchmark).parameters)
    api: dict[str, list[str]] = {}
    if benchmarks.find(benchmark).engines != ():
        if not case.get("model"):
            raise InputError("it does not say which model")
        engine = engines.find(case["engine"])
        if "api" in known and known["api"].default not in engine.apis:
            api["api"] = [engine.apis[0]]
        known |= engine.parameters
        axes |= {"engine": [engine.name], "model": [case["model"][:40]]}
        axes["parallelism"] = [case.get("parallelism", "single")]
        models[case["model"][:40]] = _model(record, cluster, model)
    if case["nodes"] > 1 and case.get("parallelism") != REPLICAS:
        transport = case.get("transport", "tcp")
        fabric = _fabric(record, cluster, case["nodes"], transport)
        if fabric is None:
            raise InputError(f"no fabric of {case['nodes']} nodes carries {transport}")
        axes |= {"transport": [transport], "fabric": [fabric.name]}
    metrics = [metric for metric in record["metrics"] if better(metric["name"], metric["unit"])]
    document = {
        "name": name[:40].rstrip("-."),
        "description": f"{record['source']['name']}: {record['source']['url']}",
        **({"models": models} if models else {}),
        "expect": [_expected(record, metric) for metric in metrics],
        "limits": _LIMITS,
    }
    blocks = [
        {**axes, "parameters": {**api, **values}} for values in _parameters(case, metrics, known)
    ]
    document |= {"matrix": blocks[0], **({"include": blocks[1:]} if blocks[1:] else {})}
    return parse_sweep(document, name)


def _benchmark(case: Mapping[str, Any]) -> str:
    found, all_of_them = case["benchmark"], benchmarks.all_benchmarks()
    if case.get("engine") and case["engine"] not in engines.all_engines():
        raise InputError(f"{case['engine']} is no engine here")
    if found == "generation" and case.get("engine"):
        return engines.find(case["engine"]).native_benchmark or _SERVE
    found = _SAME.get(found, found)
    if found not in all_of_them:
        raise InputError(f"{found} is no benchmark here")
    return str(found)


def _model(record: Record, cluster: Cluster, model: str) -> dict[str, str]:
    described = record.get("model", {})
    engine = engines.find(record["case"]["engine"])
    if not model:
        parts = filter(None, (record["case"]["model"], described.get("weights", "")))
        suffix = engine.model_suffixes[0] if engine.model_suffixes else ""
        model = f"{cluster.models}/{'-'.join(parts).replace(' ', '-')}{suffix}"
    if not model.startswith("/"):
        return {"id": model}
    tokenizer = f"{model.removesuffix('.m')}.t"
    return {"path": model, **({"tokenizer": tokenizer} if engine.tokenizer_apart else {})}


def _fabric(record: Record, cluster: Cluster, nodes: int, transport: str) -> Fabric | None:
    """Of those that join so many nodes, one of the record's kind of cable, the nearest in speed."""
    there = record.get("fabric", {})
    kind, speed = there.get("kind", ""), there.get("speed_gbps", 0.0)

    def distance(fabric: Fabric) -> tuple[bool, float]:
        alike = kind in KINDS and KINDS[fabric.kind].medium == KINDS[kind].medium
        apart = abs(math.log(fabric.speed_gbps / speed)) if speed else -fabric.speed_gbps
        return bool(kind) and not alike, apart

    fits = [
        fabric
        for name, fabric in cluster.fabrics.items()
        if cluster.joined(name, nodes) and transport in fabric.transports
    ]
    return min(fits, key=distance, default=None)


def fitted(sweep: Sweep, cluster: Cluster) -> Sweep:
    """A sweep that names no fabric, each number of nodes on that most like its record's."""
    blocks = []
    for block, nodes in ((axes, count) for axes in sweep.blocks for count in axes["nodes"]):
        alone = {**block, "nodes": [nodes]}
        for expected in expectations(sweep):
            agrees = all(
                value in block.get(key, [value])
                for key, value in expected.case.items()
                if key in _COORDINATES
            )
            record = expected.references[0]
            if agrees and nodes > 1 and record["case"]["nodes"] == nodes and "fabric" not in alone:
                (transport, *_) = block.get("transport", ["tcp"])
                found = _fabric(record, cluster, nodes, transport)
                alone |= {"fabric": [found.name]} if found else {}
        blocks.append(alone)
    document = {**sweep.document, "matrix": blocks[0], "include": blocks[1:]}
    return parse_sweep(document, sweep.source)


def _parameters(
    case: Mapping[str, Any], metrics: list[dict[str, Any]], known: Mapping[str, Parameter]
) -> list[dict[str, list[Any]]]:
    """The values that the driver can set: lengths together only as they were measured together."""
    blocks: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    for metric in metrics:
        given = one_name(case["parameters"], metric["conditions"])
        fixed = tuple(str(given.get(key)) for key in ("depth", "concurrency", "requests"))
        block = blocks.setdefault(fixed, {})
        for key, value in given.items():
            new = value not in block.get(key, []) and not (key.startswith("n_") and value == 0)
            if new and key in known and known[key].problem(value) is None:
                block.setdefault(key, []).append(value)
    return list(blocks.values()) or [{}]


def _expected(record: Record, metric: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "record": record["id"],
        "metric": metric["name"],
        "conditions": metric["conditions"],
        "value": metric["value"],
        "tolerance": TOLERANCE,
    }


def sweep_of_run(folder: RunFolder, tolerance: float = TOLERANCE) -> Sweep:
    """The sweep of an earlier run, which expects what that run measured; raises InputError.

    Args:
        tolerance: share by which a repeat may be off.
    """
    if folder.plan is None:
        raise InputError(f"{str(folder.path)!r} has no plan.json; name a folder of a run.")
    expect: dict[tuple[str, str, str], dict[str, Any]] = {}
    alike: dict[tuple[str, str, str], list[Record]] = {}
    for entry in folder.entries:
        record, case = entry.record, entry.record["case"]
        point = {key: case[key] for key in _COORDINATES if key in case}
        if case["parameters"]:
            point["parameters"] = case["parameters"]
        for metric in record["metrics"] if record["outcome"] == "ok" else ():
            if better(metric["name"], metric["unit"]) != "more":
                continue
            key = (case["id"], metric["name"], str(metric["conditions"]))
            alike.setdefault(key, []).append(record)
            of_metric = {**_expected(record, metric), "tolerance": tolerance, "case": point}
            expect.setdefault(key, of_metric | {"record": str(folder.path / entry.path)})
    if not expect:
        raise InputError(
            f"No run of {str(folder.path)!r} is ok, so there is nothing to repeat; run what is "
            f"missing by 'nixwulf bench --resume {folder.path}'."
        )
    for of_case, one in expect.items():
        values = [
            metric["value"]
            for record in alike[of_case]
            for metric in metrics_of(record, one["metric"], one["conditions"])
        ]
        one["value"] = sum(values) / len(values)
    document = {**folder.plan["sweep"]["document"], "expect": list(expect.values())}
    return parse_sweep(document, f"{folder.path}/plan.json")


def repeatable(cluster: Cluster) -> Iterator[tuple[Record, Plan | str]]:
    """Every published record of this cluster's platforms, with its plan or why there is none."""
    here = {node.platform for node in cluster.nodes}
    for path in published().values():
        record = load(path)
        if here & set(record["cluster"]["platforms"]):
            try:
                yield record, make_plan(sweep_of_record(record, cluster), cluster)
            except InputError as error:
                yield record, error.message.rpartition("case on cluster ")[2]
