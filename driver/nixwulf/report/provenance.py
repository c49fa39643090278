"""What was measured on what: the distinct values that the records of a run folder state."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.core.document import Column, Table
from nixwulf.core.text import format_significant, microseconds
from nixwulf.results.cost import sources
from nixwulf.results.record import Record
from nixwulf.results.store import Entry
from nixwulf.results.table import FabricStats, fabrics_of, rtt_order

_FABRIC = (
    "fabric",
    "kind",
    "asked",
    Column("measured RTT, median (range)", whole=True),
    Column("measured bandwidth, median (range)", whole=True),
)
_EXAMPLE_OF = ("engine", "benchmark", "nodes", "parallelism")


@dataclass(frozen=True)
class Command:
    """A command of a run: the node, and the line as a shell would take it."""

    node: str
    line: str


@dataclass(frozen=True)
class Example:
    """The commands of one run, as an example of its kind."""

    entry: Entry
    commands: tuple[Command, ...]


def facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Pairs of a name and what the records state, in the order in which a reader asks."""
    pairs = [
        ("Measured", _measured([record for record in records if record["kind"] == "run"])),
        ("Imported", _imported(records)),
        ("Published", _distinct(r["source"]["name"] for r in records if r["kind"] == "published")),
        ("Cluster", _distinct(_cluster(record["cluster"]) for record in records)),
        ("Engine", _distinct(_engine(r["engine"]) for r in records if "engine" in r)),
        ("Model", _distinct(_model(r["model"]) for r in records if "model" in r)),
        ("Driver", _distinct(_driver(record["provenance"]) for record in records)),
        ("Driver's machine", _distinct(_flat(r["provenance"].get("driver", {})) for r in records)),
        ("Gates waived", _distinct(", ".join(record.get("waived", ())) for record in records)),
        ("Power", _distinct(sources(record.get("power", {})) for record in records)),
        *node_facts(records),
    ]
    return [(name, text) for name, text in pairs if text]


def node_facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Each fact of the nodes: one value, or a range, or each value with its nodes."""
    values: dict[str, dict[str, list[Any]]] = {}
    for record in records:
        for node in record.get("nodes", ()):
            for key, value in node.get("facts", {}).items():
                values.setdefault(key, {}).setdefault(node["name"], []).append(value)
    return [
        (f"Nodes: {key.removesuffix('_bytes').replace('_', ' ')}", _fact(key, found))
        for key, found in values.items()
    ]


def fabrics(records: Sequence[Record]) -> Table:
    """Each fabric as it is sold, as the lab was asked for it, and as runs, failed too, measured it.

    In the order of the measured round trips.
    """
    found = [one for several in fabrics_of(records).values() for one in several]
    return Table(_FABRIC, [_fabric(one) for one in sorted(found, key=rtt_order)])


def examples(entries: Sequence[Entry]) -> list[Example]:
    """The commands of the first run of each engine, benchmark, number of nodes and parallelism."""
    chosen: dict[tuple[Any, ...], Entry] = {}
    runs = [entry for entry in entries if entry.record["kind"] == "run"]
    for entry in sorted(runs, key=lambda e: (e.record["outcome"] != "ok", e.started)):
        case = entry.record["case"]
        key = tuple(case.get(name, "") for name in _EXAMPLE_OF)
        if entry.record.get("commands"):
            chosen.setdefault(key, entry)
    return [
        Example(entry, tuple(Command(c["node"], _line(c)) for c in entry.record["commands"]))
        for _, entry in sorted(chosen.items(), key=lambda item: item[0])
    ]


def _measured(runs: Sequence[Record]) -> str:
    if not runs:
        return ""
    first, last = min(run["started"] for run in runs), max(run["finished"] for run in runs)
    return f"{_minute(first)} to {_minute(last)} UTC"


def _imported(records: Sequence[Record]) -> str:
    """The files by the tool that wrote them, for the names of the files show who measured what."""
    files: dict[str, set[str]] = {}
    for record in records:
        if record["kind"] == "imported":
            source = record["source"]
            files.setdefault(source["tool"], set()).add(source.get("file", ""))
    return "; ".join(f"{tool}: {', '.join(sorted(names))}" for tool, names in sorted(files.items()))


def _line(command: dict[str, Any]) -> str:
    import shlex

    environment = [f"{k}={shlex.quote(v)}" for k, v in command.get("environment", {}).items()]
    return " ".join([*environment, shlex.join(command["argv"])])


def _fabric(found: FabricStats) -> list[str]:
    first, asked = found.fabric, found.fabric.get("asked", {})
    delay = f"{asked['delay_us']:g} µs one way" if asked.get("delay_us") else "no delay added"
    sold = [
        first.get("kind", ""),
        f"{first['speed_gbps']:g} Gbit/s" if "speed_gbps" in first else "",
        f"MTU {first['mtu']}" if "mtu" in first else "",
        first.get("stack", ""),
    ]
    shape = [
        delay if asked else "",
        f"{asked['rate_gbps']:g} Gbit/s" if "rate_gbps" in asked else "",
        f"{asked['loss_percent']:g} % loss" if asked.get("loss_percent") else "",
        f"by {first['shaped_by']}" if "shaped_by" in first else "",
    ]
    return [
        first["name"],
        ", ".join(filter(None, sold)),
        ", ".join(filter(None, shape)),
        _range(found.rtts_us, microseconds, "µs"),
        _range(found.bandwidths_gbps, format_significant, "Gbit/s"),
    ]


def _range(values: Sequence[float], text: Callable[[float], str], unit: str) -> str:
    if not values:
        return "not measured"
    middle = f"{text(statistics.median(values))} {unit}"
    low, high = text(min(values)), text(max(values))
    return middle if low == high else f"{middle} ({low} to {high})"


def _cluster(cluster: dict[str, Any]) -> str:
    where = "lab: namespaces of one machine" if cluster["lab"] else ", ".join(cluster["platforms"])
    return f"{cluster['name']} ({where})"


def _engine(engine: dict[str, Any]) -> str:
    commit = f"commit {engine['build_commit']}" if "build_commit" in engine else ""
    backends = f"backends {engine['backends']}" if "backends" in engine else ""
    parts = (engine.get("version", ""), commit, backends, engine.get("origin", ""))
    return ", ".join([engine["name"], *filter(None, parts)])


def _model(model: dict[str, Any]) -> str:
    parts = [
        model.get("architecture", ""),
        model.get("weights", ""),
        f"{model['parameters'] / 1e6:.4g} M parameters" if "parameters" in model else "",
        f"{model['active_parameters'] / 1e6:.4g} M active" if "active_parameters" in model else "",
        f"{model['bytes'] / 2**20:.4g} MiB" if "bytes" in model else "",
        "random weights" if model.get("random_weights") else "",
    ]
    return ", ".join([model["name"], *filter(None, parts)])


def _driver(provenance: dict[str, Any]) -> str:
    revision = f"revision {provenance['revision']}" if "revision" in provenance else ""
    return ", ".join(filter(None, (f"nixwulf {provenance['nixwulf']}", revision)))


def _flat(values: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())


def _fact(key: str, by_node: dict[str, list[Any]]) -> str:
    """Memory in GiB; numbers that change from run to run as a range."""
    values = [value for found in by_node.values() for value in found]
    if all(isinstance(value, int | float) for value in values):
        ends = dict.fromkeys(_fact_text(key, end) for end in (min(values), max(values)))
        return " to ".join(ends)
    nodes: dict[str, list[str]] = {}
    for name, found in by_node.items():
        text = " or ".join(dict.fromkeys(_fact_text(key, value) for value in found))
        nodes.setdefault(text, []).append(name)
    if len(nodes) == 1:
        return next(iter(nodes))
    return "; ".join(f"{text} ({', '.join(sorted(names))})" for text, names in nodes.items())


def _fact_text(key: str, value: object) -> str:
    if key.endswith("_bytes") and isinstance(value, int | float):
        return f"{value / 2**30:.1f} GiB"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted({text for text in texts if text}))


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
