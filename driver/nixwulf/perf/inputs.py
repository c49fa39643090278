"""Inputs of the performance model: machines, links, the strategy of a run, and constants.

The constants are what physics does not give, by engine and kind of device, with their uncertainty:
data/model/constants.toml is written by tools/fit_model.py and by nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cache
from math import exp, hypot, isfinite, log
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml, shipped_table
from nixwulf.inventory.platforms import NOMINAL_SHARE, Platform, memory_bandwidth_gbs
from nixwulf.llm.model_facts import ModelFacts, positive
from nixwulf.plugins.engines import performance

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
        """The name that machines of several makers share: the GPU's target, else the platform."""
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
    """A way to run a model: batch is sequences at once, depth the tokens before the first one.

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


def platform_facts(document: Platform) -> PlatformFacts:
    """Return a platform file's facts; raises InputError without the memory's bandwidth."""

    figures: Mapping[str, Any] = document

    def value(key: str) -> float:
        return float(figures.get(key, {}).get("value", 0.0))

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
    links = shipped_table("model/links")["links"]
    rows = [row for row in links if row["kind"] == kind and row["transport"] == transport]
    if not rows:
        known = sorted({f"{row['kind']} by {row['transport']}" for row in links})
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


FILE = DATA / "model" / "constants.toml"


@dataclass(frozen=True)
class Spread:
    """Deviation of a speed's logarithm that constants do not explain, by what had no part in a fit.

    source: that of a source and a build that had none, as a user's have none. chip, model and thin:
    what is added in squares where the chip, or the model on that engine, had none either, and where
    at most one configuration of the engine, chip, split and kernels had.
    """

    source: float
    chip: float = 0.0
    model: float = 0.0
    thin: float = 0.0

    def deviation(self, *, new_chip: bool, new_model: bool, thin: bool) -> float:
        """Return the deviation of a configuration."""
        added = (self.chip * new_chip, self.model * new_model, self.thin * thin)
        return hypot(self.source, *added)


@dataclass(frozen=True)
class Spreads:
    """Spreads of decoding and of prompts, on one node and on several."""

    decode_one: Spread
    decode_several: Spread
    prompt_one: Spread
    prompt_several: Spread

    def of(self, metric: str, nodes: int) -> Spread:
        """Return the spread of a metric (serve has that of decode) on so many nodes."""
        if metric == "prompt":
            return self.prompt_one if nodes == 1 else self.prompt_several
        return self.decode_one if nodes == 1 else self.decode_several


NO_SPREAD = Spreads(*[Spread(0.0)] * 4)


@dataclass(frozen=True)
class Constants:
    """The constants of one engine on one kind of device.

    Shares of what the hardware can: weights (of the memory's bandwidth, reading weights), cache
    (the same, reading the KV cache), compute, attention (of the compute, comparing a prompt's
    tokens with those before). Times in us that the host needs: layer (to start the kernels of one
    simple layer), hop (to hand a pipeline's state to the next node), sync (a collective, beside
    what the link needs). deviations: standard deviations of their logarithms, in
    the order of NAMES. spreads: those of what the constants do not explain. cases: published ones
    of this engine on this kind of device. chips and models: those of the engine's cases on any
    device, whose spread is less. configurations: how many of its cases have the same chip, split
    and kernels, by 'CHIP SPLIT KERNELS'. variants: of a back end with kernels, by 'BACKEND
    KERNELS', or of kernels alone. yearly: in the order of NAMES, by how much the logarithm of a
    time, or of what a share leaves over, is more with software a year older. offsets: logarithms by
    which times of a model, by 'MODEL METRIC', are longer than the constants say.
    """

    weights: float
    cache: float
    compute: float
    layer_us: float
    hop_us: float
    sync_us: float
    attention: float
    deviations: tuple[float, ...]
    spreads: Spreads
    cases: int = 1
    chips: frozenset[str] = field(default=frozenset(), repr=False)
    models: frozenset[str] = field(default=frozenset(), repr=False)
    yearly: tuple[float, ...] = ()
    offsets: Mapping[str, float] = field(default_factory=dict, repr=False)
    configurations: Mapping[str, int] = field(default_factory=dict, repr=False)
    variants: Mapping[str, Constants] = field(default_factory=dict, repr=False)

    def of(self, strategy: Strategy, model: ModelFacts) -> Constants:
        """The constants of its back end, kernels and age, as far as they are known."""
        kernels = model.weights.kernels
        names = (f"{strategy.backend} {kernels}".strip(), kernels, strategy.backend)
        found = next((self.variants[name] for name in names if name in self.variants), self)
        years = weight_of(strategy.age)
        if not (years and self.yearly):
            return found
        changed: dict[str, Any] = {
            name: _older(name, getattr(found, name), exp(years * change))
            for name, change in zip(NAMES, self.yearly, strict=True)
        }
        return replace(found, yearly=(), **changed)

    def offset(self, model: ModelFacts, metric: str) -> float:
        """Return a model's offset of prompt or decode times; 0 for a model outside the fit."""
        return self.offsets.get(f"{model.name} {metric}", 0.0)

    def alike(self, chip: str, strategy: Strategy, model: ModelFacts) -> int:
        """Published configurations of the chip, the split and the kernels."""
        return self.configurations.get(configuration(chip, strategy, model), 0)


def configuration(chip: str, strategy: Strategy, model: ModelFacts) -> str:
    """Name what a configuration must share with another to be evidence for it."""
    return f"{chip} {strategy.parallelism} {model.weights.kernels}"


NAMES = tuple(field.name for field in fields(Constants))[:7]
SHARES = ("weights", "cache", "compute", "attention")
"""Constants that are at most 1: what is left over, 1 / share - 1, is fitted in their place."""
_TODAY = 0.4  # years: as much software did not change what is measured, beside other differences
_OLDEST = 1.6
_YEAR = 365.0
_BUILD = re.compile(r"b(\d{3,5})")
_DAY = re.compile(r"20\d\d-[01]\d(-[0-3]\d)?")


@cache
def _builds() -> Sequence[tuple[int, date]]:
    rows = read_toml(FILE.with_name("builds.toml"))["builds"]
    return [(row["number"], row["day"]) for row in rows]


def day_of(version: str, day: str = "") -> date | None:
    """Return an engine's build day, by the number of llama.cpp's builds, else as stated."""
    if build := _BUILD.fullmatch(version):
        numbers, days = zip(*((at, one.toordinal()) for at, one in _builds()), strict=True)
        at = min(max(int(build[1]), numbers[0]), numbers[-1])
        after = max(1, bisect_left(numbers, at))
        share = (at - numbers[after - 1]) / (numbers[after] - numbers[after - 1])
        return date.fromordinal(round(days[after - 1] + share * (days[after] - days[after - 1])))
    if found := _DAY.match(day):
        return date.fromisoformat(found[0] if found[1] else f"{found[0]}-15")
    return None


def age_of(day: date | None) -> float:
    """Years from a day to the newest that was fitted; of one that is not known as of today."""
    return max(0.0, (newest()["day"] - day).days / _YEAR) if day else 0.0


def weight_of(age: float) -> float:
    """Years by which software counts as older, of its age in years before the newest fitted."""
    return min(_OLDEST, max(0.0, age - _TODAY))


def _older(name: str, value: float, factor: float) -> float:
    return 1 / (1 + (1 / value - 1) * factor) if name in SHARES else value * factor


def family(strategy: Strategy, kind: str) -> str:
    """The engine whose constants hold for a strategy on a kind of device."""
    known = performance(strategy.engine)
    eager = kind in known.eager_on if strategy.graphs is None else not strategy.graphs
    if eager and known.eager_family:
        return known.eager_family
    return known.family or strategy.engine


@cache
def load(path: Path = FILE) -> Mapping[str, Mapping[str, Constants]]:
    """Constants by engine, then by kind; raises InputError when the file is not whole."""
    document = read_toml(path)
    try:
        spreads = Spreads(**{name: Spread(**parts) for name, parts in document["spread"].items()})
        known = document["known"]
        return {
            engine: {
                kind: _parse(table, spreads, known[engine], table["offsets"])
                for kind, table in kinds.items()
            }
            for engine, kinds in document["engines"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: no constants at {error}; write it again with tools/fit_model.py CSV."
        ) from None


def _parse(
    table: Mapping[str, Any],
    spreads: Spreads,
    known: Mapping[str, Any],
    offsets: Mapping[str, float],
) -> Constants:
    values = {name: float(table[name]["value"]) for name in NAMES}
    deviations = tuple(float(table[name]["deviation"]) for name in NAMES)
    return Constants(
        **values,
        deviations=deviations,
        spreads=spreads,
        cases=int(table["cases"]),
        chips=frozenset(known["chips"]),
        models=frozenset(known["models"]),
        yearly=tuple(table.get("yearly", ())),
        offsets=offsets,
        configurations=known["configurations"],
        variants={
            name: _parse(one, spreads, known, offsets)
            for name, one in table.get("variants", {}).items()
        },
    )


@cache
def newest(path: Path = FILE) -> Mapping[str, Any]:
    """Return the fit's newest software: its 'month' and 'day', and llama.cpp's newest build."""
    found: Mapping[str, Any] = read_toml(path)["newest"]
    return found


def choose(
    engine: str, kind: str, known: Mapping[str, Mapping[str, Constants]] | None = None
) -> Constants:
    """The constants of an engine on a kind of device.

    kind: vendor of the GPU, or 'cpu'. known: constants by engine and kind; None: the shipped ones.

    Raises InputError: there are none for the engine, or none for it on such a device.
    """
    known = load() if known is None else known
    if engine not in known:
        raise InputError(
            f"Engine {engine!r} has no constants; those that have: {', '.join(sorted(known))}."
        )
    kinds = known[engine]
    if kind not in kinds:
        raise InputError(
            f"Device {kind!r} has no constants for {engine}; those that have: "
            f"{', '.join(sorted(kinds))}."
        )
    return kinds[kind]
