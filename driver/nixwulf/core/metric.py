"""A measured quantity: its unit, its samples, and the conditions that it holds for."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A measured quantity with its unit, every sample, and the conditions it holds for.

    Conditions are what was asked for or fixed: they are the same in every repetition of a case, and
    tell metrics of one name apart. What was seen beside the samples is observed: retransmits, lost
    packets. distribution: whether its percentiles tell more than its mean, as of times. windows:
    when all of this, and nothing else, was measured, as pairs of begin and end in seconds of this
    machine's monotonic clock; with them a speed gets its watts. No windows: not known that well.
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

    def document(self) -> dict[str, Any]:
        """As in a record: mean, and the standard deviation (n-1) of more than one sample."""
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


def percentile(samples: Sequence[float], percent: int) -> float:
    """The nearest rank: the smallest sample that PERCENT of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
