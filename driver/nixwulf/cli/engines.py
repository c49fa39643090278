"""nixwulf engines: those of this machine, and the one that is brought to nodes without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli.options import (
    CLUSTER,
    NamedGroup,
    json_format,
    machine_progress,
    machines,
    only_nodes,
    open_nodes,
    print_json,
)
from nixwulf.core.errors import InputError
from nixwulf.core.text import clean

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster
    from nixwulf.nodes.ssh import Connection


@click.group(cls=NamedGroup, invoke_without_command=True)
@json_format()
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
    (print_json if form == "json" else _print)(_found())


@engines.command()
@click.argument("engine", required=False)
@click.option("--cluster", "name", type=CLUSTER, metavar="FILE|NAME", help="The cluster.")
@only_nodes
@click.option("--toolbox", metavar="NAME", help="Pull this image instead; sweeps name it so.")
@click.option("--accept", is_flag=True, help="Hold the toolbox's tag to its digest of today.")
def install(
    engine: str | None, name: str | None, chosen: tuple[str, ...], toolbox: str | None, accept: bool
) -> None:
    """Bring llama.cpp to nodes that are not deployed, one build for all of a kind.

    With an ENGINE and no cluster it is made on this machine, for the lab, as its first run there
    would: llama.cpp, mlx, or vllm, whose build for CPUs is 2.1 GB of wheels held by their hashes.

    It is built once on a node of each kind (CPU, GPU, distribution), 10 CPU minutes and more for a
    GPU, from the source that the lab's build has, checked by its sha256. Nodes of the same kind get
    a copy, and every node has to print the same version. It lies in ~/.cache/nixwulf/engines on the
    nodes, where the driver looks before PATH; nothing needs root and no file of a shell is changed.
    CUDA, ROCm, Vulkan and RDMA are built in where their headers and compilers are on the node.
    Where all nodes have one version on PATH, that is kept.

    With --toolbox podman pulls a container image, for sweeps with the parameter `toolbox`: a name
    of the list, IMAGE:TAG or IMAGE@sha256:DIGEST. A tag is looked up once and its digest kept
    beside the cluster file (mine.lock.json); where the tag has another one later, this refuses. A
    toolbox is never chosen unasked: it is made for one generation of GPUs, and sweeps without that
    parameter run the nodes' own programs, to be compared with it.

    \b
    Examples:
      nixwulf engines install --cluster clusters/mine.toml
      nixwulf engines install --cluster mine.toml --toolbox llama-vulkan-radv
      nixwulf engines install vllm
    """
    from nixwulf.ops.engines.install import install as bring
    from nixwulf.plugins.engines import DEFAULT, find

    if engine and not name:
        show = machine_progress()
        made = find(engine, "ENGINE").install_local(lambda step, share: show(engine, step, share))
        places = ", ".join(map(str, made.programs.values()))
        click.echo(f"{engine}: {made.version}, {places}")
        return
    if not name or engine not in (None, DEFAULT):
        raise InputError(
            "Name a cluster with --cluster, to whose nodes llama.cpp is brought, or an engine "
            "alone for this machine: nixwulf engines install vllm"
        )
    cluster, nodes = open_nodes(name, chosen)
    if toolbox:
        _pull(toolbox, cluster, nodes, accept=accept)
        return
    if accept:
        raise InputError("--accept is of a toolbox; name it with --toolbox.")
    for one in bring(nodes, find(DEFAULT), machine_progress()):
        click.echo(clean(f"{one.node}: {one.how}; {one.version}"))
        if one.idle:
            click.echo(
                f"{one.node}: its GPU is left idle; get what a build for it needs by {one.idle!r} "
                "and repeat this, or take an image by --toolbox.",
                err=True,
            )


@engines.command()
@machines
@only_nodes
@click.option("--toolbox", metavar="NAME", help="Remove this image instead.")
def remove(name: str, chosen: tuple[str, ...], toolbox: str | None) -> None:
    """Remove what 'nixwulf engines install' brought, and nothing else.

    \b
    Examples:
      nixwulf engines remove --cluster clusters/mine.toml --node n2
    """
    from nixwulf.nodes import container
    from nixwulf.nodes.ssh import each
    from nixwulf.ops.engines import install
    from nixwulf.plugins.engines import DEFAULT, find

    engine, (cluster, nodes) = find(DEFAULT), open_nodes(name, chosen)
    if toolbox:
        image = container.resolve(toolbox, "--toolbox", cluster.source)
        removed = each(lambda node: install.remove_images(node, image), nodes)
    else:
        removed = each(lambda node: install.remove(node, engine), nodes)
    for node, was_there in zip(nodes, removed, strict=True):
        words = "removed" if was_there else "had none that was installed"
        click.echo(f"{node.node.name}: {words}")


def _pull(name: str, cluster: Cluster, nodes: list[Connection], *, accept: bool) -> None:
    """Hold a toolbox to a digest, and bring its image to nodes."""
    from nixwulf.nodes import container
    from nixwulf.ops.engines import install

    held = [*install.hold([name], cluster.source)]
    if not held and "@" not in name:
        held = [*filter(None, [install.hold_again(name, cluster.source, accept=accept)])]
    for sentence in held:
        click.echo(sentence, err=True)
    image = container.resolve(name, "--toolbox", cluster.source)
    for node, programs in install.pull(nodes, image, machine_progress()).items():
        has = clean(", ".join(programs)) or "no program of an engine"
        click.echo(f"{node}: {image} has {has}")


def _found() -> list[dict[str, Any]]:
    from nixwulf.plugins.engines import all_engines

    rows = []
    for engine in all_engines().values():
        if engine.elsewhere:
            continue
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
        else:
            built = f"; the first run on the lab builds it from {row['built_from']}"
            click.echo(f"{name}: not found{built if row['built_from'] else ''}")
