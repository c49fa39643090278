"""nixwulf engines and models: what nodes need to run a model, brought to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli import options
from nixwulf.core.errors import EXIT_RUN_FAILED, GateError, InputError, one_line
from nixwulf.core.text import GIB, as_typed, clean, did_you_mean, some

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster
    from nixwulf.nodes.ssh import Connection


@click.group(cls=options.NamedGroup, invoke_without_command=True)
@options.json_format()
def engines(form: str) -> None:
    """Show the engines' programs on this machine: the ones that the lab's nodes run.

    On a cluster of machines every node needs its own; 'nixwulf engines install' brings llama.cpp.

    \b
    Examples:
      nixwulf engines
      nixwulf engines --format json
    """
    if not click.get_current_context().invoked_subcommand:
        found = _found()
        options.print_json({"engines": found}, "engines") if form == "json" else _print(found)


@engines.command()
@click.argument("engine", required=False)
@click.option("--cluster", "name", type=options.CLUSTER, metavar="FILE|NAME", help="The cluster.")
@options.only_nodes
@click.option("--toolbox", metavar="NAME", help="Pull this image instead; sweeps name it so.")
@click.option("--accept", is_flag=True, help="Fix the toolbox's tag to today's digest.")
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
        show = options.machine_progress()
        made = find(engine, "ENGINE").install_local(lambda step, share: show(engine, step, share))
        places = ", ".join(map(str, made.programs.values()))
        click.echo(f"{engine}: {made.version}, {places}")
        return
    if not name or engine not in (None, DEFAULT):
        raise InputError(
            "Name a cluster with --cluster, to whose nodes llama.cpp is brought, or an engine "
            "alone for this machine: nixwulf engines install vllm"
        )
    cluster, nodes = options.open_nodes(name, chosen)
    if toolbox:
        _pull(toolbox, cluster, nodes, accept=accept)
        return
    if accept:
        raise InputError("--accept is of a toolbox; name it with --toolbox.")
    for one in bring(nodes, find(DEFAULT), options.machine_progress()):
        click.echo(clean(f"{one.node}: {one.how}; {one.version}"))
        if one.idle:
            options.tell(
                f"{one.node}: its GPU is left idle; get what a build for it needs by {one.idle!r} "
                "and repeat this, or take an image by --toolbox."
            )


@engines.command()
@options.machines
@options.only_nodes
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

    engine, (cluster, nodes) = find(DEFAULT), options.open_nodes(name, chosen)
    if toolbox:
        image = container.resolve(toolbox, "--toolbox", cluster.source)
        removed = each(lambda node: install.remove_images(node, image), nodes)
    else:
        removed = each(lambda node: install.remove(node, engine), nodes)
    for node, was_there in zip(nodes, removed, strict=True):
        words = "removed" if was_there else "had none that was installed"
        click.echo(f"{node.node.name}: {words}")


def _pull(name: str, cluster: Cluster, nodes: list[Connection], *, accept: bool) -> None:
    from nixwulf.nodes import container
    from nixwulf.ops.engines import install

    held = [*install.hold([name], cluster.source)]
    if not held and "@" not in name:
        held = [*filter(None, [install.hold_again(name, cluster.source, accept=accept)])]
    options.tell(*held)
    image = container.resolve(name, "--toolbox", cluster.source)
    for node, programs in install.pull(nodes, image, options.machine_progress()).items():
        has = clean(", ".join(programs)) or "no program of an engine"
        click.echo(f"{node}: {image} has {has}")


@dataclass(frozen=True)
class _Local:
    engine: str
    origin: str | None
    version: str | None
    programs: Mapping[str, str | None]
    built_from: str | None


def _found() -> list[_Local]:
    from nixwulf.plugins.engines import all_engines

    rows = []
    for engine in (one for one in all_engines().values() if not one.elsewhere):
        found = engine.find_local()
        places = found.programs if found else {}
        names = engine.local_programs or engine.programs
        programs = {name: str(places[name]) if name in places else None for name in names}
        origin, version = (found.origin, found.version) if found else (None, None)
        rows.append(_Local(engine.name, origin, version, programs, engine.built_from))
    return rows


def _print(found: list[_Local]) -> None:
    """A line an engine, and below it a line a program: a path that is cut off is of no use."""
    for row in found:
        if row.origin:
            origin = {"path": "on PATH", "cache": "built before"}[row.origin]
            click.echo(f"{row.engine}: {origin}, version {row.version}")
            for program, place in row.programs.items():
                click.echo(f"  {program}: {place}")
        else:
            built = f"; the first run on the lab builds it from {row.built_from}"
            click.echo(f"{row.engine}: not found{built if row.built_from else ''}")


_SHA_DIGITS = 12
nodes_too = click.option(
    "--cluster",
    metavar="FILE|NAME",
    help="On the nodes of this cluster (default: on this machine).",
)


@click.group(cls=options.NamedGroup)
def models() -> None:
    """Get models, push them to nodes over their fastest fabric, and check every copy.

    A model is a file (.gguf, .m, .t), all parts of a split GGUF, or a folder with safetensors, and
    its name is its path in a folder of models: on this machine ~/.cache/nixwulf/models, on nodes
    the cluster file's `models` (/models), which the ssh user has to be able to write to. Beside
    the models, .nixwulf has the sha256 of each file and each MiB of it.
    """


@models.command()
@click.argument("source")
@click.option("--only", metavar="PATTERN", help="Files of a hub's repository, e.g. '*Q4_K_M*'.")
@click.option("--revision", help="Commit, tag or branch on the hub (default: main).")
@click.option("--sha256", metavar="HEX", help="The file's sha256; a hub gives its own.")
def get(source: str, only: str | None, revision: str | None, sha256: str | None) -> None:
    """Get a model into this machine's folder: from a hub, a URL or a path.

    SOURCE is ORG/REPO on Hugging Face (or $HF_ENDPOINT; log in by 'hf auth login' or $HF_TOKEN), a
    URL of one file, or a path. What was cut off goes on where it stopped. The hub's sha256 of each
    file is checked, and the commit is kept.

    \b
    Examples:
      nixwulf models get Qwen/Qwen3-8B
      nixwulf models get unsloth/Qwen3-8B-GGUF --only '*Q4_K_M*'
      nixwulf models get ./mine.gguf
    """
    from nixwulf.ops.models.get import get as get_model

    found = get_model(source, only, revision, sha256, options.tell)
    origin = f", {found['origin']}" if found.get("origin") else ""
    click.echo(f"{found['name']}: {_size(found['bytes'])}, sha256 {found['sha256']}{origin}")
    again = as_typed("models", "push", found["name"], "--cluster", "FILE")
    options.tell(f"Push it by {again}.")


@models.command()
@click.argument("model")
@options.machines
@options.only_nodes
@click.option("--engine", metavar="NAME", help="Push to the nodes on which this engine reads it.")
@click.option("--fabric", metavar="NAME", help="Cross this fabric (default: the fastest shared).")
def push(
    model: str, name: str, chosen: tuple[str, ...], engine: str | None, fabric: str | None
) -> None:
    """Bring a model to the nodes that need it, and mend copies that are damaged or cut off.

    A GGUF goes to the first node, whose RPC servers get their tensors from there; a folder goes to
    all nodes; --engine or --node say otherwise. The source is this machine's copy, or a node's.
    Each node sends on what it receives: by TCP on its fabric's address, not through ssh, to the
    next node alone, every MiB hashed. This machine sends through ssh where it is on no fabric of
    the nodes. What a node has already is not sent again.

    \b
    Examples:
      nixwulf models push Qwen3-8B --cluster clusters/mine.toml
      nixwulf models push big.gguf --cluster mine --node n2 --fabric thunderbolt
    """
    from nixwulf.nodes.ssh import open_all
    from nixwulf.ops.models.push import push as push_model
    from nixwulf.ops.models.push import readers

    cluster, reached, names = options.find_nodes(name, chosen)
    if not chosen:
        names = readers(cluster, model, engine)
    elif engine:
        raise click.UsageError("--node names the nodes; leave out --engine.")
    for node, words in open_all(reached.values()).items():
        if node in names:
            raise GateError(words)
        del reached[node]
    observe = options.machine_progress()

    def copied(node: str, got: int, size: int) -> None:
        observe(node, "copy", got / max(1, size))

    done = push_model(cluster, reached, model, names, fabric, copied)
    for node in names:
        if node in done.failures:
            options.report(node, done.failures[node])
        else:
            received = done.received.get(node, 0)
            click.echo(
                f"{node}: complete, " + (f"received {_size(received)}" if received else "as it was")
            )
    if done.seconds:
        across = f" over {done.fabric}" if done.fabric else ""
        options.tell(f"From {done.source}{across} in {done.seconds:.1f} s.")
    options.end(EXIT_RUN_FAILED if done.failures else 0)


@models.command("ls")
@nodes_too
@options.only_nodes
@options.json_format()
def list_(cluster: str | None, chosen: tuple[str, ...], form: str) -> None:
    """List the models of this machine and, with --cluster, of its nodes.

    complete: every file is there, as when it was hashed; unread: not hashed yet; incomplete: a copy
    was cut off; damaged: 'verify' found other data. 'push' mends the last two.
    """
    from nixwulf.core.document import Column, Table, output, rich_table

    listings = _from(None, (), "list")
    if cluster or chosen:
        listings |= _from(cluster, chosen, "list")
    if form == "json":
        options.print_json({"machines": listings}, "models")
        return
    rows = [
        [name, one["name"], _size(one["bytes"]), one["state"], one.get("sha256", "")[:_SHA_DIGITS]]
        for name, listing in listings.items()
        for one in listing["models"]
    ]
    for name, listing in listings.items():
        click.echo(
            f"{name}: {clean(listing['folder'])}, {listing['free'] / GIB:.1f} GiB free"
            + ("" if listing["models"] else ", no model")
        )
    heads = ("machine", "model", "size", "state", "sha256")
    columns = [Column(head, number=head == "size", whole=True) for head in heads]
    if rows:
        output().print(rich_table(Table(columns, rows)))


@models.command()
@click.argument("model")
@nodes_too
@options.only_nodes
@options.json_format()
def verify(model: str, cluster: str | None, chosen: tuple[str, ...], form: str) -> None:
    """Read a model again and compare every MiB with its sha256: any flipped bit is found.

    One that was never hashed is hashed now. The exit code is 1 where something is damaged; 'push'
    then mends it from another machine's copy.
    """
    found = _from(cluster, chosen, "verify", model)
    damaged = {name: one["damaged"] for name, one in found.items() if one["damaged"]}
    if form == "json":
        options.print_json({"machines": found}, "verification")
    else:
        for name, one in found.items():
            words = "hashed for the first time" if one["first"] else "as it was hashed"
            words = one_line(_damage(one["damaged"])) or words
            click.echo(f"{name}: {words}, sha256 {one['sha256']}")
    if damaged:
        again = as_typed("models", "push", model, "--cluster", cluster or "FILE")
        options.tell(f"Mend it by {again}.")
    options.end(EXIT_RUN_FAILED if damaged else 0)


@models.command()
@click.argument("model")
@nodes_too
@options.only_nodes
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(model: str, cluster: str | None, chosen: tuple[str, ...], yes: bool) -> None:
    """Remove a model from this machine's folder or, with --cluster, from the nodes'.

    Only files of that model go; nothing outside of the folder is ever removed.
    """
    from nixwulf.ops.models.push import HERE, entry_of

    listings = _from(cluster, chosen, "list")
    having = [name for name, listing in listings.items() if entry_of(listing, model)]
    if not having:
        known = {one["name"]: None for listing in listings.values() for one in listing["models"]}
        raise InputError(f"No model {model!r} on {some([*listings])}; {did_you_mean(model, known)}")
    if not yes:
        options.confirm(f"Remove {model!r} from {', '.join(having)}?", "--yes")
    on = () if having == [HERE] else tuple(having)
    for name, one in _from(cluster, on, "remove", model).items():
        click.echo(f"{name}: removed {_size(one['bytes'])}")


def _from(
    name: str | None, chosen: tuple[str, ...], command: str, *model: str
) -> dict[str, dict[str, Any]]:
    """Run a command of the store on each chosen node, else here; raises GateError."""
    from nixwulf.nodes.ssh import each
    from nixwulf.ops.models import store
    from nixwulf.ops.models.push import HERE, checked_name, here, on_node

    if not (name or chosen):
        own: dict[str, Callable[..., dict[str, Any]]]
        own = {"list": store.list_models, "verify": store.verify, "remove": store.remove}
        return {HERE: here(own[command], *model)}
    cluster, nodes = options.open_nodes(name, chosen)
    values = {"name": checked_name(cluster, *model)} if model else {}
    results = each(lambda node: on_node(node, command, folder=cluster.models, **values), nodes)
    return dict(zip((one.node.name for one in nodes), results, strict=True))


def _damage(wrong: dict[str, list[int]]) -> str:
    return "; ".join(
        f"{name} is DAMAGED in {len(chunks)} of its MiB (first: {chunks[0]})"
        if chunks
        else f"{name} has another size"
        for name, chunks in wrong.items()
    )


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
