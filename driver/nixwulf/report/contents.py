"""What a report holds: settings, lines of cases, values, failures, what was left out, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from nixwulf.report.folder import Entry, RunFolder
from nixwulf.report.words import case_name, figure, link_name, plural, with_deviation
from nixwulf.units import better

_METRIC_ORDER = {"prompt": 0, "decode": 1, "throughput": 2, "ttft": 3, "itl": 4}
_UNIT_ORDER = {"more": 5, "less": 6, "": 7}
_MOST_IN_COLUMNS = 3
_MOST_NAMED = 4
_NOT_COORDINATES = frozenset({"id", "seed", "samples", "warm_up", "parameters"})


class Setting(NamedTuple):
    """What has to be the same for values to stand in one table and in one plot.

    Engine and model are empty where the benchmark measures the machines themselves.
    """

    cluster: str
    engine: str
    benchmark: str
    model: str


def setting_of(cluster: str, case: Mapping[str, Any]) -> Setting:
    """The setting of a case, as a record or a plan has it."""
    return Setting(cluster, case.get("engine", ""), case["benchmark"], case.get("model", ""))


class Metric(NamedTuple):
    """A quantity of a setting: its name in the records and its unit."""

    name: str
    unit: str

    @property
    def words(self) -> str:
        """Its name for people."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Value:
    """A metric over the runs of a case that ended ok, in its unit.

    deviation is over all samples (n-1), none for one sample; percentiles are the 50th, 95th and
    99th, none where they tell no more than the mean; speed_up and efficiency are against one node,
    none where that was not measured or means nothing.
    """

    unit: str
    mean: float
    deviation: float | None
    n_samples: int
    n_runs: int
    percentiles: tuple[float, float, float] | None = None
    speed_up: float | None = None
    efficiency: float | None = None

    @property
    def above_linear(self) -> bool:
        """More than N times one node: one node throttled, or its cache was too small."""
        return self.efficiency is not None and self.efficiency > 1

    @property
    def typical(self) -> float:
        """The one number to compare and draw: the median of a distribution, else the mean."""
        return self.percentiles[0] if self.percentiles else self.mean

    @property
    def text(self) -> str:
        """Mean and deviation: '22.1 ± 0.4'."""
        return with_deviation(self.mean, self.deviation)

    @property
    def spread(self) -> tuple[str, str, str]:
        """The percentiles; empty texts where there are none."""
        if self.percentiles is None:
            return ("", "", "")
        p50, p95, p99 = map(figure, self.percentiles)
        return (p50, p95, p99)


@dataclass(frozen=True)
class Line:
    """One case, and one variant of its conditions, over its repetitions.

    rtt_us (microseconds) and bandwidth_gbps (Gbit/s) are medians over the runs that ended ok, or
    over all where none did; planned is how many runs the plan asks for, none without a plan;
    axes are the parameters and conditions that tell it from other lines of its setting.
    """

    setting: Setting
    case: str
    nodes: int
    parallelism: str
    fabric: str
    transport: str
    rtt_us: float | None
    bandwidth_gbps: float | None
    outcomes: Mapping[str, int]
    planned: int | None
    axes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)

    @property
    def link(self) -> str:
        """The fabric, with the transport where it is not TCP; empty on one node."""
        return link_name(self.fabric, self.transport)

    @property
    def variant(self) -> str:
        """Its axes in words: 'concurrency 4, n_gen 64'."""
        return ", ".join(f"{key} {value}" for key, value in self.axes.items())

    @property
    def outcome(self) -> str:
        """'ok', '2 ok, 1 hang', 'not run' or '1 ok, 2 to come'."""
        to_come = max(0, (self.planned or 0) - sum(self.outcomes.values()))
        if not self.outcomes:
            return "not run"
        if len(self.outcomes) == 1 and not to_come:
            return next(iter(self.outcomes))
        parts = [f"{count} {name}" for name, count in self.outcomes.items()]
        return ", ".join(parts + ([f"{to_come} to come"] if to_come else []))

    @property
    def counts(self) -> str:
        """Samples and runs that its values rest on: '9 (3)'; several where the metrics differ."""
        counts = {(value.n_samples, value.n_runs) for value in self.values.values()}
        return ", ".join(f"{n} ({runs})" for n, runs in sorted(counts))

    @property
    def what(self) -> str:
        """'2 nodes, tensor, lan, concurrency 4', or 'one node'."""
        name = case_name(self.nodes, self.parallelism, self.link)
        return ", ".join(filter(None, (name, self.variant)))


@dataclass(frozen=True)
class Failure:
    """Runs that failed in the same way; names are those of their cases, one for each run."""

    outcome: str
    phase: str
    reason: str
    hint: str
    entries: tuple[Entry, ...]
    names: tuple[str, ...]

    @property
    def cases(self) -> str:
        """The cases in words; of many, the first few and how many more."""
        names = list(dict.fromkeys(self.names))
        more = f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return "; ".join(names[:_MOST_NAMED]) + more

    @property
    def log_tails(self) -> dict[str, str]:
        """The last lines of each node's log, of the first of the runs that kept any."""
        for entry in self.entries:
            tails = {n["name"]: n["log_tail"] for n in entry.record["nodes"] if n.get("log_tail")}
            if tails:
                return tails
        return {}


@dataclass(frozen=True)
class LeftOut:
    """Points of a sweep that are no cases for the same reason, by their coordinates."""

    reason: str
    points: tuple[Mapping[str, Any], ...]

    @property
    def words(self) -> str:
        """The values of each coordinate among the points: 'nodes 2, 4; parallelism single'."""
        values: dict[str, dict[str, None]] = defaultdict(dict)
        for point in self.points:
            for key, value in point.items():
                values[key][str(value)] = None
        return "; ".join(f"{key} {', '.join(found)}" for key, found in values.items())


@dataclass(frozen=True)
class Summary:
    """Everything a report shows, computed from the records and the plan alone.

    warnings: sentences with the names of the cases they are about; names: of cases, by their id.
    """

    folder: RunFolder
    lines: tuple[Line, ...]
    failures: tuple[Failure, ...]
    warnings: Mapping[str, tuple[str, ...]]
    outcomes: Mapping[str, int]
    names: Mapping[str, str]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The settings, those of engines first."""
        settings = {line.setting for line in self.lines}
        return tuple(sorted(settings, key=lambda s: (s.cluster, not s.engine, s)))

    def lines_of(self, setting: Setting) -> list[Line]:
        """The lines of a setting."""
        return [line for line in self.lines if line.setting == setting]

    def entries_of(self, setting: Setting) -> list[Entry]:
        """The runs of a setting in the order in which they started."""
        found = [
            entry
            for entry in self.folder.entries
            if setting == setting_of(entry.record["cluster"]["name"], entry.record["case"])
        ]
        return sorted(found, key=lambda entry: (entry.record["started"], entry.record["id"]))

    def name_of(self, entry: Entry) -> str:
        """The case of a run among all of the folder, in words."""
        return self.names[entry.record["case"]["id"]]

    def metrics(self, setting: Setting) -> list[Metric]:
        """What was measured in a setting: prompt, decode, ..., then rates, times and the rest."""
        found = {
            Metric(name, value.unit)
            for line in self.lines_of(setting)
            for name, value in line.values.items()
        }
        return sorted(found, key=_metric_order)

    def headline(self, setting: Setting) -> list[Metric]:
        """The few metrics that stand for a setting, of which more or less is better."""
        judged = [metric for metric in self.metrics(setting) if better(metric.unit)]
        return judged[:_MOST_IN_COLUMNS] or self.metrics(setting)[:_MOST_IN_COLUMNS]

    def in_rows(self, setting: Setting) -> bool:
        """Whether each metric needs a row: they are many, or several with percentiles."""
        metrics = self.metrics(setting)
        spread = any(self.has_spread(setting, metric) for metric in metrics)
        return len(metrics) > (1 if spread else _MOST_IN_COLUMNS)

    def has_spread(self, setting: Setting, metric: Metric) -> bool:
        """Whether a metric has percentiles."""
        values = (line.values.get(metric.name) for line in self.lines_of(setting))
        return any(value is not None and value.percentiles for value in values)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Points that the plan made no case of, by reason."""
        by_reason: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in (self.folder.plan or {}).get("left_out", ()):
            by_reason[entry["reason"]].append(_coordinates(entry["case"]))
        return tuple(LeftOut(reason, tuple(points)) for reason, points in by_reason.items())

    @property
    def counts(self) -> str:
        """'36 runs of 12 cases: 33 ok, 2 hang, 1 failed (36 of 40 planned)'."""
        runs = len(self.folder.entries)
        cases = len({(line.setting, line.case) for line in self.lines if line.outcomes})
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        text = f"{plural(runs, 'run')} of {plural(cases, 'case')}: {outcomes}"
        planned = self.folder.planned_runs
        if planned is not None and planned != runs:
            text += f"; {runs} of {planned} planned runs have a record"
        return text

    @property
    def any_above_linear(self) -> bool:
        """Whether a case is faster than its number of nodes times one node."""
        return any(value.above_linear for line in self.lines for value in line.values.values())

    def setting_name(self, setting: Setting) -> str:
        """What tells a setting from the others: its engine and model, or its benchmark."""
        always = {"engine", "model"} if setting.engine else {"benchmark"}
        shown = [
            value
            for key, value in setting._asdict().items()
            if key in always or len({getattr(other, key) for other in self.settings}) > 1
        ]
        return ", ".join(filter(None, shown))


def _metric_order(metric: Metric) -> tuple[int, Metric]:
    return (_METRIC_ORDER.get(metric.name, _UNIT_ORDER[better(metric.unit)]), metric)


def _coordinates(case: Mapping[str, Any]) -> dict[str, Any]:
    flat = {**case, **case.get("parameters", {})}
    return {key: value for key, value in flat.items() if key not in _NOT_COORDINATES}
