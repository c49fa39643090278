"""Benchmarks: each measures a started engine and gives metrics with units and all samples.

A benchmark is one module of this package with an object BENCHMARK that meets the protocol below.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from nixwulf.discovery import choose, discover

if TYPE_CHECKING:
    from nixwulf.run import Run


@dataclass(frozen=True)
class Parameter:
    """A parameter of a benchmark: an axis of the sweep."""

    default: int
    minimum: int


@dataclass(frozen=True)
class Metric:
    """A measured quantity with its unit, every sample, and the conditions it holds for."""

    name: str
    unit: str
    samples: tuple[float, ...]
    state: str
    conditions: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """As in a record: mean, and the standard deviation (n-1) of more than one sample."""
        spread = {"stddev": statistics.stdev(self.samples)} if len(self.samples) > 1 else {}
        return {
            "name": self.name,
            "unit": self.unit,
            "value": statistics.fmean(self.samples),
            **spread,
            "samples": list(self.samples),
            "state": self.state,
            "conditions": dict(self.conditions),
        }


class Benchmark(Protocol):
    """What the driver asks of a benchmark."""

    name: str
    parameters: Mapping[str, Parameter]

    def measure(self, run: Run) -> list[Metric]:
        """Measure the engine that was started; raises RunFailure."""


@cache
def all_benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return cast(dict[str, Benchmark], discover(sys.modules[__name__], "BENCHMARK"))


def find(name: str, source: str = "plan") -> Benchmark:
    """The benchmark of a name; raises InputError."""
    return choose(all_benchmarks(), name, "benchmark", source)
