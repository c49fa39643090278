"""Fitting the constants: least squares in logarithms, each constant pulled to what others have.

The logarithm of a constant is a sum: of all engines, of this engine, of this kind of device, and of
the two together. Each part is pulled to zero as by a measurement with the standard deviation of
_PRIORS, so what no case tells about is taken from engines and devices that are told about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.model.constants import NAMES, Constants, family
from nixwulf.model.predict import total
from nixwulf.model.published import Case

ENGINES = ("llama.cpp", "vllm", "vllm-eager", "mlx", "distributed-llama")
KINDS = ("amd", "nvidia", "apple", "cpu")
_SHARES = ("weights", "cache", "compute")
_NOISE = 0.12
_ROUNDS = 60
_LEAST_SPREAD = 0.08


@dataclass(frozen=True)
class Prior:
    """What a constant is taken to be before any case: value, and standard deviations in logarithms."""

    value: float
    all: float
    engine: float
    kind: float
    both: float


_PRIORS = {
    "weights": Prior(0.85, 0.2, 0.15, 0.15, 0.15),
    "cache": Prior(0.6, 0.5, 0.3, 0.4, 0.2),
    "compute": Prior(0.3, 0.7, 0.5, 0.5, 0.5),
    "layer_us": Prior(60.0, 1.0, 0.7, 0.7, 0.4),
    "hop_us": Prior(2000.0, 1.0, 0.7, 0.3, 0.2),
    "sync_us": Prior(40.0, 0.3, 0.4, 0.3, 0.2),
}
# No collective of these was measured by itself.
_LOOSE = {("sync_us", "llama.cpp"): 3.0}
_FIELDS = dict(
    zip(NAMES, ("weights", "cache", "compute", "launches", "hops", "syncs"), strict=True)
)


@dataclass(frozen=True)
class Fit:
    """Constants by engine and kind, and the standard deviation of their logarithms by name."""

    constants: Mapping[str, Mapping[str, Constants]]
    deviations: Mapping[str, Mapping[str, Mapping[str, float]]]


def fit(cases: Sequence[Case], spread: Mapping[str, float] | None = None) -> Fit:
    """The constants that fit cases best; spread by engine is put into them as it is."""
    import numpy as np

    keys = [(name, part) for name in NAMES for part in _parts()]
    index = {key: number for number, key in enumerate(keys)}
    prior = np.array([_deviation(name, part) for name, part in keys])
    rows = [_row(case) for case in cases]
    counts = np.array([row[0] for row in rows]).reshape(-1, len(NAMES))
    fixed = np.array([row[1] for row in rows])
    seen = np.log(np.array([row[2] for row in rows]))
    # Which unknowns make up the logarithm of each constant of each case.
    design = np.zeros((len(rows), len(NAMES), len(keys)))
    for number, case in enumerate(cases):
        engine, kind = _place(case)
        for column, name in enumerate(NAMES):
            for part in ("", engine, kind, f"{engine}.{kind}"):
                design[number, column, index[name, part]] = 1.0
    base = np.log([_unit(name, _PRIORS[name].value) for name in NAMES])

    def solve(used: Any, start: Any, prior: Any) -> tuple[Any, Any]:
        """The unknowns that fit the used cases, from and towards a start, and their covariance."""
        unknown, inverse = start.copy(), np.eye(len(keys))
        for _ in range(_ROUNDS):
            terms = counts[used] * np.exp(base + design[used] @ unknown)
            times = terms.sum(axis=1) + fixed[used]
            slope = np.einsum("ij,ijk->ik", terms / times[:, None], design[used])
            off = seen[used] - np.log(times)
            # Cases that are far off count less (Huber): no single record bends the constants.
            weight = np.minimum(1.0, 1.5 * _NOISE / np.maximum(np.abs(off), 1e-9)) / _NOISE**2
            inverse = np.linalg.inv(slope.T @ (weight[:, None] * slope) + np.diag(prior**-2))
            pull = (unknown - start) / prior**2
            unknown += np.clip(inverse @ (slope.T @ (weight * off) - pull), -0.5, 0.5)
        return unknown, inverse

    # Prompts tell about compute alone: how far it hides the reading of weights is not in the sums.
    prompts = np.array([case.metric == "prompt" for case in cases])
    unknown, inverse = solve(~prompts, np.zeros(len(keys)), prior)
    if prompts.any():
        held = np.where([name == "compute" for name, _ in keys], prior, 1e-6)
        last, errors = solve(prompts, unknown, held)
        compute = np.array([name == "compute" for name, _ in keys])
        unknown = np.where(compute, last, unknown)
        inverse = np.where(np.outer(compute, compute), errors, np.where(compute, 0.0, inverse))
    constants: dict[str, dict[str, Constants]] = {}
    deviations: dict[str, dict[str, dict[str, float]]] = {}
    for engine in ENGINES:
        for kind in KINDS:
            values, wide = {}, {}
            for column, name in enumerate(NAMES):
                chosen = np.zeros(len(keys))
                for part in ("", engine, kind, f"{engine}.{kind}"):
                    chosen[index[name, part]] = 1.0
                log = base[column] + chosen @ unknown
                values[name] = _value(name, float(np.exp(log)))
                wide[name] = float(np.sqrt(chosen @ inverse @ chosen))
            own = (spread or {}).get(engine, (spread or {}).get("", 0.25))
            constants.setdefault(engine, {})[kind] = Constants(**values, spread=own)
            deviations.setdefault(engine, {})[kind] = wide
    return Fit(constants, deviations)


def held_out(cases: Sequence[Case]) -> dict[str, Any]:
    """By machine, the fit that had no case of it in it."""
    machines = sorted({case.machine for case in cases})
    return {machine: fit([c for c in cases if not overlaps(c, machine)]) for machine in machines}


def overlaps(case: Case, machine: str) -> bool:
    """Whether a case is of a machine, or of a mixed cluster with one of its nodes."""
    return bool(set(case.machine.split(" and ")) & set(machine.split(" and ")))


def _parts() -> list[str]:
    both = [f"{engine}.{kind}" for engine in ENGINES for kind in KINDS]
    return ["", *ENGINES, *KINDS, *both]


def _deviation(name: str, part: str) -> float:
    prior = _PRIORS[name]
    if not part:
        return prior.all
    if part in ENGINES:
        return _LOOSE.get((name, part), prior.engine)
    return prior.kind if part in KINDS else prior.both


def _place(case: Case) -> tuple[str, str]:
    kind = case.platforms[0].kind
    way = case.way
    return family(way.engine, kind, graphs=way.graphs, parallelism=way.parallelism), kind


def _row(case: Case) -> tuple[list[float], float, float]:
    work, tokens = total(case.platforms, case.model, case.way, case.fabric, metric=case.metric)
    counts = [getattr(work, _FIELDS[name]) for name in NAMES]
    return counts, work.latency + work.transfer, tokens / case.value


def _unit(name: str, value: float) -> float:
    """The factor of a count: one over a share, or seconds."""
    return 1 / value if name in _SHARES else value / 1e6


def _value(name: str, factor: float) -> float:
    return 1 / factor if name in _SHARES else factor * 1e6
