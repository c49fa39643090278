"""Score the performance model against published numbers that had no part in its constants.

Usage: .venv/bin/python tools/score_model.py CSV... [--chip] [--all | --worst N]

The files have the columns of results/published/numbers.csv. Each machine is judged with constants
fitted without it, and with intervals from errors on the others, fitted without it too. A
configuration that was published several times is one case, the median; 'by rows' counts each row.
--chip leaves out all machines with the same chip, not one alone;
--all prints every case of several nodes, --worst N the N that are furthest off.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

# Many small matrices: threads of BLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from fitting.hpl import predict_hpl
from fitting.machines import chip
from fitting.published import cases, hpl_cases, read_rows
from fitting.score import Judged, Pair, direction, judge, pairs
from nixwulf.core.errors import NixwulfError

_KNOWN = Path(__file__).parents[1] / "results" / "published" / "numbers.csv"
_SENTENCE = 80


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", type=Path)
    parser.add_argument("--chip", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    arguments = parser.parse_args()
    rows = [row for path in arguments.csv for row in read_rows(path)]
    found, left_out = cases(rows)
    known = cases(read_rows(_KNOWN))[0]
    if arguments.chip:
        found, known = (
            [replace(one, machine=chip(one.machine)) for one in group] for group in (found, known)
        )
    everything = judge(found, known)
    judged = [one for one in everything if one.case.complete]
    split = sorted(
        (one for one in judged if one.case.nodes > 1 and one.case.metric != "prompt"),
        key=lambda one: -abs(one.off),
    )
    if not split:
        parser.error("these files have no speed of several nodes that the model can be asked for")
    print_figures(judged, split, "chip" if arguments.chip else "machine")
    print_hpl(rows)
    print_directions(pairs(everything))
    several = {
        row["id"]: row["model"] or row["engine"] for row in rows if row["nodes"] not in {"", "1"}
    }
    print_left_out({i: why for i, why in left_out.items() if i in several}, several, everything)
    shown = split if arguments.all else split[: arguments.worst]
    if shown:
        print("\n  measured predicted    80 % interval   off  case")
    for one in shown:
        forecast = one.prediction
        print(
            f"{one.case.value:10.2f} {forecast.value:9.2f} {forecast.low:8.2f} "
            f"{forecast.high:7.2f} {forecast.value / one.case.value - 1:+5.0%}  "
            f"{one.case.ids[0]} {one.case.label}"
        )


def print_figures(judged: Sequence[Judged], split: Sequence[Judged], what: str) -> None:
    """Errors of the model from facts alone and of the naive roofline, by what is predicted."""
    alone = [one for one in split if one.case.strategy.batch == 1]
    groups = {
        "decode, several nodes": split,
        "decode, several nodes, one sequence": alone,
        "decode, one node": [o for o in judged if o.case.nodes == 1 and o.case.metric != "prompt"],
        "prompt, several nodes": [
            o for o in judged if o.case.nodes > 1 and o.case.metric == "prompt"
        ],
        "prompt, one node": [o for o in judged if o.case.nodes == 1 and o.case.metric == "prompt"],
    }
    print(
        f"{f'one {what} left out, from facts alone':40} "
        "cases  rows  median  by rows  naive  inside 80 %"
    )
    for name, group in groups.items():
        if not group:
            continue
        by_row = [abs(o.prediction.value / value - 1) for o in group for value in o.case.values]
        naive = median(o.naive_error for o in group) if name.startswith("decode") else None
        print(
            f"{name:40} {len(group):5} {len(by_row):5} {median(o.error for o in group):7.1%} "
            f"{median(by_row):8.1%} {f'{naive:6.0%}' if naive is not None else '      '} "
            f"{sum(o.inside for o in group) / len(group):11.0%}"
        )
    anchored = [abs(o.anchored / o.case.value - 1) for o in split if o.anchored is not None]
    if anchored:
        same = median(o.error for o in split if o.anchored is not None)
        print(
            f"\nwith the speed of one node measured: {median(anchored):.1%} over "
            f"{len(anchored)} cases; the same cases from facts alone: {same:.1%}"
        )


def print_hpl(rows: Sequence[dict[str, str]]) -> None:
    """Errors of HPL on several nodes."""
    off = [
        abs(predict_hpl(platform, nodes, fabric) / value - 1)
        for _, platform, nodes, fabric, value in hpl_cases(rows)
    ]
    if off:
        print(f"HPL, several nodes, nothing fitted: median {median(off):.1%} over {len(off)} rows")


def print_directions(found: Sequence[Pair]) -> None:
    """How many pairs are said to go the way they went, and those that are not."""
    if not found:
        return
    right = sum(pair.right for pair in found)
    near = sum(pair.near for pair in found)
    print(
        f"\ndirection (faster, slower, within 5 %): {right} of {len(found)} pairs right, "
        f"{right / len(found):.1%}; right or its factor within 5 %: {near}, {near / len(found):.1%}"
    )
    for pair in found:
        if not pair.right:
            first, second = pair.first.case, pair.second.case
            print(
                f"  {second.ids[0]} after {first.ids[0]} ({pair.what}): {direction(pair.measured)} "
                f"{pair.measured:.2f}, said {direction(pair.predicted)} {pair.predicted:.2f}; "
                f"{second.label}"
            )


def print_left_out(why: dict[str, str], models: dict[str, str], judged: Sequence[Judged]) -> None:
    """Rows of several nodes that are not judged, and why."""
    reasons = Counter(
        f"{reason.split('.')[0][:_SENTENCE]} ({models[i]})" for i, reason in why.items()
    )
    for one in judged:
        if one.case.nodes > 1 and not one.case.complete:
            reasons[f"only its direction is judged ({one.case.model.name})"] += len(one.case.values)
    print("\nrows of several nodes that are not judged")
    for reason, count in reasons.most_common():
        print(f"  {count:3} {reason}")


if __name__ == "__main__":
    try:
        main()
    except NixwulfError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
