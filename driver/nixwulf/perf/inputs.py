"""Inputs of the performance model: machines, links, and the strategy of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite, log
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.inventory.platforms import NOMINAL_SHARE, memory_bandwidth_gbs
from nixwulf.llm.model_facts import positive

_LINKS = DATA / "model" / "links.toml"
PARALLELISMS = ("single", "pipeline", "tensor")


@dataclass(frozen=True)
class PlatformFacts:
    """A machine: bandwidth of its memory in GB/s, dense 16-bit compute in Tflop/s (0: not known).

    kind: who made the device that computes ('amd', 'nvidia', 'apple'), or 'cpu'. hpl_gflops is what
    one node gives at HPL, 0 where that is not known. target: the GPU's, as LLVM names it, where
    that is stated.
    """

    name: str
    kind: str
    bandwidth_gbs: float
    tflops: float = 0.0
    memory_gib: float = 0.0
    hpl_gflops: float = 0.0
    assumptions: tuple[str, ...] = ()
    target: str = ""

    @property
    def chip(self) -> str:
        """What machines of several makers have in common: the GPU's target, else the name."""
        return self.target or self.name

    def __post_init__(self) -> None:
        positive(f"memory bandwidth of {self.name!r}", self.bandwidth_gbs, "GB/s")


@dataclass(frozen=True)
class FabricFacts:
    """A link as a program sees it: us of a small message's round trip, Gbit/s of one way."""

    kind: str
    transport: str
    rtt_us: float
    bandwidth_gbps: float
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (isfinite(self.rtt_us) and self.rtt_us >= 0):
            raise InputError(f"Round trip of {self.rtt_us!r} us; expected 0 or more.")
        if not self.bandwidth_gbps > 0:
            raise InputError(f"A link of {self.bandwidth_gbps!r} Gbit/s; expected more than 0.")


@dataclass(frozen=True)
class Strategy:
    """How a model is run: batch is sequences at once, depth the tokens before the first one.

    drafts and acceptance: tokens that are guessed ahead a step, and the share of them that is kept.
    graphs: whether the engine replays recorded kernels (None: as the engine does by itself).
    chunk: tokens of a prompt that are computed at once, 0: the engine's default. collectives: the
    library that sums in place of the engine's own code ('rccl' in a llama.cpp patched for it).
    version: of the engine, as it states it; empty: a current one. backend: what computes, in lower
    case ('vulkan', 'rocm'); empty: not known. age: of the software, years before the newest that
    constants were fitted on. shares: of the layers of a
    pipeline, by node; empty: as the engine shares them out, by memory.
    """

    engine: str
    parallelism: str = "single"
    n_prompt: int = 0
    n_gen: int = 128
    depth: int = 0
    batch: int = 1
    drafts: int = 0
    acceptance: float = 0.0
    graphs: bool | None = None
    chunk: int = 0
    collectives: str = ""
    version: str = ""
    backend: str = ""
    age: float = 0.0
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.parallelism not in PARALLELISMS:
            raise InputError(
                f"Parallelism {self.parallelism!r} is not one of {', '.join(PARALLELISMS)}."
            )
        if (
            self.batch < 1
            or min(self.n_prompt, self.n_gen, self.depth, self.drafts, self.chunk) < 0
        ):
            raise InputError(
                f"Batch {self.batch}, n_prompt {self.n_prompt}, n_gen {self.n_gen}, depth "
                f"{self.depth}: expected a batch of 1 or more, and no count below 0."
            )
        if not 0 <= self.acceptance <= 1:
            raise InputError(f"Acceptance {self.acceptance!r} is no share; expected 0 to 1.")

    def shares_of(self, nodes: int) -> tuple[float, ...]:
        """The shares where they are of so many nodes in a pipeline, else none."""
        stated = self.parallelism == "pipeline" and len(self.shares) == nodes
        return self.shares if stated else ()


def platform_facts(document: Mapping[str, Any]) -> PlatformFacts:
    """Of a file of data/platforms; raises InputError where its memory's bandwidth is missing."""

    def value(key: str, table: Mapping[str, Any] = document) -> float:
        return float(table.get(key, {}).get("value", 0.0))

    name, gpu = document["name"], document.get("gpu")
    hpl = value("hpl_gflops")
    measured, nominal = value("memory_bandwidth_gbs"), value("memory_bandwidth_nominal_gbs")
    if not (bandwidth := memory_bandwidth_gbs(document)):
        raise InputError(
            f"Platform {name!r} has no memory bandwidth; add memory_bandwidth_gbs with its source "
            f"to driver/nixwulf/data/platforms/{name}.toml."
        )
    assumption = (
        f"{name}: {NOMINAL_SHARE:g} of its nominal {nominal:g} GB/s of memory, none was measured"
    )
    return PlatformFacts(
        name,
        gpu["vendor"] if gpu else "cpu",
        bandwidth,
        # A CPU has no figure of its own: four 16-bit operations in the time of a 64-bit one.
        value("compute_tflops") or (0.0 if gpu else 4 * hpl / 1000),
        value("memory_gib"),
        hpl,
        () if measured else (assumption,),
        gpu.get("target", "") if gpu else "",
    )


@cache
def _table() -> list[dict[str, Any]]:
    links: list[dict[str, Any]] = read_toml(_LINKS)["links"]
    return links


def fabric_facts(
    kind: str,
    transport: str,
    speed_gbps: float = 0.0,
    *,
    rtt_us: float | None = None,
    bandwidth_gbps: float | None = None,
) -> FabricFacts:
    """The facts of a link: measured where they are known, else usual ones of its kind.

    Each usual one is named in assumptions, with its source. kind: as cluster files name it.
    transport: 'tcp' or 'rdma'. speed_gbps: nominal, Gbit/s; 0 where it is not known. rtt_us, in
    microseconds, and bandwidth_gbps, in Gbit/s: as measured; None: the usual ones.

    Raises InputError: the kind has no usual latency by that transport.
    """
    rows = [row for row in _table() if row["kind"] == kind and row["transport"] == transport]
    if not rows:
        known = sorted({f"{row['kind']} by {row['transport']}" for row in _table()})
        raise InputError(
            f"Nothing is known of {kind!r} by {transport!r}; give its latency_us and "
            f"bandwidth_gbps, or one of: {', '.join(known)}."
        )
    row = min(rows, key=lambda row: abs(log(row.get("speed_gbps", 1.0) / (speed_gbps or 1.0))))
    usual = []
    if rtt_us is None:
        rtt_us = float(row["rtt_us"])
        usual.append(f"{rtt_us:g} us a round trip")
    if bandwidth_gbps is None:
        bandwidth_gbps = float(row.get("bandwidth_gbps", 0.0))
        if row.get("share"):
            bandwidth_gbps = row["share"] * (speed_gbps or row["speed_gbps"])
        usual.append(f"{bandwidth_gbps:g} Gbit/s")
    assumptions = (f"{kind} by {transport}: {', '.join(usual)} ({row['source']})",) if usual else ()
    return FabricFacts(kind, transport, rtt_us, bandwidth_gbps, assumptions)
