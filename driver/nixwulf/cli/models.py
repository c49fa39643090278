"""nixwulf models: models got from a hub, pushed to the nodes, listed, verified, removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nixwulf.cli.options import (
    NamedGroup,
    choose,
    confirm,
    find_cluster,
    json_format,
    machine_progress,
    machines,
    only_nodes,
    open_nodes,
    print_json,
)
from nixwulf.core.errors import EXIT_RUN_FAILED, GateError, InputError, one_line
from nixwulf.core.text import GIB, as_typed, clean, did_you_mean, some

_SHA_DIGITS = 12
nodes_too = click.option(
    "--cluster",
    metavar="FILE|NAME",
    help="On the nodes of this cluster (default: on this machine).",
)


@click.group(cls=NamedGroup)
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
@click.option(
    "--sha256", metavar="HEX", help="What a file has to be; of a hub's, the hub gives it."
)
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

    found = get_model(source, only, revision, sha256, lambda words: click.echo(words, err=True))
    origin = f", {found['origin']}" if found.get("origin") else ""
    click.echo(f"{found['name']}: {_size(found['bytes'])}, sha256 {found['sha256']}{origin}")
    again = as_typed("models", "push", found["name"], "--cluster", "FILE")
    click.echo(f"Push it by {again}.", err=True)


@models.command()
@click.argument("model")
@machines
@only_nodes
@click.option("--engine", metavar="NAME", help="Push to the nodes on which this engine reads it.")
@click.option("--fabric", metavar="NAME", help="Cross this fabric (default: the fastest shared).")
@click.pass_context
def push(
    ctx: click.Context,
    model: str,
    name: str,
    chosen: tuple[str, ...],
    engine: str | None,
    fabric: str | None,
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
    from nixwulf.nodes.ssh import connections, open_all
    from nixwulf.ops.models.push import push as push_model
    from nixwulf.ops.models.push import readers

    cluster, config = find_cluster(name)
    names = [node.name for node in choose(cluster, chosen)]
    if not chosen:
        names = readers(cluster, model, engine)
    elif engine:
        raise click.UsageError("--node names the nodes; leave out --engine.")
    reached = connections(cluster, config)
    for node, words in open_all(reached.values()).items():
        if node in names:
            raise GateError(words)
        del reached[node]
    observe = machine_progress()

    def copied(node: str, got: int, size: int) -> None:
        observe(node, "copy", got / max(1, size))

    done = push_model(cluster, reached, model, names, fabric, copied)
    for node in names:
        if node in done.failures:
            click.echo(f"{node}: {one_line(done.failures[node])}", err=True)
        else:
            received = done.received.get(node, 0)
            click.echo(
                f"{node}: complete, " + (f"received {_size(received)}" if received else "as it was")
            )
    if done.seconds:
        across = f" over {done.fabric}" if done.fabric else ""
        click.echo(f"From {done.source}{across} in {done.seconds:.1f} s.", err=True)
    ctx.exit(EXIT_RUN_FAILED if done.failures else 0)


@models.command("ls")
@nodes_too
@only_nodes
@json_format()
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
        print_json({"schema_version": "1.0", "machines": listings})
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
@only_nodes
@json_format()
@click.pass_context
def verify(
    ctx: click.Context, model: str, cluster: str | None, chosen: tuple[str, ...], form: str
) -> None:
    """Read a model again and compare every MiB with its sha256: any flipped bit is found.

    One that was never hashed is hashed now. The exit code is 1 where something is damaged; 'push'
    then mends it from another machine's copy.
    """
    found = _from(cluster, chosen, "verify", model)
    damaged = {name: one["damaged"] for name, one in found.items() if one["damaged"]}
    if form == "json":
        print_json({"schema_version": "1.0", "machines": found})
    else:
        for name, one in found.items():
            words = "hashed for the first time" if one["first"] else "as it was hashed"
            words = one_line(_damage(one["damaged"])) or words
            click.echo(f"{name}: {words}, sha256 {one['sha256']}")
    if damaged:
        again = as_typed("models", "push", model, "--cluster", cluster or "FILE")
        click.echo(f"Mend it by {again}.", err=True)
    ctx.exit(EXIT_RUN_FAILED if damaged else 0)


@models.command()
@click.argument("model")
@nodes_too
@only_nodes
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
        confirm(f"Remove {model!r} from {', '.join(having)}?", "--yes")
    on = () if having == [HERE] else tuple(having)
    for name, one in _from(cluster, on, "remove", model).items():
        click.echo(f"{name}: removed {_size(one['bytes'])}")


def _from(
    name: str | None, chosen: tuple[str, ...], command: str, *model: str
) -> dict[str, dict[str, Any]]:
    """What a command of the store gives on each chosen node, else here; raises GateError."""
    from nixwulf.nodes.ssh import each
    from nixwulf.ops.models import store
    from nixwulf.ops.models.push import HERE, checked_name, here, on_node

    if not (name or chosen):
        own: dict[str, Callable[..., dict[str, Any]]]
        own = {"list": store.list_models, "verify": store.verify, "remove": store.remove}
        return {HERE: here(own[command], *model)}
    cluster, nodes = open_nodes(name, chosen)
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
