"""The constants that physics does not give, by engine and kind of device, with their uncertainty.

data/model/constants.toml is written by tools/fit_model.py and by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from math import hypot
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.perf.inputs import Strategy
from nixwulf.plugins.engines import performance

FILE = DATA / "model" / "constants.toml"


@dataclass(frozen=True)
class Spread:
    """Deviation of a speed's logarithm that constants do not explain, by what had no part in a fit.

    source: that of a source and a build that had none, as a user's have none. chip and model: what
    is added in squares where the chip, or the model on that engine, had none either.
    """

    source: float
    chip: float = 0.0
    model: float = 0.0

    def deviation(self, *, new_chip: bool, new_model: bool) -> float:
        """Of a configuration."""
        return hypot(self.source, self.chip * new_chip, self.model * new_model)


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
    device, whose spread is less.
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


NAMES = tuple(field.name for field in fields(Constants))[:7]


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
            engine: {kind: _parse(table, spreads, known[engine]) for kind, table in kinds.items()}
            for engine, kinds in document["engines"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: no constants at {error}; write it again with tools/fit_model.py CSV."
        ) from None


def _parse(
    table: Mapping[str, Any], spreads: Spreads, known: Mapping[str, Sequence[str]]
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
    )


def choose(
    engine: str, kind: str, known: Mapping[str, Mapping[str, Constants]] | None = None
) -> Constants:
    """The constants of an engine on a kind of device.

    Args:
        kind: vendor of the GPU, or 'cpu'.
        known: constants by engine and kind; None: those that are shipped.

    Raises:
        InputError: there are none for the engine, or none for it on such a device.
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
