"""The constants that physics does not give, by engine and kind of device, with their uncertainty.

data/model/constants.toml is written by tools/fit_model.py and by nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cache
from math import exp, hypot
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.inputs import Strategy
from nixwulf.plugins.engines import performance

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
        """Of a configuration."""
        added = (self.chip * new_chip, self.model * new_model, self.thin * thin)
        return hypot(self.source, *added)


@dataclass(frozen=True)
class Spreads:
    """Of decoding and of prompts, on one node and on several."""

    decode_one: Spread
    decode_several: Spread
    prompt_one: Spread
    prompt_several: Spread

    def of(self, metric: str, nodes: int) -> Spread:
        """That of a metric (serve has that of decode) on so many nodes."""
        if metric == "prompt":
            return self.prompt_one if nodes == 1 else self.prompt_several
        return self.decode_one if nodes == 1 else self.decode_several


NO_SPREAD = Spreads(*[Spread(0.0)] * 4)


@dataclass(frozen=True)
class Constants:
    """Of one engine on one kind of device.

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
        """Of a model's times of prompt or decode; none of a model that had no part."""
        return self.offsets.get(f"{model.name} {metric}", 0.0)

    def alike(self, chip: str, strategy: Strategy, model: ModelFacts) -> int:
        """Published configurations of the chip, the split and the kernels."""
        return self.configurations.get(configuration(chip, strategy, model), 0)


def configuration(chip: str, strategy: Strategy, model: ModelFacts) -> str:
    """What a configuration has to share with another to stand behind it."""
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
    """When an engine was built, by the number of llama.cpp's builds, else the stated day."""
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
    """Of the software that was fitted: its 'month' and 'day', and llama.cpp's newest build."""
    found: Mapping[str, Any] = read_toml(path)["newest"]
    return found


def choose(
    engine: str, kind: str, known: Mapping[str, Mapping[str, Constants]] | None = None
) -> Constants:
    """The constants of an engine on a kind of device.

    kind: vendor of the GPU, or 'cpu'. known: constants by engine and kind; None: those that are
    shipped.

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
