"""nixwulf doctor: what is wrong with machines and their links, and what mends it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nixwulf.cli.options import (
    ClusterOption,
    FilePath,
    choose,
    find_cluster,
    formats,
    only_nodes,
    print_json,
)
from nixwulf.core.errors import EXIT_GATE
from nixwulf.core.text import clean


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option("--cluster", cls=ClusterOption, help="The cluster (default: the lab that is up).")
@only_nodes
@click.option(
    "--ssh-config",
    "config",
    metavar="SSH_CONFIG",
    type=FilePath(),
    help="Reach HOST by this ssh config.",
)
@click.option(
    "--load",
    is_flag=True,
    help="Also load machines by llama-bench and links by iperf3, 10 s each: as fast as their kind?",
)
@formats(
    "text", "json", "ndjson", words="Output format; ndjson is a finding a line, to post or to grep."
)
@click.pass_context
def doctor(
    ctx: click.Context,
    hosts: tuple[str, ...],
    cluster: str | None,
    chosen: tuple[str, ...],
    config: Path | None,
    load: bool,
    form: str,
) -> None:
    """Say what is wrong with machines and their links: each line with what mends it.

    Asks the nodes of a cluster file, or each HOST that ssh knows, without root, and changes
    nothing. Every line has what was read, what it should be, the command that mends it, and the
    document or thread that says so (docs/reference/checks.md); the gates of preflight are among
    them. The exit code is 0 when nothing is wrong and all machines answer, else 3; warnings are 0.

    \b
    Examples:
      nixwulf doctor --cluster clusters/mine.toml
      nixwulf doctor you@192.168.1.21 you@192.168.1.22
      nixwulf doctor --cluster mine --node fw1 --format ndjson
    """
    from nixwulf.inventory.cluster import Node
    from nixwulf.nodes.ssh import connect, connections
    from nixwulf.ops.doctor.examine import doctor as examine
    from nixwulf.ops.doctor.examine import page

    if hosts and chosen:
        raise click.UsageError("--node chooses of a cluster file; give HOST or --node.")
    step = _step if load else None
    if hosts:
        given = ctx.get_parameter_source("cluster")
        if given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("Give HOST or --cluster: a cluster file names its hosts.")
        found = examine(connect([Node(host, "", host) for host in hosts], config), None, step)
    else:
        of, lab_config = find_cluster(cluster)
        names = [node.name for node in choose(of, chosen)]
        reached = connections(of, lab_config)
        found = examine({name: reached[name] for name in names}, of, step)
    if form == "json":
        print_json(found.document())
    elif form == "ndjson":
        for one in found.findings:
            click.echo(json.dumps(one.document()))
    else:
        click.echo(clean(page(found)))
    ctx.exit(EXIT_GATE if found.of("wrong") else 0)


def _step(words: str) -> None:
    click.echo(words, err=True)
