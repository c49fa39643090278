"""Print the figures that Nixwulf holds itself to, as this machine gives them.

Usage: .venv/bin/python tools/figures.py [help] [overhead] [facts]

help      nixwulf --help against python -c 'import click': median of 15 runs each, in turn
overhead  wall time of sweeps/smoke.yaml that is not the engines' own, and where it goes
facts     facts of 16 lab nodes in parallel against sixteen plain 'ssh NODE true' in parallel
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nixwulf import lab
from nixwulf.cluster import load_cluster, with_lab_nodes
from nixwulf.facts import gather
from nixwulf.ssh import Connection, connections, open_all

ROOT = Path(__file__).parents[1]
NIXWULF = ROOT / ".venv/bin/nixwulf"


def seconds(action: Callable[[], object]) -> float:
    """Wall time of an action."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def in_turn(
    first: Callable[[], object], second: Callable[[], object], runs: int
) -> tuple[float, float]:
    """Median seconds of two actions that are run in turn, after one of each that is not counted."""
    first(), second()
    pairs = [(seconds(first), seconds(second)) for _ in range(runs)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def figure_help() -> None:
    """Start-up of the command line."""

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    ours, click = in_turn(
        lambda: run(str(NIXWULF), "--help"),
        lambda: run(sys.executable, "-c", "import click"),
        runs=15,
    )
    print(
        f"help: nixwulf --help {ours * 1e3:.0f} ms, import click {click * 1e3:.0f} ms: "
        f"{ours / click:.2f} times (at most 2)"
    )


def figure_overhead() -> None:
    """The driver's own share of a short sweep."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [str(NIXWULF), "bench", "sweeps/smoke.yaml", "--out", str(out)]
        wall = seconds(lambda: subprocess.run(command, check=True, cwd=ROOT, capture_output=True))
        phases: Counter[str] = Counter()
        records = [json.loads(path.read_text()) for path in sorted(out.glob("records/*.json"))]
        for record in records:
            phases.update(record["phases"])
    engine = phases.pop("engine")
    rest = wall - engine
    print(
        f"overhead: smoke took {wall:.1f} s, of which the engines ran {engine:.1f} s; the rest is "
        f"{rest:.1f} s, {rest / wall:.1%} of wall (at most 15%)"
    )
    between = phases["sanity"] + phases["measure"] - engine
    parts = {
        "start, plan, lab up and down, report": wall - sum(phases.values()),
        **{name: phases[name] for name in ("facts", "gates", "link", "launch", "teardown")},
        "sanity and measure, beside the engines": between,
    }
    for name, value in parts.items():
        print(f"  {value:6.2f} s  {name}")


def figure_facts() -> None:
    """Facts of sixteen nodes."""
    cluster = with_lab_nodes(load_cluster(ROOT / "clusters/lab.toml"), 16)
    up = lab.up(cluster, name="figures", lifeline=True)
    try:
        nodes: list[Connection] = list(connections(cluster, up.ssh_config).values())
        open_all(nodes)

        def plain() -> None:
            started = [
                subprocess.Popen(node.argv(["true"]), stdin=subprocess.DEVNULL) for node in nodes
            ]
            for process in started:
                process.wait()

        ours, theirs = in_turn(
            lambda: gather(nodes, ["llama-bench", "llama-server"]), plain, runs=15
        )
    finally:
        up.down()
    print(
        f"facts: 16 nodes {ours * 1e3:.0f} ms, sixteen 'ssh NODE true' {theirs * 1e3:.0f} ms: "
        f"{ours / theirs:.2f} times (at most 1.5)"
    )


if __name__ == "__main__":
    figures = {"help": figure_help, "overhead": figure_overhead, "facts": figure_facts}
    for name in sys.argv[1:] or figures:
        figures[name]()
