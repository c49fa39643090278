"""nixwulf nodes: run commands on the nodes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nixwulf.errors import EXIT_GATE, EXIT_RUN_FAILED, InputError

if TYPE_CHECKING:
    from nixwulf.ssh import Connection


@click.group()
def nodes() -> None:
    """Run commands on the nodes of a cluster."""


@nodes.command("exec")
@click.option("--cluster", metavar="FILE|NAME", help="The cluster (default: the lab that is up).")
@click.option("--node", "chosen", multiple=True, metavar="NAME", help="Only this node; repeatable.")
@click.option(
    "--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds for each node."
)
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def exec_(
    ctx: click.Context,
    cluster: str | None,
    chosen: tuple[str, ...],
    timeout_s: float,
    command: tuple[str, ...],
) -> None:
    """Run a command on all nodes in parallel; each line of output begins with the node's name.

    The exit code is 0 when it was 0 on every node, else 1.

    \b
    Examples:
      nixwulf nodes exec -- uname -r
      nixwulf nodes exec --cluster clusters/mine.toml --node n2 -- cat /proc/cmdline
    """
    from nixwulf.ssh import Unreachable, open_all, run_all

    nodes = _connections(cluster, chosen)
    failures = open_all(nodes)
    for words in failures.values():
        click.echo(words, err=True)
    reached = [node for node in nodes if node.node.name not in failures]
    code = 0
    for node, answer in zip(reached, run_all(reached, command, timeout_s=timeout_s), strict=True):
        if isinstance(answer, Unreachable):
            click.echo(answer.message, err=True)
            code = EXIT_RUN_FAILED
            continue
        for line in (answer.stdout + answer.stderr).splitlines():
            click.echo(f"{node.node.name}: {line}")
        code = code or min(answer.returncode, EXIT_RUN_FAILED)
    ctx.exit(EXIT_GATE if failures else code)


def _connections(name: str | None, chosen: tuple[str, ...]) -> list[Connection]:
    """The chosen nodes of a cluster, or of the one lab that is up."""
    from nixwulf import lab
    from nixwulf.cluster import load_cluster
    from nixwulf.ssh import connections

    config = None
    if name is None:
        up = lab.labs()
        if len(up) != 1:
            which = (
                f"there are {len(up)} labs: {', '.join(one.name for one in up)}"
                if up
                else "no lab is up"
            )
            raise InputError(f"Name a cluster with --cluster, because {which}.")
        cluster, config = up[0].cluster, up[0].ssh_config
    else:
        cluster = load_cluster(name)
        if cluster.is_lab:
            config = lab.find(cluster.name).ssh_config
    found = connections(cluster, config)
    for node in chosen:
        if node not in found:
            raise InputError(f"No node {node!r} in {cluster.name!r}; it has: {', '.join(found)}.")
    return [connection for key, connection in found.items() if not chosen or key in chosen]
