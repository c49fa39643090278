"""nixwulf nodes and lab: commands on nodes, which are brought back; and nodes on this machine."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli import options
from nixwulf.core.errors import EXIT_GATE, EXIT_RUN_FAILED, InputError, one_line
from nixwulf.core.text import as_typed, clean, did_you_mean

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Shape
    from nixwulf.nodes.lab import Lab
    from nixwulf.nodes.ssh import Connection


@click.group(cls=options.NamedGroup)
def nodes() -> None:
    """Run commands on the nodes of a cluster, and bring hung ones back."""


@nodes.command("exec")
@options.cluster_or_lab
@options.only_nodes
@options.timeout(60.0, "How long the command may take on each node.")
@click.argument("command", nargs=-1, required=True)
def exec_(
    cluster: str | None, chosen: tuple[str, ...], timeout_s: float, command: tuple[str, ...]
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

    _, everyone, names = options.find_nodes(cluster, chosen)
    nodes = [everyone[name] for name in names]
    failures = open_all(nodes)
    options.tell(*failures.values())
    reached = [node for node in nodes if node.node.name not in failures]
    code = 0
    for node, answer in zip(reached, run_all(reached, command, timeout_s=timeout_s), strict=True):
        if isinstance(answer, Unreachable):
            options.tell(answer.message)
            code = EXIT_RUN_FAILED
            continue
        for line in clean(answer.stdout + answer.stderr).splitlines():
            click.echo(f"{node.node.name}: {line}")
        code = code or min(answer.returncode, EXIT_RUN_FAILED)
    options.end(EXIT_GATE if failures else code)


@nodes.command()
@options.cluster_or_lab
@options.only_nodes
@options.timeout(600.0, "How long to wait for each node.")
def reboot(cluster: str | None, chosen: tuple[str, ...], timeout_s: float) -> None:
    """Reboot nodes at the same moment, and wait until each answers from its new boot.

    Both hosts of a USB4 RDMA link go down together. Needs root, or sudo without a password.

    \b
    Examples:
      nixwulf nodes reboot --cluster clusters/mine.toml --node fw2
    """
    from nixwulf.ops.recover import reboot as reboot_all

    found, going = _going_down(cluster, chosen)
    failures = reboot_all(going, timeout_s, options.report)
    options.end(_failed(failures, "is not rebooted", f"nixwulf nodes recover{found}"))


@nodes.command()
@options.cluster_or_lab
@options.only_nodes
@options.timeout(120.0, "How long to wait for each node.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def shutdown(cluster: str | None, chosen: tuple[str, ...], timeout_s: float, yes: bool) -> None:
    """Shut nodes down at the same moment; they must be switched on by hand.

    \b
    Examples:
      nixwulf nodes shutdown --cluster clusters/mine.toml
    """
    from nixwulf.ops.recover import shut_down

    found, going = _going_down(cluster, chosen)
    names = ", ".join(node.node.name for node in going)
    if not yes:
        options.confirm(f"Shut {names} down?", "--yes")
    failures = shut_down(going, timeout_s, options.report)
    options.end(_failed(failures, "is up", f"nixwulf preflight{found} --only status"))


@nodes.command("recover")
@options.cluster_or_lab
@options.only_nodes
@options.timeout(600.0, "How long each reboot may take.")
@options.repeatable("--waive", "GATE", "Ignore this gate's refusal")
@options.defaulting(
    "--up-to",
    type=click.Choice(["stop", "reset", "reboot", "power"]),
    default="power",
    help="The hardest step.",
)
def recover_(
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
    done = recover(
        *options.find_nodes(cluster, chosen),
        options.report,
        waived=waived,
        deadline_s=timeout_s,
        steps=STEPS[: STEPS.index(up_to) + 1],
    )
    for group in done:
        names = ", ".join(group.nodes)
        if group.step:
            click.echo(f"{names}: recovered by {group.step!r}.")
        else:
            options.report(names, f"not recovered: {group.words}")
    options.end(EXIT_RUN_FAILED if any(group.step is None for group in done) else 0)


def _failed(failures: dict[str, str], state: str, command: str) -> int:
    for name, words in failures.items():
        options.tell(f"Node {name!r} {state}: {one_line(words)}; try '{command}'.")
    return EXIT_RUN_FAILED if failures else 0


def _going_down(name: str | None, chosen: tuple[str, ...]) -> tuple[str, list[Connection]]:
    """Return the option that names the cluster, and the nodes with those that go down with them."""
    from nixwulf.ops.recover import groups

    found, everyone, names = options.find_nodes(name, chosen)
    if found.is_lab:
        raise InputError(
            "A lab's nodes are namespaces, which neither reboot nor shut down; run "
            f"{as_typed('lab', 'down', '--name', found.name)}."
        )
    together = [name for group in groups(found, names) for name in group]
    for other in together:
        if other not in names:
            options.report(other, "goes down too, for it shares a USB4 RDMA link with a node named")
    return f" --cluster {shlex.quote(str(name))}", [everyone[name] for name in together]


_name = options.defaulting("--name", default="lab", help="The lab's name.")


@click.group(cls=options.NamedGroup)
def lab() -> None:
    """Bring a cluster of network namespaces on this machine up and down.

    Each node has a network, host name, processes, /run, /tmp and home of its own, and a real sshd.
    """


@lab.command()
@_name
@options.defaulting("--cluster", default="lab", metavar="FILE|NAME", help="It has a [lab] table.")
@click.option("--nodes", type=int, metavar="N", help="How many, 2 to 16 (default: the cluster's).")
def up(name: str, cluster: str, nodes: int | None) -> None:
    """Bring a lab up, and print what each fabric was measured to give.

    It stays until 'nixwulf lab down'.

    \b
    Example:
      nixwulf lab up --nodes 2
    """
    from nixwulf.inventory.cluster import load_cluster, with_lab_nodes
    from nixwulf.nodes import lab as labs
    from nixwulf.nodes.lab.state import check_cluster, check_count

    definition = load_cluster(cluster)
    check_cluster(definition)
    if nodes is not None:
        check_count(nodes, definition.source)
        definition = with_lab_nodes(definition, nodes)
    started = labs.up(definition, name=name)
    try:
        click.echo(f"Lab {name!r} is up: {' '.join(node.name for node in definition.nodes)}")
        for fabric in definition.fabrics:
            _print_measured(started, fabric)
    except KeyboardInterrupt:
        started.down()
        raise
    click.echo(f"Try: nixwulf lab exec --name {name} {definition.nodes[0].name} -- hostname")


@lab.command()
@_name
@options.json_format()
def status(name: str, form: str) -> None:
    """Show a lab's nodes and fabrics: what shapes them, and what was asked for.

    Exit code 1 when the lab was killed and only its files are left.

    \b
    Example:
      nixwulf lab status --format json
    """
    from nixwulf.nodes import lab as labs

    found = labs.find(name)
    fabrics = found.status() if found.is_up else {}
    if form == "json":
        options.print_json(_document(found, fabrics), "lab")
    elif found.is_up:
        click.echo(f"Lab {name!r} is up; ssh -F {found.ssh_config} NODE")
        for node in found.cluster.nodes:
            places = (f"{key} {end.address}" for key in node.fabric_names for end in node.ends(key))
            click.echo(f"  {node.name}: {', '.join(places)}")
        for fabric, values in fabrics.items():
            words = [_asked(found.shape(fabric)), f"by {values['shaping']}"]
            counts = (key for key in values if key not in ("shape", "shaping"))
            words += [f"{values[key]} frames {key}" for key in counts]
            click.echo(f"  {fabric}: {', '.join(words)}")
    else:
        click.echo(f"Lab {name!r} was killed; clean up with: nixwulf lab down --name {name}")
    if not found.is_up:
        options.end(EXIT_RUN_FAILED)


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@_name
@click.argument("node")
@click.argument("command", nargs=-1, required=True)
def exec_in_lab(name: str, node: str, command: tuple[str, ...]) -> None:
    """Run a command on a node, over ssh; its exit code is the command's.

    \b
    Example:
      nixwulf lab exec n1 -- ping -c 3 n2
    """
    from nixwulf.nodes import lab as labs

    found = labs.find(name)
    known = [known.name for known in found.cluster.nodes]
    if node not in known:
        raise InputError(f"Lab {name!r} has no node {node!r}; {did_you_mean(node, known)}")
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-T"]
    argv = ["ssh", "-F", str(found.ssh_config), *terminal, node, "--", shlex.join(command)]
    os.execvp("ssh", argv)  # noqa: S606


@lab.command()
@_name
@click.argument("fabric")
@click.option("--delay-us", type=float, metavar="X", help="One-way delay in microseconds.")
@click.option("--rate-gbps", type=float, metavar="Y", help="Rate of each direction in Gbit/s.")
@click.option("--loss-percent", type=float, metavar="Z", help="Share of frames dropped.")
def link(name: str, fabric: str, **given: float | None) -> None:
    """Change a fabric while the lab is up, and print what it was measured to give.

    What is not given stays as it is. A lab on which a sweep runs is left alone.

    \b
    Example:
      nixwulf lab link thunderbolt --delay-us 500
    """
    import dataclasses

    from nixwulf.nodes import lab as labs
    from nixwulf.nodes.process import holding
    from nixwulf.nodes.ssh import connections

    found = labs.find(name)
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise InputError(
            f"Nothing to change on {fabric!r}; give one, for example: "
            f"nixwulf lab link --name {name} {fabric} --delay-us 500"
        )
    shape = dataclasses.replace(found.shape(fabric), **changes)
    nodes = connections(found.cluster, found.ssh_config).values()
    with holding(nodes, "lab link"):  # what a sweep measures there would be neither of the two
        found.set_shape(fabric, shape)
        _print_measured(found, fabric)


@lab.command()
@_name
@click.option("--all", "every", is_flag=True, help="End every lab of this user.")
def down(name: str, every: bool) -> None:
    """End a lab and remove all it made, also after it was killed.

    \b
    Example:
      nixwulf lab down --all
    """
    from nixwulf.nodes import lab as labs

    for found in labs.labs() if every else [labs.find(name)]:
        found.down()
        click.echo(f"Lab {found.name!r} is down.")


def _print_measured(found: Lab, fabric: str) -> None:
    from nixwulf.nodes.lab.handle import measure

    asked = _asked(found.shape(fabric))
    measured = measure(found, fabric) or "not measured (fewer than two nodes)"
    click.echo(f"  {fabric}: asked {asked}; by {found.shaping(fabric)}; measured {measured}")


def _asked(shape: Shape) -> str:
    rate = "any rate" if shape.rate_gbps is None else f"{shape.rate_gbps:g} Gbit/s"
    return f"{shape.delay_us:g} us one way, {rate}, {shape.loss_percent:g} % loss"


def _document(found: Lab, fabrics: Mapping[str, object]) -> dict[str, object]:
    nodes: dict[str, dict[str, object]] = {}
    for node in found.cluster.nodes:
        own = nodes[node.name] = {key: end.address for key, end in node.fabrics.items()}
        for key, ends in node.links.items():
            own[key] = {other: end.address for other, end in ends.items()}
    return {
        "name": found.name,
        "up": found.is_up,
        "ssh_config": str(found.ssh_config),
        "nodes": nodes,
        "fabrics": fabrics,
    }
