"""The numbers that a sweep expects: of which record each is, and of which of its cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import find_results
from nixwulf.core.text import did_you_mean
from nixwulf.plugins.runtime.case import Case
from nixwulf.results.identity import one_name
from nixwulf.results.record import Record, load
from nixwulf.sweep.sweep_file import Sweep

_FOLDER = Path("results") / "published" / "records"
_NEAR = 3
_ROUNDING = 0.01


@dataclass(frozen=True)
class Expectation:
    """A number to repeat.

    references: the record that has it; of a run, all repetitions of its case. value: in the unit of
    its metric; tolerance: the share of it by which a repeat may be off. case: coordinates of the
    cases of the sweep that repeat it; conditions: those of the metric.
    """

    references: tuple[Record, ...]
    metric: str
    unit: str
    value: float
    tolerance: float
    case: Mapping[str, Any]
    conditions: Mapping[str, Any]

    @property
    def samples(self) -> list[list[float]]:
        """Of each reference; a source that gives a deviation alone has three with that deviation.

        Without either they are equal, and an interval is then that of the repeat.
        """
        found = []
        for record in self.references:
            for metric in metrics_of(record, self.metric, self.conditions):
                value, spread = metric["value"], metric.get("stddev", 0.0)
                found.append(metric.get("samples") or [value - spread, value, value + spread])
        return found

    def of(self, case: Case) -> bool:
        """Whether a case of the sweep repeats it."""
        asked = {**self.case, **self.case.get("parameters", {})}
        asked.pop("parameters", None)
        known = {**case.parameters, **case.document()}
        return all(known.get(key) == value for key, value in asked.items())


def metrics_of(record: Record, name: str, conditions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics of a name; a condition that a metric does not have excludes none."""
    asked = {key: str(value) for key, value in one_name(conditions).items()}
    return [
        metric
        for metric in record["metrics"]
        if metric["name"] == name
        and all(
            asked.get(key, str(value)) == str(value)
            for key, value in one_name(metric["conditions"]).items()
        )
    ]


def expectations(sweep: Sweep) -> tuple[Expectation, ...]:
    """What a sweep expects; raises InputError for an unknown record or a number it does not have.

    Raises InputError too for a sweep that expects nothing.
    """
    if not sweep.expect:
        raise InputError(
            f"{sweep.source}: it has no 'expect', so there is nothing to repeat; run it by "
            f"'nixwulf bench {sweep.source}'."
        )
    return tuple(_expectation(one, f"{sweep.source}: expect") for one in sweep.expect)


def _expectation(one: Mapping[str, Any], source: str) -> Expectation:
    references = reference(one["record"], source)
    name, conditions = one["metric"], one.get("conditions", {})
    found = [m for record in references for m in metrics_of(record, name, conditions)]
    if not found:
        names = ", ".join(sorted({metric["name"] for metric in references[0]["metrics"]}))
        raise InputError(
            f"{source}: the record {one['record']!r} has no {name!r} with these conditions; it has "
            f"{names}."
        )
    value = fmean(metric["value"] for metric in found)
    if not math.isclose(value, one["value"], rel_tol=_ROUNDING):
        raise InputError(
            f"{source}: {name!r} of the record {one['record']!r} is {value:g}, not "
            f"{one['value']:g}; correct the value, or give the conditions of the one meant."
        )
    unit = found[0]["unit"]
    return Expectation(
        references, name, unit, one["value"], one["tolerance"], one.get("case", {}), conditions
    )


def reference(name: str, source: str) -> tuple[Record, ...]:
    """The record of an id or a path, with the other repetitions of a run's case.

    name: the id of a published record, or the path of a record file. source: what names it, for the
    message.

    Raises InputError: there is none, with the nearest ids.
    """
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        case = path.stem.rpartition("-r")[0]
        beside = sorted(path.parent.glob(f"{case}-r*.json")) if case else []
        return tuple(map(load, beside or [path]))
    known = published()
    if name not in known:
        hint = did_you_mean(name, known, _NEAR)
        raise InputError(f"{source}: there is no published record {name!r}; {hint}")
    return (load(known[name]),)


@cache
def published() -> dict[str, Path]:
    """The files of the published records by id: of this folder, else those of the driver."""
    return {path.stem: path for path in sorted(find_results(_FOLDER).glob("*.json"))}
