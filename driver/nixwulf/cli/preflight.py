"""nixwulf preflight: every gate on every node, and nothing else."""

from __future__ import annotations

import json

import click

from nixwulf.cli.options import cluster_or_lab, find_cluster, json_format
from nixwulf.core.errors import EXIT_GATE


@click.command()
@cluster_or_lab
@json_format("Output format; docs/sweeps.md has the JSON.")
@click.option("--waive", multiple=True, metavar="GATE", help="Do not refuse by it; repeatable.")
@click.pass_context
def preflight(ctx: click.Context, cluster: str | None, form: str, waive: tuple[str, ...]) -> None:
    """Hold every gate against every node of a cluster and all of its fabrics; run no case.

    The exit code is 0 when none refuses, else 3. docs/reference/gates.md has what each gate reads.

    \b
    Examples:
      nixwulf preflight --cluster clusters/mine.toml
      nixwulf preflight --cluster mine --waive governor --format json
    """
    from nixwulf.nodes.ssh import connections
    from nixwulf.ops.preflight import preflight as hold
    from nixwulf.ops.preflight import table_of
    from nixwulf.plugins.gates import known_names

    waived = known_names(waive)
    chosen, config = find_cluster(cluster)
    found = hold(chosen, connections(chosen, config), waived)
    if form == "json":
        click.echo(json.dumps(found.document(), indent=2))
    else:
        click.echo(table_of(found))
        for state in ("refused", "waived", "unknown"):
            for result in found.of(state):
                for sentence in result.sentences:
                    click.echo(f"{state} by {result.gate}: {sentence}")
    if found.of("refused"):
        ctx.exit(EXIT_GATE)
