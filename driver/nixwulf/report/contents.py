"""What a report holds: lines of cases, failures, warnings, what was left out, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nixwulf.core.metric import rank
from nixwulf.core.text import plural
from nixwulf.report.lines import CaseSummary, MetricKey
from nixwulf.results.identity import Setting, case_id, record_setting
from nixwulf.results.run_folder import RunFolder
from nixwulf.results.store import Entry

if TYPE_CHECKING:
    from nixwulf.report.predicted import Predicted

_MOST_IN_HEADLINE = 3
_MOST_IN_COLUMNS = 4
_MOST_NAMED = 4
_NOT_COORDINATES = frozenset({"id", "seed", "samples", "warm_up", "parameters"})


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
            nodes = entry.record.get("nodes", ())
            tails = {n["name"]: n["log_tail"] for n in nodes if n.get("log_tail")}
            if tails:
                return tails
        return {}


@dataclass(frozen=True)
class ExcludedPoints:
    """Points of a sweep that are no cases for the same reason, by what varies in the sweep."""

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
    lines: tuple[CaseSummary, ...]
    failures: tuple[Failure, ...]
    warnings: Mapping[str, tuple[str, ...]]
    outcomes: Mapping[str, int]
    names: Mapping[str, str]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The settings, those of engines first."""
        settings = {line.setting for line in self.lines}
        return tuple(sorted(settings, key=lambda s: (s.cluster, not s.engine, s)))

    @cached_property
    def predicted(self) -> Predicted:
        """What the model says of the cases, beside what was measured."""
        from nixwulf.report.predicted import predicted  # asked for by pages alone

        return predicted(self.folder)

    def lines_of(self, setting: Setting) -> list[CaseSummary]:
        """The lines of a setting."""
        return [line for line in self.lines if line.setting == setting]

    def entries_of(self, setting: Setting) -> list[Entry]:
        """The runs of a setting in the order in which they started."""
        found = [entry for entry in self.folder.entries if setting == record_setting(entry.record)]
        return sorted(found, key=lambda entry: (entry.started, entry.record["id"]))

    def name_of(self, entry: Entry) -> str:
        """The case of a run among all of its setting, in words."""
        return self.names[case_id(entry.record)]

    def metrics(self, setting: Setting) -> list[MetricKey]:
        """What was measured in a setting: prompt, decode, ..., then rates, times and the rest."""
        found = {
            MetricKey(name, value.unit)
            for line in self.lines_of(setting)
            for name, value in line.values.items()
        }
        return sorted(found, key=lambda metric: (rank(*metric), metric.unit))

    def headline(self, setting: Setting) -> list[MetricKey]:
        """The few metrics that stand for a setting, of which more or less is better."""
        judged = [metric for metric in self.metrics(setting) if metric.better]
        return judged[:_MOST_IN_HEADLINE] or self.metrics(setting)[:_MOST_IN_HEADLINE]

    def in_rows(self, setting: Setting) -> bool:
        """Whether each metric needs a row: they are many, or several with percentiles."""
        metrics = self.metrics(setting)
        spread = any(self.has_spread(setting, metric) for metric in metrics)
        return len(metrics) > (1 if spread else _MOST_IN_COLUMNS)

    def has_spread(self, setting: Setting, metric: MetricKey) -> bool:
        """Whether a metric has percentiles."""
        values = (line.values.get(metric.name) for line in self.lines_of(setting))
        return any(value is not None and value.percentiles for value in values)

    def as_given(self, setting: Setting) -> bool:
        """Whether no value rests on samples: sources give them as they are."""
        values = [value for line in self.lines_of(setting) for value in line.values.values()]
        return bool(values) and not any(value.n_samples for value in values)

    @property
    def left_out(self) -> tuple[ExcludedPoints, ...]:
        """Points that the plan made no case of, by reason."""
        plan = self.folder.plan or {"cases": (), "left_out": ()}
        left = [(entry["reason"], _coordinates(entry["case"])) for entry in plan["left_out"]]
        values: dict[str, set[str]] = defaultdict(set)
        for point in (*map(_coordinates, plan["cases"]), *(point for _, point in left)):
            for key, value in point.items():
                values[key].add(str(value))
        by_reason: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for reason, point in left:
            by_reason[reason].append({k: v for k, v in point.items() if len(values[k]) > 1})
        return tuple(ExcludedPoints(reason, tuple(points)) for reason, points in by_reason.items())

    @property
    def counts(self) -> str:
        """'36 runs of 12 cases: 33 ok, 2 hang, 1 failed (36 of 40 planned)'."""
        runs = len(self.folder.entries)
        kinds = {entry.record["kind"] for entry in self.folder.entries}
        noun = "run" if "run" in kinds else "record"
        cases = len({(line.setting, line.case) for line in self.lines if line.outcomes})
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        text = f"{plural(runs, noun)} of {plural(cases, 'case')}: {outcomes}"
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


def _coordinates(case: Mapping[str, Any]) -> dict[str, Any]:
    flat = {**case, **case.get("parameters", {})}
    return {key: value for key, value in flat.items() if key not in _NOT_COORDINATES}
