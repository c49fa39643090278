"""Benchmarks: each measures an engine or the machines: metrics with units and all samples.

A benchmark is one module or folder of this package with an object BENCHMARK of the class below.
"""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from nixwulf.core.metric import Metric
from nixwulf.core.registry import Parameter, choose, discover
from nixwulf.plugins.runtime import speculation
from nixwulf.plugins.runtime.case import OverCables, cables_problem
from nixwulf.plugins.runtime.openai import longest_request
from nixwulf.results.identity import REPLICAS

if TYPE_CHECKING:
    from nixwulf.plugins.runtime.run import Run

# 130 MB of text, and hours of any cluster.
_MOST_TOKENS = 1 << 25


class Benchmark(ABC):
    """What the driver asks of a benchmark: a name, parameters, engines and `measure`.

    The other attributes and methods have defaults.
    """

    name: str
    parameters: ClassVar[Mapping[str, Parameter]]
    engines: tuple[str, ...] | None
    """What it measures: engines of these names; None: every engine; empty: the machines."""
    programs: tuple[str, ...] = ()
    """Programs of its own that are looked for on PATH of every node."""
    required: ClassVar[Mapping[str, str]] = {}
    """Programs that every node has to have, each with what to do where it is missing."""
    required_here: ClassVar[Mapping[str, str]] = {}
    """Those that the driver's own machine has to have."""
    measures_fabric = False
    """Whether it needs more than one node."""
    transports: tuple[str, ...] = ("tcp", "rdma")
    """By what it can cross a fabric."""
    linux_only = False
    """Whether Macs lack what it needs."""
    measures_replicas = False
    """Whether it spreads requests over several servers."""
    shows_acceptance = False
    """Whether it shows how many drafted tokens were accepted, without which decode says nothing."""
    over_cables: ClassVar[Mapping[str, OverCables]] = {}
    """Of the machines: by transport, what it asks of cables between more than two nodes."""
    ports: tuple[int, ...] = ()
    """TCP ports of the nodes on which it listens."""
    rdma_known_by: str = ""
    """Of the machines: how it shows RDMA where no counter does; empty: it does not."""
    proof_bytes: int = 10_000
    """Fewer bytes on a worker's interface of the fabric are not the traffic of its run."""

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Why a point of a sweep cannot be run, or None; its engine's reasons are not repeated."""
        transport = point.get("transport")
        if self.measures_fabric and point["nodes"] == 1:
            return f"{self.name} measures a fabric, and one node has none"
        several = point.get("parameters", {}).get("servers", 1) > 1
        several = several or point.get("parallelism") == REPLICAS
        if several and not self.measures_replicas:
            return f"{self.name} measures one server; the benchmark of replicas is serve"
        if speculation.speculates(point.get("parameters", {})) and not self.shows_acceptance:
            return f"{self.name} shows no acceptance of drafts; the benchmark of drafts is serve"
        if transport and transport not in self.transports:
            return f"{self.name} runs over {' and '.join(self.transports)} only"
        if "requests" in self.parameters:
            requests, slots = (point["parameters"][key] for key in ("requests", "concurrency"))
            if requests < slots:
                return f"{requests} requests cannot be {slots} at once"
        if "concurrency" in self.parameters:
            values = point["parameters"]
            several = values.get("requests", values["concurrency"])
            each = longest_request(values) + values.get("turns", 0) * values.get("system", 0)
            if several * each > _MOST_TOKENS:
                return (
                    f"a pass would have {several * each} tokens, and {_MOST_TOKENS} are the most; "
                    "ask for fewer or shorter requests"
                )
        return cables_problem(self.name, self.over_cables, point) if self.engines == () else None

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """What a node with these programs lacks, and how to get it, or None."""
        return _lacking(self.required, programs)

    def missing_here(self) -> str | None:
        """What the driver's own machine lacks, and how to get it, or None."""
        return _lacking(self.required_here, [n for n in self.required_here if shutil.which(n)])

    @abstractmethod
    def measure(self, run: Run) -> list[Metric]:
        """Measure the engine that was started, or the machines; raises RunFailure."""


def _lacking(required: Mapping[str, str], there: Collection[str]) -> str | None:
    return next((f"{n!r} on PATH; {fix}" for n, fix in required.items() if n not in there), None)


@cache
def all_benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return cast(dict[str, Benchmark], discover(sys.modules[__name__], "BENCHMARK"))


def find(name: str, source: str = "plan") -> Benchmark:
    """The benchmark of a name; raises InputError."""
    return choose(all_benchmarks(), name, "benchmark", source)
