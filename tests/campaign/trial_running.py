"""Runs the trials whose names are lines on stdin, and prints a JSON object for each.

A trial is a child of this process, which has all modules and ends what a trial leaves behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from typing import Any

import faults
from judging import SLACK_S, Seen, problem_of_reading, problems
from stage import Missed, Stage, alone, below, end_all, no_core_files
from trial import Trial
from trials import TRIALS

from nixwulf.report import load

LEFT_S = 12.0
# Before the driver is there, its own time to start counts too.
_START_S = 12.0
_COMING_S = 60.0
# More than all limits of a trial together: what is not over then never is.
_TRIAL_S = 900
_TRIES = 3


def _prepare(stage: Stage, trial: Trial) -> None:
    if trial.fault.startswith("folder_"):
        faults.disk(stage, "size=8m")
    if trial.at == "":
        getattr(faults, trial.fault)(stage, *trial.arguments)


def _strike(stage: Stage, trial: Trial) -> None:
    """Wait for the phase and do the fault; raises Missed."""
    deadline = stage.clock.now() + _COMING_S
    while trial.at not in stage.events:
        if stage.ended() or stage.clock.now() > deadline:
            raise Missed(f"the driver never came to {trial.at}: {_sentence(stage)}")
        time.sleep(0.005)
    time.sleep(trial.after_s)
    if stage.ended():
        raise Missed(f"the run ended before {trial.at} had lasted {trial.after_s:g} s")
    getattr(faults, trial.fault)(stage, *trial.arguments)


def _reading(stage: Stage, trial: Trial, seen: Seen) -> list[str]:
    """Whether what is there can be read, and the run be gone on with."""
    if not (stage.out / "plan.json").exists():
        return []
    commands = [("validate", str(stage.out)), ("report", str(stage.out))]
    if "ok" in seen.outcomes or trial.at == "after":
        commands.append(("explain", str(stage.out)))
    whole = not trial.fault.startswith(("folder_", "small_disk"))
    if not all(seen.outcomes) and whole:
        # Going on takes as long as the run: for most it is enough that the plan says what is left.
        dry = () if trial.resumed else ("--dry-run",)
        commands.append(("bench", "--resume", str(stage.out), *dry))
    found = []
    for command in commands:
        code, text = stage.read(*command)
        problem = problem_of_reading(trial, command, seen, code, text)
        if problem:
            found.append(problem)
    return found


def _damage_after(stage: Stage, trial: Trial) -> tuple[float, list[str]]:
    """Let the run end as it does, damage what it left, and read it."""
    code = stage.wait(stage.clock.now() + _START_S + trial.limit_s + SLACK_S)
    if code != 0:
        raise Missed(f"the run before the damage: exit {code}: {_sentence(stage)}")
    began = stage.clock.now()
    found = getattr(faults, trial.fault)(stage, *trial.arguments) or []
    found += _reading(stage, trial, Seen(0, "", 0, [{"outcome": "ok"}]))
    return stage.clock.now() - began, found


def _fault_in_run(stage: Stage, trial: Trial) -> tuple[float, list[str], Seen]:
    if trial.at:
        _strike(stage, trial)
    struck = stage.clock.now() + (0 if trial.at else _START_S)
    code = stage.wait(struck + trial.limit_s + SLACK_S)
    seconds = max(0.0, stage.clock.now() - struck)
    if trial.fault == "damage" and not (stage.folder / "damaged").exists():
        raise Missed("the program was never run")
    if stage.servers and code is None:
        stage.kill()
    outside = stage.outside()
    if stage.servers and stage.must_ask and not (stage.folder / "asked").read_bytes():
        raise Missed(f"nobody asked the server: {_sentence(stage)}")
    try:
        seen = Seen(code, stage.output(), stage.most_memory, stage.records())
    except ValueError as error:
        seen = Seen(code, stage.output(), stage.most_memory, [])
        return seconds, [f"a record or the plan is no JSON: {error}"], seen
    return seconds, problems(trial, seen) + outside, seen


def run(trial: Trial) -> dict[str, Any]:
    """Do a trial: how it ended, how long after the fault, and what was not as promised.

    Raises:
        Missed: the fault could not be done.
    """
    stage = Stage(trial.case)
    stage.environment |= trial.environment
    seconds, seen = 0.0, Seen(None, "", 0, [])
    found = ["it was broken off"]
    try:
        _prepare(stage, trial)
        stage.start(*trial.command)
        if trial.at == "after":
            seconds, found = _damage_after(stage, trial)
        else:
            seconds, found, seen = _fault_in_run(stage, trial)
        # Who is killed cannot remove its temporary files; its processes end all the same.
        killed = trial.arguments == ("KILL",) and trial.fault == "signal_driver"
        left = stage.left_after(LEFT_S, files=not killed)
        found += [f"left: {one[:120]}" for one in left[:4]]
        if trial.at != "after" and not found:
            found += _reading(stage, trial, seen)
    except Missed:
        found = []
        raise
    finally:
        stage.end()
        sentence = _sentence(stage)
        if not found:
            shutil.rmtree(stage.folder, ignore_errors=True)
    return {
        "name": trial.name,
        "tried": True,
        "held": not found,
        "outcome": ",".join(seen.outcomes),
        "code": seen.code,
        "seconds": round(seconds, 1),
        "late_s": round(stage.clock.late, 1),
        "memory_mib": stage.most_memory >> 20,
        "problems": found,
        "sentence": sentence,
        "folder": str(stage.folder) if found else "",
    }


def _sentence(stage: Stage) -> str:
    try:
        return stage.output().strip().splitlines()[-1][:200]
    except (OSError, IndexError):
        return ""


def _several(trial: Trial) -> dict[str, Any]:
    """A fault that comes too late is no trial: it is done again."""
    missed = ""
    for _ in range(_TRIES):
        try:
            return run(trial)
        except Missed as error:
            missed = str(error)
    return {**_unjudged(trial.name, missed), "tried": False}


def _unjudged(name: str, words: str) -> dict[str, Any]:
    return {"name": name, "tried": True, "held": False, "seconds": 0.0, "problems": [words]}


def _child(trial: Trial) -> None:
    alone()
    no_core_files()
    signal.alarm(_TRIAL_S)
    began = time.monotonic()
    result = _several(trial)
    result["took_s"] = round(time.monotonic() - began, 1)
    print(json.dumps(result), flush=True)


def main() -> None:
    """Run the trials that are named."""
    alone()
    load()
    trials = {trial.name: trial for trial in TRIALS}
    for line in sys.stdin:
        name = line.rstrip("\n")
        process = os.fork()
        if process == 0:
            try:
                _child(trials[name])
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if below():
            end_all()
        if status != 0:
            words = f"the trial itself ended with {os.waitstatus_to_exitcode(status)}"
            print(json.dumps(_unjudged(name, words)), flush=True)


if __name__ == "__main__":
    main()
