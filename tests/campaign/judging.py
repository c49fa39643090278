"""What was seen of a trial against what it promises: the problems, none where it held."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stage import MUCH
from trial import OUTSIDE, Trial

SLACK_S = 10.0
MOST_MEMORY = 300 << 20
_TRACE = "Traceback (most recent call last)"
# What the driver says where it did not think of something: no sentence for who asked a server.
_UNFORESEEN = "The driver cannot go on with what it met"


@dataclass(frozen=True)
class Seen:
    """How a driver ended: its exit code (None: not at all), output, most memory and records."""

    code: int | None
    output: str
    memory: int
    records: Sequence[dict[str, Any] | None]

    @property
    def outcomes(self) -> list[str]:
        """Of each run of the plan, '' where there is no record; one '' where there is no plan."""
        return [record["outcome"] if record else "" for record in self.records] or [""]


def problems(trial: Trial, seen: Seen) -> list[str]:
    """What was not as promised of the driver's end and its records."""
    return [*_of_the_end(trial, seen), *_of_the_records(trial, seen)]


def _of_the_end(trial: Trial, seen: Seen) -> list[str]:
    found = []
    if _TRACE in seen.output:
        found.append(f"a traceback: {seen.output.strip().splitlines()[-1][:150]}")
    if seen.code is None and seen.memory < MUCH:
        found.append(f"no end {trial.limit_s + SLACK_S:g} s after the fault")
    elif seen.code is not None and seen.code not in trial.codes:
        found.append(f"exit {seen.code}")
    if seen.code and seen.code > 0 and not seen.output.strip() and trial.fault != "redirect":
        found.append(f"exit {seen.code} without a sentence")
    if seen.code == 0 and set(seen.outcomes) - {"ok", ""}:
        found.append(f"exit 0, and records say {', '.join(seen.outcomes)}")
    reasons = [one["failure"]["reason"] for one in seen.records if one and "failure" in one]
    if trial.fault in OUTSIDE and _UNFORESEEN in "".join([seen.output, *reasons]):
        found.append("; ".join(one[:150] for one in reasons) or "it had no sentence for it")
    if seen.memory > MOST_MEMORY:
        found.append(f"{seen.memory >> 20} MiB of memory")
    return found


def _of_the_records(trial: Trial, seen: Seen) -> list[str]:
    expected = (trial.outcomes, trial.second) if trial.second else (trial.outcomes,)
    outcomes = seen.outcomes
    if trial.second and len(outcomes) != len(expected):
        return ["no plan of two runs"]
    found = []
    for number, (outcome, may, record) in enumerate(
        zip(outcomes, expected, seen.records or [None], strict=False), 1
    ):
        if outcome in may:
            continue
        reason = (record or {}).get("failure", {}).get("reason", "")
        words = f"says {outcome}: {reason[:150]}" if outcome else "is not there"
        found.append(f"the record of run {number} {words}")
    return found


def problem_of_reading(
    trial: Trial, command: Sequence[str], seen: Seen, code: int | None, text: str
) -> str | None:
    """Whether a command on what the run left ended as it may; None where it did.

    Args:
        trial: what was tried.
        command: of nixwulf, with its arguments.
        seen: of the run that left it.
        code: its exit code, None where it was too late.
        text: what it printed.
    """
    damaged = trial.fault == "damage_file"
    strict = not damaged and not trial.fault.startswith(("folder_", "small_disk"))
    allowed = {0} if strict else {0, 1, 2}
    if command[0] == "bench" and not damaged:
        allowed = {0}
    elif command[0] == "explain" or not any(seen.outcomes):
        allowed = allowed | {1, 2}
    if code in allowed and _TRACE not in text:
        return None
    return f"{command[0]} {command[1][:8]}: exit {code}: {re.sub(r'[^!-~]+', ' ', text)[-200:]}"
