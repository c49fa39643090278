"""Benchmarks: each measures an engine or the machines: metrics with units and all samples.

A benchmark is one module of this package with an object BENCHMARK that meets the protocol below.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from nixwulf.core.discovery import choose, discover
from nixwulf.core.parameter import Parameter

if TYPE_CHECKING:
    from nixwulf.plugins.runtime.run import Run


@dataclass(frozen=True)
class Metric:
    """A measured quantity with its unit, every sample, and the conditions it holds for.

    Conditions are what was asked for or fixed: they are the same in every repetition of a case, and
    tell metrics of one name apart. What was seen beside the samples is observed: retransmits, lost
    packets. distribution: whether its percentiles tell more than its mean, as of times. windows:
    when all of this, and nothing else, was measured, as pairs of begin and end in seconds of this
    machine's monotonic clock; with them a speed gets its watts. No windows: not known that well.
    """

    name: str
    unit: str
    samples: tuple[float, ...]
    state: str
    conditions: Mapping[str, Any]
    distribution: bool = False
    windows: tuple[tuple[float, float], ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As in a record: mean, and the standard deviation (n-1) of more than one sample."""
        spread: dict[str, Any] = {}
        if len(self.samples) > 1:
            spread["stddev"] = statistics.stdev(self.samples)
        if self.distribution:
            spread["percentiles"] = {f"p{p}": percentile(self.samples, p) for p in (50, 95, 99)}
        return {
            "name": self.name,
            "unit": self.unit,
            "value": statistics.fmean(self.samples),
            **spread,
            "samples": list(self.samples),
            "state": self.state,
            "conditions": dict(self.conditions),
            **({"observed": dict(self.observed)} if self.observed else {}),
        }


def percentile(samples: Sequence[float], percent: int) -> float:
    """The nearest rank: the smallest sample that PERCENT of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def too_few_requests(point: Mapping[str, Any]) -> str | None:
    """Why a point that asks for fewer requests than are to be in flight at once cannot be run."""
    values = point["parameters"]
    if values["requests"] < values["concurrency"]:
        return f"{values['requests']} requests cannot be {values['concurrency']} at once"
    return None


class Benchmark(Protocol):
    """What the driver asks of a benchmark; what most have in common need not be said again."""

    name: str
    parameters: ClassVar[Mapping[str, Parameter]]
    engines: tuple[str, ...] | None
    """What it measures: engines of these names; none: every engine; empty: the machines."""
    programs: tuple[str, ...] = ()
    """Programs of its own that are looked for on PATH of every node."""
    proof_bytes: int = 10_000
    """Fewer bytes on a worker's interface of the fabric are not the traffic of its run."""

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Why a point of a sweep cannot be run, or none: all that its engine can run."""
        return None

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """What a node with these programs lacks, and how to get it, or none."""
        return None

    def measure(self, run: Run) -> list[Metric]:
        """Measure the engine that was started, or the machines; raises RunFailure."""


@cache
def all_benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return cast(dict[str, Benchmark], discover(sys.modules[__name__], "BENCHMARK"))


def find(name: str, source: str = "plan") -> Benchmark:
    """The benchmark of a name; raises InputError."""
    return choose(all_benchmarks(), name, "benchmark", source)
