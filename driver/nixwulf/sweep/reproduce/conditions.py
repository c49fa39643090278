"""The sweep of a record's conditions on a cluster: what others ran, as far as it is known.

Also the numbers that such a sweep expects: of which record each is, and of which of its cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_results
from nixwulf.core.metric import better, speed_of
from nixwulf.core.registry import Parameter
from nixwulf.core.text import as_typed, did_you_mean
from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.inventory.fabrics import KINDS
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.runtime.case import Case
from nixwulf.results.identity import REPLICAS, one_name
from nixwulf.results.record import Record, RecordedCase, RecordedMetric, load
from nixwulf.results.store import RunFolder
from nixwulf.sweep.plan import COORDINATES, Plan, Sweep, make_plan, parse_sweep

_FOLDER = Path("results") / "published" / "records"
_NEAR = 3
_ROUNDING = 0.01
_NONE: Mapping[str, object] = {}


@dataclass(frozen=True)
class Expectation:
    """A number to repeat.

    references: the record that has it; of a run, all repetitions of its case. value: in the unit of
    its metric; tolerance: the share of it by which a repeat may be off. case: coordinates of the
    cases of the sweep that repeat it; conditions: those of the metric.
    """

    references: tuple[Record, ...]
    metric: str
    unit: str
    value: float
    tolerance: float
    case: Mapping[str, Any]
    conditions: Mapping[str, object]

    @property
    def samples(self) -> list[list[float]]:
        """Samples of each reference; a source with a deviation alone has three with that deviation.

        Without either they are equal, and an interval is then that of the repeat.
        """
        found = []
        for record in self.references:
            for metric in metrics_of(record, self.metric, self.conditions):
                value, spread = metric["value"], metric.get("stddev", 0.0)
                own = metric.get("samples") or [value - spread, value, value + spread]
                found.append(list(own))
        return found

    def of(self, case: Case) -> bool:
        """Tell whether a case of the sweep repeats it."""
        asked = {**self.case, **self.case.get("parameters", {})}
        asked.pop("parameters", None)
        known = {**case.parameters, **case.document()}
        return all(known.get(key) == value for key, value in asked.items())


def metrics_of(record: Record, name: str, conditions: Mapping[str, object]) -> list[RecordedMetric]:
    """The metrics of a name; a condition that a metric does not have excludes none."""
    asked = {key: str(value) for key, value in one_name(conditions).items()}
    return [
        metric
        for metric in record["metrics"]
        if metric["name"] == name
        and all(
            asked.get(key, str(value)) == str(value)
            for key, value in one_name(metric["conditions"]).items()
        )
    ]


def expectations(sweep: Sweep) -> tuple[Expectation, ...]:
    """What a sweep expects; raises InputError for nothing, an unknown record or no such number."""
    if not sweep.expect:
        raise InputError(
            f"{sweep.source}: it has no 'expect', so there is nothing to repeat; run it by "
            f"{as_typed('bench', sweep.source)}."
        )
    return tuple(_expectation(f"{sweep.source}: expect", **one) for one in sweep.expect)


def _expectation(
    source: str,
    record: str,
    metric: str,
    value: float,
    tolerance: float,
    case: Mapping[str, object] = _NONE,
    conditions: Mapping[str, object] = _NONE,
) -> Expectation:
    """Read an entry of a sweep's 'expect' by its keys; raises InputError."""
    references = reference(record, source)
    found = [one for each in references for one in metrics_of(each, metric, conditions)]
    if not found:
        names = ", ".join(sorted({one["name"] for one in references[0]["metrics"]}))
        raise InputError(
            f"{source}: the record {record!r} has no {metric!r} with these conditions; it has "
            f"{names}."
        )
    there = speed_of(one["value"] for one in found)
    if not math.isclose(there, value, rel_tol=_ROUNDING):
        raise InputError(
            f"{source}: {metric!r} of the record {record!r} is {there:g}, not {value:g}; correct "
            "the value, or give the conditions of the one meant."
        )
    return Expectation(references, metric, found[0]["unit"], value, tolerance, case, conditions)


def reference(name: str, source: str) -> tuple[Record, ...]:
    """The record of an id or path, and its case's repetitions; InputError names the nearest ids."""
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        case = path.stem.rpartition("-r")[0]
        beside = sorted(path.parent.glob(f"{case}-r*.json")) if case else []
        return tuple(map(load, beside or [path]))
    known = published()
    if name not in known:
        hint = did_you_mean(name, known, _NEAR)
        raise InputError(f"{source}: there is no published record {name!r}; {hint}")
    return (load(known[name]),)


@cache
def published() -> dict[str, Path]:
    """The files of the published records by id: of this folder, else those of the driver."""
    return {path.stem: path for path in sorted(find_results(_FOLDER).glob("*.json"))}


TOLERANCE = 0.15
"""Of a record for which nobody gave one: other builds of one engine differ by that much."""
_SERVE = "serve"
# What a source calls the measurement, where it is not the benchmark's own name.
_SAME = {"bandwidth": "iperf3"}
_LIMITS = {"wall_s": 14400, "progress_s": 3600}


def sweep_of_record(record: Record, cluster: Cluster, model: str = "") -> Sweep:
    """The sweep that repeats a published record on a cluster; raises InputError with why not.

    model: path on the nodes or name on Hugging Face; empty: a file named as the record has it.
    """
    case, name = record["case"], record["id"]
    here = {node.platform for node in cluster.nodes[: case["nodes"]]}
    if here != set(record["cluster"]["platforms"]):
        raise InputError("it is of other machines")
    benchmark = _benchmark(case)
    axes: dict[str, object] = {"benchmark": [benchmark], "nodes": [case["nodes"]]}
    models: dict[str, object] = {}
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


def _benchmark(case: RecordedCase) -> str:
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
    """Choose a fabric for so many nodes: the record's kind of cable, the nearest in speed."""
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
                if key in COORDINATES
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
    case: RecordedCase, metrics: Sequence[RecordedMetric], known: Mapping[str, Parameter]
) -> list[dict[str, list[object]]]:
    """The values that the driver can set: lengths together only as they were measured together."""
    blocks: dict[tuple[str, ...], dict[str, list[object]]] = {}
    for metric in metrics:
        given = one_name(case["parameters"], metric["conditions"])
        fixed = tuple(str(given.get(key)) for key in ("depth", "concurrency", "requests"))
        block = blocks.setdefault(fixed, {})
        for key, value in given.items():
            new = value not in block.get(key, []) and not (key.startswith("n_") and value == 0)
            if new and key in known and known[key].problem(value) is None:
                block.setdefault(key, []).append(value)
    return list(blocks.values()) or [{}]


def _expected(record: Record, metric: RecordedMetric) -> dict[str, object]:
    return {
        "record": record["id"],
        "metric": metric["name"],
        "conditions": metric["conditions"],
        "value": metric["value"],
        "tolerance": TOLERANCE,
    }


def sweep_of_run(folder: RunFolder, tolerance: float = TOLERANCE) -> Sweep:
    """The sweep of an earlier run, expected within a share of it; raises InputError."""
    if folder.plan is None:
        raise InputError(f"{str(folder.path)!r} has no plan.json; name a folder of a run.")
    expect: dict[tuple[str, str, str], dict[str, Any]] = {}
    alike: dict[tuple[str, str, str], list[Record]] = {}
    for entry in folder.entries:
        record, case = entry.record, entry.record["case"]
        point = {key: case[key] for key in COORDINATES if key in case}
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
            f"missing by {as_typed('bench', '--resume', folder.path)}."
        )
    for of_case, one in expect.items():
        one["value"] = speed_of(
            metric["value"]
            for record in alike[of_case]
            for metric in metrics_of(record, one["metric"], one["conditions"])
        )
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
