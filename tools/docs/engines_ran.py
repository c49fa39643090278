"""Which engines ran: of data/engines_ran.toml, what was read, and whose outputs were kept."""

from __future__ import annotations

import tomllib
from pathlib import Path

from markdown import code, table

from nixwulf.plugins.engines import all_engines, runs_of
from nixwulf.plugins.runtime import upstream

_TEXT = """# Which engines ran

Runs of this project's own that ended `ok`, by their records (`tools/engines_ran.py`); none is what
others [published](../../results/published/numbers.csv). `-`: no such run, not that it works.

* **described**: the newest version whose sources or documents its words were read in.
* **its own outputs**: tests hold the driver against what that version itself printed.
* **ran here**: on CPUs, in the lab; text and transport proved. exo's own Rust part, which carries
  messages between its nodes, was stood in for ([how](../../examples/exo/README.md)).
* **on a GPU**: two nodes are namespaces that share one ([how](../../examples/cuda/lab/README.md)).

"""
_FIXTURES = Path("tests/fixtures/provenance.toml")
_FOLDERS = {"distributed-llama": "dllama"}


def pages() -> dict[str, str]:
    """The page of what ran."""
    kept = tomllib.loads(_FIXTURES.read_text("utf-8"))
    described = {one.engine or one.name: one.read[-1] for one in upstream.families()}
    rows = []
    for name, engine in all_engines().items():
        if engine.elsewhere:
            continue
        ran = runs_of(name)
        places = (
            [one for one in ran if one["devices"] == "cpu" and one["place"] == "lab"],
            [one for one in ran if one["devices"] != "cpu"],
            [one for one in ran if one["place"] != "lab"],
        )
        outputs = kept.get(_FOLDERS.get(name, name), {}).get("version", "-")
        rows.append([code(name), described.get(name, "-"), outputs, *map(_shown, places)])
    heads = ["engine", "described", "its own outputs", "ran here", "on a GPU", "on machines"]
    return {"engines-ran.md": _TEXT + table(heads, rows)}


def _shown(runs: list[dict[str, object]]) -> str:
    """'0.32.0: 1, 2 by tensor (2026-11-27)' of each version."""
    parts = []
    for version in dict.fromkeys(str(one["version"]) for one in runs):
        own = [one for one in runs if one["version"] == version]
        splits = dict.fromkeys(
            str(one["nodes"]) if one["nodes"] == 1 else f"{one['nodes']} by {one['parallelism']}"
            for one in own
        )
        parts.append(f"{version}: {', '.join(splits)} ({max(str(one['day']) for one in own)})")
    return "; ".join(parts) or "-"
