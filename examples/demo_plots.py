"""Plot what 'make demo' measured: decode by nodes, and decode against the measured round trip.

Usage: python examples/demo_plots.py RUN_FOLDER... PLOT.png
"""

from __future__ import annotations

import sys

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import nixwulf
from nixwulf.results.table import by_case


def main(paths: list[str], plot: str) -> None:
    """A point is the mean of all samples of a case, its bar their standard deviation."""
    cases = by_case(nixwulf.load(paths))
    decode = cases[cases["metric"] == "decode"]
    several = decode[decode["nodes"] > 1]

    sheet = Figure(figsize=(11, 5.5), layout="constrained")
    left, right = sheet.subplots(1, 2, sharey=True)
    for (parallelism, fabric), line in several.groupby(["parallelism", "fabric"]):
        draw(left, line, "nodes", f"{parallelism}, {fabric}")
    for (parallelism, nodes), line in several.groupby(["parallelism", "nodes"]):
        draw(right, line, "rtt_us", f"{parallelism}, {nodes} nodes")
    for speed in decode[decode["nodes"] == 1]["mean"]:
        left.axhline(speed, color="grey", linestyle="--", label=f"one node, {speed:.0f}")
        right.axhline(speed, color="grey", linestyle="--")
    left.set(xlabel="nodes", ylabel="decode, tok/s", yscale="log", xticks=several["nodes"].unique())
    right.set(xlabel="measured round trip, µs", xscale="log")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize="small")
    sheet.savefig(plot, dpi=120)

    columns = ["nodes", "parallelism", "fabric", "rtt_us", "mean", "speed_up", "efficiency"]
    print(decode[columns].round(2).to_string(index=False))


def draw(axes: Axes, line: pd.DataFrame, over: str, name: str) -> None:
    """One line; a single sample has no deviation and so no bar."""
    points = line.sort_values(over)
    x = points[over].astype("float64")
    axes.errorbar(x, points["mean"], points["stddev"].fillna(0), marker="o", capsize=2, label=name)


if __name__ == "__main__":
    *folders, picture = sys.argv[1:] or [""]
    if not folders:
        sys.exit(__doc__)
    main(folders, picture)
