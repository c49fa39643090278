"""Tidy tables of records: one row per record and metric, and one row per case and metric.

Pure functions: the same records, in any order, give the same tables.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nixwulf.benchmarks import percentile
from nixwulf.power.reading import per_watt
from nixwulf.record import Record
from nixwulf.units import adds_up

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
    "fabric": "fabric; absent on one node",
    "transport": "tcp or rdma; absent on one node",
    "parallelism": "single, pipeline or tensor",
    "repetition": "which pass over the cases, from 0",
    "record": "id of the record",
    "source": "URL or file from which numbers come that are no run's",
    "engine_version": "version or build of the engine, as it tells it",
    "started": "when the run started, UTC; empty where a source does not say",
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
    "variant": "those of its conditions that tell it from the run's other metrics of its name, as "
    "JSON with sorted keys",
    "conditions": "conditions of the metric, as JSON with sorted keys",
    "observed": "what was seen beside the samples, as JSON with sorted keys",
    "n_prompt": "prompt length, tokens",
    "n_gen": "generated tokens",
    "depth": "tokens in the context before the measurement",
    "value": "mean of the samples, or what a source gives",
    "stddev": "standard deviation of the samples (n-1); absent for one sample",
    "p50": "median of a distribution, nearest rank; absent where the metric is none",
    "p95": "95th percentile of a distribution, nearest rank",
    "p99": "99th percentile of a distribution, nearest rank",
    "n_samples": "number of samples; absent where a source does not say",
    "samples": "every sample",
}
"""The columns of the tidy table and what they hold."""

_SETTING_KEYS = ("kind", "platform", "cluster", "engine", "benchmark", "model", "weights")
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
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
_BASELINE_KEYS = (*_SETTING_KEYS, "parameters", *METRIC_KEYS)
_TOKEN_COUNTS = ("n_prompt", "n_gen", "depth")


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """One row per record and metric, columns TIDY_COLUMNS; a record that failed is one row.

    Text without a value is empty, a number without a value is NaN or NA.
    """
    import pandas as pd

    rows = [row for record in records for row in _rows(record)]
    frame = pd.DataFrame(rows, columns=list(TIDY_COLUMNS))
    for column in ("nodes", "repetition", "n_samples", *_TOKEN_COUNTS):
        frame[column] = frame[column].astype("Int64")
    for column in ("rtt_us", "bandwidth_gbps", "value", "stddev", *PERCENTILES):
        frame[column] = frame[column].astype("float64")
    return frame.sort_values(
        [*CASE_KEYS, "repetition", "metric", "state", "conditions", "record", "started"],
        ignore_index=True,
    )


def by_case(table: pd.DataFrame) -> pd.DataFrame:
    """The tidy table over its repetitions: one row per case, metric, state and variant.

    Columns: CASE_KEYS, METRIC_KEYS, and
    mean, stddev: over all samples of all runs that ended ok (n-1), else as the source gives them;
    p50, p95, p99: of those samples, NaN where the metric is no distribution;
    n_samples, n_runs: how many those are; no samples where a source gives none;
    rtt_us, bandwidth_gbps: medians over those runs;
    one_node: the mean, or median of a distribution, of the same engine, model, parameters and
    metric on one node; speed_up: mean or median over that;
    efficiency: speed_up over the number of nodes, a fraction.
    The last three are NaN where one node was not measured, and for units of which nodes do not
    give more: times, and what a link carries.
    """
    import pandas as pd

    measured = table[table["outcome"] == "ok"]
    keys = [*CASE_KEYS, *METRIC_KEYS]
    rows = [
        dict(zip(keys, key, strict=True)) | _over_repetitions(group)
        for key, group in measured.groupby(keys, dropna=False, sort=True)
    ]
    values = ["mean", "stddev", *PERCENTILES]
    values += ["n_samples", "n_runs", "rtt_us", "bandwidth_gbps"]
    frame = pd.DataFrame(rows, columns=[*keys, *values])
    comparable = measured[(measured["nodes"] == 1) & measured["unit"].map(adds_up).astype(bool)]
    baselines = {
        key: _typical(_over_repetitions(group))
        for key, group in comparable.groupby(list(_BASELINE_KEYS))
    }
    own = frame[list(_BASELINE_KEYS)].itertuples(index=False, name=None)
    frame["one_node"] = pd.Series([baselines.get(key) for key in own], dtype="float64")
    frame["speed_up"] = frame["p50"].fillna(frame["mean"]).astype("float64") / frame["one_node"]
    frame["efficiency"] = frame["speed_up"] / frame["nodes"].astype("float64")
    return frame


def record_rtt_us(record: Record) -> float | None:
    """Round trip of a run, microseconds: median over its links of the medians before and after."""
    medians = [
        link[probe]["median"]
        for link in record.get("fabric", {}).get("links", ())
        for probe in ("rtt_before", "rtt_after")
        if probe in link
    ]
    return statistics.median(medians) if medians else None


def record_bandwidth_gbps(record: Record) -> float | None:
    """Bandwidth of a run, Gbit/s: the lowest over its links."""
    links = record.get("fabric", {}).get("links", ())
    return min((link["bandwidth"]["value"] for link in links if "bandwidth" in link), default=None)


def canonical(values: dict[str, Any]) -> str:
    """A dictionary as one comparable text; empty for an empty one."""
    return json.dumps(values, sort_keys=True) if values else ""


def _rows(record: Record) -> list[dict[str, Any]]:
    case = record["case"]
    failure = record.get("failure", {})
    source = record.get("source", {})
    common = {
        "kind": record["kind"],
        "platform": "+".join(record["cluster"]["platforms"]),
        "cluster": record["cluster"]["name"],
        "case": case["id"] if record["kind"] == "run" else record["id"],
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
    # The schema says the same; a reader that trusts a number checks again.
    metrics = [*record["metrics"], *per_watt(record)] if record["outcome"] == "ok" else []
    if not metrics:
        empty = dict.fromkeys((*METRIC_KEYS, "conditions", "observed"), "")
        return [common | empty | {"samples": ()}]
    return [common | _metric(metric, case["parameters"], metrics) for metric in metrics]


def _variant(metric: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """The conditions of a metric that are not those of all metrics of its name in a record."""
    alike = [other["conditions"] for other in metrics if other["name"] == metric["name"]]
    return {
        key: value
        for key, value in metric["conditions"].items()
        if any(other.get(key) != value for other in alike)
    }


def _metric(
    metric: dict[str, Any], parameters: dict[str, Any], metrics: list[dict[str, Any]]
) -> dict[str, Any]:
    known = {**parameters, **metric["conditions"]}
    return {
        "metric": metric["name"],
        "unit": metric["unit"],
        "state": metric.get("state", ""),
        "variant": canonical(_variant(metric, metrics)),
        "conditions": canonical(metric["conditions"]),
        "observed": canonical(metric.get("observed", {})),
        "n_prompt": None if "prompt_words" in known else known.get("n_prompt"),
        "n_gen": known.get("n_gen"),
        "depth": known.get("n_depth", known.get("depth")),
        "value": metric["value"],
        "stddev": metric.get("stddev"),
        **metric.get("percentiles", {}),
        "n_samples": len(metric["samples"]) if "samples" in metric else None,
        "samples": tuple(metric.get("samples", ())),
    }


def _over_repetitions(group: pd.DataFrame) -> dict[str, Any]:
    samples = _pooled(group)
    spread = PERCENTILES if group["p50"].notna().any() else {}
    if samples:
        numbers: dict[str, Any] = {
            "mean": statistics.fmean(samples),
            "stddev": statistics.stdev(samples) if len(samples) > 1 else None,
            **{name: percentile(samples, percent) for name, percent in spread.items()},
            "n_samples": len(samples),
        }
    else:
        alone: Any = group.iloc[0] if len(group) == 1 else {}
        numbers = {name: alone.get(name) for name in ("stddev", *spread)}
        numbers |= {"mean": group["value"].mean(), "n_samples": None}
    return {
        **numbers,
        "n_runs": len(group),
        "rtt_us": group["rtt_us"].median(),
        "bandwidth_gbps": group["bandwidth_gbps"].median(),
    }


def _typical(values: dict[str, Any]) -> float:
    return float(values.get("p50", values["mean"]))


def _pooled(group: pd.DataFrame) -> list[float]:
    return [sample for samples in group["samples"] for sample in samples]
