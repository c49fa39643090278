"""How far sessions differ, and how often intervals err when they do.

Usage: .venv/bin/python tools/sessions.py [TRIALS]

Prints the spread between days in the published table, from which the assumed session effect is
taken, and simulates comparisons of TRIALS (default 1000) pairs, with 3 samples a run that differ by
0.3 %. No node is needed; results/figures/sessions.txt is its output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import median, stdev
from typing import NamedTuple

import numpy as np
import pandas as pd

from nixwulf.results.compare.interval import Interval, ratio_interval

TABLE = Path(__file__).parents[1] / "results" / "published" / "numbers.csv"
# What has to be equal for two rows to be of one case; a toolbox's parameters but for one switch of
# which both settings are in most logs, and which decode and prompts do not depend on.
SAME = [
    *("source", "platform", "machine", "nodes", "fabric", "transport", "engine", "backends"),
    *("benchmark", "parallelism", "model", "quant", "toolbox", "executor", "stack"),
    *("metric", "unit", "n_prompt", "n_gen", "n_depth"),
]
SWITCH = r";?hipblaslt=\d"
EFFECTS = (0.0, 0.01, 0.02, 0.03)
RUN_NOISE, SAMPLE_NOISE, SAMPLES = 0.01, 0.003, 3


class Design(NamedTuple):
    """How a comparison is made: sessions of A and of B, or the same ones, in turn."""

    name: str
    a: int
    b: int
    in_turn: bool = False


DESIGNS = (
    Design("one session each", 1, 1),
    Design("one session, in turn", 1, 1, in_turn=True),
    Design("two sessions each", 2, 2),
    Design("three sessions each", 3, 3),
    Design("three sessions and one", 3, 1),
)


def published() -> Iterator[str]:
    """Standard deviations of values of one case, within a day and between weeks."""
    table = pd.read_csv(TABLE, dtype=str).fillna("")
    table = table[(table["same_as"] == "") & (table["unit"] == "tok/s") & (table["n_prompt"] != "")]
    table = table.assign(
        value=table["value"].astype(float),
        toolbox=table["parameters"].str.replace(SWITCH, "", regex=True),
    )
    for name, keys, by in (
        ("within a day", [*SAME, "engine_version"], "parameters"),
        ("between weeks, with their builds", SAME, "engine_version"),
    ):
        groups = (one.groupby(by)["value"].mean() for _, one in table.groupby(keys))
        found = [100 * stdev(map(log, values)) for values in groups if len(values) > 1]
        yield (
            f"published table, one toolbox {name}: {len(found)} cases, median "
            f"{median(found):.1f} %, largest {max(found):.1f} %"
        )


def side(
    random: np.random.Generator, sessions: dict[int, float], runs: int, level: float, noise: float
) -> dict[int, list[list[float]]]:
    """Samples of runs by session, each of which has a factor."""
    return {
        session: (
            level
            * factor
            * np.exp(
                random.normal(0, noise, (runs, 1)) + random.normal(0, SAMPLE_NOISE, (runs, SAMPLES))
            )
        ).tolist()
        for session, factor in sessions.items()
    }


def compared(
    random: np.random.Generator,
    design: Design,
    runs: int,
    effect: float,
    noise: float,
    ratio: float,
) -> Interval:
    """One comparison of a case whose true ratio is known."""
    a = dict(enumerate(np.exp(random.normal(0, effect, design.a))))
    b = dict(enumerate(np.exp(random.normal(0, effect, design.b)), design.a))
    found: Interval | None = ratio_interval(
        side(random, a, runs, 100, noise),
        side(random, a if design.in_turn else b, runs, 100 * ratio, noise),
        distribution=False,
    )
    if found is None:
        raise ValueError("no sample is above 0")
    return found


def held_and_wide(found: Sequence[Interval], ratio: float) -> str:
    """The share of intervals that hold the true ratio, and half their middle width, in %."""
    held = sum(one.low <= ratio <= one.high for one in found) / len(found)
    wide = median((one.high - one.low) / 2 / ratio for one in found)
    return f"{100 * held:5.1f} ({100 * wide:.1f})"


def coverage(trials: int) -> Iterator[str]:
    """In how many of 100 comparisons the interval holds the true ratio, and how wide it is."""
    head = "".join(f"{100 * effect:>11.0f} %" for effect in EFFECTS)
    yield "true ratio inside the 95 % interval, in % (half its width), by session effect:"
    yield " " * 33 + head
    for design in DESIGNS:
        for runs in (3, 10):
            cells = []
            for effect in EFFECTS:
                random = np.random.default_rng(1)
                made = (
                    compared(random, design, runs, effect, RUN_NOISE, 0.9) for _ in range(trials)
                )
                cells.append(held_and_wide(list(made), 0.9))
            yield f"{design.name:<24}{runs:>3} runs  " + "".join(f"{cell:>13}" for cell in cells)


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    for part in (published(), coverage(count)):
        for line in part:
            print(line, flush=True)
        print()
