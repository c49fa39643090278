"""Plant slow-downs in the lab, repeat an earlier run with each, and count those that are named.

Usage: .venv/bin/python tools/slow_downs.py [PLANTED [CLEAN]]

PLANTED (default 20) repeats of a run of the lab have a slow-down each, of six kinds in turn, and
CLEAN (default 20) have none. Named: it is the likeliest cause of a number that is slower; a false
alarm: a clean repeat with a number that is called slower. It takes root; control groups of version
1 or 2 for the quota, else that kind is left out. What else runs here is found too, as other load.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from nixwulf.results.store import read_folder
from nixwulf.sweep.plan import load_plan
from nixwulf.sweep.reproduce.outcome import SLOWER, repeats

ROOT = Path(__file__).parents[1]
SWEEP = """
name: slow-downs
models:
  tiny: {random: {layers: 2}}
matrix:
  model: [tiny]
  nodes: [2, 3]
  fabric: [gbe5]
  parallelism: [tensor]
  parameters: {n_prompt: [256], n_gen: [8], threads: [1]}
repetitions: 1
samples: 5
"""
GROUP = "nixwulf-slow-downs"
SHAPE = "delay_us = 250, rate_gbps = 4.7"


class Plant(NamedTuple):
    """A slow-down: what the cause that names it says, and how it is planted.

    lab: replaced in the lab's cluster file; before: of the command line; beside: while it runs.
    """

    says: str
    lab: tuple[str, str] = ("", "")
    before: tuple[str, ...] = ()
    beside: Callable[[], AbstractContextManager[object]] = nullcontext


@contextmanager
def busy() -> Iterator[None]:
    """As many busy processes as there are CPUs."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def group(quota: int) -> Iterator[None]:
    """A control group with microseconds of CPU time in each 100 ms."""
    old = Path("/sys/fs/cgroup/cpu")
    folder = (old if old.is_dir() else old.parent) / GROUP
    folder.mkdir(exist_ok=True)
    try:
        name, text = ("cpu.cfs_quota_us", f"{quota}") if old.is_dir() else (
            "cpu.max", f"{quota} 100000")  # fmt: skip
        (folder / name).write_text(text)
        yield
    finally:
        folder.rmdir()


_JOIN = (
    f"for place in /sys/fs/cgroup/cpu/{GROUP} /sys/fs/cgroup/{GROUP}; do "
    '[ ! -d "$place" ] || echo $$ >"$place/cgroup.procs"; done; exec "$@"'
)
PLANTS = {
    "CPU quota": Plant("a CPU quota allows", before=("sh", "-c", _JOIN, "sh"),
                       beside=lambda: group(30000)),
    "rate": Plant("carried", (SHAPE, "delay_us = 250, rate_gbps = 0.235")),
    "+500 us": Plant("a round trip", (SHAPE, "delay_us = 750, rate_gbps = 4.7")),
    "threads": Plant("its processes may run on", before=("taskset", "-c", "0")),
    "other load": Plant("other load", beside=busy),
    "fewer nodes": Plant("the cluster has 2 nodes", ("nodes = 4", "nodes = 2")),
}  # fmt: skip


def nixwulf(*arguments: str | Path, before: tuple[str, ...] = ()) -> None:
    """Run it; a repeat with a number that is slower ends with 1."""
    command = [*before, sys.executable, "-m", "nixwulf", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(done.stderr)


def repeated(folder: Path, name: str, plant: Plant) -> tuple[list[str], list[str], bool]:
    """The likeliest and all causes of a repeat of folder/base, and whether a number is slower."""
    lab = folder / f"{name}.toml"
    lab.write_text((ROOT / "clusters/lab.toml").read_text().replace(*plant.lab, 1))
    out = folder / name
    with plant.beside():
        nixwulf("reproduce", folder / "base", "--cluster", lab, "--out", out, before=plant.before)
    found = repeats(load_plan(out / "plan.json"), read_folder(out).records)
    first = [one.causes[0].what for one in found if one.causes]
    whole = [cause.what for one in found for cause in one.causes]
    missing = [one.why_not for one in found if one.why_not]
    return [*first, *missing], [*whole, *missing], any(one.verdict == SLOWER for one in found)


def main(planted: int, clean: int) -> None:
    """Print each repeat, then the figure."""
    named = among = alarms = 0
    with tempfile.TemporaryDirectory(prefix="slow-downs-") as temporary:
        folder = Path(temporary)
        (folder / "base.yaml").write_text(SWEEP)
        nixwulf("bench", folder / "base.yaml", "--out", folder / "base")
        for number, (kind, plant) in enumerate(islice(cycle(PLANTS.items()), planted)):
            first, whole, _ = repeated(folder, f"planted-{number}", plant)
            is_first = any(plant.says in text for text in first)
            is_among = any(plant.says in text for text in whole)
            named, among = named + is_first, among + is_among
            said = "named" if is_first else "among the causes" if is_among else "not named"
            print(f"  {kind}: {said} ({'; '.join(dict.fromkeys(first)) or 'no cause'})", flush=True)
        for number in range(clean):
            first, _, slower = repeated(folder, f"clean-{number}", Plant(""))
            alarms += slower
            causes = "; ".join(dict.fromkeys(first)) or "no cause"
            print(f"  clean: {f'slower ({causes})' if slower else 'inside'}", flush=True)
    print(
        f"slow-downs: {named} of {planted} named as the likeliest cause (at least 18 of 20), "
        f"{among} among the causes; {alarms} of {clean} clean repeats called slower (at most 1)"
    )


if __name__ == "__main__":
    counts = [int(word) for word in sys.argv[1:]]
    main(*(counts + [20, 20][len(counts) :]))
