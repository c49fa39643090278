"""nixwulf engines: which engines are found where on this machine, and what would be built."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def engines(as_json: bool) -> None:
    """Show the engines' programs on this machine: the ones that the lab's nodes run.

    On a cluster of machines every node needs its own; 'nixwulf bench' says which node lacks one.

    \b
    Examples:
      nixwulf engines
      nixwulf engines --json
    """
    found = _found()
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        _print(found)


def _found() -> list[dict[str, Any]]:
    from nixwulf.engines import all_engines

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
    from rich.console import Console
    from rich.table import Table

    table = Table("Engine", "Program")
    for header in ("Found", "Version"):
        table.add_column(header, overflow="fold")  # a path that is cut off is of no use
    console = Console()
    for row in found:
        origin = {"path": "on PATH", "cache": "built before"}.get(row["origin"], "no")
        for name, place in row["programs"].items():
            table.add_row(
                row["engine"],
                name,
                f"{origin}: {place}" if place else "no",
                row["version"],
            )
    console.print(table)
    for row in found:
        if row["origin"] is None and row["built_from"]:
            console.print(
                f"{row['engine']}: the first run on the lab builds it from {row['built_from']}.",
                highlight=False,
            )
