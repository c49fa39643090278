"""Score the performance model against published numbers that had no part in its constants.

Usage: .venv/bin/python tools/score_model.py CSV... [--all] [--worst N]

The files have the columns of results/published/numbers.csv. Each machine is judged with constants
fitted without it, and with intervals from errors on the others, fitted without it too. --all prints
every case, --worst N the N cases that are furthest off. A configuration that was published several
times (another build, another run) is one case: the median of what was published.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from math import exp
from pathlib import Path
from statistics import median

from nixwulf.model.published import Case, cases, read_rows
from nixwulf.model.score import Judged, Pair, judge, pairs

TARGETS = {"error": 0.15, "naive": 0.5, "inside": 0.8, "direction": 0.9}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    arguments = parser.parse_args()
    rows = [row for path in arguments.csv for row in read_rows(path)]
    found, left_out = cases(rows)
    judged = judge([case for case in found if case.complete])
    split = [one for one in judged if one.case.nodes > 1 and one.case.metric != "prompt"]
    if not split:
        parser.error("no published speed of several nodes is in these files")
    figures(judged, split)
    compared = pairs(judge(found))
    directions(compared)
    excluded(found, left_out, {row["id"] for row in rows if row["nodes"] not in {"", "1"}})
    if arguments.all or arguments.worst:
        shown = sorted(split, key=lambda one: -abs(one.off))
        print("\nmeasured predicted  80 % interval     off  case")
        for one in shown if arguments.all else shown[: arguments.worst]:
            print(line(one))


def figures(judged: Sequence[Judged], split: Sequence[Judged]) -> None:
    """The errors, of the model and of the naive roofline."""
    groups = (
        ("decode, several nodes", split),
        ("  with the one-node speed measured", [one for one in split if one.anchored is not None]),
        ("decode, one node", [o for o in judged if o.case.nodes == 1 and o.case.metric != "prompt"]),
        ("prompt, several nodes", [o for o in judged if o.case.nodes > 1 and o.case.metric == "prompt"]),
        ("prompt, one node", [o for o in judged if o.case.nodes == 1 and o.case.metric == "prompt"]),
    )
    print("from facts alone; leave one machine out      cases  rows  median error  by rows  naive  inside")
    for name, group in groups:
        if not group:
            continue
        errors = [
            abs(one.anchored / one.case.value - 1)
            if name.startswith("  ") and one.anchored
            else one.error
            for one in group
        ]
        by_row = [
            abs(value / one.case.value * (one.error_sign + 1) - 1) if False else abs(
                one.prediction.value / value - 1
            )
            for one in group
            for value in one.case.values
        ]
        inside = sum(one.inside for one in group) / len(group)
        naive = median(one.naive_error for one in group)
        print(
            f"{name:44} {len(group):5} {len(by_row):5} {median(errors):12.1%} {median(by_row):8.1%} "
            f"{naive:7.0%} {inside:7.0%}"
        )
