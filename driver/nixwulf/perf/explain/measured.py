"""Measured cases of records: the speed of each metric, and the cases like it.

Also models too large for a CPU's cache, by what smaller ones that fit were measured to read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, inf, sqrt
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.metric import is_predicted, speed_of
from nixwulf.core.text import format_significant
from nixwulf.perf.explain.diagnostics import Diagnostic, diagnostics, judged
from nixwulf.perf.explain.subject import batch, facts_of
from nixwulf.results import identity
from nixwulf.results.identity import OF_ONE_CLUSTER, OVER_FABRICS, OVER_NODES, canonical, same
from nixwulf.results.record import Record, RecordedCase, RecordedMetric
from nixwulf.results.table import columns_of, record_rtt_us

_UNIT = "tok/s"
_FEW = 16
_FASTER = 1.3  # a smaller ratio is the noise of runs, and overhead that is not reading
_MIB = 2**20
_OVER_MODELS = frozenset({"model", "weights"})
_OVER_ENGINES = OVER_NODES - {"nodes"} | OF_ONE_CLUSTER | {"engine", "benchmark", "weights"}


@dataclass(frozen=True)
class MeasuredCase:
    """A metric of all records of one case: mean of the values, tokens a second of all sequences.

    record: the first of its runs; conditions: those of the metric; diagnostics: of all runs, one of
    a sentence; error: standard error as a share of the value, 0 where no run has several samples.
    """

    record: Record
    conditions: Mapping[str, Any]
    metric: str
    value: float
    runs: int
    diagnostics: tuple[Diagnostic, ...] = ()
    error: float = 0.0
    state: str = ""

    @property
    def fabric(self) -> str | None:
        """The fabric between its nodes, as the case names it."""
        name: str | None = self.record["case"].get("fabric")
        return name

    @cached_property
    def _columns(self) -> dict[str, object]:
        return columns_of(self.record) | {
            "metric": self.metric,
            "unit": _UNIT,
            "state": self.state,
            "conditions": canonical(self.conditions),
        }

    def but(self, without: frozenset[str]) -> Hashable:
        """Return its conditions, without those that differ over nodes, fabrics or models."""
        return same(self._columns, without=without | OF_ONE_CLUSTER)

    @cached_property
    def work(self) -> Hashable:
        """The same without its place, and without parameters that change no amount of work."""
        return same(self._columns, without=OVER_NODES | OF_ONE_CLUSTER, conditions=identity.WORK)

    @cached_property
    def task(self) -> Hashable:
        """The work on as many nodes, by any engine that has its own format of weights."""
        return same(self._columns, without=_OVER_ENGINES, conditions=identity.WORK)


@dataclass(frozen=True)
class Unmeasured:
    """A record without a speed of prompt or decode, and why."""

    case: RecordedCase
    why: str


class BaselineIndex:
    """Measured cases of the same conditions but for their nodes or their link."""

    def __init__(self, measured: Iterable[MeasuredCase]) -> None:
        self._alone: defaultdict[Hashable, list[MeasuredCase]] = defaultdict(list)
        self._linked: defaultdict[Hashable, list[MeasuredCase]] = defaultdict(list)
        self._work: defaultdict[Hashable, list[MeasuredCase]] = defaultdict(list)
        self._models: defaultdict[Hashable, list[MeasuredCase]] = defaultdict(list)
        self._by_engine: defaultdict[Hashable, dict[str, MeasuredCase]] = defaultdict(dict)
        self._near: dict[Hashable, defaultdict[Hashable, list[MeasuredCase]]] = {}
        for one in measured:
            self._work[one.work].append(one)
            engines, name = self._by_engine[one.task], one.record["case"].get("engine", "")
            engines[name] = max(engines.get(name, one), one, key=lambda other: other.value)
            self._models[one.but(_OVER_MODELS)].append(one)
            if one.record["case"]["nodes"] == 1:
                self._alone[one.but(OVER_NODES)].append(one)
            elif one.value > 0:
                self._linked[one.but(OVER_FABRICS)].append(one)
        for group in self._linked.values():
            group.sort(key=lambda one: record_rtt_us(one.record) or inf)

    def on_one_node(self, one: MeasuredCase) -> tuple[float, float] | None:
        """Mean speed of the same on one node, and its error; None where it was not measured."""
        alone = self._alone.get(one.but(OVER_NODES))
        if not alone:
            return None
        return speed_of(other.value for other in alone), max(other.error for other in alone)

    def beside(self, one: MeasuredCase) -> Sequence[MeasuredCase]:
        """The cases of the same work, run anyhow, it itself among them.

        Of many those that only their place tells apart, and of other values of each parameter the
        fastest: to hold each against each takes minutes.
        """
        group = self._work.get(one.work, ())
        if len(group) <= _FEW:
            return group
        if one.work not in self._near:
            self._near[one.work] = defaultdict(list)
            for other in sorted(group, key=lambda other: -other.value):
                for key in _near(other):
                    self._near[one.work][key].append(other)
        found = self._near[one.work]
        anywhere, *others = _near(one)
        return found[anywhere] + [other for key in others for other in found[key][:_FEW]]

    def by_other_engines(self, one: MeasuredCase) -> list[MeasuredCase]:
        """The fastest case of each other engine that did the same on as many nodes."""
        engine, found = one.record["case"].get("engine", ""), self._by_engine[one.task]
        return [other for name, other in found.items() if engine and name not in ("", engine)]

    def of_all_models(self, one: MeasuredCase) -> Sequence[MeasuredCase]:
        """The same case of each model, it itself among them."""
        return self._models.get(one.but(_OVER_MODELS), ())

    def on_another_fabric(self, one: MeasuredCase) -> MeasuredCase | None:
        """The same case on that other fabric that has the shortest round trip, or None."""
        group = self._linked.get(one.but(OVER_FABRICS), ())
        return next((other for other in group if other.fabric != one.fabric), None)


def _near(one: MeasuredCase) -> Iterator[Hashable]:
    """Yield keys shared with cases elsewhere, then with those of another parameter's value."""
    case, parameters = one.record["case"], one.record["case"]["parameters"]
    yield canonical({key: value for key, value in parameters.items() if key not in OVER_NODES})
    place = {"": [case.get(key) for key in identity.PLACE]}
    for name in parameters:
        yield name, canonical(place | {k: v for k, v in parameters.items() if k != name})


def measured_in(records: Sequence[Record]) -> tuple[list[MeasuredCase], list[Unmeasured]]:
    """Runs of one case are one; records without a speed are listed with their reason."""
    groups: defaultdict[tuple[str, str, str], list[tuple[Record, RecordedMetric]]]
    groups = defaultdict(list)
    rest = []
    for record in records:
        metrics = record.get("metrics", ())
        speeds = [one for one in metrics if is_predicted(one["name"], one["unit"])]
        for metric in speeds:
            whose = f"{identity.case_id(record)} {record.get('cluster', {}).get('name')}"
            key = (whose, metric["name"], canonical(metric["conditions"]))
            groups[key].append((record, metric))
        if not speeds:
            rest.append(Unmeasured(record["case"], _why(record)))
    return [_mean(seen) for seen in groups.values()], rest


def _mean(seen: Sequence[tuple[Record, RecordedMetric]]) -> MeasuredCase:
    record, metric = seen[0]
    conditions = metric["conditions"]
    # Of a mean of runs; a published value often has no samples.
    errors = [
        one.get("stddev", 0.0) / sqrt(len(one["samples"])) for _, one in seen if one.get("samples")
    ]
    mean = speed_of(one["value"] for _, one in seen)
    return MeasuredCase(
        record,
        conditions,
        metric["name"],
        _requests(record, conditions) * mean,
        len(seen),
        tuple({one.text: one for record, _ in seen for one in diagnostics(record)}.values()),
        hypot(*errors) / len(seen) / mean if mean > 0 else 0.0,
        metric.get("state", ""),
    )


def _requests(record: Record, conditions: Mapping[str, object]) -> int:
    """The decode of a server is that of each of its requests."""
    try:
        return batch(conditions) if record["case"]["benchmark"] == "serve" else 1
    except InputError:
        return 1  # and then nothing is predicted


def _why(record: Record) -> str:
    if record["outcome"] == "ok":
        return judged(record) or "It measured no prompt and no decode in tok/s."
    failure = record.get("failure", {})
    why = " ".join(filter(None, (failure.get("reason"), failure.get("hint"))))
    return f"It ended {record['outcome']!r}, so there is no speed to explain. {why}".strip()


def out_of_cache(one: MeasuredCase, smaller: Sequence[MeasuredCase]) -> list[Diagnostic]:
    """Say why a CPU reads slower than for a model that fits its cache; smaller: other models."""
    record, size = one.record, cache_bytes(one.record)
    node = facts_of(record["nodes"][0]["platform"]) if record.get("nodes") else None
    if one.metric != "decode" or record["case"]["nodes"] != 1 or not size or "gpu" in (node or {}):
        return []
    own, bytes_ = _read_gbs(one), record.get("model", {}).get("bytes", 0)
    fit = [each for each in smaller if 0 < each.record.get("model", {}).get("bytes", 0) <= size]
    fastest = max(fit, key=_read_gbs, default=one)
    if bytes_ <= size or not own or _read_gbs(fastest) < _FASTER * own:
        return []
    text = (
        f"The model's {bytes_ / _MIB:.0f} MiB do not fit the CPU's cache of {size / _MIB:.0f} MiB "
        f"and were read at {format_significant(own)} GB/s; {fastest.record['case']['model']!r}, "
        f"which fits, at {format_significant(_read_gbs(fastest))} GB/s."
    )
    return [Diagnostic("cache", text, "nodes", _read_gbs(fastest) / own)]


def cache_bytes(record: Record) -> int:
    """The smallest last-level cache of a run's nodes, bytes; 0 where one is not known."""
    sizes = [str(node.get("facts", {}).get("cpu_cache", "")) for node in record.get("nodes", ())]
    found = [re.fullmatch(r"([0-9]{1,9})K", size) for size in sizes]
    return min((int(one[1]) * 1024 if one else 0 for one in found), default=0)


def _read_gbs(one: MeasuredCase) -> float:
    """Return GB/s where all weights are read once for each step."""
    size = one.record.get("model", {}).get("bytes", 0)
    return float(size * one.value / batch(one.conditions) / 1e9)
