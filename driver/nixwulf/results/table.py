"""Records pooled once, for every view of them: tidy tables, and what was measured of fabrics.

One row per record and metric, and one row per case and metric. Pure functions: the same records, in
any order, give the same tables. Numbers of a case are over all of its samples.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import adds_up
from nixwulf.nodes.link import stream_bytes
from nixwulf.results.cost import SPEEDS, per_watt, price, watts_by_metric
from nixwulf.results.identity import COLUMNS, OVER_NODES, canonical, case_id
from nixwulf.results.record import Record, RecordedFabric, RecordedMetric

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


@dataclass(frozen=True)
class FabricStats:
    """The measurements of a fabric as it was shaped once, over failed runs' links too.

    fabric: as the first record has it; rtts_us: the median round trip (microseconds) of each
    probe, before and after each run and on each link, of cables on the slowest;
    bandwidths_gbps: of one TCP stream on each link.
    """

    fabric: RecordedFabric
    rtts_us: tuple[float, ...]
    bandwidths_gbps: tuple[float, ...]

    @cached_property
    def rtt_us(self) -> float | None:
        """The median round trip, microseconds; None where none was measured."""
        return median(self.rtts_us)


_RETRY_US = 50e3
"""What a lost packet costs on average: 20 to 180 ms, and in the median of five runs about 50, were
measured in the lab, of llama.cpp over RPC at 3 and 5 % of loss. Most are found by those that
follow; the last waits for 200 ms (TCP_RTO_MIN,
https://github.com/torvalds/linux/blob/v6.12/include/net/tcp.h).
"""
_SURELY_LOST = 2
_RESENT = 0.005
"""Share of segments sent again beside which one lost packet is no accident; 0.0003 was the most of
a lab's links without loss."""
_SEGMENT_HEADERS = 52  # bytes of IPv4 and TCP with timestamps

FabricKey = tuple[str, str]
"""A cluster's name and a fabric's."""


def fabrics_of(records: Iterable[Record]) -> dict[FabricKey, list[FabricStats]]:
    """Return fabrics by cluster, one for each shaping; the shortest round trip first."""
    found: dict[FabricKey, dict[tuple[str, str], list[RecordedFabric]]]
    found = defaultdict(lambda: defaultdict(list))
    for record in records:
        if fabric := record.get("fabric"):
            shape = (canonical(fabric.get("asked", {})), fabric.get("shaped_by", ""))
            found[record["cluster"]["name"], fabric["name"]][shape].append(fabric)
    return {
        key: sorted((_stats(shapes[shape]) for shape in sorted(shapes)), key=rtt_order)
        for key, shapes in sorted(found.items())
    }


def rtt_order(stats: FabricStats) -> float:
    """Sort by the round trip; an unmeasured one is last."""
    return float("inf") if stats.rtt_us is None else stats.rtt_us


def record_rtt_us(record: Record) -> float | None:
    """Return the median RTT of a run's links, before and after, us; of cables the slowest's."""
    return median(_rtts(record.get("fabric", {})))


def record_bandwidth_gbps(record: Record) -> float | None:
    """Bandwidth of a run, Gbit/s: the lowest over its links."""
    return min(_bandwidths(record.get("fabric", {})), default=None)


def record_lost(record: Record) -> tuple[int, int]:
    """Packets sent over the idle links of a run, and lost; none where it may be by accident."""
    sent, lost = _sent_and_lost(record)
    certain = lost >= _SURELY_LOST or (lost and _resent(record.get("fabric", {})) >= _RESENT)
    return sent, lost if certain else 0


def waiting_us(record: Record) -> float:
    """Return the average wait of a round trip for lost packets, microseconds: there or back."""
    sent, lost = record_lost(record)
    if not lost:
        return 0.0
    share = _resent(record.get("fabric", {})) or lost / sent / 2
    return 2 * share * _RETRY_US


def _sent_and_lost(record: Record) -> tuple[int, int]:
    links = record.get("fabric", {}).get("links", ())
    found = [link[p] for link in links for p in ("rtt_before", "rtt_after") if p in link]
    lost = sum(int(one["lost"]) for one in found)
    return lost + sum(len(one["samples"]) for one in found), lost


def _resent(fabric: RecordedFabric) -> float:
    """Share of the segments of the streams that were sent again; 0 where that is not known."""
    counts: list[int] = [
        link["bandwidth"]["retransmits"]
        for link in fabric.get("links", ())
        if "retransmits" in link.get("bandwidth", {})
    ]
    payload = fabric.get("mtu", 0) - _SEGMENT_HEADERS
    if not counts or payload <= 0:
        return 0.0
    segments: float = stream_bytes(fabric.get("speed_gbps", 0.0)) / payload
    return sum(counts) / (len(counts) * segments)


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _stats(fabrics: list[RecordedFabric]) -> FabricStats:
    return FabricStats(
        fabrics[0],
        tuple(rtt for fabric in fabrics for rtt in _rtts(fabric)),
        tuple(rate for fabric in fabrics for rate in _bandwidths(fabric)),
    )


def _rtts(fabric: RecordedFabric) -> list[float]:
    probes = ("rtt_before", "rtt_after")
    links = fabric.get("links", ())
    trips = [[link[p]["median"] for p in probes if p in link] for link in links]
    # Of a network all links are measured from the head; what joins two workers is a cable, and a
    # collective waits for the slowest.
    if len({link["from"] for link in links}) > 1:
        return max(trips, key=lambda one: median(one) or 0.0)
    return [trip for one in trips for trip in one]


def _bandwidths(fabric: RecordedFabric) -> Iterator[float]:
    links = fabric.get("links", ())
    return (link["bandwidth"]["value"] for link in links if "bandwidth" in link)


PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
_COLUMNS = read_toml(DATA / "columns.toml")
TIDY_COLUMNS: Mapping[str, str] = _COLUMNS["tidy"]
"""The columns of the tidy table and what they hold."""

_SETTING_KEYS = ("kind", "platform", "cluster", "engine", "benchmark", "model", "weights")
OF_CASE_COLUMNS: Mapping[str, str] = _COLUMNS["of_case"]
"""The columns of by_case beside the keys of a case and of its metric, and what they hold."""

CASE_KEYS = (*_SETTING_KEYS, "parameters", "nodes", "parallelism", "fabric", "transport", "case")
METRIC_KEYS = ("metric", "unit", "state", "variant")
# Sources call machines what they like; what is no run's has to share more: see _same.
_NO_BASELINE = OVER_NODES | {"machine", "engine_version"}
_BASELINE_KEYS = (*(one for one in COLUMNS if one not in _NO_BASELINE), "work", "variant", "same")
_WATTS_COLUMNS = ("watts", "watts_source", "per_watt", "joules_per_token")
_TOO_MANY = 2**62
_METRIC_COLUMNS = tuple(TIDY_COLUMNS)[tuple(TIDY_COLUMNS).index("metric") :]
_COUNTS = ("nodes", "repetition", "n_samples", "n_prompt", "n_gen", "depth")
_MEDIANS = ("rtt_us", "bandwidth_gbps")
_MEANS = ("watts", "per_watt", "joules_per_token", "price_usd", "per_usd")
_TEXTS = ("watts_source", "price_source")
_NUMBERS = (*_MEDIANS, "value", "stddev", *PERCENTILES, *_MEANS)
_NO_COST = dict.fromkeys(_TEXTS, "")
_NO_METRIC: dict[str, object] = (
    dict.fromkeys((*METRIC_KEYS, "conditions", "observed", "acceptance"), "")
    | _NO_COST
    | {"samples": ()}
)


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """Make a row per record and metric, columns TIDY_COLUMNS; a failed record is one row.

    Text without a value is empty, a number without a value is NaN or NA.
    """
    import pandas as pd

    columns: dict[str, list[object]] = {name: [] for name in TIDY_COLUMNS}
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
    types: dict[str, str] = dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_NUMBERS, "float64")
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
    """Return, as a text, what one node of published or imported numbers must share too."""
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


def columns_of(record: Record) -> dict[str, object]:
    """Return the columns that all rows of a record share."""
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


def _metrics_of(record: Record) -> list[dict[str, object]]:
    """Return each row's own columns of a record: one empty row where it failed."""
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


def _varying(metrics: Iterable[RecordedMetric]) -> dict[str, set[str]]:
    """Return, by metric, the conditions that are not the same for all metrics of that name."""
    first: dict[str, Mapping[str, object]] = {}
    varying: dict[str, set[str]] = defaultdict(set)
    for metric in metrics:
        name, own = metric["name"], metric["conditions"]
        other = first.setdefault(name, own)
        varying[name] |= {key for key in own.keys() | other if own.get(key) != other.get(key)}
    return varying


def _metric(
    metric: RecordedMetric, parameters: Mapping[str, object], varying: Mapping[str, set[str]]
) -> dict[str, object]:
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


def _costs(record: Record) -> dict[int, dict[str, object]]:
    """The columns of watts and US$ of a record's speeds, by the index of the metric."""
    watts = watts_by_metric(record)
    paid = price(record)
    costs: dict[int, dict[str, object]] = {}
    for index, metric in enumerate(record["metrics"]):
        if metric["unit"] in SPEEDS:
            cost: dict[str, object] = {}
            if index in watts:
                cost = dict(zip(_WATTS_COLUMNS, watts[index], strict=True))
            if paid:
                cost |= {"price_usd": paid.usd, "price_source": paid.source}
                cost["per_usd"] = metric["value"] / paid.usd
            costs[index] = cost
    return costs


def pooled(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Pool rows: one for each value of the keys, sorted by them.

    Columns: the keys; mean, stddev (n-1), p50, p95, p99 (nearest rank, of distributions only)
    and n_samples of the samples of all rows; where no row has samples, the mean of the values,
    and of a row alone the rest as it gives it; n_runs; medians of rtt_us and bandwidth_gbps;
    means of what a speed costs, and the first source of each that is there; the different
    acceptances.
    """
    import numpy as np
    import pandas as pd

    texts = {name: rows[name].where(rows[name] != "", None) for name in _TEXTS}
    groups = rows.assign(**texts).groupby(list(keys), dropna=False, sort=True)
    frame = groups.size().reset_index(name="n_runs")
    alone = ["stddev", *PERCENTILES]
    frame[["mean", *_MEANS]] = groups[["value", *_MEANS]].mean().to_numpy()
    frame[list(_MEDIANS)] = groups[list(_MEDIANS)].median().to_numpy()
    frame[[*alone, *_TEXTS]] = groups[[*alone, *_TEXTS]].first().to_numpy()
    frame[alone] = frame[alone].astype("float64").where(frame["n_runs"] == 1)
    frame[list(_TEXTS)] = frame[list(_TEXTS)].fillna("")
    frame["acceptance"] = ""
    if rows["acceptance"].any():
        found = groups["acceptance"].agg(lambda texts: ", ".join(dict.fromkeys(texts)))
        frame["acceptance"] = found.to_numpy()

    lengths = rows["samples"].map(len).to_numpy(dtype="int64")
    samples = np.fromiter(chain.from_iterable(rows["samples"]), "float64", lengths.sum())
    owner = np.repeat(groups.ngroup().to_numpy(), lengths).astype(np.int64)
    counts = np.bincount(owner, minlength=len(frame)).astype(np.int64)
    spread = groups["p50"].count().to_numpy() > 0
    for name, values in _of_samples(samples, owner, counts).items():
        kept = (counts > 0) & (spread if name in PERCENTILES else True)
        frame[name] = np.where(kept, values, np.where(counts > 0, np.nan, frame[name]))
    frame["n_samples"] = pd.array([count or None for count in counts.tolist()], dtype="Int64")
    return frame


def _of_samples(
    samples: npt.NDArray[np.float64], owner: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[np.float64]]:
    """Mean, deviation and percentiles of each owner's samples; nonsense where it has none."""
    import numpy as np

    order = np.lexsort((samples, owner))
    samples, owner = np.append(samples[order], np.nan), owner[order]
    before = np.cumsum(counts) - counts
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # From the least sample on, so that equal samples have exactly that mean and no deviation.
        least = samples[before]
        above = np.bincount(owner, samples[:-1] - least[owner], len(counts))
        mean = least + above / counts
        squares = np.bincount(owner, (samples[:-1] - mean[owner]) ** 2, len(counts))
        deviation = np.where(counts > 1, np.sqrt(squares / (counts - 1)), np.nan)
    ranks = {
        name: np.maximum(0, -(-counts * percent // 100) - 1)
        for name, percent in PERCENTILES.items()
    }
    percentiles = {name: samples[before + rank] for name, rank in ranks.items()}
    return {"mean": mean, "stddev": deviation, **percentiles}
