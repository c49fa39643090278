"""nixwulf cluster: check cluster files."""

from __future__ import annotations

import click

from nixwulf.errors import EXIT_GATE


@click.group()
def cluster() -> None:
    """Check cluster files."""


@cluster.command()
@click.argument("file")
@click.option("--offline", is_flag=True, help="Check the file only; reach no node.")
@click.pass_context
def check(ctx: click.Context, file: str, offline: bool) -> None:
    """Check a cluster file, and that its nodes are reachable and on their fabrics.

    FILE is a TOML file or the name of one in clusters/. The nodes of a lab are not reached: they
    exist while the lab is up.

    \b
    Example:
      nixwulf cluster check clusters/framework-4.toml --offline
    """
    from nixwulf.cluster import load_cluster
    from nixwulf.facts import gather
    from nixwulf.gates import fabric_problem
    from nixwulf.ssh import connections, open_all

    found = load_cluster(file)
    click.echo(
        f"{found.source}: cluster {found.name!r}, {len(found.nodes)} nodes, fabrics "
        f"{', '.join(found.fabrics)}."
    )
    if offline or found.is_lab:
        return
    nodes = connections(found)
    problems = list(open_all(nodes.values()).values())
    if not problems:
        facts = gather(nodes.values(), ())
        for node in found.nodes:
            for name in node.fabrics:
                problem = fabric_problem(node, found.fabrics[name], facts[node.name])
                problems += [problem] if problem else []
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        ctx.exit(EXIT_GATE)
    click.echo(f"All {len(found.nodes)} nodes answer and are on their fabrics.")
