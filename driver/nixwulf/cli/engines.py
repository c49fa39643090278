"""nixwulf engines: those of this machine, and the one that is brought to nodes without."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli.options import choose, find_cluster, json_format, machines, only_nodes
from nixwulf.core.errors import GateError

if TYPE_CHECKING:
    from nixwulf.nodes.ssh import Connection

_PERCENT_STEP = 10


@click.group(invoke_without_command=True)
@json_format("Output format.")
@click.pass_context
def engines(ctx: click.Context, form: str) -> None:
    """Show the engines' programs on this machine: the ones that the lab's nodes run.

    On a cluster of machines every node needs its own; 'nixwulf engines install' brings llama.cpp.

    \b
    Examples:
      nixwulf engines
      nixwulf engines --format json
    """
    if ctx.invoked_subcommand:
        return
    found = _found()
    if form == "json":
        click.echo(json.dumps(found, indent=1))
    else:
        _print(found)


@engines.command()
@machines
@only_nodes
def install(name: str, chosen: tuple[str, ...]) -> None:
    """Bring llama.cpp to nodes that are not deployed, one build for all of a kind.

    It is built once on a node of each kind (CPU, GPU, distribution), 10 CPU minutes and more for a
    GPU, from the source that the lab's build has, checked by its sha256. Nodes of the same kind get
    a copy, and every node has to print the same version. It lies in ~/.cache/nixwulf/engines on the
    nodes, where the driver looks before PATH; nothing needs root and no file of a shell is changed.
    CUDA, ROCm, Vulkan and RDMA are built in where their headers and compilers are on the node.
    Where all nodes have one version on PATH, that is kept.

    \b
    Examples:
      nixwulf engines install --cluster clusters/mine.toml
    """
    from nixwulf.ops.engines.install import install as bring
    from nixwulf.plugins.engines import DEFAULT, find

    for one in bring(_nodes(name, chosen), find(DEFAULT), _progress()):
        click.echo(f"{one.node}: {one.how}; {one.version}")
        if one.idle:
            click.echo(
                f"{one.node}: its GPU is left idle; get what a build for it needs by {one.idle!r} "
                "and repeat this.",
                err=True,
            )


@engines.command()
@machines
@only_nodes
def remove(name: str, chosen: tuple[str, ...]) -> None:
    """Remove what 'nixwulf engines install' brought, and nothing else.

    \b
    Examples:
      nixwulf engines remove --cluster clusters/mine.toml --node n2
    """
    from nixwulf.nodes.ssh import each
    from nixwulf.ops.engines.install import remove as take_away
    from nixwulf.plugins.engines import DEFAULT, find

    engine, nodes = find(DEFAULT), _nodes(name, chosen)
    removed = each(lambda node: take_away(node, engine), nodes)
    for node, was_there in zip(nodes, removed, strict=True):
        words = "removed" if was_there else "had none that was installed"
        click.echo(f"{node.node.name}: {words}")


def _nodes(name: str, chosen: tuple[str, ...]) -> list[Connection]:
    """Open connections to the chosen nodes; raises GateError."""
    from nixwulf.nodes.ssh import connections, open_all

    cluster, config = find_cluster(name)
    found = connections(cluster, config)
    nodes = [found[node.name] for node in choose(cluster, chosen)]
    for words in open_all(nodes).values():
        raise GateError(words)
    return nodes


def _progress() -> Callable[[str, str, float], None]:
    """Prints each step of a machine, and how far it is at every tenth."""
    steps: dict[str, tuple[str, int]] = {}

    def observe(machine: str, step: str, share: float) -> None:
        now = (step, _PERCENT_STEP * int(100 * share / _PERCENT_STEP))
        if now > steps.get(machine, ("", 0)) or now[0] != steps[machine][0]:
            steps[machine] = now
            click.echo(f"{machine}: {step}" + (f", {now[1]} %" if now[1] else ""), err=True)

    return observe


def _found() -> list[dict[str, Any]]:
    from nixwulf.plugins.engines import all_engines

    rows = []
    for engine in all_engines().values():
        installation = engine.find_local()
        places = installation.programs if installation else {}
        names = engine.local_programs or engine.programs
        rows.append(
            {
                "engine": engine.name,
                "origin": installation.origin if installation else None,
                "version": installation.version if installation else None,
                "programs": {name: str(places[name]) if name in places else None for name in names},
                "built_from": engine.built_from,
            }
        )
    return rows


def _print(found: list[dict[str, Any]]) -> None:
    """A line an engine, and below it a line a program: a path that is cut off is of no use."""
    for row in found:
        name = row["engine"]
        if row["origin"]:
            origin = {"path": "on PATH", "cache": "built before"}[row["origin"]]
            click.echo(f"{name}: {origin}, version {row['version']}")
            for program, place in row["programs"].items():
                click.echo(f"  {program}: {place}")
        elif row["built_from"]:
            built = f"the first run on the lab builds it from {row['built_from']}"
            click.echo(f"{name}: not found; {built}")
        else:
            click.echo(f"{name}: not found")
