"""A model brought to nodes: from where it is complete, over their fastest fabric, node to node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.names import Refusal
from nixwulf.core.text import GIB, as_typed, did_you_mean
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.nodes.ssh import Connection, each
from nixwulf.ops.models import store
from nixwulf.ops.models.chain import (
    HERE,
    Observer,
    Origin,
    Pushed,
    copy,
    folder_here,
    here,
    index_on,
    on_node,
    route,
)
from nixwulf.ops.models.store import Document, Place
from nixwulf.plugins import engines


def readers(cluster: Cluster, model: str, engine: str | None) -> list[str]:
    """The nodes that read a model: llama.cpp's RPC servers get theirs from the head.

    Without an engine the model's form decides: a GGUF is llama.cpp's, a folder is read by all.
    """
    known = engines.all_engines()
    of_form = [
        name
        for name, one in known.items()
        if not one.elsewhere and model.endswith(one.model_suffixes or "/")
    ]
    default = engines.DEFAULT if engines.DEFAULT in of_form else next(iter(of_form), None)
    chosen = engines.find(engine, "--engine") if engine else known.get(default or "")
    everyone = [node.name for node in cluster.nodes]
    return everyone if chosen is None or chosen.model_on_every_node else everyone[:1]


def checked_name(cluster: Cluster, model: str) -> str:
    """A model's name, of a split GGUF its first part; raises InputError for any other path."""
    try:
        return Place(cluster.models, model).name
    except Refusal as error:
        raise InputError(f"{error}; name it as 'nixwulf models ls' does.") from None


def push(
    cluster: Cluster,
    connections: Mapping[str, Connection],
    model: str,
    names: Sequence[str],
    fabric: str | None,
    observer: Observer,
) -> Pushed:
    """Bring a model to nodes that lack it or have a part; what each received, or why it did not.

    Args:
        connections: open ones, of the nodes named and others that may have the model.
        fabric: the one to cross; None: the fastest that all who take part share.
        observer: called with a node's name, and how many bytes it has of how many.

    Raises:
        InputError: no machine has the model, or two nodes have different ones.
        GateError: a node has no room.
        NixwulfError: what the source sends is not what it was hashed as.
    """
    model = checked_name(cluster, model)
    reached = list(connections.values())
    listings = dict(
        zip(
            (node.node.name for node in reached),
            each(lambda node: on_node(node, "list", folder=cluster.models), reached),
            strict=True,
        )
    )
    entries = {name: entry_of(listing, model) for name, listing in listings.items()}
    source, digest, size = _source(cluster, connections, model, entries)
    todo = [name for name in names if entries[name].get("digest") != digest and name != source]
    there = [name for name in names if name not in todo]
    done = Pushed(model, source, None, dict.fromkeys(there, 0), set(there))
    if not todo:
        return done
    for name in todo:
        _require_room(name, cluster.models, listings[name], size - entries[name].get("present", 0))
    by_name = {node.name: node for node in cluster.nodes}
    members = [by_name[name] for name in (source, *todo) if name in by_name]
    crossed = _fabric(cluster, members, fabric)
    done.fabric = crossed.name if crossed else None
    start = Origin(source, str(folder_here()) if source == HERE else cluster.models, digest, size)
    copy(cluster, connections, start, todo, crossed, done, observer)
    for name in sorted(done.complete & set(todo)):
        listing = on_node(connections[name], "list", folder=cluster.models)
        if entry_of(listing, model).get("digest") != digest:
            done.complete.discard(name)
            done.failures[name] = (
                f"it said that all of {model!r} is there, and it is not; look at it by "
                + as_typed("models", "verify", model, "--cluster", cluster.source, "--node", name)
            )
    return done


def entry_of(listing: Document, model: str) -> Document:
    """A model's entry of a listing; empty where it is not there."""
    return next((one for one in listing["models"] if one["name"] == model), {})


def _source(
    cluster: Cluster, nodes: Mapping[str, Connection], model: str, entries: Mapping[str, Document]
) -> tuple[str, str, int]:
    """Who sends, the manifest's digest, and bytes; a copy of this machine decides what is right.

    A node that has the same sends it rather than this machine, which may not be on the fabric.
    """
    own = entry_of(here(store.list_models), model)
    if own.get("state") in {"complete", "unread"}:
        right = here(store.index, model)
        holder = HERE
    else:
        complete = {name: one for name, one in entries.items() if one.get("state") == "complete"}
        unread = [name for name, one in entries.items() if one.get("state") == "unread"]
        by_digest = {one["digest"]: name for name, one in complete.items()}
        if len(by_digest) > 1:
            first, second = list(by_digest.values())[:2]
            remove = as_typed("models", "rm", model, "--cluster", cluster.source, "--node", second)
            raise InputError(
                f"Nodes {first!r} and {second!r} have different models {model!r}; remove the wrong "
                f"one by {remove}."
            )
        if not complete and not unread:
            raise InputError(_nowhere(model, {HERE: own, **entries}))
        holder = next(iter([*complete, *unread]))
        right = complete.get(holder) or index_on(nodes[holder], cluster.models, model)
    for name, one in entries.items():
        if one.get("digest") == right["digest"]:
            holder = name
            break
    return holder, right["digest"], right["bytes"]


def _nowhere(model: str, entries: Mapping[str, Document]) -> str:
    found = [f"{one['state']} on {name}" for name, one in entries.items() if one]
    state = f" (it is {', '.join(found)})" if found else ""
    return (
        f"No machine has a complete model {model!r}{state}; get it by 'nixwulf models get' from a "
        f"hub, a URL or a path into {str(folder_here())!r}."
    )


def _require_room(name: str, folder: str, listing: Document, needed: int) -> None:
    if not listing["writable"]:
        raise GateError(
            f"Node {name!r} lets its ssh user write nothing to {folder!r}; make that folder and "
            "give it to the user, or name another in the cluster file by 'models'."
        )
    if needed > listing["free"]:
        raise GateError(
            f"Node {name!r} has {listing['free'] / GIB:.2f} GiB free in {folder!r} and the model "
            f"needs {needed / GIB:.2f}; remove one by 'nixwulf models rm'."
        )


def _fabric(cluster: Cluster, members: Sequence[Node], name: str | None) -> Fabric | None:
    """The fabric that reaches all, named or the fastest; None where no two nodes take part."""
    if name is not None and name not in cluster.fabrics:
        raise InputError(
            f"--fabric: {cluster.name!r} has no {name!r}; {did_you_mean(name, cluster.fabrics)}"
        )
    chosen = [cluster.fabrics[name]] if name else list(cluster.fabrics.values())
    on_it = [one for one in chosen if all(one.name in node.fabric_names for node in members)]
    shared = [one for one in on_it if route(one, members) is not None]
    if shared:
        return max(shared, key=lambda one: one.speed_gbps)
    if len(members) == 1 and name is None:
        return None
    raise InputError(
        f"Nodes {', '.join(node.name for node in members)} share no fabric"
        + (f" {name!r}" if name else "")
        + "; choose nodes that do by --node, or put them on one in the cluster file."
    )


def require_all(done: Pushed) -> None:
    """Raise NixwulfError with the first failure of a push."""
    for name, words in done.failures.items():
        raise NixwulfError(f"Node {name!r} did not get {done.model!r}: {words}")
