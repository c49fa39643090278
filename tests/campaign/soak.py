"""Runs of a small case one after another in one driver: what it holds must not grow.

    python tests/campaign/soak.py MINUTES

prints a JSON object: runs, outcomes, and the first, last and most of descriptors, threads, files in
the temporary and runtime folders, and memory, with its growth a run after the first tenth.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import linear_regression
from typing import Any

import yaml
from stage import Stage, alone

from nixwulf.inventory.cluster import load_cluster
from nixwulf.results.record import save
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep


class _Silent:
    """An observer that does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def _held(stage: Stage) -> dict[str, float]:
    status = Path("/proc/self/status").read_text("ascii")
    rss = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return {
        "fds": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "files": sum(len(list((stage.folder / name).rglob("*"))) for name in ("tmp", "run")),
        "rss_mib": int(rss) / 1024,
    }  # fmt: skip


def soak(minutes: float) -> dict[str, Any]:
    """Run for so long; what was held after each run."""
    stage = Stage("tiny")
    os.environ |= {name: stage.environment[name] for name in ("TMPDIR", "XDG_RUNTIME_DIR")}
    tempfile.tempdir = None
    os.chdir(stage.folder)
    cluster = load_cluster("c.toml")
    document = yaml.safe_load((stage.folder / "s.yaml").read_text("utf-8"))
    plan = make_plan(parse_sweep(document, "s.yaml"), cluster)
    held, outcomes = [], Counter[str]()
    end = time.monotonic() + 60 * minutes
    with session.session(plan, _Silent()) as connected:
        while time.monotonic() < end:
            record = session.run_one(
                connected, plan, stage.out, plan.cases[0], len(held), lambda _: None
            )
            save(record, stage.out / "records" / f"{len(held)}.json")
            outcomes[record["outcome"]] += 1
            held.append(_held(stage))
    later = held[len(held) // 10 :]
    growth = linear_regression(range(len(later)), [one["rss_mib"] for one in later]).slope
    return {
        "minutes": minutes,
        "runs": len(held),
        "outcomes": dict(outcomes),
        **{
            key: {"first": held[0][key], "last": held[-1][key], "most": max(h[key] for h in held)}
            for key in held[0]
        },
        "rss_mib_a_run": round(growth, 4),
        "left": stage.left_after(12),
    }


if __name__ == "__main__":
    alone()
    print(json.dumps(soak(float(sys.argv[1]))))
