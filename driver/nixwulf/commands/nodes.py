"""nixwulf nodes: run commands on the nodes of a cluster, and bring hung ones back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nixwulf.errors import EXIT_GATE, EXIT_RUN_FAILED, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nixwulf.cluster import Cluster
    from nixwulf.ssh import Connection


@click.group()
def nodes() -> None:
    """Run commands on the nodes of a cluster, and bring hung ones back."""


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


_which = [
    click.option("--cluster", metavar="FILE|NAME", help="The cluster (default: the lab up)."),
    click.option(
        "--node", "chosen", multiple=True, metavar="NAME", help="Only this node; repeatable."
    ),
]


def _named(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which nodes."""
    for option in reversed(_which):
        command = option(command)
    return command


@nodes.command()
@_named
@click.pass_context
def status(ctx: click.Context, cluster: str | None, chosen: tuple[str, ...]) -> None:
    """Say of every node whether it answers, since when it is up, and what nixwulf runs there.

    \b
    Examples:
      nixwulf nodes status --cluster clusters/mine.toml
    """
    from nixwulf.recover.state import states

    found = states(list(_found(cluster, chosen)[1].values()))
    for one in found:
        click.echo(one.sentence())
    ctx.exit(EXIT_GATE if any(one.error is not None for one in found) else 0)


@nodes.command()
@_named
@click.option("--deadline", "deadline_s", default=600.0, show_default=True, help="Seconds to wait.")
@click.pass_context
def reboot(
    ctx: click.Context, cluster: str | None, chosen: tuple[str, ...], deadline_s: float
) -> None:
    """Reboot nodes at the same moment, and wait until each answers from its new boot.

    Both hosts of a USB4 RDMA link go down together. Needs root, or sudo without a password.

    \b
    Examples:
      nixwulf nodes reboot --cluster clusters/mine.toml --node fw2
    """
    from nixwulf.recover.down import reboot as reboot_all

    found, going = _going_down(cluster, chosen)
    failures = reboot_all(going, deadline_s, _say)
    ctx.exit(_failed(failures, "is not rebooted", f"nixwulf nodes recover{found}"))


@nodes.command()
@_named
@click.option("--deadline", "deadline_s", default=120.0, show_default=True, help="Seconds to wait.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def shutdown(
    ctx: click.Context,
    cluster: str | None,
    chosen: tuple[str, ...],
    deadline_s: float,
    yes: bool,
) -> None:
    """Shut nodes down at the same moment; somebody has to turn them on again.

    \b
    Examples:
      nixwulf nodes shutdown --cluster clusters/mine.toml
    """
    from nixwulf.recover.down import shut_down

    found, going = _going_down(cluster, chosen)
    names = ", ".join(node.node.name for node in going)
    if not yes:
        click.confirm(f"Shut {names} down?", abort=True, err=True)
    ctx.exit(_failed(shut_down(going, deadline_s, _say), "is up", f"nixwulf nodes status{found}"))


@nodes.command("recover")
@_named
@click.option(
    "--deadline", "deadline_s", default=600.0, show_default=True, help="Seconds for each reboot."
)
@click.option("--waive", multiple=True, metavar="GATE", help="A gate that need not hold.")
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
    deadline_s: float,
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
    from nixwulf.gates import known_names
    from nixwulf.recover.ladder import STEPS, recover

    waived = known_names(waive)
    found, connections = _found(cluster, chosen)
    everyone = _found(cluster, ())[1]
    done = recover(
        found,
        everyone,
        list(connections),
        _say,
        waived=waived,
        deadline_s=deadline_s,
        steps=STEPS[: STEPS.index(up_to) + 1],
    )
    for group in done:
        names = ", ".join(group.nodes)
        if group.step:
            click.echo(f"{names}: recovered by {group.step!r}.")
        else:
            click.echo(f"{names}: not recovered: {group.words}", err=True)
    ctx.exit(EXIT_RUN_FAILED if any(group.step is None for group in done) else 0)


def _say(name: str, words: str) -> None:
    click.echo(f"{name}: {words}", err=True)


def _failed(failures: dict[str, str], state: str, command: str) -> int:
    for name, words in failures.items():
        click.echo(f"Node {name!r} {state}: {words}; try '{command}'.", err=True)
    return EXIT_RUN_FAILED if failures else 0


def _going_down(name: str | None, chosen: tuple[str, ...]) -> tuple[str, list[Connection]]:
    """How to name the cluster on a command line, and the nodes with those that go with them."""
    from nixwulf.recover.groups import groups

    cluster, connections = _found(name, chosen)
    if cluster.is_lab:
        raise InputError(
            "A lab's nodes are namespaces, which neither reboot nor shut down; run 'nixwulf lab "
            f"down --name {cluster.name}'."
        )
    together = [name for group in groups(cluster, connections) for name in group]
    for other in together:
        if other not in connections:
            _say(other, "goes down too, for it shares a USB4 RDMA link with a node named")
    everyone = _found(name, ())[1]
    return f" --cluster {name}", [everyone[name] for name in together]


def _connections(name: str | None, chosen: tuple[str, ...]) -> list[Connection]:
    """The chosen nodes of a cluster, or of the one lab that is up."""
    return list(_found(name, chosen)[1].values())


def _found(name: str | None, chosen: tuple[str, ...]) -> tuple[Cluster, dict[str, Connection]]:
    """A cluster, or the one lab that is up, and its chosen nodes."""
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
    return cluster, {key: one for key, one in found.items() if not chosen or key in chosen}
