"""nixwulf engines: which engines are found where on this machine, and what would be built."""

from __future__ import annotations

import json
from typing import Any

import click

from nixwulf.cli.options import json_format


@click.command()
@json_format("Output format.")
def engines(form: str) -> None:
    """Show the engines' programs on this machine: the ones that the lab's nodes run.

    On a cluster of machines every node needs its own; 'nixwulf bench' names a node without.

    \b
    Examples:
      nixwulf engines
      nixwulf engines --format json
    """
    found = _found()
    if form == "json":
        click.echo(json.dumps(found, indent=1))
    else:
        _print(found)


def _found() -> list[dict[str, Any]]:
    from nixwulf.plugins.engines import all_engines

    rows = []
    for engine in all_engines().values():
        installation = engine.find_local()
        places = installation.programs if installation else {}
        names = engine.local_programs or engine.programs
        rows.append(
            {
                "engine": engine.name,
                "origin": installation.origin if installation else None,
                "version": installation.version if installation else None,
                "programs": {name: str(places[name]) if name in places else None for name in names},
                "built_from": engine.built_from,
            }
        )
    return rows


def _print(found: list[dict[str, Any]]) -> None:
    """A line an engine, and below it a line a program: a path that is cut off is of no use."""
    for row in found:
        name = row["engine"]
        if row["origin"]:
            origin = {"path": "on PATH", "cache": "built before"}[row["origin"]]
            click.echo(f"{name}: {origin}, version {row['version']}")
            for program, place in row["programs"].items():
                click.echo(f"  {program}: {place}")
        elif row["built_from"]:
            built = f"the first run on the lab builds it from {row['built_from']}"
            click.echo(f"{name}: not found; {built}")
        else:
            click.echo(f"{name}: not found")
