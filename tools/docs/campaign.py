"""What the campaign of tests/campaign gave: results/figures/campaign.json as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown import cell, table

_RESULTS = Path(__file__).parents[2] / "results" / "figures" / "campaign.json"
_HEAD = """# Campaign

Faults, hostile inputs and planted private texts, tried on commit {commit} on {date} by
`.venv/bin/python tests/campaign all`; `make campaign` tries a sample in at most five minutes.
{note}

## Faults

Each trial is a run of two nodes in a lab of its own, and a fault at a moment of it. As promised: a
record of an expected outcome, an exit code and a sentence, within the limit and 10 s; at most
300 MB; no process or file left 12 s later; the folder can be read and gone on with. The clock of
these limits leaves out what the trial's processes waited for a processor that was busy with other
work, by the kernel's count, and never more than two thirds of any time: a hang waits for none.

"""
_FUZZ = """
## Hostile inputs

As promised: a result or sentences, no traceback, within 10 s and 1 GiB.

"""
_PLANTED = """
## Private texts

Of {planted:,} planted texts ({texts} texts in each free field of a record) `nixwulf publish` let
{left} through. What stays, being what records are for or unknowable: a bare word that nothing gives
as a name or secret (`publish` shows those that are in no text of Nixwulf's); accounts at hosts of
code and images, as github.com/NAME; three numbers of an address, as 10.7.33; an address as one
decimal number that nothing calls one.
"""


def pages() -> dict[str, str]:
    """The page of the campaign; none before it was run."""
    if not _RESULTS.exists():
        return {}
    found = json.loads(_RESULTS.read_text("utf-8"))
    parts = [
        _HEAD.format(**{"note": "", **found}),
        _faults(found["faults"]),
        _FUZZ,
        _fuzz(found["fuzz"]),
    ]
    parts.append(_PLANTED.format(**found["planted"]))
    if "soak" in found:
        parts.append(_soak(found["soak"]))
    return {"campaign.md": "".join(parts)}


def _faults(found: dict[str, Any]) -> str:
    rows = [
        [group["kind"], str(group["trials"]), str(group["held"]), f"{group['worst_s']:.0f} s"]
        for group in found["groups"]
    ]
    worst = max(group["worst_s"] for group in found["groups"])
    rows.append(["all", str(found["trials"]), str(found["held"]), f"{worst:.0f} s"])
    text = table(["fault", "trials", "as promised", "longest to the end"], rows)
    if found["missed"]:
        text += f"\nNot tried, for the run ended before the fault: {_missed(found['missed'])}.\n"
    if found["not_held"]:
        text += "\nNot as promised:\n\n"
        for one in found["not_held"]:
            text += f"* {cell(one['trial'])}: {cell('; '.join(one['problems']))}\n"
    return text


def _missed(found: list[str] | int) -> str:
    return f"{found} trials" if isinstance(found, int) else "; ".join(map(cell, found))


def _fuzz(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            row["target"],
            f"{row['inputs']:,}",
            str(row["broken"]),
            f"{row['slowest_s']:.1f} s",
            f"{row['memory_mib']} MiB",
            f"{row['accepted']:,} of {row['readings']:,}",
        ]
        for row in found
    ]
    total = [f"{sum(row['inputs'] for row in found):,}", str(sum(row["broken"] for row in found))]
    rows.append(["all", *total, "", "", ""])
    head = ["target", "inputs", "not as promised", "slowest", "most memory", "readings accepted"]
    return table(head, rows)


def _soak(found: dict[str, Any]) -> str:
    rows = [
        [name, *(f"{found[key][when]:.0f}" for when in ("first", "last", "most"))]
        for key, name in (
            ("fds", "descriptors"),
            ("threads", "threads"),
            ("files", "temporary files"),
            ("rss_mib", "memory, MiB"),
        )
    ]
    outcomes = ", ".join(f"{count} {name}" for name, count in found["outcomes"].items())
    return (
        f"\n## Soak\n\n{found['runs']} runs in {found['minutes']:g} minutes in one driver "
        f"({outcomes}). Memory grows by {found['rss_mib_a_run']:.3f} MiB a run.\n\n"
        + table(["held by the driver", "after the first run", "after the last", "most"], rows)
    )
