"""What was found, in sentences computed from the lines of a summary; and what was measured on what.

The latter are the distinct values that the records of a run folder state.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nixwulf.core.document import Column, Table
from nixwulf.core.metric import accepted, adds_up, is_time, long_name
from nixwulf.core.query import grouped
from nixwulf.core.text import (
    amount,
    format_significant,
    microseconds,
    percent,
    plural,
    round_trip,
    times,
    unit_name,
)
from nixwulf.report.lines import CaseSummary, MetricKey, MetricSummary
from nixwulf.report.summary import Section
from nixwulf.results.cost import sources
from nixwulf.results.record import Record, RecordedCluster, RecordedCommand, RecordedModel
from nixwulf.results.store import Entry
from nixwulf.results.table import FabricStats, fabrics_of, rtt_order

_HEADLINE_METRIC = ("decode", "prompt")
_MOST_VARIANTS = 4
_WHOLE_FROM = 10.0


def findings(section: Section) -> list[str]:
    """The sentences of a setting, the most general first; none where nothing was measured."""
    return list(_of_setting(section))


def _of_setting(section: Section) -> Iterator[str]:
    """Yield findings of each variant of conditions; of several only what matters most."""
    lines = [line for line in section.lines if line.values]
    metrics = section.headline
    variants = list(dict.fromkeys(line.variant for line in lines))
    for variant in variants[:_MOST_VARIANTS]:
        own = [line for line in lines if line.variant == variant]
        if len(variants) == 1:
            yield from _of_variant(own, metrics)
        else:
            best = (_best_and_worst(own, m) for m in metrics if _having(own, m))
            yield f"{f'With {variant}' if variant else 'By default'}: {' '.join(best)}"
    if len(variants) > _MOST_VARIANTS:
        yield f"{len(variants) - _MOST_VARIANTS} more are in the table."
    if any(value.above_linear for line in lines for value in line.values.values()):
        yield (
            "Some cases are faster than their number of nodes times one node: suspect that one "
            "node throttled, or that its caches were too small."
        )


def _of_variant(lines: list[CaseSummary], metrics: Sequence[MetricKey]) -> list[str]:
    measured = [metric for metric in metrics if _having(lines, metric)]
    first = sorted(measured, key=lambda m: m.name not in _HEADLINE_METRIC[:1])
    if not first:
        return []
    found = [_best_and_worst(lines, first[0]), *_with_round_trip(lines, first[0])]
    return [*found, *(_best_and_worst(lines, metric) for metric in first[1:])]


def _having(lines: Sequence[CaseSummary], metric: MetricKey) -> list[CaseSummary]:
    """The lines with a metric, the best first."""
    some = [line for line in lines if metric.name in line.values]
    sign = 1 if metric.better == "less" else -1
    return sorted(some, key=lambda line: sign * line.values[metric.name].typical)


def _best_and_worst(lines: list[CaseSummary], metric: MetricKey) -> str:
    """The best and the worst case of several nodes against one node, as far as there are such."""
    ranked = _having(lines, metric)
    one = [line for line in ranked if line.nodes == 1]
    several = [line for line in ranked if line.nodes > 1]
    name, (best_word, worst_word) = _name(metric, ranked[0]), _superlatives(metric)
    if not several:
        return f"{name} on one node: {_amount(one[0], metric)}."
    best, worst = several[0], several[-1]
    if not one:
        if worst is best:
            return f"{name} on {_case(best)}: {_amount(best, metric)}."
        text = f"{name} is {best_word} on {_case(best)}, at {_amount(best, metric)}"
        return f"{text}, and {worst_word} on {_case(worst)}, at {_amount(worst, metric)}."
    text = f"{name} on one node: {_amount(one[0], metric)}. "
    if len(several) == 1:
        return text + f"On {_case(best)}: {_against_one(best, metric)}."
    if _having([best, one[0]], metric)[0] is one[0]:
        text += "No case of several nodes reaches that: the best, "
    else:
        text += "The best case of several nodes, "
    return text + (
        f"{_case(best)}, gives {_against_one(best, metric)}; the {worst_word}, {_case(worst)}, "
        f"{_against_one(worst, metric)}."
    )


def _superlatives(metric: MetricKey) -> tuple[str, str]:
    if adds_up(metric.unit):
        return "fastest", "slowest"
    if is_time(metric.unit):
        return "shortest", "longest"
    return ("lowest", "highest") if metric.better == "less" else ("highest", "lowest")


def _with_round_trip(lines: list[CaseSummary], metric: MetricKey) -> Iterator[str]:
    """Describe a metric's change from the shortest to the longest round trip, on the most nodes."""
    if is_time(metric.unit) and not any(line.setting.engine for line in lines):
        return  # a latency of the machines is the round trip itself
    for parallelism in sorted({line.parallelism for line in lines}):
        over = [
            (line.rtt_us, line)
            for line in _having(lines, metric)
            if line.parallelism == parallelism and line.rtt_us is not None
        ]
        nodes = max((line.nodes for _, line in over), default=0)
        ends = [(rtt, line.values[metric.name]) for rtt, line in over if line.nodes == nodes]
        ends.sort(key=lambda end: (end[0], end[1].typical))
        if len(ends) > 1 and ends[0][0] < ends[-1][0]:
            split = f" in {parallelism}" if parallelism else ""
            what = f"{_name(metric, over[0][1])}{split} on {plural(nodes, 'node')}"
            yield _change(what, metric, ends[0], ends[-1])


def _change(
    what: str,
    metric: MetricKey,
    near: tuple[float, MetricSummary],
    far: tuple[float, MetricSummary],
) -> str:
    """Describe a change over round trips; near and far have microseconds and a value."""
    before, after = near[1].typical, far[1].typical
    unit = unit_name(metric.unit)
    trips = f"the measured round trip grows from {round_trip(near[0])} to {round_trip(far[0])}"
    if abs(after - before) <= max(near[1].deviation or 0.0, far[1].deviation or 0.0):
        return (
            f"{what} stays within one standard deviation ({format_significant(before)} and "
            f"{format_significant(after)} {unit}) as {trips}."
        )
    usual, other = ("fall", "grow") if metric.better == "more" else ("grow", "fall")
    happened = "fall" if after < before else "grow"
    verb = f"{usual}s" if happened == usual else f"does not {usual} but {other}s"
    change = percent(abs(1 - after / before)) if before else "from nothing"
    text = (
        f"{what} {verb} from {format_significant(before)} to {format_significant(after)} {unit} "
        f"(by {change}) as {trips}"
    )
    if metric != ("decode", "tok/s") or after > before:
        return f"{text}."
    longer_us = 1e6 / after - 1e6 / before
    added = longer_us / (far[0] - near[0])
    count = f"{added:.0f}" if added >= _WHOLE_FROM else f"{added:.1f}"
    return (
        f"{text}: a token takes {round_trip(longer_us)} longer, {count} times the added round trip."
    )


def _name(metric: MetricKey, line: CaseSummary) -> str:
    name = long_name(metric.name)
    name = f"median {name}" if line.values[metric.name].percentiles else name
    return f"{name[:1].upper()}{name[1:]}"


def _amount(line: CaseSummary, metric: MetricKey) -> str:
    value = line.values[metric.name]
    return amount(value.typical, metric.unit) + accepted(value.acceptance)


def _against_one(line: CaseSummary, metric: MetricKey) -> str:
    speed_up = line.values[metric.name].speed_up
    if speed_up is None:
        return _amount(line, metric)
    share = f"{times(speed_up)} that" if speed_up >= 1 else f"{percent(speed_up)} of it"
    return f"{_amount(line, metric)} ({share})"


def _case(line: CaseSummary) -> str:
    rtt = f" (round trip {round_trip(line.rtt_us)})" if line.rtt_us is not None else ""
    split = f" in {line.parallelism}" if line.parallelism else ""
    link = f" over {line.link}" if line.link else ""
    return f"{plural(line.nodes, 'node')}{split}{link}{rtt}"


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
    """List the facts of the nodes: one value, or a range, or each value with its nodes."""
    values: dict[str, dict[str, list[object]]] = {}
    for record in records:
        for node in record.get("nodes", ()):
            for key, value in node.get("facts", {}).items():
                values.setdefault(key, {}).setdefault(node["name"], []).append(value)
    return [
        (f"Nodes: {key.removesuffix('_bytes').replace('_', ' ')}", _fact(key, found))
        for key, found in values.items()
    ]


def fabrics(records: Sequence[Record]) -> Table:
    """Tabulate fabrics: as sold, asked for in the lab, and measured; the shortest trip first."""
    found = [one for several in fabrics_of(records).values() for one in several]
    return Table(_FABRIC, [_fabric(one) for one in sorted(found, key=rtt_order)])


def examples(entries: Sequence[Entry]) -> list[Example]:
    """The commands of the first run of each engine, benchmark, number of nodes and parallelism."""
    chosen: dict[tuple[str | int, ...], Entry] = {}
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
    sources = (record["source"] for record in records if record["kind"] == "imported")
    files = grouped((source["tool"], source.get("file", "")) for source in sources)
    return "; ".join(f"{tool}: {', '.join(sorted({*files[tool]}))}" for tool in sorted(files))


def _line(command: RecordedCommand) -> str:
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


def _cluster(cluster: RecordedCluster) -> str:
    where = "lab: namespaces of one machine" if cluster["lab"] else ", ".join(cluster["platforms"])
    return f"{cluster['name']} ({where})"


def _engine(engine: Mapping[str, str]) -> str:
    commit = f"commit {engine['build_commit']}" if "build_commit" in engine else ""
    backends = f"backends {engine['backends']}" if "backends" in engine else ""
    parts = (engine.get("version", ""), commit, backends, engine.get("origin", ""))
    return ", ".join([engine["name"], *filter(None, parts)])


def _model(model: RecordedModel) -> str:
    parts = [
        model.get("architecture", ""),
        model.get("weights", ""),
        f"{model['parameters'] / 1e6:.4g} M parameters" if "parameters" in model else "",
        f"{model['active_parameters'] / 1e6:.4g} M active" if "active_parameters" in model else "",
        f"{model['bytes'] / 2**20:.4g} MiB" if "bytes" in model else "",
        "random weights" if model.get("random_weights") else "",
    ]
    return ", ".join([model["name"], *filter(None, parts)])


def _driver(provenance: Mapping[str, object]) -> str:
    revision = f"revision {provenance['revision']}" if "revision" in provenance else ""
    return ", ".join(filter(None, (f"nixwulf {provenance['nixwulf']}", revision)))


def _flat(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())


def _fact(key: str, by_node: Mapping[str, Sequence[object]]) -> str:
    """Memory in GiB; numbers that change from run to run as a range."""
    values = [value for found in by_node.values() for value in found]
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        ends = dict.fromkeys(_fact_text(key, end) for end in (min(numbers), max(numbers)))
        return " to ".join(ends)
    nodes = grouped(
        (" or ".join(dict.fromkeys(_fact_text(key, value) for value in found)), name)
        for name, found in by_node.items()
    )
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
