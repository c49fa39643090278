"""A campaign's results in short, for results/figures/campaign.json and the page made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trial import KINDS
from trials import TRIALS

_FUZZ = ("target", "inputs", "broken", "slowest_s", "memory_mib", "accepted", "readings")


def of_faults(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Trials by kind of fault: how many, how many held, and the longest time to the end.

    What could not be tried counts nowhere but in 'missed'.
    """
    tried = [row for row in rows if row["tried"]]
    kinds = {trial.name: KINDS[trial.fault] for trial in TRIALS}
    groups = []
    for kind in dict.fromkeys(KINDS.values()):
        of_kind = [row for row in tried if kinds.get(row["name"]) == kind]
        if of_kind:
            groups.append(
                {
                    "kind": kind,
                    "trials": len(of_kind),
                    "held": sum(row["held"] for row in of_kind),
                    "worst_s": max(row["seconds"] for row in of_kind),
                }
            )
    broken = [
        {"trial": row["name"], "problems": [_plain(one) for one in row["problems"]]}
        for row in sorted(tried, key=lambda row: row["name"])
        if not row["held"]
    ]
    return {
        "trials": len(tried),
        "held": sum(row["held"] for row in tried),
        "missed": sorted(row["name"] for row in rows if not row["tried"]),
        "most_memory_mib": max((row.get("memory_mib", 0) for row in tried), default=0),
        "late_s": round(sum(row.get("late_s", 0.0) for row in tried)),
        "groups": groups,
        "not_held": broken,
    }


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """All parts of a result in short."""
    short = {key: result[key] for key in ("date", "commit") if key in result}
    if "fuzz" in result:
        short["fuzz"] = [{key: row[key] for key in _FUZZ if key in row} for row in result["fuzz"]]
    if "planted" in result:
        found = result["planted"]
        short["planted"] = {**found, "left": len(found["left"])}
    if "faults" in result:
        short["faults"] = of_faults(result["faults"])
    if "soak" in result:
        short["soak"] = result["soak"]
    return short


def _plain(problem: str) -> str:
    """Without the trial's own folder, whose name is another each time."""
    return " ".join("FOLDER" if "/nwt" in word else word for word in problem.split())[:160]
