"""Runs the trial that is named, judges it, and prints a JSON object."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from typing import Any

import faults
from stage import Stage, alone, unlimited_core
from trials import NONE, TRIALS, Trial

SLACK_S = 10.0
LEFT_S = 12.0
_READING_S = 60.0
MOST_MEMORY = 300 << 20
# Before the driver is there, its own time to start counts too.
_START_S = 12.0


def _prepare(stage: Stage, trial: Trial) -> None:
    if trial.fault.startswith("folder_"):
        faults._disk(stage, "size=8m")
    if trial.at == "":
        getattr(faults, trial.fault)(stage, *trial.arguments)


def _strike(stage: Stage, trial: Trial) -> tuple[float, str]:
    """Wait for the phase and do the fault: when it was done, and why it was not."""
    deadline = time.monotonic() + 60
    while trial.at not in stage.events:
        if stage.wait(0) is not None or time.monotonic() > deadline:
            return time.monotonic(), f"the driver never came to {trial.at}"
        time.sleep(0.005)
    time.sleep(trial.after_s)
    try:
        getattr(faults, trial.fault)(stage, *trial.arguments)
    except LookupError as error:
        return time.monotonic(), str(error)
    return time.monotonic(), ""


def _problems(stage: Stage, trial: Trial, code: int | None) -> list[str]:
    found = []
    output = stage.output()
    if "Traceback (most recent call last)" in output:
        found.append(f"a traceback: {output.strip().splitlines()[-1][:150]}")
    if code is None:
        found.append(f"no end {trial.limit_s + SLACK_S:g} s after the fault")
    elif code not in trial.codes:
        found.append(f"exit {code}")
    closed = trial.fault == "redirect"
    if code and code > 0 and not output.strip() and not closed:
        found.append(f"exit {code} without a sentence")
    if stage.most_memory > MOST_MEMORY:
        found.append(f"{stage.most_memory >> 20} MiB of memory")
    return found


def _outcome(stage: Stage, trial: Trial) -> tuple[str, list[str]]:
    try:
        records = stage.records()
    except ValueError as error:
        return "", [f"a record is no JSON: {error}"]
    outcomes = {record["outcome"] for record in records} or {""}
    if outcomes - trial.outcomes - (NONE if trial.at != "after" else {""}):
        if outcomes == {""}:
            return "", ["no record"]
        reason = records[0].get("failure", {}).get("reason", "")
        return ",".join(outcomes), [f"the record says {', '.join(outcomes)}: {reason[:150]}"]
    return ",".join(outcomes), []


def _reading(stage: Stage, trial: Trial, outcome: str) -> list[str]:
    """Whether what is there can be read, and the run be gone on with."""
    found = []
    if not (stage.out / "plan.json").exists():
        return []
    commands = [("validate", str(stage.out)), ("report", str(stage.out))]
    if "ok" in outcome or trial.at == "after":
        commands.append(("explain", str(stage.out)))
    may_resume = not trial.fault.startswith(("folder_", "small_disk"))
    if not outcome and may_resume:
        # Going on takes as long as the run: for most it is enough that the plan says what is left.
        dry = () if trial.resumed else ("--dry-run",)
        commands.append(("bench", "--resume", str(stage.out), *dry))
    allowed = {0} if may_resume and trial.fault != "damage_file" else {0, 1, 2}
    for arguments in commands:
        code, text = stage.read(*arguments, limit_s=_READING_S)
        fine = allowed | {1, 2} if arguments[0] in {"explain"} or not outcome else allowed
        if arguments[0] == "bench" and trial.fault != "damage_file":
            fine = {0}
        if "Traceback (most recent call last)" in text or code not in fine:
            words = re.sub(r"\s+", " ", text.strip())[-200:]
            found.append(f"{arguments[0]} {arguments[1][:8]}: exit {code}: {words}")
    return found


def run(trial: Trial) -> dict[str, Any]:
    """Do a trial: how it ended, how long after the fault, and what was not as promised."""
    stage = Stage(trial.case)
    problems: list[str] = []
    missed = ""
    stage.environment |= trial.environment
    try:
        _prepare(stage, trial)
        struck = time.monotonic()
        stage.start()
        if trial.at not in {"", "after"}:
            struck, missed = _strike(stage, trial)
        else:
            struck += _START_S
        code = stage.wait(struck + trial.limit_s + SLACK_S)
        seconds = max(0.0, time.monotonic() - struck)
        if trial.at == "after":
            faults_done = time.monotonic()
            problems += getattr(faults, trial.fault)(stage, *trial.arguments) or []
            problems += _reading(stage, trial, "damaged")
            seconds = time.monotonic() - faults_done
            outcome = "ok"
            if code != 0:
                problems.append(f"the run before the damage: exit {code}")
        else:
            problems += _problems(stage, trial, code)
            outcome, more = _outcome(stage, trial)
            problems += more
            if trial.fault == "damage" and not (stage.folder / "damaged").exists():
                missed = "the program was never run"
        # Who is killed cannot remove its temporary files; its processes end all the same.
        killed = trial.arguments == ("KILL",) and trial.fault == "signal_driver"
        left = stage.left_after(LEFT_S, files=not killed)
        problems += [f"left: {one[:120]}" for one in left[:4]]
        if code is not None and trial.at != "after" and not problems:
            problems += _reading(stage, trial, outcome)
    finally:
        stage.end()
    tail = stage.output().strip().splitlines()[-1:]
    if not problems:
        shutil.rmtree(stage.folder, ignore_errors=True)
    return {
        "name": trial.name,
        "held": not problems,
        "missed": missed,
        "outcome": outcome,
        "code": code,
        "seconds": round(seconds, 1),
        "memory_mib": stage.most_memory >> 20,
        "problems": problems,
        "sentence": tail[0][:200] if tail else "",
        "folder": "" if not problems else str(stage.folder),
    }


def main() -> None:
    """Run the trial that is named."""
    alone()
    unlimited_core()
    (trial,) = (one for one in TRIALS if one.name == sys.argv[1])
    print(json.dumps(run(trial)))


if __name__ == "__main__":
    main()
