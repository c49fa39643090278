"""Causes that are planted in a lab, and what 'explain' names first of each.

    python tests/campaign/causes.py --log causes.jsonl --only 'rate-*'
    python tests/campaign/causes.py --log causes.jsonl --out results/figures/causes.json --table

Each trial of causes.toml is a run of the driver with real llama.cpp on a random model; the same run
without the plant is its healthy twin, which has to name no cause. What others compute on this
machine meanwhile is a true cause, 'load': it is counted apart, and is no planted one. Labs with
quotas need root.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from nixwulf.perf.explain.explanation import LEAST, Explained, explain
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us

HERE = Path(__file__).parent
DATA = tomllib.loads((HERE / "causes.toml").read_text("utf-8"))
_TRIES = 2
_LIMIT_S = 240
_HELPS = {
    "rate": ("twice the link's bandwidth",),
    "trips": ("a tenth of the link's latency",),
    "nodes": ("twice the bandwidth of memory", "twice the compute", "half of the host's time"),
}
_HELPS["processors"] = _HELPS["nodes"]
_HELPS["link"] = _HELPS["rate"] + _HELPS["trips"]


def sweep_of(trial: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep's file."""
    return {
        "name": "causes",
        "models": trial.get("models", {"tiny": {"random": {}}}),
        "matrix": {
            "model": list(trial.get("models", ["tiny"])),
            **DATA["pair"]["sweep"],
            **trial.get("sweep", {}),
        },
        "samples": 3,
        "limits": {"wall_s": 120, "progress_s": 60},
    }


def cluster_of(trial: Mapping[str, Any]) -> str:
    """The cluster's file: a cable as the trial has it, and a network without delay."""
    cable = {**DATA["pair"]["cable"], **trial.get("cable", {})}
    nodes = max(2, *sweep_of(trial)["matrix"]["nodes"])
    shape = f"{{ delay_us = {cable['delay_us']}, rate_gbps = {cable['rate_gbps']} }}"
    return f"""name = "causes"
[lab]
nodes = {nodes}
[fabrics.cable]
kind = "ethernet"
speed_gbps = {cable["speed_gbps"]}
mtu = 1500
subnet = "10.92.1.0/24"
shape = {shape}
[fabrics.near]
kind = "ethernet"
speed_gbps = 1
mtu = 1500
subnet = "10.92.2.0/24"
shape = {{ rate_gbps = 0.94 }}
"""


def run(trial: Mapping[str, Any], folder: Path, *, planted: bool) -> tuple[Path, str]:
    """A run's folder, and the driver's last words."""
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep_of(trial)))
    (folder / "lab.toml").write_text(cluster_of(trial))
    out = folder / "out"
    plant = json.dumps(trial.get("plant", {}) if planted else {})
    words = ["bench", str(folder / "sweep.yaml"), "--cluster", str(folder / "lab.toml")]
    done = subprocess.run(
        [sys.executable, str(HERE / "planting.py"), plant, *words, "--out", str(out)],
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "driver")},
    )  # fmt: skip
    return out, f"{done.returncode} {done.stdout[-300:]} {done.stderr[-300:]}"


def named(one: Explained, without: Collection[str] = ()) -> str:
    """What is named first: a cause that is not one of these, else a remedy; empty for nothing."""
    keys = [cause.diagnostic.key for cause in one.slows]
    found = [key for key in keys if key not in without]
    found += [remedy.kind for remedy in one.remedies]
    return found[0] if found else ""


def contradictions(explained: Sequence[Explained]) -> Iterator[str]:
    """What an explanation says against its own numbers, or against the measured ones beside it."""
    for one in explained:
        place = f"{one.case['nodes']} nodes {one.case.get('parallelism')} {one.metric}"
        helps = {help_.what: help_.factor for help_ in one.sensitivities}
        for cause in one.slows:
            key, slows = cause.diagnostic.key, cause.diagnostic.slows
            own = [helps[what] for what in _HELPS.get(slows, ()) if what in helps]
            if own and max(own) < 1 + 0.005:
                yield f"{place}: {key} is a cause, and its sensitivity is {max(own):.3f}"
            if cause.factor is not None and cause.factor < 1 + (LEAST - 0.5) / 100:
                yield f"{place}: {key} is a cause, and costs {cause.factor:.3f}"
        for remedy in one.remedies:
            beaten = [
                other for other in explained
                if remedy.kind == "one-node" and other.case["nodes"] == 1
                and other.metric == one.metric and other.measured < one.measured
                and other.case["parameters"] == one.case["parameters"]
            ]  # fmt: skip
            if beaten or remedy.speed <= one.measured:
                yield f"{place}: {remedy.kind} is a remedy, and was measured to be slower"


def looked_at(trial: Mapping[str, Any], explained: Sequence[Explained]) -> Explained | None:
    """The case that a trial is about."""
    wanted = trial["of"]
    for one in explained:
        here = {**one.case["parameters"], **one.case}
        if one.metric == trial["metric"] and all(here.get(k) == v for k, v in wanted.items()):
            return one
    return None


def others(one: Explained) -> float:
    """CPUs of this machine that were busy before a case, whoever it was."""
    counts = [node.get("facts", {}).get("busy_cpus", 0.0) for node in one.record["nodes"]]
    return float(min(counts, default=0.0))


def tried(trial: Mapping[str, Any], *, planted: bool) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"name": trial["name"], "kind": trial["kind"], "planted": planted}
    own_load = planted and "burn" in trial.get("plant", {})
    for attempt in range(1, _TRIES + 1):
        with tempfile.TemporaryDirectory(prefix="nwc", dir="/var/tmp") as name:
            out, words = run(trial, Path(name), planted=planted)
            explained = explain(out)[0] if (out / "records").is_dir() else []
            one = looked_at(trial, explained)
        row["tries"] = attempt
        if one is None:
            row["failed"] = " ".join(words.split())
            continue
        row.pop("failed", None)
        first, rest = named(one), named(one, without=() if own_load else ("load",))
        row |= {
            "expect": trial["expect"] if planted else "no cause",
            "first": first,
            "first_but_for_others": rest,
            "busy_cpus": others(one),
            "rtt_us": record_rtt_us(one.record),
            "gbps": record_bandwidth_gbps(one.record),
            "causes": {c.diagnostic.key: _rounded(c.factor) for c in one.slows},
            "remedies": {r.kind: round(r.factor, 3) for r in one.remedies},
            "measured": round(one.measured, 2),
            "predicted": round(one.prediction.value, 2) if one.prediction else None,
            "verdict": one.verdict,
            "contradictions": list(contradictions(explained)),
        }
        own = ("load",) if not own_load else ()
        wrong = sorted({c.diagnostic.key for o in explained for c in o.slows} - {*own})
        row["named"] = rest == trial["expect"] if planted else not wrong
        if not planted:
            row["causes"] = sorted({c.diagnostic.key for o in explained for c in o.slows})
        break
    return row


def _rounded(factor: float | None) -> float | None:
    return None if factor is None else round(factor, 3)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows with how many of the counted ones are right, by kind and in all."""
    counted = [row for row in rows if "first" in row]
    planted = [row for row in counted if row["planted"]]
    healthy = [row for row in counted if not row["planted"]]
    kinds = Counter(row["kind"] for row in planted)
    right = Counter(row["kind"] for row in planted if row["named"])
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "planted": len(planted),
        "named_first": sum(row["named"] for row in planted),
        "named_first_with_load_of_others": sum(r["first"] == r["expect"] for r in planted),
        "contradictions": sum(len(row["contradictions"]) for row in counted),
        "healthy": len(healthy),
        "healthy_with_a_cause": sum(not row["named"] for row in healthy),
        "failed": len(rows) - len(counted),
        "kinds": [{"kind": k, "planted": n, "named_first": right[k]} for k, n in kinds.items()],
        "rows": sorted(rows, key=lambda row: (not row["planted"], row["kind"], row["name"])),
    }


def _logged(log: Path) -> dict[tuple[str, bool], dict[str, Any]]:
    """The last row of each trial."""
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["name"], row["planted"]): row for row in rows}


def _distinct(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those with something to leave out, one of those that differ in nothing else."""
    some = [one for one in reversed(trials) if "plant" in one]
    found = {json.dumps([sweep_of(one), cluster_of(one)]): one for one in some}
    return list(reversed(found.values()))


def main() -> int:
    """Run the trials that are not in the log, or make the table of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="rows as they end, lines of JSON")
    parser.add_argument("--only", default="*", help="names of trials")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no trial later")
    parser.add_argument("--healthy", action="store_true", help="without what is planted")
    parser.add_argument("--out", type=Path, help="write the table of the log there, and run none")
    chosen = parser.parse_args()
    if chosen.out:
        found = summary(list(_logged(chosen.log).values()))
        chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{found['named_first']} of {found['planted']} named first, "
              f"{found['contradictions']} contradictions, {found['healthy_with_a_cause']} of "
              f"{found['healthy']} healthy runs with a cause")  # fmt: skip
        return 0
    end = time.monotonic() + 60 * chosen.minutes
    for trial in _distinct(DATA["trial"]) if chosen.healthy else DATA["trial"]:
        key = (trial["name"], not chosen.healthy)
        if not fnmatch.fnmatchcase(trial["name"], chosen.only) or key in _logged(chosen.log):
            continue
        if time.monotonic() > end:
            break
        row = tried(trial, planted=not chosen.healthy)
        with chosen.log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
