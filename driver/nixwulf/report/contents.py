"""What a report holds: settings, lines of cases, speeds, failures, what was left out, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from nixwulf.report.folder import Entry, RunFolder
from nixwulf.report.words import case_name, link_name, pairs, plural

_METRIC_ORDER = {"prompt": 0, "decode": 1}
_MOST_NAMED = 4
_NOT_COORDINATES = frozenset({"id", "seed", "samples", "warm_up", "parameters"})


class Setting(NamedTuple):
    """What has to be the same for speeds to stand in one plot; parameters are canonical JSON."""

    cluster: str
    engine: str
    benchmark: str
    model: str
    parameters: str


@dataclass(frozen=True)
class Speed:
    """A speed over the runs of a case that ended ok, tokens per second.

    deviation is over all samples (n-1), none for one sample; speed_up and efficiency are against
    one node, none where that was not measured; conditions are canonical JSON.
    """

    mean: float
    deviation: float | None
    n_samples: int
    n_runs: int
    conditions: str
    speed_up: float | None = None
    efficiency: float | None = None

    @property
    def above_linear(self) -> bool:
        """More than N times one node: one node throttled, or its cache was too small."""
        return self.efficiency is not None and self.efficiency > 1


@dataclass(frozen=True)
class Line:
    """One case, and one variant of its conditions, over its repetitions.

    rtt_us (microseconds) and bandwidth_gbps (Gbit/s) are medians over the runs that ended ok, or
    over all where none did; planned is how many runs the plan asks for, none without a plan.
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
    variant: str = ""
    speeds: Mapping[str, Speed] = field(default_factory=dict)

    @property
    def link(self) -> str:
        """The fabric, with the transport where it is not TCP; empty on one node."""
        return link_name(self.fabric, self.transport)

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
        """Samples and runs that its speeds rest on: '9 (3)'; several where the metrics differ."""
        counts = {(speed.n_samples, speed.n_runs) for speed in self.speeds.values()}
        return ", ".join(f"{n} ({runs})" for n, runs in sorted(counts))

    @property
    def what(self) -> str:
        """'2 nodes, tensor, lan', or 'one node'."""
        return case_name(self.nodes, self.parallelism, self.link)


@dataclass(frozen=True)
class Failure:
    """Runs that failed in the same way."""

    outcome: str
    phase: str
    reason: str
    hint: str
    entries: tuple[Entry, ...]

    @property
    def cases(self) -> str:
        """The cases in words; of many, the first few and how many more."""
        names = list(dict.fromkeys(entry.what for entry in self.entries))
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
    """Everything a report shows, computed from the records and the plan alone."""

    folder: RunFolder
    lines: tuple[Line, ...]
    failures: tuple[Failure, ...]
    outcomes: Mapping[str, int]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that were measured: prompt, decode, then others by name."""
        names = {name for line in self.lines for name in line.speeds}
        return tuple(sorted(names, key=lambda name: (_METRIC_ORDER.get(name, 2), name)))

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The settings, sorted."""
        return tuple(sorted({line.setting for line in self.lines}))

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
        return any(speed.above_linear for line in self.lines for speed in line.speeds.values())

    def setting_name(self, setting: Setting) -> str:
        """What tells a setting from the others; with only one, its engine and model."""
        shown = []
        for key in Setting._fields:
            value = getattr(setting, key)
            differs = len({getattr(other, key) for other in self.settings}) > 1
            if differs or key in {"engine", "model"}:
                shown.append(pairs(value) if key == "parameters" else value)
        return ", ".join(filter(None, shown))


def _coordinates(case: Mapping[str, Any]) -> dict[str, Any]:
    flat = {**case, **case.get("parameters", {})}
    return {key: value for key, value in flat.items() if key not in _NOT_COORDINATES}
