"""How often --fail-below fails though nothing changed, and how often it finds a slow case.

Usage: .venv/bin/python tools/false_alarms.py [SWEEPS]

Simulates SWEEPS (default 2000) comparisons a cell, of 3 samples a run that differ by 0.3 %. No node
is needed; results/figures/false-alarms.txt is its output.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nixwulf.results.compare import interval as intervals
from nixwulf.results.compare.interval import (
    ASSUMED,
    FALSE_ALARMS,
    Interval,
    Variance,
    quantile,
    shown_below,
)

Array = NDArray[np.float64]
SAMPLE_NOISE, SAMPLES = 0.003, 3
LIMIT = 0.95
CASES = 20
AT_ONCE = 100
# The effect of a session, and how noisy B is by A.
DESIGNS = {
    "in turn": (0.0, 1.0),
    "one session each, 2 % effect": (0.02, 1.0),
    "one session each, 3 % effect": (0.03, 1.0),
    "in turn, B 3 times as noisy": (0.0, 3.0),
}
AS_SUPPOSED = 2  # so many of them
RUNS = ((3, 3), (6, 6), (10, 3))
RUN_NOISES = (0.03, 0.06, 0.1)
# Deviations of mean 0 and variance 1.
DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "t3": lambda random, shape: random.standard_t(3, shape) / math.sqrt(3),
    "skewed": lambda random, shape: 1 - random.exponential(size=shape),
}


class Setting(NamedTuple):
    """What is simulated: runs of A and of B, noise of a run, and effect of a session (0: in turn).

    louder: the noise of B by that of A.
    """

    runs: tuple[int, int]
    noise: float
    effect: float
    kind: str = "normal"
    louder: float = 1.0


@dataclass(frozen=True)
class Sweeps:
    """Sweeps by cases: logarithms of ratios, and the variance of each side by its runs."""

    setting: Setting
    centres: Array
    noises: tuple[Array, Array]

    @property
    def sessions(self) -> Variance:
        """As ratio_interval has it."""
        assumed = Variance(2 * ASSUMED**2, intervals._ASSUMED_FREEDOM)
        return assumed if self.setting.effect else Variance(0.0, 1.0)

    def slowed(self, ratio: float) -> Sweeps:
        """The same with a first case that is slower."""
        centres = self.centres.copy()
        centres[:, 0] += math.log(ratio)
        return Sweeps(self.setting, centres, self.noises)

    def intervals(self, sweep: int) -> list[Interval]:
        """What ratio_interval gives for the cases of a sweep."""
        sides = [
            [Variance(float(of), runs - 1) for of in noise[sweep]]
            for noise, runs in zip(self.noises, self.setting.runs, strict=True)
        ]
        return [
            Interval(
                float(centre),
                intervals.total(a, b),
                self.sessions,
                "assumed" if self.setting.effect else "in turn",
                intervals.alike((a, self.setting.runs[0]), (b, self.setting.runs[1])),
            )
            for centre, a, b in zip(self.centres[sweep], *sides, strict=True)
        ]

    def found(self, limit: float, only: int | None = None) -> Iterator[set[int]]:
        """Of each sweep the cases that --fail-below finds; with `only`, no sweep without that one.

        Holm's first step takes a case of which runs that vary alike give that t. Where none has it
        no interval is made.
        """
        of_runs = [runs - 1 for runs in self.setting.runs]
        pairs = zip(self.noises, self.setting.runs, of_runs, strict=True)
        squares = sum(noise * runs * free for noise, runs, free in pairs)
        alike = np.sqrt(squares / sum(of_runs) * sum(1 / runs for runs in self.setting.runs))
        far = quantile(1 - FALSE_ALARMS / self.centres.shape[1], sum(of_runs))
        distances = math.log(max(1.0, limit)) - self.centres
        possible = (distances >= 0.999 * far * alike).any(axis=1)
        if only is not None:
            possible &= self.centres[:, only] < math.log(limit)
        for sweep, is_possible in enumerate(possible):
            made = self.intervals(sweep) if is_possible else []
            yield {made.index(one) for one in shown_below(made, limit)}


def simulated(setting: Setting, sweeps: int, cases: int = CASES, seed: int = 2) -> Sweeps:
    """Sweeps in which nothing changed."""
    random = np.random.default_rng(seed)
    parts = [_simulated(random, setting, cases) for _ in range(-(-sweeps // AT_ONCE))]
    (a, noise_a), (b, noise_b) = (
        [np.concatenate([part[side][what] for part in parts])[:sweeps] for what in (0, 1)]
        for side in (0, 1)
    )
    return Sweeps(setting, b - a, (noise_a, noise_b))


def _simulated(
    random: np.random.Generator, setting: Setting, cases: int
) -> list[tuple[Array, Array]]:
    """Logarithm of the value of each side of some sweeps, and its variance by runs."""
    sides = []
    for runs, noise in zip(
        setting.runs, (setting.noise, setting.noise * setting.louder), strict=True
    ):
        deviations = noise * DRAWS[setting.kind](random, (AT_ONCE, cases, runs, 1))
        deviations = deviations + random.normal(0, SAMPLE_NOISE, (AT_ONCE, cases, runs, SAMPLES))
        # All cases of a sweep share their session.
        deviations += random.normal(0, setting.effect, (AT_ONCE, 1, 1, 1))
        samples = np.exp(deviations).reshape(AT_ONCE, cases, -1)
        resampled = np.log(samples @ shares(runs).T)
        factor = runs / (runs - 1)
        sides.append((np.log(samples.mean(axis=-1)), resampled.var(axis=-1, ddof=1) * factor))
    return sides


def shares(runs: int) -> Array:
    """How much of each sample is in each of the resamples of ratio_interval: always the same."""
    units = np.eye(runs * SAMPLES).reshape(-1, runs, SAMPLES)
    return np.stack([intervals._resampled(list(one), False) for one in units], axis=1)


def rows(sweeps: int) -> Iterator[str]:
    """A row a design, noise, and number of runs and cases; a cell a size of the noise."""
    normal, others = [("normal", CASES)], [("t3", CASES), ("skewed", CASES), ("normal", 1)]
    for place, (design, (effect, louder)) in enumerate(DESIGNS.items()):
        kinds = [*normal, *others] if place < AS_SUPPOSED else normal
        for (kind, cases), runs in product(kinds, RUNS):
            cells = [
                cell(simulated(Setting(runs, noise, effect, kind, louder), sweeps, cases))
                for noise in RUN_NOISES
            ]
            yield f"{design:<30}{kind:<8}{runs[0]:>3}, {runs[1]}{cases:>7}" + "".join(cells)


def cell(sweeps: Sweeps) -> str:
    """False alarms, then how often a slow case is found."""
    alarms = fmean(bool(one) for one in sweeps.found(LIMIT))
    slow = sweeps.slowed(LIMIT**2)
    found = fmean(0 in one for one in slow.found(LIMIT, only=0))
    return "  |" + "".join(f"{100 * share:>7.1f}" for share in (alarms, found))


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:] else 2000
    print(
        f"# --fail-below {LIMIT}, {count} sweeps a cell, in %: sweeps that fail though nothing "
        f"changed;\n# of cases at {LIMIT**2:.4f}, found\n"
    )
    print(
        f"{'':<30}{'noise':<8}{'runs':>6}{'cases':>7}"
        + "".join(f"  | {f'of {noise:.0%} a run':>13}" for noise in RUN_NOISES)
    )
    for row in rows(count):
        print(row, flush=True)
