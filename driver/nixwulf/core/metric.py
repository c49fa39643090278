"""Metrics: a measured quantity with its samples, and what is known of it by its name and unit."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from nixwulf.core.files import DATA, read_toml

Better = Literal["more", "less", ""]

_TIME = re.compile(r"(n|u|m)?s(/[a-z]+)?")
_ENERGY = re.compile(r"[kMm]?(J|Wh)(/[a-z]+)?")
_RATE = re.compile(r"(?P<counted>.+)/s(/(W|\$))?")
_DATA = re.compile(r"[kKMGT]?i?(bit|b|B)")


class MetricFacts(NamedTuple):
    """The facts of a metric by its name; one without an entry has its name and unit only.

    short: its name in tables; long: in sentences; better: where its unit does not show it;
    predicted: in which unit the performance model predicts it; compared: whether machines and
    models are compared by it, in that unit.
    """

    short: str = ""
    long: str = ""
    better: Better = ""
    predicted: str = ""
    compared: bool = False


METRICS = {name: MetricFacts(**known) for name, known in read_toml(DATA / "metrics.toml").items()}
"""In the order of all tables; then come other rates, times, and the rest."""


@dataclass(frozen=True)
class Metric:
    """A measured quantity with its unit, every sample, and the conditions it holds for.

    Conditions are what was asked for or fixed: they are the same in every repetition of a case, and
    differ between metrics of one name. What was measured beside the samples is observed:
    retransmits, lost packets. distribution: whether its percentiles add to its mean, as of times.
    windows: when all of this, and nothing else, was measured, as pairs of begin and end in seconds
    of this machine's monotonic clock; with them a speed gets its watts. No windows: not known that
    well.
    value, stddev, percentiles: as a tool printed them, for what its samples do not give.
    """

    name: str
    unit: str
    samples: tuple[float, ...] = ()
    state: str | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    distribution: bool = False
    windows: tuple[tuple[float, float], ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None
    stddev: float | None = None
    percentiles: Mapping[str, float] | None = None

    def document(self) -> dict[str, object]:
        """Return the record's form: mean, and standard deviation (n-1) of more than one sample."""
        value, stddev, percentiles = self.value, self.stddev, self.percentiles
        if self.samples or value is None:
            value = statistics.fmean(self.samples)
        if len(self.samples) > 1:
            stddev = statistics.stdev(self.samples)
        if self.samples and self.distribution:
            percentiles = {f"p{p}": percentile(self.samples, p) for p in (50, 95, 99)}
        return {
            "name": self.name,
            "unit": self.unit,
            "value": value,
            **({} if stddev is None else {"stddev": stddev}),
            **({"percentiles": dict(percentiles)} if percentiles else {}),
            **({"samples": list(self.samples)} if self.samples else {}),
            **({"state": self.state} if self.state else {}),
            "conditions": dict(self.conditions),
            **({"observed": dict(self.observed)} if self.observed else {}),
        }


def speed_of(values: Iterable[float]) -> float:
    """The speed of a case by the values of its runs, one each; of other metrics their mean too.

    A run counts once, however many samples it has: runs differ by more than the samples within one
    (results/compare/interval.py), so that a long run says little more than a short one. Tables pool
    the samples, for a deviation to go with them: that is the same mean where runs have as many
    samples, as all runs of a plan have.
    """
    return statistics.fmean(values)


def accepted(acceptance: str) -> str:
    """The share of drafted tokens that was accepted, as ' (71.2 % accepted)'; or nothing."""
    if not acceptance:
        return ""
    return f" ({acceptance} accepted)" if acceptance.endswith("%") else f" ({acceptance})"


def percentile(samples: Sequence[float], percent: int) -> float:
    """The nearest rank: the smallest sample that PERCENT of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def short_name(metric: str) -> str:
    """The name in tables and charts."""
    return _facts(metric).short or metric.replace("_", " ")


def long_name(metric: str) -> str:
    """The name in sentences."""
    return _facts(metric).long or short_name(metric)


def rank(metric: str, unit: str) -> tuple[int, str]:
    """Order metrics in tables: those of METRICS, then rates, times, and the rest by name."""
    if metric in METRICS:
        return list(METRICS).index(metric), metric
    return len(METRICS) + ("more", "less", "").index(better(metric, unit)), metric


def is_predicted(metric: str, unit: str) -> bool:
    """Tell whether the performance model predicts it, in this unit."""
    return bool(unit) and _facts(metric).predicted == unit


def better(metric: str, unit: str) -> Better:
    """More of a rate (tok/s, tok/s/W, tok/s/$), less of a time or an energy, else neither."""
    if _TIME.fullmatch(unit) or _ENERGY.fullmatch(unit):
        return "less"
    return "more" if _RATE.fullmatch(unit) else _facts(metric).better


def is_time(unit: str) -> bool:
    """Tell whether it is seconds, or a fraction of them, of something or of each of many."""
    return bool(_TIME.fullmatch(unit))


def adds_up(unit: str) -> bool:
    """Tell whether N nodes should give N times one: rates of work (tok/s), not of a link."""
    rate = _RATE.fullmatch(unit)
    return bool(rate and not unit.endswith(("/W", "/$")) and not _DATA.fullmatch(rate["counted"]))


def _facts(metric: str) -> MetricFacts:
    return METRICS.get(metric, _UNKNOWN)


_UNKNOWN = MetricFacts()
