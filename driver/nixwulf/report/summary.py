"""The summary of a run folder, computed from its records and plan alone."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from nixwulf.record import Record
from nixwulf.report.contents import Failure, Line, Setting, Speed, Summary
from nixwulf.report.folder import Entry, RunFolder
from nixwulf.report.words import pairs
from nixwulf.table import canonical, record_bandwidth_gbps, record_rtt_us, speeds, tidy

_LENGTHS = frozenset({"n_prompt", "n_gen"})


def summarize(folder: RunFolder) -> Summary:
    """The summary of a run folder; the order of its records does not matter."""
    by_case: dict[tuple[Setting, str], list[Entry]] = defaultdict(list)
    cases: dict[tuple[Setting, str], dict[str, Any]] = {}
    for entry in sorted(folder.entries, key=lambda e: (e.record["id"], e.record["started"])):
        case = entry.record["case"]
        key = (_setting(entry.record["cluster"]["name"], case), case["id"])
        by_case[key].append(entry)
        cases.setdefault(key, case)
    planned = None
    if folder.plan:
        planned = folder.plan["repetitions"]
        cluster = folder.plan["cluster"]["document"]["name"]
        for case in folder.plan["cases"]:
            cases.setdefault((_setting(cluster, case), case["id"]), case)
    measured = _speeds_by_case(folder.records)
    lines = [
        line
        for key, case in cases.items()
        for line in _lines(key[0], case, by_case[key], planned, measured.get(key, {}))
    ]
    outcomes = Counter(entry.record["outcome"] for entry in folder.entries)
    return Summary(
        folder=folder,
        lines=tuple(sorted(lines, key=_order)),
        failures=_failures(folder.entries),
        outcomes=_ok_first(outcomes),
    )


def _setting(cluster: str, case: Mapping[str, Any]) -> Setting:
    parameters = canonical(case["parameters"])
    engine, model = case.get("engine", ""), case.get("model", "")
    return Setting(cluster, engine, case["benchmark"], model, parameters)


def _order(line: Line) -> tuple[Any, ...]:
    rtt = line.rtt_us if line.rtt_us is not None else float("inf")
    link = (line.parallelism, rtt, line.fabric, line.transport)
    return (line.setting, line.nodes, *link, line.case, line.variant)


def _lines(
    setting: Setting,
    case: Mapping[str, Any],
    entries: list[Entry],
    planned: int | None,
    variants: Mapping[str, Mapping[str, Speed]],
) -> Iterable[Line]:
    records = [entry.record for entry in entries]
    ok = [record for record in records if record["outcome"] == "ok"] or records
    for variant, values in (variants or {"": {}}).items():
        yield Line(
            setting=setting,
            case=case["id"],
            nodes=case["nodes"],
            parallelism=case.get("parallelism", ""),
            fabric=case.get("fabric", ""),
            transport=case.get("transport", ""),
            rtt_us=_median(record_rtt_us(record) for record in ok),
            bandwidth_gbps=_median(record_bandwidth_gbps(record) for record in ok),
            outcomes=_ok_first(Counter(record["outcome"] for record in records)),
            planned=planned,
            variant=variant,
            speeds=values,
        )


def _speeds_by_case(
    records: Iterable[Record],
) -> dict[tuple[Setting, str], dict[str, dict[str, Speed]]]:
    """For each case the speeds by variant and metric; the only variant is the empty text."""
    import pandas as pd

    frame = speeds(tidy(records))
    rows: list[dict[str, Any]] = [
        {str(k): None if pd.isna(v) else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]
    found: dict[tuple[Setting, str], dict[str, dict[str, Speed]]] = defaultdict(dict)
    shown = _differing(rows)
    for row in rows:
        setting = _setting_of(row)
        variants = found[setting, row["case"]]
        told_apart = [f"{key} {_condition(row, key)}" for key in shown[setting]]
        here = variants.setdefault(", ".join(told_apart), {})
        if row["metric"] in here:
            here = variants.setdefault(pairs(row["conditions"]), {})
        here[row["metric"]] = Speed(
            mean=row["mean_tok_s"],
            deviation=row["stddev_tok_s"],
            n_samples=row["n_samples"],
            n_runs=row["n_runs"],
            conditions=row["conditions"],
            speed_up=row["speed_up"],
            efficiency=row["efficiency"],
        )
    return found


def _setting_of(row: Mapping[str, Any]) -> Setting:
    return Setting(*(row[key] for key in Setting._fields))


def _differing(rows: Iterable[Mapping[str, Any]]) -> dict[Setting, list[str]]:
    """For each setting the conditions, state included, that are not the same for all its speeds.

    The lengths are left out: they differ between prompt and decode, which their names tell apart.
    """
    values: dict[Setting, dict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        conditions = json.loads(row["conditions"]) if row["conditions"] else {}
        for key in {"state", *conditions} - _LENGTHS:
            values[_setting_of(row)][key].add(_condition(row, key))
    return {
        setting: sorted(key for key, found in keys.items() if len(found) > 1)
        for setting, keys in values.items()
    }


def _condition(row: Mapping[str, Any], key: str) -> Any:
    if key == "state":
        return row["state"]
    return (json.loads(row["conditions"]) if row["conditions"] else {}).get(key)


def _failures(entries: Iterable[Entry]) -> tuple[Failure, ...]:
    groups: dict[tuple[str, str, str, str], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda e: e.record["id"]):
        if entry.record["outcome"] != "ok":
            failure = entry.record["failure"]
            key = (failure["phase"], failure["reason"], failure.get("hint", ""))
            groups[(entry.record["outcome"], *key)].append(entry)
    return tuple(Failure(*key, tuple(group)) for key, group in sorted(groups.items()))


def _ok_first(outcomes: Counter[str]) -> dict[str, int]:
    return dict(sorted(outcomes.items(), key=lambda item: (item[0] != "ok", -item[1], item[0])))


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None
