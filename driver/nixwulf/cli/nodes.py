"""nixwulf nodes: run commands on the nodes of a cluster, and bring hung ones back."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

import click

from nixwulf.cli.options import (
    NamedGroup,
    choose,
    cluster_or_lab,
    confirm,
    find_cluster,
    only_nodes,
    report,
    timeout,
)
from nixwulf.core.errors import EXIT_GATE, EXIT_RUN_FAILED, InputError, one_line
from nixwulf.core.text import clean

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster
    from nixwulf.nodes.ssh import Connection


@click.group(cls=NamedGroup)
def nodes() -> None:
    """Run commands on the nodes of a cluster, and bring hung ones back."""


@nodes.command("exec")
@cluster_or_lab
@only_nodes
@timeout(60.0, "How long the command may take on each node.")
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

    Control characters and colours are left out: 'ssh NODE' has them. The exit code is 0 when it was
    0 on every node, else 1.

    \b
    Examples:
      nixwulf nodes exec -- uname -r
      nixwulf nodes exec --cluster clusters/mine.toml --node n2 -- cat /proc/cmdline
    """
    from nixwulf.nodes.ssh import Unreachable, open_all, run_all

    nodes = _found(cluster, chosen).chosen
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
        for line in clean(answer.stdout + answer.stderr).splitlines():
            click.echo(f"{node.node.name}: {line}")
        code = code or min(answer.returncode, EXIT_RUN_FAILED)
    ctx.exit(EXIT_GATE if failures else code)


@nodes.command()
@cluster_or_lab
@only_nodes
@timeout(600.0, "How long to wait for each node.")
@click.pass_context
def reboot(
    ctx: click.Context, cluster: str | None, chosen: tuple[str, ...], timeout_s: float
) -> None:
    """Reboot nodes at the same moment, and wait until each answers from its new boot.

    Both hosts of a USB4 RDMA link go down together. Needs root, or sudo without a password.

    \b
    Examples:
      nixwulf nodes reboot --cluster clusters/mine.toml --node fw2
    """
    from nixwulf.ops.recover import reboot as reboot_all

    found, going = _going_down(cluster, chosen)
    failures = reboot_all(going, timeout_s, report)
    ctx.exit(_failed(failures, "is not rebooted", f"nixwulf nodes recover{found}"))


@nodes.command()
@cluster_or_lab
@only_nodes
@timeout(120.0, "How long to wait for each node.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def shutdown(
    ctx: click.Context, cluster: str | None, chosen: tuple[str, ...], timeout_s: float, yes: bool
) -> None:
    """Shut nodes down at the same moment; somebody has to turn them on again.

    \b
    Examples:
      nixwulf nodes shutdown --cluster clusters/mine.toml
    """
    from nixwulf.ops.recover import shut_down

    found, going = _going_down(cluster, chosen)
    names = ", ".join(node.node.name for node in going)
    if not yes:
        confirm(f"Shut {names} down?", "--yes")
    ctx.exit(
        _failed(
            shut_down(going, timeout_s, report), "is up", f"nixwulf preflight{found} --only status"
        )
    )


@nodes.command("recover")
@cluster_or_lab
@only_nodes
@timeout(600.0, "How long each reboot may take.")
@click.option(
    "--waive", multiple=True, metavar="GATE", help="A gate that need not hold; repeatable."
)
@click.option(
    "--up-to",
    type=click.Choice(["stop", "reset", "reboot", "power"]),
    default="power",
    show_default=True,
    help="The hardest step.",
)
@click.pass_context
def recover_(
    ctx: click.Context,
    cluster: str | None,
    chosen: tuple[str, ...],
    timeout_s: float,
    waive: tuple[str, ...],
    up_to: str,
) -> None:
    """Bring nodes back, from soft to hard, until their gates hold again.

    Stop what nixwulf runs there, also of another terminal; reset the GPU and the links' modules
    where that is safe; reboot over ssh; switch the power by the node's power_switch.

    \b
    Examples:
      nixwulf nodes recover --cluster clusters/mine.toml
      nixwulf nodes recover --cluster clusters/mine.toml --node fw2 --up-to reboot
    """
    from nixwulf.ops.recover import STEPS, recover
    from nixwulf.plugins.gates import known_names

    waived = known_names(waive)
    found = _found(cluster, chosen)
    done = recover(
        found.cluster,
        found.everyone,
        found.names,
        report,
        waived=waived,
        deadline_s=timeout_s,
        steps=STEPS[: STEPS.index(up_to) + 1],
    )
    for group in done:
        names = ", ".join(group.nodes)
        if group.step:
            click.echo(f"{names}: recovered by {group.step!r}.")
        else:
            click.echo(f"{names}: not recovered: {one_line(group.words)}", err=True)
    ctx.exit(EXIT_RUN_FAILED if any(group.step is None for group in done) else 0)


def _failed(failures: dict[str, str], state: str, command: str) -> int:
    for name, words in failures.items():
        click.echo(f"Node {name!r} {state}: {one_line(words)}; try '{command}'.", err=True)
    return EXIT_RUN_FAILED if failures else 0


def _going_down(name: str | None, chosen: tuple[str, ...]) -> tuple[str, list[Connection]]:
    """How to name the cluster on a command line, and the nodes with those that go with them."""
    from nixwulf.ops.recover import groups

    found = _found(name, chosen)
    if found.cluster.is_lab:
        raise InputError(
            "A lab's nodes are namespaces, which neither reboot nor shut down; run 'nixwulf lab "
            f"down --name {found.cluster.name}'."
        )
    together = [name for group in groups(found.cluster, found.names) for name in group]
    for other in together:
        if other not in found.names:
            report(other, "goes down too, for it shares a USB4 RDMA link with a node named")
    return f" --cluster {shlex.quote(str(name))}", [found.everyone[name] for name in together]


class _Found(NamedTuple):
    """A cluster, connections to all of its nodes, and the names of those that were chosen."""

    cluster: Cluster
    everyone: dict[str, Connection]
    names: list[str]

    @property
    def chosen(self) -> list[Connection]:
        return [self.everyone[name] for name in self.names]


def _found(name: str | None, chosen: tuple[str, ...]) -> _Found:
    """A cluster, or the one lab that is up."""
    from nixwulf.nodes.ssh import connections

    cluster, config = find_cluster(name)
    names = [node.name for node in choose(cluster, chosen)]
    return _Found(cluster, connections(cluster, config), names)
