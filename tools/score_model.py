"""Score the shipped prediction against published numbers that had no part in its constants.

Usage: .venv/bin/python tools/score_model.py CSV... [--all | --worst N] [--points FILE]

The files have the columns of results/published/numbers.csv. Each source is left out of constants
and of intervals in turn, and its rows are predicted by what is left, as a user's are by what is
shipped. A configuration is a case by source, the median; 'by rows' counts each row. In brackets is
what 90 % of bootstraps over sources give. --points writes what the shipped constants say of every
row beside what was measured, with its source.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import exp, sqrt
from pathlib import Path
from random import Random
from statistics import median

# Many small matrices: threads of BLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from fitting.hpl import predict_hpl
from fitting.novelty import Fits, group_of
from fitting.published import Case, cases, hpl_cases, read_rows
from fitting.score import Judged, Pair, direction, judge, judge_shipped, pairs
from nixwulf.core.errors import NixwulfError

_KNOWN = Path(__file__).parents[1] / "results" / "published" / "numbers.csv"
_SENTENCE = 80
_BUILD = re.compile(r"b(\d{3,5})")
_LOW_BITS = 3.2  # of Q2_K and IQ3_XXS, whose kernels unpack more for each product
_TITLES = {
    "decode_several": "decode, several nodes",
    "decode_one": "decode, one node",
    "prompt_several": "prompt, several nodes",
    "prompt_one": "prompt, one node",
}
_RESAMPLED = 2000
_FOUR_BITS = ("int4", "nvfp4", "mxfp4", "four")
# Where an interval has to hold what somebody asks: by engine, device, back end or kernels.
_PARTS: Mapping[str, Callable[[Case], bool]] = {
    "llama.cpp, several nodes, pipeline": lambda c: (
        c.strategy.engine == "llama.cpp" and c.strategy.parallelism == "pipeline"
    ),
    "llama.cpp, AMD, Vulkan": lambda c: c.strategy.backend == "vulkan",
    "llama.cpp, AMD, ROCm": lambda c: c.strategy.backend == "rocm",
    "llama.cpp, NVIDIA": lambda c: (c.strategy.engine, _kind(c)) == ("llama.cpp", "nvidia"),
    "llama.cpp, Apple": lambda c: (c.strategy.engine, _kind(c)) == ("llama.cpp", "apple"),
    "vLLM, four bits, NVIDIA": lambda c: (
        (c.strategy.engine, _kind(c)) == ("vllm", "nvidia")
        and c.model.weights.kernels in _FOUR_BITS
    ),
    "vLLM, other bits, NVIDIA": lambda c: (
        (c.strategy.engine, _kind(c)) == ("vllm", "nvidia")
        and c.model.weights.kernels not in _FOUR_BITS
    ),
    "vLLM, AMD": lambda c: (c.strategy.engine, _kind(c)) == ("vllm", "amd"),
    "MLX": lambda c: c.strategy.engine == "mlx",
    "with drafts": lambda c: c.strategy.drafts > 0,
    "software of the last twelve months": lambda c: c.age < 1,
}


_REPEATED = ("decode", "prompt")
# Of a row: what two sources have to share for their values to be of one configuration.
_CONFIGURATION = (
    *("metric", "nodes", "platform", "engine", "backends", "parallelism", "transport"),
    *("benchmark", "model", "quant", "n_prompt", "n_depth"),
)


def _kind(case: Case) -> str:
    return case.platforms[0].kind


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--points", type=Path)
    arguments = parser.parse_args()
    rows = [row for path in arguments.csv for row in read_rows(path)]
    found, left_out = cases(rows)
    known = cases(read_rows(_KNOWN))[0]
    ids = {row for case in found for row in case.ids}
    others = [case for case in known if ids.isdisjoint(case.ids)]
    fits = Fits([case for case in (*found, *others) if case.complete])
    everything = judge(found, fits)
    judged = [one for one in everything if one.case.complete]
    split = sorted(
        (one for one in judged if group_of(one.case) == "decode_several"),
        key=lambda one: -abs(one.off),
    )
    if not split:
        parser.error("these files have no speed of several nodes that the model can be asked for")
    shipped = judge_shipped([one.case for one in judged])
    if arguments.points:
        write_points(shipped, rows, arguments.points)
    print_figures(judged, shipped)
    print_repeated(arguments.csv)
    print_prompts(judged)
    print_anchored(split)
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


def print_figures(judged: Sequence[Judged], shipped: Sequence[Judged]) -> None:
    """Errors and what the intervals hold, for each thing that is predicted and its parts."""
    head = f"  {'':36} cases rows sources  median            inside 80 %      rows  width"
    for group, title in _TITLES.items():
        found = [one for one in judged if group_of(one.case) == group]
        if not found:
            continue
        naive = ""
        if group.startswith("decode"):
            error = median(one.naive_error for one in found)
            naive = f"; bandwidth over bytes is off by {error:.0%}"
        print(f"{title}{naive}\n{head}")
        print(f"  {'sources that had no part':36} {_figures(found)}")
        # Its machines have few others to be predicted by, and its cases decide the median.
        (largest, _), *_ = Counter(_source(one.case) for one in found).most_common()
        parts = {"all but the largest source": _not_of(largest), **_PARTS}
        for name, belongs in parts.items():
            part = [one for one in found if belongs(one.case)]
            if part and len(part) < len(found):
                print(f"    {name:34} {_figures(part)}")
        own = [one for one in shipped if group_of(one.case) == group]
        print(f"  {'(the shipped constants: all had a part)':36} {_figures(own)[3:]}")
        print()


def _source(case: Case) -> str:
    return min(case.sources, default="")


def _not_of(source: str) -> Callable[[Case], bool]:
    return lambda case: _source(case) != source


def _figures(judged: Sequence[Judged]) -> str:
    """Counts, errors and what is inside the intervals, with bootstraps over sources."""
    each = [(one.prediction, value) for one in judged for value in one.case.values]
    inside = sum(prediction.low <= value <= prediction.high for prediction, value in each)
    by_source: dict[str, list[Judged]] = {}
    for one in judged:
        by_source.setdefault(_source(one.case), []).append(one)
    drawn = Random(1)  # noqa: S311 - no secret
    groups = list(by_source.values())
    samples = [
        [one for group in drawn.choices(groups, k=len(groups)) for one in group]
        for _ in range(_RESAMPLED if len(groups) > 1 else 0)
    ]

    def figure(of: Callable[[Sequence[Judged]], float]) -> str:
        values = sorted(map(of, samples))
        tail = len(values) // 20
        ends = f" ({values[tail]:.0%} to {values[-1 - tail]:.0%})" if values else ""
        return f"{of(judged):.1%}{ends}"

    width = median(sqrt(one.prediction.high / one.prediction.low) for one in judged)
    return (
        f"{len(judged):5} {len(each):4} {len(groups):7}  {figure(_error):17} "
        f"{figure(_inside):18} {inside / len(each):4.0%} {width:5.2f}x"
    )


def _error(judged: Sequence[Judged]) -> float:
    return median(one.error for one in judged)


def _inside(judged: Sequence[Judged]) -> float:
    return sum(one.inside for one in judged) / len(judged)


def write_points(shipped: Sequence[Judged], rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Every row beside what the shipped constants say of it, and its source."""
    of_row = {row["id"]: row for row in rows}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "measured", "predicted", "low", "high", "source"])
        for one in sorted(shipped, key=lambda one: (group_of(one.case), one.case.label)):
            told = one.prediction
            for name, value in one.case.rows:
                numbers = (f"{number:.4g}" for number in (value, told.value, told.low, told.high))
                writer.writerow([one.case.label, *numbers, of_row[name]["source_url"]])


def print_repeated(tables: Sequence[Path]) -> None:
    """How far two sources are apart that published one configuration, its build left aside.

    What a source is off from the median of the others is a floor of any prediction's error there.
    """
    same: defaultdict[tuple[str, ...], defaultdict[str, list[float]]]
    same = defaultdict(lambda: defaultdict(list))
    for row in (row for path in tables for row in csv.DictReader(path.open(encoding="utf-8"))):
        if row["metric"] in _REPEATED and row["platform"] and not row["same_as"]:
            key = tuple(row[name].lower() for name in _CONFIGURATION)
            same[key][row["source"]].append(float(row["value"]))
    print("what a source is off from the others that published the same configuration")
    for metric in _REPEATED:
        for several in (False, True):
            off = []
            for key, sources in same.items():
                if key[0] != metric or (key[1] != "1") is not several:
                    continue
                values = [median(values) for values in sources.values()]
                for i, value in enumerate(values if len(values) > 1 else []):
                    off.append(abs(median(values[:i] + values[i + 1 :]) / value - 1))
            title = f"{metric}, {'several nodes' if several else 'one node'}"
            found = f"median {median(off):.1%} over {len(off)} values" if off else "none"
            print(f"  {title:24} {found}")
    print()


def print_prompts(judged: Sequence[Judged]) -> None:
    """Predicted over measured of llama.cpp's prompts, by what the model does not know of them."""
    found: dict[str, list[float]] = {}
    for one in judged:
        if one.case.metric == "prompt" and one.case.strategy.engine == "llama.cpp":
            for group in _unknown_of(one):
                found.setdefault(group, []).append(one.off)
    print("llama.cpp's prompts, predicted over measured (the source new)")
    for group in sorted(found):
        print(f"  {group:48} {exp(median(found[group])):5.2f} over {len(found[group])} cases")
    print()


def _unknown_of(one: Judged) -> tuple[str, str]:
    """The groups of a case: kind of device with its build and depth, and with its bits."""
    case = one.case
    kind = case.platforms[0].kind
    builds = [int(found[1]) for found in map(_BUILD.fullmatch, case.versions) if found]
    build = f"b{min(builds) // 1000}000 on" if builds else "build not stated"
    bits = "at most" if case.model.weights.routed_bits <= _LOW_BITS else "above"
    return (
        f"{kind}, {build}, {'behind a cache' if case.strategy.depth else 'empty cache'}",
        f"{kind}, {bits} {_LOW_BITS} bits",
    )


def print_anchored(split: Sequence[Judged]) -> None:
    """Errors where the speed of one node of the machine is known."""
    anchored = [abs(o.anchored / o.case.value - 1) for o in split if o.anchored is not None]
    if anchored:
        same = median(o.error for o in split if o.anchored is not None)
        print(
            f"with the speed of one node measured: {median(anchored):.1%} over "
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
