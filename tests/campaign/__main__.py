"""The campaign: hostile inputs, private texts, faults and a soak, against the driver as it is.

    python tests/campaign                a sample of each, at most 5 minutes
    python tests/campaign all            all of it: hours
    python tests/campaign faults --only 'TERM*' --workers 3
    python tests/campaign faults --kind 'hostile *'

A summary goes to the file that --out names, JSON. Fault trials and the soak need root, for labs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PARTS = ("fuzz", "planted", "faults", "soak")
_ALL_INPUTS = 7200  # of each of 14 targets
_SAMPLE_INPUTS = 60
_SAMPLE_EVERY = 12
_DIRTY = "-dirty"
_FUZZ_LINE = re.compile(
    r"([\w-]+): (\d+) inputs, (\d+) broken, slowest ([\d.]+) s, (\d+) MiB; (\d+) of (\d+) readings"
)


def _python(*words: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *words]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=ROOT
    )


def fuzz(inputs: int, seed: int, workers: int) -> list[dict[str, Any]]:
    """Each target in a process of its own: how many inputs, and which broke the promise."""
    from fuzz_targets import TARGETS

    def one(name: str) -> dict[str, Any]:
        words = (str(HERE / "fuzz_targets.py"), "--inputs", str(inputs), "--seed", str(seed), name)
        done = _python(*words)
        match = _FUZZ_LINE.match(done.stdout)
        if match is None:
            return {"target": name, "inputs": 0, "broken": 1, "words": done.stdout + done.stderr}
        _, made, broken, slowest, memory, accepted, readings = match.groups()
        return {
            "target": name, "inputs": int(made), "broken": int(broken),
            "slowest_s": float(slowest), "memory_mib": int(memory),
            "accepted": int(accepted), "readings": int(readings),
            "words": done.stdout.splitlines()[1:],
        }  # fmt: skip

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, (target.name for target in TARGETS)))


def planted(fields: int) -> dict[str, Any]:
    """Private texts in some or all fields of a record, and those that leave."""
    from planted import FIELDS, leaks, texts

    every = texts()
    found = list(leaks(every, FIELDS[:fields]))
    return {"planted": len(every) * len(FIELDS[:fields]), "texts": len(every), "left": found}


def faults(names: Iterable[str], workers: int, log: Path | None) -> list[dict[str, Any]]:
    """Fault trials of this commit: those that the log has, and the others, which it gets.

    Args:
        names: of the trials.
        workers: how many at once.
        log: a line of JSON for each as it ends; None: none is kept.
    """
    commit, wanted = _commit(), list(dict.fromkeys(names))
    kept = [] if commit.endswith(_DIRTY) else _rows(log)
    done = {row["name"]: row for row in kept if row["commit"] == commit}
    todo = queue.SimpleQueue[str]()
    for name in wanted:
        if name not in done:
            todo.put(name)

    def work() -> None:
        argv = [sys.executable, str(HERE / "trial_running.py")]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as runner:
            assert runner.stdin is not None
            assert runner.stdout is not None
            with suppress(queue.Empty):
                while True:
                    runner.stdin.write(todo.get_nowait() + "\n")
                    runner.stdin.flush()
                    row = {"commit": commit, **json.loads(runner.stdout.readline())}
                    done[row["name"]] = row
                    _note(row, log)
            runner.stdin.close()

    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work) for _ in range(workers)]:
            future.result()
    return [done[name] for name in wanted]


def _rows(log: Path | None) -> list[dict[str, Any]]:
    if log is None or not log.exists():
        return []
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def _note(row: dict[str, Any], log: Path | None) -> None:
    verdict = "as promised" if row["held"] else "; ".join(row["problems"])
    print(f"{row['name']}: {verdict}", file=sys.stderr, flush=True)
    if log:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def soak(minutes: float) -> dict[str, Any]:
    """Runs one after another in one driver; what of the machine it holds."""
    done = _python(str(HERE / "soak.py"), str(minutes))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run the parts; 1 where something was not as promised."""
    from trial import KINDS
    from trials import TRIALS

    parser = argparse.ArgumentParser(description="Run the campaign.")
    parser.add_argument("parts", nargs="*", default=["sample"], choices=["sample", "all", *PARTS])
    parser.add_argument("--only", default="*", help="fault trials whose names match")
    parser.add_argument("--kind", default="*", help="and whose kinds match")
    parser.add_argument("--inputs", type=int, default=_ALL_INPUTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=60, help="of the soak")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--log",
        type=Path,
        help="fault trials as they end, lines of JSON; those of this commit are not run again",
    )
    chosen = parser.parse_args()
    sample = "sample" in chosen.parts
    parts = PARTS[:3] if sample else PARTS if "all" in chosen.parts else chosen.parts
    names = [
        trial.name
        for trial in TRIALS
        if fnmatch.fnmatchcase(trial.name, chosen.only)
        and fnmatch.fnmatchcase(KINDS[trial.fault], chosen.kind)
    ]
    result: dict[str, Any] = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": _commit()}
    began, broken = time.monotonic(), 0
    if "fuzz" in parts:
        inputs = _SAMPLE_INPUTS if sample else chosen.inputs
        result["fuzz"] = fuzz(inputs, chosen.seed, chosen.workers)
        broken += sum(row["broken"] for row in result["fuzz"])
    if "planted" in parts:
        result["planted"] = planted(2 if sample else 99)
        broken += len(result["planted"]["left"])
    if "faults" in parts and os.geteuid() != 0:
        print("Fault trials need root; they are left out.", file=sys.stderr)
    elif "faults" in parts:
        result["faults"] = faults(
            names[::_SAMPLE_EVERY] if sample else names, chosen.workers, chosen.log
        )
        broken += sum(not row["held"] for row in result["faults"])
    if "soak" in parts and os.geteuid() == 0:
        result["soak"] = soak(chosen.minutes)
    result["seconds"] = round(time.monotonic() - began)
    if chosen.out:
        from summary import summary

        chosen.out.write_text(json.dumps(summary(result), indent=1) + "\n", encoding="utf-8")
    _print(result)
    return 1 if broken else 0


def _commit() -> str:
    """Of the checkout; with a mark where files differ from it."""
    describe = ["git", "describe", "--always", f"--dirty={_DIRTY}", "--exclude=*", "--abbrev=8"]
    done = subprocess.run(describe, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip()


def _print(result: dict[str, Any]) -> None:
    for row in result.get("fuzz", ()):
        print(f"fuzz {row['target']}: {row['inputs']} inputs, {row['broken']} broken")
        print("".join(f"  {line}\n" for line in row["words"]) if row["broken"] else "", end="")
    if "planted" in result:
        print(f"planted: {len(result['planted']['left'])} of {result['planted']['planted']} left")
    if rows := result.get("faults", ()):
        for row in rows:
            if not row["held"]:
                untried = "" if row["tried"] else "not tried: "
                print(f"fault {row['name']}: {untried}{'; '.join(row['problems'])}")
        tried = [row for row in rows if row["tried"]]
        print(f"faults: {sum(row['held'] for row in tried)} of {len(tried)} tried as promised")
    if "soak" in result:
        print(f"soak: {json.dumps(result['soak'])}")
    print(f"{result['seconds']} s")


if __name__ == "__main__":
    sys.exit(main())
