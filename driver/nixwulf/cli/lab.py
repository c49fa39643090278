"""nixwulf lab: a cluster of network namespaces on this machine."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli.options import NamedGroup, json_format, print_json
from nixwulf.core.errors import EXIT_RUN_FAILED, InputError
from nixwulf.core.text import did_you_mean

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Shape
    from nixwulf.nodes.lab import Lab

_name = click.option("--name", default="lab", show_default=True, help="The lab's name.")


@click.group(cls=NamedGroup)
def lab() -> None:
    """Bring a cluster of network namespaces on this machine up and down.

    Each node has a network, host name, processes, /run, /tmp and home of its own, and a real sshd.
    """


@lab.command()
@_name
@click.option(
    "--cluster", default="lab", show_default=True, metavar="FILE|NAME", help="It has a [lab] table."
)
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
@json_format()
@click.pass_context
def status(ctx: click.Context, name: str, form: str) -> None:
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
        print_json(_document(found, fabrics))
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
        ctx.exit(EXIT_RUN_FAILED)


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@_name
@click.argument("node")
@click.argument("command", nargs=-1, required=True)
def exec_(name: str, node: str, command: tuple[str, ...]) -> None:
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


def _document(found: Lab, fabrics: dict[str, Any]) -> dict[str, Any]:
    nodes = {
        node.name: {
            **{key: end.address for key, end in node.fabrics.items()},
            **{
                key: {other: end.address for other, end in ends.items()}
                for key, ends in node.links.items()
            },
        }
        for node in found.cluster.nodes
    }
    return {
        "name": found.name,
        "up": found.is_up,
        "ssh_config": str(found.ssh_config),
        "nodes": nodes,
        "fabrics": fabrics,
    }
