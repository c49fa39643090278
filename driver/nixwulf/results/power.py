"""What readers of records make of their `power`: sentences, and speeds per watt as metrics."""

from __future__ import annotations

from typing import Any

# Of the sources that a run has, reports show the one with the most of the machine in it.
_FULLEST_FIRST = ("wall", "powermetrics", "pmic", "nvidia", "amdgpu", "rapl")
_WHOLE = {"source", "watts", "unit", "value"}


def sources(power: dict[str, Any]) -> str:
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


def warnings(power: dict[str, Any]) -> list[str]:
    """A sentence for each node and counter that slowed the run down."""
    return [
        f"Node {held['node']!r} was slowed down while it was measured: {held['counter']}."
        for held in power.get("throttled", ())
    ]


def fullest(record: dict[str, Any]) -> list[dict[str, Any]]:
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


def per_watt(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The speeds of a record over its watts, as its metrics are, with the source in the name."""
    return [
        {
            **{key: of[key] for key in ("state", "conditions") if key in of},
            "name": f"{entry['name']}_per_{entry['source']}_watt",
            "unit": entry["unit"],
            "value": entry["value"],
            "samples": [entry["value"]],
        }
        for entry in fullest(record)
        for of in [record["metrics"][entry["metric"]]]
    ]
