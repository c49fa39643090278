"""Fitting the constants: least squares in logarithms, each constant pulled to what others have.

The logarithm of a constant is a sum: of all engines, of this engine, of this kind of device, and of
the two together. Each part is pulled to zero as by a measurement with the standard deviation of
_PRIORS, so what no case tells about is taken from engines and devices that are told about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import hypot, log
from typing import Any

from fitting.published import Case
from nixwulf.perf import least_squares
from nixwulf.perf.inputs import (
    NAMES,
    NO_SPREAD,
    SHARES,
    Constants,
    Spreads,
    configuration,
    family,
    weight_of,
)
from nixwulf.perf.predict import total, uneven
from nixwulf.perf.work import Configuration

ENGINES = ("llama.cpp", "vllm", "vllm-eager", "mlx", "distributed-llama")
KINDS = ("amd", "nvidia", "apple", "cpu")
_NOISE = 0.05
_TOGETHER = "together"
_TOGETHER_DEVIATION = 0.08
KERNELS = 0.12
"""Deviation of the logarithm of prompts of one model on one machine, all of them together.

No row of a way says its build and backend; those of one engine differ by this (docs/model.md).
"""
_PROMPT = " prompt"
_LONGEST = 0.5
_SMALL = 2e-3


@dataclass(frozen=True)
class Prior:
    """What a constant is taken to be before any case; standard deviations in logarithms.

    Of a time; of a share s that of 1/s - 1, for no share is above 1.
    """

    value: float
    all: float
    engine: float
    kind: float
    both: float


# What a back end, and the kernels of a quantization, have beside others of the engine and device.
_VARIANT = {"weights": 0.5, "cache": 0.3, "compute": 0.4, "layer_us": 0.4, "attention": 0.5}
_NOTHING = "nothing"
_A_YEAR = "~year"
_SURE = 1e-3
# What software that is a year older has more of, by engine and device: a deviation around none.
_YEAR = {"weights": 0.1, "cache": 0.15, "compute": 0.4, "layer_us": 0.15, "attention": 0.4}
_CROWD = 0.2
"""Deviation of the logarithm of batches: prompts of others and the scheduler are in their time."""
_MODEL = "model"
_MODELS_DECODE, _MODELS_PROMPT = 0.08, 0.25
_SOURCE = "source"
_SOURCE_DEVIATION = 0.03
_SOURCE_PROMPTS = 0.1
_PRIORS = {
    "weights": Prior(0.9, 0.5, 1.0, 0.5, 0.5),
    "cache": Prior(0.6, 0.8, 0.5, 0.6, 0.3),
    "compute": Prior(0.3, 1.0, 0.7, 0.7, 0.7),
    "layer_us": Prior(60.0, 1.0, 0.7, 0.7, 0.4),
    "hop_us": Prior(2000.0, 1.0, 0.7, 0.1, 0.1),
    "sync_us": Prior(40.0, 0.3, 0.4, 0.1, 0.1),
    "attention": Prior(0.3, 0.3, 0.3, 1.0, 0.4),
}
# Measured by itself, in the lab (docs/model.md): the value and the deviation of its logarithm.
_MEASURED = {
    ("hop_us", "llama.cpp", "cpu"): (950.0, 0.35),
    ("sync_us", "llama.cpp", "cpu"): (400.0, 0.35),
}
# Where a constant is known better or worse than its prior: a host hands over to a GPU in another
# time than to its own threads; no engine says what a sum costs llama.cpp; a CPU starts no kernels,
# its threads meet at a barrier.
_KNOWN = {
    ("hop_us", "llama.cpp.cpu"): 1.5,
    ("sync_us", "llama.cpp"): 3.0,
    ("layer_us", "cpu"): 0.1,
    ("layer_us", "distributed-llama"): 0.1,
    ("layer_us", "distributed-llama.cpu"): 0.1,
    ("layer_us", "llama.cpp.cpu"): 0.1,
}
_FIELDS = dict(
    zip(
        NAMES,
        ("weights", "cache", "compute", "launches", "hops", "syncs", "attention"),
        strict=True,
    )
)


Table = Mapping[str, Mapping[str, Constants]]


def fit(
    cases: Sequence[Case], spreads: Spreads = NO_SPREAD, near: dict[Any, float] | None = None
) -> Table:
    """The constants that fit cases best, by engine and kind, with the spreads that are given.

    Without cases they are what was taken for granted, which is what the priors say.

    Args:
        near: unknowns of a fit of nearly the same cases, from which the search begins; an empty one
            is filled with those of this fit.
    """
    import numpy as np

    index, unknown, covariance = _solve(cases, near or {})
    if near is not None and not near:
        near.update(zip(index, unknown, strict=True))
    least, base = _ends()
    places = [place(case) for case in cases]
    chips: dict[str, set[str]] = {engine: set() for engine in ENGINES}
    models: dict[str, set[str]] = {engine: set() for engine in ENGINES}
    behind: dict[str, Counter[str]] = {engine: Counter() for engine in ENGINES}
    seen: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    alike: set[tuple[str, str, str]] = set()
    for case, (engine, kind) in zip(cases, places, strict=True):
        chips[engine].update(platform.chip for platform in case.platforms)
        models[engine].add(case.model.name)
        named = configuration(case.platforms[0].chip, case.strategy, case.model)
        same = engine, named, f"{case.model.name} {case.nodes} {case.fabric} {case.sources}"
        behind[engine][named] += same not in alike
        alike.add(same)
        seen[engine, kind][variant_of(case)] += 1

    def variants(engine: str, kind: str) -> dict[str, Constants]:
        backends = {backend for backend, _ in seen[engine, kind]} | {""}
        kernels = {kernels for _, kernels in seen[engine, kind]} | {""}
        return {
            " ".join(filter(None, one)): constants(engine, kind, one)
            for one in sorted(product(backends, kernels))
            if any(one)
        }

    def offsets(engine: str, kind: str) -> dict[str, float]:
        whose = f"{engine}.{kind}:"
        return {
            part.removeprefix(whose): float(unknown[at])
            for (name, part), at in index.items()
            if name == _MODEL and part.startswith(whose)
        }

    def constants(engine: str, kind: str, one: tuple[str, str] = ("", "")) -> Constants:
        chosen = np.zeros((len(NAMES), len(index)))
        for column, name in enumerate(NAMES):
            chosen[column, [index[key] for key in _made_of(name, engine, kind, one)[:-1]]] = 1.0
        more = np.exp(base + chosen @ unknown)
        deviations = np.sqrt(np.maximum(0.0, ((chosen @ covariance) * chosen).sum(axis=1)))
        deviations *= more / (least + more)
        factors = zip(NAMES, least + more, strict=True)
        return Constants(
            **{name: _value(name, float(factor)) for name, factor in factors},
            deviations=tuple(float(one) for one in deviations),
            spreads=spreads,
            cases=seen[engine, kind][one] if any(one) else places.count((engine, kind)),
            chips=frozenset(chips[engine]),
            models=frozenset(models[engine]),
            offsets=offsets(engine, kind),
            yearly=tuple(float(unknown[index[_made_of(name, engine, kind)[-1]]]) for name in NAMES),
            configurations=dict(sorted(behind[engine].items())),
            variants={} if any(one) else variants(engine, kind),
        )

    return {engine: {kind: constants(engine, kind) for kind in KINDS} for engine in ENGINES}


def _solve(
    cases: Sequence[Case], near: Mapping[Any, float]
) -> tuple[Mapping[tuple[str, str], int], Any, Any]:
    """Places of the unknowns, their values and their covariance."""
    import numpy as np

    keys = [(name, part) for name in NAMES for part in (*_parts(), *_variants(cases), _NOTHING)]
    keys += [(_TOGETHER, group) for group in sorted({_together(case) for case in cases})]
    keys += [(_SOURCE, group) for group in sorted({_whose(case) for case in cases})]
    keys += [(_MODEL, group) for group in sorted({_what(case) for case in cases})]
    index = {key: number for number, key in enumerate(keys)}
    least, base = _ends()
    certain, unknown, inverse = _granted(index)
    first = np.array([near.get(key, known) for key, known in zip(index, unknown, strict=True)])
    noises = np.array(
        [
            hypot(
                _NOISE,
                c.deviation,
                uneven(c.model, c.strategy, c.metric),
                _CROWD * (c.strategy.batch > 1 and c.strategy.engine != "llama.cpp"),
            )
            for c in cases
        ]
    )
    group = np.array(
        [
            [index[_TOGETHER, _together(c)], index[_SOURCE, _whose(c)], index[_MODEL, _what(c)]]
            for c in cases
        ]
    ).reshape(len(cases), 3)
    years = np.array([weight_of(case.age) for case in cases])
    rows = np.array([_row(case) for case in cases]).reshape(len(cases), len(NAMES) + 3)
    counts, beside, fixed, seen = rows[:, :-3], rows[:, -3], rows[:, -2], np.log(rows[:, -1])
    # Which unknowns make up the logarithm of each constant of each case: cases x constants x 4.
    made_of = np.array(
        [
            [[index[key] for key in _made_of(name, *place(c), variant_of(c))] for name in NAMES]
            for c in cases
        ]
    ).reshape(len(cases), len(NAMES), 7)
    # Each unknown once, that of a year as often as software is years older.
    times_each = np.ones((len(cases), 7))
    times_each[:, -1] = years

    def solve(used: Any, free: Any) -> None:
        """Move the free unknowns to where they fit the used cases, and put in their covariance."""
        which, shared, row = made_of[used], group[used], np.arange(int(used.sum()))
        each = times_each[used][:, None, :]

        def linear(values: Any) -> tuple[Any, Any]:
            unknown[free] = values
            more = np.exp(base + (unknown[which] * each).sum(axis=2))
            terms = _terms(counts[used], beside[used], least + more)
            times = terms.sum(axis=1) + fixed[used]
            moved = terms * more / (least + more)
            slopes = np.zeros((len(row), len(keys)))
            slopes[row[:, None, None], which] = (moved / times[:, None])[:, :, None] * each
            slopes[row[:, None], shared] = 1.0
            return seen[used] - np.log(times) - unknown[shared].sum(axis=1), slopes[:, free]

        both = np.ix_(free, free)
        unknown[free], inverse[both] = least_squares.solve(
            linear,
            noises[used],
            unknown[free],
            certain[both],
            longest=_LONGEST,
            settled=_SMALL,
            robust=True,
            first=first[free],
        )

    # Prompts tell about what they alone do much of; all else is known better from decoding.
    prompts = np.array([case.metric == "prompt" for case in cases], dtype=bool)
    if not prompts.all():
        measured = [index[key] for place in _MEASURED for key in _made_of(*place)[:4]]
        free = np.unique([*made_of[~prompts].ravel(), *group[~prompts].ravel(), *measured])
        solve(~prompts, free)
    if prompts.any():
        columns = [NAMES.index(name) for name in ("compute", "attention")]
        free = np.unique([*made_of[prompts][:, columns].ravel(), *group[prompts].ravel()])
        solve(prompts, free)
    return index, unknown, inverse


def _ends() -> tuple[Any, Any]:
    """Of each constant's factor the least it can be, and the logarithm of what is beyond that."""
    import numpy as np

    least = np.array([float(name in SHARES) for name in NAMES])
    return least, np.log([_unit(name, _PRIORS[name].value) for name in NAMES] - least)


def _terms(counts: Any, beside: Any, factors: Any) -> Any:
    """Seconds by constant, cases x constants; of reading beside computing, what takes longer."""
    terms = counts * factors
    weights, compute = NAMES.index("weights"), NAMES.index("compute")
    read = beside * factors[:, weights]
    late = read > terms[:, compute]
    terms[late, compute] = 0.0
    terms[late, weights] += read[late]
    return terms


def _granted(index: Mapping[tuple[str, str], int]) -> tuple[Any, Any, Any]:
    """What is taken for granted of all unknowns: precision, values and covariance.

    Priors pull each to zero; what was measured by itself pulls the sum that a constant is made of.
    """
    import numpy as np

    precision = np.diag([_deviation(*key) ** -2 for key in index])
    pull = np.zeros(len(index))
    for (name, engine, kind), (value, deviation) in _MEASURED.items():
        parts = [index[key] for key in _made_of(name, engine, kind)[:4]]
        precision[np.ix_(parts, parts)] += deviation**-2
        pull[parts] += log(value / _PRIORS[name].value) / deviation**2
    covariance = np.linalg.inv(precision)
    return precision, covariance @ pull, covariance


def variant_of(case: Case) -> tuple[str, str]:
    """The back end and the kernels of a case, as far as its row states them."""
    return case.strategy.backend, case.model.weights.kernels


def _variants(cases: Sequence[Case]) -> list[str]:
    found = {f"{'.'.join(place(case))}:{one}" for case in cases for one in variant_of(case) if one}
    return sorted(found)


def _made_of(
    name: str, engine: str, kind: str, variant: tuple[str, str] = ("", "")
) -> list[tuple[str, str]]:
    keys = [(name, part) for part in ("", engine, kind)]
    # One client of llama.cpp makes hops and sums: a device that is slow at one is slow at both.
    last = "hop_us" if (name, engine) == ("sync_us", "llama.cpp") else name
    apart = name in _VARIANT
    parts = [f"{engine}.{kind}:{one}" if one and apart else _NOTHING for one in variant]
    parts.append(f"{engine}.{kind}{_A_YEAR}" if name in _YEAR else _NOTHING)
    return [*keys, (last, f"{engine}.{kind}"), *((name, part) for part in parts)]


def _parts() -> list[str]:
    both = [f"{engine}.{kind}" for engine in ENGINES for kind in KINDS]
    return ["", *ENGINES, *KINDS, *both, *(f"{one}{_A_YEAR}" for one in both)]


def _together(case: Case) -> str:
    """What cases are off together: a model on a machine, whose kernels are good or bad for it.

    Each size of a batch has kernels of its own, and its routing is not even.
    """
    size = case.metric if case.metric == "prompt" else case.strategy.batch
    bits = f"{case.model.weights.routed_bits:.1f}"
    return f"{case.machine} {case.strategy.engine} {case.model.name} {bits} {size}"


def _whose(case: Case) -> str:
    """What cases of one source are off together by, on one machine: its settings and its build."""
    metric = case.metric if case.metric == "prompt" else "decode"
    return f"{' '.join(sorted(case.sources))} {case.machine} {case.strategy.engine} {metric}"


def _what(case: Case) -> str:
    """What all cases of a model on a kind of device are off by, whoever measured them."""
    metric = case.metric if case.metric == "prompt" else "decode"
    return f"{'.'.join(place(case))}:{case.model.name} {metric}"


def _deviation(name: str, part: str) -> float:
    if name == _MODEL:
        return _MODELS_PROMPT if part.endswith(_PROMPT) else _MODELS_DECODE
    if name == _SOURCE:
        return _SOURCE_PROMPTS if part.endswith(_PROMPT) else _SOURCE_DEVIATION
    if name == _TOGETHER:
        return KERNELS if part.endswith(_PROMPT) else _TOGETHER_DEVIATION
    prior = _PRIORS[name]
    if part == _NOTHING:
        return _SURE
    if part.endswith(_A_YEAR):
        return _YEAR.get(name, _SURE)
    if ":" in part:
        return _VARIANT.get(name, _SURE)
    if not part:
        return prior.all
    if (name, part) in _KNOWN:
        return _KNOWN[name, part]
    if part in ENGINES:
        return prior.engine
    return prior.kind if part in KINDS else prior.both


def place(case: Case) -> tuple[str, str]:
    """The engine and the kind of device whose constants hold for a case."""
    kind = case.platforms[0].kind
    return family(case.strategy, kind), kind


@cache
def _row(case: Case) -> tuple[float, ...]:
    """What each constant scales, what none does, and the seconds that were measured."""
    of = Configuration(case.platforms, case.model, case.strategy, case.fabric)
    work, tokens = total(of, case.metric)
    counts = [getattr(work, _FIELDS[name]) for name in NAMES]
    counts[NAMES.index("weights")] += work.activations
    return (*counts, work.beside, work.latency + work.transfer, tokens / case.value)


def _unit(name: str, value: float) -> float:
    """The factor of a count: one over a share, or seconds."""
    return 1 / value if name in SHARES else value / 1e6


def _value(name: str, factor: float) -> float:
    return 1 / factor if name in SHARES else factor * 1e6
