"""nixwulf cluster: check cluster files."""

from __future__ import annotations

import click

from nixwulf.core.errors import EXIT_GATE


@click.group()
def cluster() -> None:
    """Check cluster files."""


@cluster.command()
@click.argument("file")
@click.option("--offline", is_flag=True, help="Check the file only; reach no node.")
@click.pass_context
def check(ctx: click.Context, file: str, offline: bool) -> None:
    """Check a cluster file; that its nodes are reachable and on their fabrics, and their engines.

    Of each engine on PATH all nodes have to have one version, and one that nixwulf can drive
    (docs/reference/versions.md). FILE is a TOML file or the name of one in clusters/. The nodes
    of a lab are not reached: they exist while the lab is up.

    \b
    Example:
      nixwulf cluster check clusters/framework-2.toml --offline
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.nodes.ssh import connections
    from nixwulf.ops.preflight import preflight

    found = load_cluster(file)
    click.echo(
        f"{found.source}: cluster {found.name!r}, {len(found.nodes)} nodes, fabrics "
        f"{', '.join(found.fabrics)}."
    )
    if offline or found.is_lab:
        return
    held = preflight(found, connections(found), gates=["fabric", "versions"])
    for result in held.of("refused"):
        for sentence in result.sentences:
            click.echo(sentence, err=True)
    if held.of("refused"):
        ctx.exit(EXIT_GATE)
    click.echo(
        f"All {len(found.nodes)} nodes answer and are on their fabrics. No engine on them has a "
        f"version that is refused. Try: nixwulf preflight --cluster {file}"
    )
