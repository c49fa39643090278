"""nixwulf preflight: every gate on every node, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nixwulf.errors import EXIT_GATE, InputError

if TYPE_CHECKING:
    from nixwulf.cluster import Cluster


@click.command()
@click.option("--cluster", metavar="FILE|NAME", help="The cluster (default: the lab that is up).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of the shape in docs/gates.md.")
@click.option("--waive", multiple=True, metavar="GATE", help="Do not refuse by it; repeatable.")
@click.pass_context
def preflight(
    ctx: click.Context, cluster: str | None, as_json: bool, waive: tuple[str, ...]
) -> None:
    """Hold every gate against every node of a cluster and all of its fabrics; run no case.

    The exit code is 0 when none refuses, else 3. docs/gates.md has what each gate reads.

    \b
    Examples:
      nixwulf preflight --cluster clusters/mine.toml
      nixwulf preflight --cluster mine --waive governor --json
    """
    from nixwulf.gates import known_names
    from nixwulf.preflight import preflight as hold
    from nixwulf.preflight import table_of
    from nixwulf.ssh import connections

    waived = known_names(waive)
    chosen, config = _cluster(cluster)
    found = hold(chosen, connections(chosen, config), waived)
    if as_json:
        click.echo(json.dumps(found.document(), indent=2))
    else:
        click.echo(table_of(found))
        for state in ("refused", "waived", "unknown"):
            for result in found.of(state):
                for sentence in result.sentences:
                    click.echo(f"{state} by {result.gate}: {sentence}")
    if found.of("refused"):
        ctx.exit(EXIT_GATE)


def _cluster(name: str | None) -> tuple[Cluster, Path | None]:
    """A cluster and, of a lab, its ssh config."""
    from nixwulf import lab
    from nixwulf.cluster import load_cluster

    if name is not None:
        cluster = load_cluster(name)
        return cluster, lab.find(cluster.name).ssh_config if cluster.is_lab else None
    up = lab.labs()
    if len(up) != 1:
        names = ", ".join(one.name for one in up)
        raise InputError(
            f"Name a cluster with --cluster, because {len(up)} labs are up: {names}."
            if up
            else "Name a cluster with --cluster, or bring a lab up by 'nixwulf lab up'."
        )
    return up[0].cluster, up[0].ssh_config
