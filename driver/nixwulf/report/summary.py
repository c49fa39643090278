"""The contents of a report, computed from the records and the plan of a run folder alone."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from nixwulf.core.metric import rank
from nixwulf.core.query import grouped
from nixwulf.core.text import case_name, link_name, plural
from nixwulf.perf.scenarios.candidates import NO_SPLIT
from nixwulf.report.lines import (
    CaseSummary,
    MetricKey,
    MetricSummary,
    Predicted,
    metric_summary,
    predicted,
)
from nixwulf.results import table
from nixwulf.results.cost import per_watt
from nixwulf.results.identity import Setting, canonical, case_id, record_setting, setting_of
from nixwulf.results.record import Record, RecordedCase
from nixwulf.results.store import Entry, RunFolder

_MOST_IN_HEADLINE = 3
_MOST_IN_COLUMNS = 4
_MOST_NAMED = 4
_NOT_COORDINATES = frozenset({"id", "seed", "samples", "warm_up", "parameters"})

Key = tuple[Setting, str]


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
    points: tuple[Mapping[str, object], ...]

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
    """A report's content, from the records and the plan alone; names: of cases, by their id."""

    folder: RunFolder
    lines: tuple[CaseSummary, ...]
    failures: tuple[Failure, ...]
    warnings: Mapping[str, tuple[str, ...]]
    outcomes: Mapping[str, int]
    names: Mapping[str, str]

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Split the lines by setting, those of engines first."""
        settings = {line.setting for line in self.lines}
        several = [key for key in Setting._fields if len({getattr(s, key) for s in settings}) > 1]
        lines = grouped((line.setting, line) for line in self.lines)
        ordered = sorted(self.folder.entries, key=lambda one: (one.started, one.record["id"]))
        entries = grouped((record_setting(entry.record), entry) for entry in ordered)
        return tuple(
            Section(self, setting, setting.name(several), lines[setting], entries.get(setting, ()))
            for setting in sorted(settings, key=lambda s: (s.cluster, not s.engine, s))
        )

    @cached_property
    def predicted(self) -> Predicted:
        """Predictions of the cases, beside what was measured."""
        return predicted(self.folder)

    def name_of(self, entry: Entry) -> str:
        """The case of a run among all of its setting, in words."""
        return self.names[case_id(entry.record)]

    @property
    def left_out(self) -> tuple[ExcludedPoints, ...]:
        """Points that the plan made no case of, by reason."""
        plan = self.folder.plan or {"cases": (), "left_out": ()}
        left = [
            (entry["reason"], _coordinates(entry["case"]))
            for entry in plan["left_out"]
            if entry["reason"] != NO_SPLIT
        ]
        values: dict[str, set[str]] = defaultdict(set)
        for point in (*map(_coordinates, plan["cases"]), *(point for _, point in left)):
            for key, value in point.items():
                values[key].add(str(value))
        by_reason: dict[str, list[dict[str, object]]] = defaultdict(list)
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
        """Tell whether a case is faster than its number of nodes times one node."""
        return any(value.above_linear for line in self.lines for value in line.values.values())


@dataclass(frozen=True)
class Section:
    """A setting of a report: its cases, its runs as they started; name: what distinguishes it."""

    summary: Summary
    setting: Setting
    name: str
    lines: Sequence[CaseSummary]
    entries: Sequence[Entry]

    @cached_property
    def predicted(self) -> list[CaseSummary]:
        """The same with intervals at those of their values that have a prediction."""
        return [self.summary.predicted.beside(line) for line in self.lines]

    @cached_property
    def metrics(self) -> list[MetricKey]:
        """The measured metrics: prompt, decode, ..., then rates, times and the rest."""
        found = {
            MetricKey(name, value.unit)
            for line in self.lines
            for name, value in line.values.items()
        }
        return sorted(found, key=lambda metric: (rank(*metric), metric.unit))

    @property
    def headline(self) -> list[MetricKey]:
        """The few metrics that stand for it, of which more or less is better."""
        judged = [metric for metric in self.metrics if metric.better]
        return (judged or self.metrics)[:_MOST_IN_HEADLINE]

    @cached_property
    def spread(self) -> list[MetricKey]:
        """The metrics that have percentiles."""
        found = {n for line in self.lines for n, value in line.values.items() if value.percentiles}
        return [metric for metric in self.metrics if metric.name in found]

    @property
    def in_rows(self) -> bool:
        """Tell whether each metric needs a row: they are many, or several with percentiles."""
        return len(self.metrics) > (1 if self.spread else _MOST_IN_COLUMNS)

    @property
    def as_given(self) -> bool:
        """Tell whether no value rests on samples: sources give them as they are."""
        values = [value for line in self.lines for value in line.values.values()]
        return bool(values) and not any(value.n_samples for value in values)


def _coordinates(case: Mapping[str, object]) -> dict[str, object]:
    given = case.get("parameters")
    flat = {**case, **(given if isinstance(given, dict) else {})}
    return {key: value for key, value in flat.items() if key not in _NOT_COORDINATES}


def summarize(folder: RunFolder) -> Summary:
    """The summary of a run folder; the order of its records does not matter."""
    by_case: dict[Key, list[Entry]] = defaultdict(list)
    cases: dict[Key, RecordedCase] = {}
    for entry in sorted(folder.entries, key=lambda e: (e.record["id"], e.started)):
        case = _variant_of(entry.record)
        key = (record_setting(entry.record), case["id"])
        by_case[key].append(entry)
        cases.setdefault(key, case)
    planned = None
    if folder.plan:
        planned = folder.plan["repetitions"]
        cluster = folder.plan["cluster"]["document"]["name"]
        for case in folder.plan["cases"]:
            cases.setdefault((setting_of("run", cluster, "", case), case["id"]), case)
    shown = _differing_parameters(cases)
    measured = _values_by_case(folder.records)
    fabrics = table.fabrics_of(folder.records)
    lines = [
        line
        for key, case in cases.items()
        for line in _lines(
            key[0], case, by_case[key], planned, shown[key[0]], measured[key], fabrics
        )
    ]
    names = {key[1]: _name(case, shown[key[0]]) for key, case in cases.items()}
    several = len({setting.benchmark for setting, _ in cases}) > 1
    full = {
        id_: f"{setting.benchmark}, {names[id_]}" if several else names[id_]
        for setting, id_ in cases
    }
    outcomes = Counter(entry.record["outcome"] for entry in folder.entries)
    return Summary(
        folder=folder,
        lines=_sorted(lines),
        failures=_failures(folder.entries, full),
        warnings=_warnings(folder.entries, full),
        outcomes=_ok_first(outcomes),
        names=names,
    )


def _variant_of(record: Record) -> RecordedCase:
    """The case of a record; of what is no run with what distinguishes its numbers."""
    case: RecordedCase = record["case"]
    if record["kind"] == "run":
        return case
    found = {
        "weights": record.get("model", {}).get("weights"),
        "version": record.get("engine", {}).get("version"),
        "stack": record.get("fabric", {}).get("stack"),
    }
    present = {key: value for key, value in found.items() if value}
    return {**case, "id": case_id(record), "parameters": {**case["parameters"], **present}}


def _name(case: RecordedCase, shown: Sequence[str]) -> str:
    """A case among all of its setting: '2 nodes, tensor, lan', or 'one node, api chat'."""
    link = link_name(case.get("fabric", ""), case.get("transport", ""))
    parts = [
        case_name(case["nodes"], case.get("parallelism", ""), link),
        *(f"{key} {case['parameters'][key]}" for key in shown if key in case["parameters"]),
    ]
    return ", ".join(filter(None, parts))


def _differing_parameters(cases: Mapping[Key, RecordedCase]) -> dict[Setting, list[str]]:
    values: dict[Setting, dict[str, list[object]]] = defaultdict(lambda: defaultdict(list))
    for (setting, _), case in cases.items():
        for key, value in case["parameters"].items():
            values[setting][key].append(value)
    counts = Counter(setting for setting, _ in cases)
    return {
        setting: [
            key
            for key, found in values[setting].items()
            if len(set(found)) > 1 or len(found) < count
        ]
        for setting, count in counts.items()
    }


def _sorted(lines: Sequence[CaseSummary]) -> tuple[CaseSummary, ...]:
    """Sort by setting, nodes, parallelism, round trip of the fabric, then by the rest."""

    def order(line: CaseSummary) -> tuple[object, ...]:
        trip = min(map(table.rtt_order, line.fabrics), default=math.inf)
        place = (line.nodes, line.parallelism, trip, line.fabric, line.transport)
        # Numbers by size before texts.
        axes = [(isinstance(one, str), one) for one in line.axes.values()]
        return (line.setting, *place, axes, line.case, line.variant)

    return tuple(sorted(lines, key=order))


def _lines(
    setting: Setting,
    case: RecordedCase,
    entries: list[Entry],
    planned: int | None,
    shown: Sequence[str],
    variants: Mapping[str, Mapping[str, MetricSummary]],
    fabrics: Mapping[table.FabricKey, Sequence[table.FabricStats]],
) -> Iterable[CaseSummary]:
    records = [entry.record for entry in entries]
    ok = [record for record in records if record["outcome"] == "ok"] or records
    parameters = case["parameters"]
    names = [record["cluster"]["name"] for record in records] or [setting.cluster]
    keys = [(name, case.get("fabric", "")) for name in names]
    for axes, values in (variants or {"": {}}).items():
        conditions: dict[str, object] = json.loads(axes) if axes else {}
        yield CaseSummary(
            setting=setting,
            case=case["id"],
            nodes=case["nodes"],
            parallelism=case.get("parallelism", ""),
            fabric=case.get("fabric", ""),
            transport=case.get("transport", ""),
            rtt_us=table.median(table.record_rtt_us(record) for record in ok),
            bandwidth_gbps=table.median(table.record_bandwidth_gbps(record) for record in ok),
            fabrics=next((fabrics[key] for key in keys if key in fabrics), ()),
            outcomes=_ok_first(Counter(record["outcome"] for record in records)),
            planned=planned,
            axes={key: parameters[key] for key in shown if key in parameters} | conditions,
            values=values,
        )


def _values_by_case(records: Iterable[Record]) -> dict[Key, dict[str, dict[str, MetricSummary]]]:
    """Find each case's values by what distinguishes them, as canonical JSON, and by metric.

    Cold and warm are separate where a setting has both.
    """
    records = list(records)
    known = {metric["name"] for record in records for metric in per_watt(record)}
    frame = table.by_case(table.tidy(records))
    frame = frame[~frame["metric"].isin(known)]  # they stand with their watts, as costs
    rows = table.as_rows(frame)
    states: dict[Setting, set[str]] = defaultdict(set)
    for row in rows:
        states[_key_of(row)[0]].add(row["state"])
    found: dict[Key, dict[str, dict[str, MetricSummary]]] = defaultdict(dict)
    for row in rows:
        key = _key_of(row)
        axes: dict[str, object] = json.loads(row["variant"]) if row["variant"] else {}
        if len(states[key[0]]) > 1 and row["state"]:
            axes["state"] = row["state"]
        here = found[key].setdefault(canonical(axes), {})
        here[row["metric"]] = metric_summary(row)
    return found


def _key_of(row: Mapping[str, object]) -> Key:
    names = ("kind", "cluster", "platform", "case")
    kind, cluster, platform, case = (str(row[name]) for name in names)
    return setting_of(kind, cluster, platform, row), case


def _failures(entries: Iterable[Entry], names: Mapping[str, str]) -> tuple[Failure, ...]:
    groups: dict[tuple[str, str, str, str], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda e: e.record["id"]):
        if entry.record["outcome"] != "ok":
            failure = entry.record["failure"]
            key = (failure["phase"], failure["reason"], failure.get("hint", ""))
            groups[(entry.record["outcome"], *key)].append(entry)
    return tuple(
        Failure(*key, tuple(group), tuple(names[case_id(entry.record)] for entry in group))
        for key, group in sorted(groups.items())
    )


def _warnings(entries: Iterable[Entry], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """List the sentences that runs left for readers, each with the cases it is about."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for entry in sorted(entries, key=lambda e: e.record["id"]):
        waived = (gate for gate in entry.record.get("gates", ()) if gate["state"] == "waived")
        gates = [
            f"Gate {gate['gate']!r} was waived on {gate['node']}: {' '.join(gate['sentences'])}"
            for gate in waived
        ]
        for sentence in (*entry.record.get("warnings", ()), *gates):
            found[sentence][names[case_id(entry.record)]] = None
    return {sentence: tuple(cases) for sentence, cases in found.items()}


def _ok_first(outcomes: Counter[str]) -> dict[str, int]:
    return dict(sorted(outcomes.items(), key=lambda item: (item[0] != "ok", -item[1], item[0])))
