"""Watts and US$: what readers of records make of their power, and what a speed costs, with sources.

Computed from records when they are read; nothing of it is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.results.record import Record, RecordedEfficiency, RecordedMetric, RecordedPower

# Of the sources that a run has, reports show the one with the most of the machine in it.
_FULLEST_FIRST = ("wall", "powermetrics", "pmic", "nvidia", "amdgpu", "rapl")
_WHOLE = {"source", "watts", "unit", "value"}


def sources(power: RecordedPower) -> str:
    """The sources of watts with their nodes, or why there are none."""
    if "absent" in power:
        return str(power["absent"])
    nodes: dict[str, list[str]] = {}
    for name, node in power.get("nodes", {}).items():
        for source in node.get("watts", {}):
            nodes.setdefault(source, []).append(name)
    for meter in power.get("meters", ()):
        if "watts" in meter:
            nodes.setdefault("wall", []).extend(meter["nodes"])
    return ", ".join(f"{source} of {', '.join(names)}" for source, names in nodes.items())


def warnings(power: Mapping[str, object]) -> list[str]:
    """A sentence for each node and counter that slowed the run down."""
    throttled = power.get("throttled")
    return [
        f"Node {held['node']!r} was slowed down while it was measured: {held['counter']}."
        for held in (throttled if isinstance(throttled, Sequence) else ())
    ]


def fullest(record: Record) -> list[RecordedEfficiency]:
    """The entries of efficiency that have a value, of the source with the most of the machine."""
    entries = [
        entry
        for entry in record.get("power", {}).get("efficiency", ())
        if entry.keys() >= _WHOLE and entry["metric"] < len(record["metrics"])
    ]
    best = min((_rank(entry["source"]) for entry in entries), default=0)
    return [entry for entry in entries if _rank(entry["source"]) == best]


def _rank(source: str) -> int:
    return _FULLEST_FIRST.index(source) if source in _FULLEST_FIRST else len(_FULLEST_FIRST)


def per_watt(record: Record) -> list[RecordedMetric]:
    """The speeds of a record over its watts, as its metrics are, with the source in the name."""
    return [
        {
            "name": f"{entry['name']}_per_{entry['source']}_watt",
            "unit": entry["unit"],
            "value": entry["value"],
            "samples": [entry["value"]],
            "state": record["metrics"][entry["metric"]].get("state", ""),
            "conditions": record["metrics"][entry["metric"]]["conditions"],
        }
        for entry in fullest(record)
    ]


SPEEDS = frozenset({"tok/s", "Gflop/s"})
"""Units of metrics that are set against watts and US$."""

_NOT_AT_WORK = {"idle", "sleep", "off"}


class Watts(NamedTuple):
    """Mean watts of all nodes during a metric; the metric per W; J/token where it counts tokens."""

    watts: float
    source: str
    per_watt: float
    joules_per_token: float | None


class Price(NamedTuple):
    """US$ for all nodes together, and its source."""

    usd: float
    source: str


def watts_by_metric(record: Record) -> dict[int, Watts]:
    """The watts of the speeds of a record, by their index in its metrics.

    Those of the fullest source that a run has; else those that stand beside the speed as a metric
    'power', under the same conditions or as the only one.
    """
    metrics = record["metrics"]
    found = {
        entry["metric"]: Watts(
            entry["watts"], entry["source"], entry["value"], entry.get("joules_per_token")
        )
        for entry in fullest(record)
    }
    if found:
        return found
    powers = [
        metric
        for metric in metrics
        if (metric["name"], metric["unit"]) == ("power", "W")
        and metric["conditions"].get("state") not in _NOT_AT_WORK
    ]
    beside = ((index, _beside(speed, powers)) for index, speed in enumerate(metrics))
    return {index: watts for index, watts in beside if watts}


def _beside(speed: RecordedMetric, powers: Sequence[RecordedMetric]) -> Watts | None:
    """The source names the statistic, such as the highest."""
    found = [power for power in powers if power["conditions"] == speed["conditions"]] or powers
    if speed["unit"] not in SPEEDS or len(found) != 1 or not found[0]["value"]:
        return None
    power, value = found[0], speed["value"]
    own = power["conditions"].items() - speed["conditions"].items()
    which = f" ({', '.join(f'{key} {word}' for key, word in sorted(own))})" if own else ""
    return Watts(
        power["value"],
        f"beside the speed{which}",
        value / power["value"],
        power["value"] / value if speed["unit"] == "tok/s" else None,
    )


def price(record: Record) -> Price | None:
    """Return the price of a record's nodes: as it states, else by the facts of their platforms.

    Nodes alone: no switch, cable or disk. None where a platform has no price, or where it is not
    stated how many nodes are of which platform.
    """
    cluster = record["cluster"]
    if "price_usd" in cluster:
        source = "the cluster file" if record["kind"] == "run" else "the source"
        return Price(float(cluster["price_usd"]), source)
    counts = Counter(node["platform"] for node in record.get("nodes", ()))
    if not counts and len(cluster["platforms"]) == 1:
        counts = Counter({cluster["platforms"][0]: record["case"]["nodes"]})
    each = {platform: _price_of(platform) for platform in counts}
    known = {platform: one for platform, one in each.items() if one is not None}
    if not known or len(known) < len(counts):
        return None
    sources = ", ".join(sorted({one.source for one in known.values()}))
    usd = sum(one.usd * counts[platform] for platform, one in known.items())
    return Price(usd, f"platform facts: {sources}")


@cache
def _price_of(platform: str) -> Price | None:
    if platform not in platform_names():
        return None
    fact = load_platform(platform).get("price_usd")
    return Price(float(fact["value"]), fact["source"]) if fact else None
