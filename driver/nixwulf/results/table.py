"""Tidy tables of records: one row per record and metric, and one row per case and metric.

Pure functions: the same records, in any order, give the same tables.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nixwulf.core.metric import adds_up
from nixwulf.results.cost import SPEEDS, per_watt, price, watts_by_metric
from nixwulf.results.fabrics import record_bandwidth_gbps, record_rtt_us
from nixwulf.results.identity import COLUMNS, OVER_NODES, canonical, case_id
from nixwulf.results.pooling import PERCENTILES, pooled
from nixwulf.results.record import Record

if TYPE_CHECKING:
    import pandas as pd

TIDY_COLUMNS = {
    "kind": "run: by this driver; imported: from a tool's output; published: from a source",
    "platform": "platforms of its nodes, joined by '+'",
    "cluster": "name of the cluster; of published numbers, who measured them",
    "case": "id of the case; of what is no run, of the record",
    "engine": "engine",
    "benchmark": "benchmark",
    "model": "model",
    "weights": "type of the model's weights: q4_0, mxfp4, bf16, ...",
    "parameters": "the benchmark's own parameters, as JSON with sorted keys",
    "nodes": "number of nodes",
    "fabric": "fabric; absent on one node and of replicas",
    "transport": "tcp or rdma; absent on one node",
    "parallelism": "single, pipeline, tensor or replicas",
    "repetition": "which pass over the cases, from 0",
    "record": "id of the record",
    "source": "URL or file from which numbers come that are no run's",
    "engine_version": "version or build of the engine, as it reports it",
    "started": "when the run started, UTC; empty where a source does not state it",
    "outcome": "how the run ended; only ok carries metrics",
    "phase": "phase in which a run failed; absent when ok",
    "reason": "why a run failed; absent when ok",
    "hint": "what to do about a known failure",
    "rtt_us": "round trip measured in this run, microseconds: median over its links of the medians "
    "before and after",
    "bandwidth_gbps": "one TCP stream measured in this run, Gbit/s: lowest over its links",
    "metric": "prompt, decode, ttft, bandwidth, ...; absent when the run failed",
    "unit": "unit of value, stddev, p50, p95, p99 and samples: tok/s, Gbit/s, ms, us, Gflop/s, ...",
    "state": "cold or warm",
    "variant": "those of its conditions that distinguish it from the run's other metrics of its "
    "name, as JSON with sorted keys",
    "conditions": "conditions of the metric, as JSON with sorted keys",
    "observed": "what was seen beside the samples, as JSON with sorted keys",
    "acceptance": "of a speed with drafted tokens, the share that the model accepted, or why it is "
    "not known; else empty",
    "n_prompt": "prompt length, tokens",
    "n_gen": "generated tokens",
    "depth": "tokens in the context before the measurement",
    "value": "mean of the samples, or what a source gives",
    "stddev": "standard deviation of the samples (n-1); absent for one sample",
    "p50": "median of a distribution, nearest rank; absent where the metric is none",
    "p95": "95th percentile of a distribution, nearest rank",
    "p99": "99th percentile of a distribution, nearest rank",
    "n_samples": "number of samples; absent where a source does not state it",
    "samples": "every sample",
    "watts": "mean of all nodes while it was measured, W; of speeds (tok/s, Gflop/s) only, as are "
    "all that follow",
    "watts_source": "wall, powermetrics, pmic, nvidia, amdgpu or rapl: the fullest of a run; "
    "'beside the speed' where a source gives both",
    "per_watt": "the speed over the watts, unit/W",
    "joules_per_token": "the watts over the speed, J/token",
    "price_usd": "price of its nodes together, US$, without switches and cables",
    "price_source": "the cluster file, the source of published numbers, or the platform facts and "
    "where they have it from",
    "per_usd": "the speed over the price, unit/$",
}
"""The columns of the tidy table and what they hold."""

_SETTING_KEYS = ("kind", "platform", "cluster", "engine", "benchmark", "model", "weights")
OF_CASE_COLUMNS = {
    "n_runs": "runs, or records, that ended ok",
    "mean": "mean over all samples of those runs, in unit; else of the values that sources give",
    "watts": "mean of the runs' watts, W",
    "per_watt": "mean of the runs' per_watt, unit/W",
    "joules_per_token": "mean of the runs', J/token",
    "price_usd": "as in the tidy table, US$",
    "per_usd": "mean of the runs' per_usd, unit/$",
    "rtt_us": "median of the runs' round trips, microseconds",
    "bandwidth_gbps": "median of the runs' bandwidths, Gbit/s",
    "stddev": "standard deviation of all those samples (n-1); else as a source gives it",
    "p50": "their median, nearest rank; absent where the metric is no distribution",
    "p95": "their 95th percentile, nearest rank",
    "p99": "their 99th percentile, nearest rank",
    "watts_source": "as in the tidy table, of the first run that has one",
    "price_source": "as in the tidy table",
    "acceptance": "as in the tidy table, of all runs",
    "n_samples": "number of samples; absent where sources give none",
    "one_node": "the mean, of a distribution the median, on one node of the same kind, platform, "
    "cluster, engine, model, weights, parameters and metric; of what is no run also of the same "
    "engine_version and conditions",
    "speed_up": "mean, or median, over one_node",
    "efficiency": "speed_up over the number of nodes, a fraction",
}
"""The columns of by_case beside the keys of a case and of its metric, and what they hold."""

CASE_KEYS = (
    *_SETTING_KEYS,
    "parameters",
    "nodes",
    "parallelism",
    "fabric",
    "transport",
    "case",
)
METRIC_KEYS = ("metric", "unit", "state", "variant")
# Sources call machines what they like; what is no run's has to share more: see _same.
_NO_BASELINE_KEYS = OVER_NODES | {"machine", "engine_version"}
_BASELINE_KEYS = (
    *(name for name in COLUMNS if name not in _NO_BASELINE_KEYS),
    "work",
    "variant",
    "same",
)
_WATTS_COLUMNS = ("watts", "watts_source", "per_watt", "joules_per_token")
_TOO_MANY = 2**62
_METRIC_COLUMNS = tuple(TIDY_COLUMNS)[tuple(TIDY_COLUMNS).index("metric") :]
_COUNTS = ("nodes", "repetition", "n_samples", "n_prompt", "n_gen", "depth")
_NUMBERS = ("rtt_us", "bandwidth_gbps", "value", "stddev", *PERCENTILES)
_NUMBERS += ("watts", "per_watt", "joules_per_token", "price_usd", "per_usd")
_NO_COST = {"watts_source": "", "price_source": ""}
_NO_METRIC = (
    dict.fromkeys((*METRIC_KEYS, "conditions", "observed", "acceptance"), "")
    | _NO_COST
    | {"samples": ()}
)


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """One row per record and metric, columns TIDY_COLUMNS; a record that failed is one row.

    Text without a value is empty, a number without a value is NaN or NA.
    """
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in TIDY_COLUMNS}
    known: dict[str, str] = {}  # the same text, once in memory
    for record in records:
        shared, metrics = columns_of(record), _metrics_of(record)
        for name, value in shared.items():
            same = known.setdefault(value, value) if isinstance(value, str) else value
            columns[name].extend([same] * len(metrics))
        for metric in metrics:
            for name in _METRIC_COLUMNS:
                value = metric.get(name)
                columns[name].append(
                    known.setdefault(value, value) if isinstance(value, str) else value
                )
    types: dict[str, Any] = dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_NUMBERS, "float64")
    frame = pd.DataFrame(
        {
            name: pd.Series(values, dtype=types.get(name, "object"))
            for name, values in columns.items()
        }
    )
    return frame.sort_values(
        [*CASE_KEYS, "repetition", "metric", "state", "conditions", "record", "started"],
        ignore_index=True,
    )


def by_case(table: pd.DataFrame) -> pd.DataFrame:
    """The tidy table over its repetitions: one row per case, metric, state and variant.

    Columns: CASE_KEYS, METRIC_KEYS and OF_CASE_COLUMNS. one_node, speed_up and efficiency are NaN
    where one node was not measured, and for units of which nodes do not give more: times, and what
    a link carries.
    """
    measured = table[(table["outcome"] == "ok") & (table["metric"] != "")]
    measured = measured.assign(same=_same(measured), work=_work(measured))
    frame = pooled(measured, [*CASE_KEYS, *METRIC_KEYS, "same", "work"])
    shared = measured["unit"].map({unit: adds_up(unit) for unit in measured["unit"].unique()})
    one = pooled(measured[(measured["nodes"] == 1) & shared.astype(bool)], _BASELINE_KEYS)
    one["one_node"] = one["p50"].fillna(one["mean"])
    frame = frame.merge(one[[*_BASELINE_KEYS, "one_node"]], on=list(_BASELINE_KEYS), how="left")
    frame["speed_up"] = frame["p50"].fillna(frame["mean"]) / frame["one_node"]
    frame["efficiency"] = frame["speed_up"] / frame["nodes"].astype("float64")
    return frame.drop(columns=["same", "work"])


def _work(measured: pd.DataFrame) -> pd.Series[str]:
    """The parameters without those that say how nodes share the work: one node has none."""
    texts = measured["parameters"]
    known = {text: json.loads(text) if text else {} for text in texts.unique()}
    return texts.map(
        {
            text: canonical({key: one for key, one in values.items() if key not in OVER_NODES})
            for text, values in known.items()
        }
    )


def _same(measured: pd.DataFrame) -> pd.Series[str]:
    """What one node of numbers that are no run's has to share besides, as a text.

    The cases of one cluster's runs hold all of it; who publishes may have tried several versions.
    """
    texts = measured["engine_version"] + " " + measured["conditions"]
    return texts.where(measured["kind"] != "run", "")


def as_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of either table, by column; a number without a value, or beyond all, is None."""
    frame = table.astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    return [
        {
            str(name): None if isinstance(value, float) and math.isinf(value) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def columns_of(record: Record) -> dict[str, Any]:
    """What all rows of a record share, by column."""
    case = record["case"]
    failure = record.get("failure", {})
    source = record.get("source", {})
    return {
        "kind": record["kind"],
        "platform": "+".join(record["cluster"]["platforms"]),
        "cluster": record["cluster"]["name"],
        "case": case_id(record),
        **{key: case.get(key, "") for key in ("engine", "benchmark", "model", "parallelism")},
        "weights": record.get("model", {}).get("weights", ""),
        "nodes": case["nodes"],
        "parameters": canonical(case["parameters"]),
        "fabric": case.get("fabric", ""),
        "transport": case.get("transport", ""),
        "repetition": record.get("repetition"),
        "record": record["id"],
        "source": source.get("url", source.get("file", "")),
        "engine_version": record.get("engine", {}).get("version", ""),
        "started": record.get("started", ""),
        "outcome": record["outcome"],
        **{key: failure.get(key, "") for key in ("phase", "reason", "hint")},
        "rtt_us": record_rtt_us(record),
        "bandwidth_gbps": record_bandwidth_gbps(record),
    }


def _metrics_of(record: Record) -> list[dict[str, Any]]:
    """What each row of a record has besides: one empty row where it failed."""
    # As the schema; a reader that trusts a number checks again.
    if record["outcome"] != "ok" or not record["metrics"]:
        return [_NO_METRIC]
    of_metrics = [*record["metrics"], *per_watt(record)]
    varying = _varying(of_metrics)
    costs = _costs(record)
    return [
        _NO_COST | _metric(metric, record["case"]["parameters"], varying) | costs.get(index, {})
        for index, metric in enumerate(of_metrics)
    ]


def _varying(metrics: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """By name of a metric, the conditions that are not the same for all metrics of that name."""
    first: dict[str, dict[str, Any]] = {}
    varying: dict[str, set[str]] = defaultdict(set)
    for metric in metrics:
        name, own = metric["name"], metric["conditions"]
        other = first.setdefault(name, own)
        varying[name] |= {key for key in own.keys() | other if own.get(key) != other.get(key)}
    return varying


def _metric(
    metric: dict[str, Any], parameters: dict[str, Any], varying: Mapping[str, set[str]]
) -> dict[str, Any]:
    conditions = metric["conditions"]
    known = {**parameters, **conditions}
    telling = varying[metric["name"]]
    samples = tuple(metric["samples"]) if "samples" in metric else None
    return {
        "metric": metric["name"],
        "unit": metric["unit"],
        "state": metric.get("state", ""),
        "variant": canonical({key: conditions[key] for key in conditions if key in telling}),
        "conditions": canonical(conditions),
        "observed": canonical(metric.get("observed", {})),
        "acceptance": str(metric.get("observed", {}).get("acceptance", "")),
        "n_prompt": None if "prompt_words" in known else _count(known.get("n_prompt")),
        "n_gen": _count(known.get("n_gen")),
        "depth": _count(known.get("n_depth", known.get("depth"))),
        "value": metric["value"],
        "stddev": metric.get("stddev"),
        **metric.get("percentiles", {}),
        "n_samples": len(samples) if samples else None,
        "samples": samples or (),
    }


def _count(value: object) -> int | None:
    """A number of tokens, however it was written; None where it is no such number."""
    if isinstance(value, int | float) and float(value).is_integer() and abs(value) < _TOO_MANY:
        return int(value)
    return None


def _costs(record: Record) -> dict[int, dict[str, Any]]:
    """The columns of watts and US$ of a record's speeds, by the index of the metric."""
    watts = watts_by_metric(record)
    paid = price(record)
    costs: dict[int, dict[str, Any]] = {}
    for index, metric in enumerate(record["metrics"]):
        if metric["unit"] in SPEEDS:
            cost: dict[str, Any] = {}
            if index in watts:
                cost = dict(zip(_WATTS_COLUMNS, watts[index], strict=True))
            if paid:
                cost |= {"price_usd": paid.usd, "price_source": paid.source}
                cost["per_usd"] = metric["value"] / paid.usd
            costs[index] = cost
    return costs
