"""A model brought to nodes: from where it is complete, over their fastest fabric, node to node.

A copy while it goes on is a process a node, each the source of the next; two clocks, one token.
The programs of this folder run where the models are: here, and on nodes over ssh.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from nixwulf.core import names
from nixwulf.core.errors import GateError, InputError, NixwulfError, quoted
from nixwulf.core.files import cache_dir, parse_json
from nixwulf.core.names import Refusal
from nixwulf.core.printed import check_numbers
from nixwulf.core.schema import problems
from nixwulf.core.text import GIB, as_typed, did_you_mean
from nixwulf.inventory.cluster import Cluster, Fabric, Node
from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes.process import SHELL, OwnedProcess
from nixwulf.nodes.ssh import Connection, Unreachable, each
from nixwulf.nodes.transfer import run_long
from nixwulf.ops.models import peer, store
from nixwulf.ops.models.peer import Lost, Peer, Wrong
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

    connections: open ones, of the nodes named and others that may have the model. fabric: None: the
    fastest that all who take part share. observer: called with a node's name, and how many bytes it
    has of how many.

    Raises:
        InputError: no machine has the model, or two nodes have different ones.
        GateError: a node has no room.
        NixwulfError: what the source sends is not what it was hashed as.
    """
    model = checked_name(cluster, model)
    reached = list(connections.values())
    listed = each(lambda node: on_node(node, "list", folder=cluster.models), reached)
    listings = {node.node.name: one for node, one in zip(reached, listed, strict=True)}
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
    """Choose sender, manifest's digest, and bytes; this machine's copy decides what is right.

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
    same = (name for name, one in entries.items() if one.get("digest") == right["digest"])
    return next(same, holder), right["digest"], right["bytes"]


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
            f"The ssh user of node {name!r} cannot write to {folder!r}; make that folder and "
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


HERE = "this machine"
PYTHON = ("python3", "-I", "-S", "-c")


def _program(*modules: ModuleType) -> str:
    """A text that is the last of some modules as a program; it finds the others by their names."""
    *known, last = [(one.__name__, Path(one.__file__ or "").read_text("utf-8")) for one in modules]
    return f"""
import sys, types
for name, text in {known!r}:
    sys.modules[name] = types.ModuleType(name)
    exec(text, sys.modules[name].__dict__)
exec({last[1]!r})
"""


STORE = _program(names, store)
PEER = _program(names, store, peer)
_NOT_FOUND = 127
_LOOK = "'nixwulf nodes exec --node {} -- python3 -V'"
_HOURS_S = 24 * 3600.0
_LIMITS_S = {"list": 120.0, "remove": 120.0}  # what reads no whole model
ReadObserver = Callable[[int, int], None]


def folder_here() -> Path:
    """This machine's folder of models."""
    return cache_dir() / "models"


def here(command: Callable[..., Document], *arguments: str) -> Document:
    """Run a command of store.py in this machine's folder; raises NixwulfError."""
    try:
        return command(str(folder_here()), *arguments)
    except (Refusal, OSError) as error:
        words = store.sentence(error) if isinstance(error, OSError) else str(error)
        raise NixwulfError(f"On {HERE} {words}.") from None


def on_node(node: Connection, command: str, **values: object) -> Document:
    """Run a command of store.py on a node; raises NixwulfError."""
    argv = [*PYTHON, STORE, command, json.dumps(values)]
    return _answer(node, command, node.run(argv, timeout_s=_LIMITS_S.get(command, _HOURS_S)))


def index_on(
    node: Connection, folder: str, name: str, observer: ReadObserver = lambda read, size: None
) -> Document:
    """Return a model's size and hashes on a node, which may read it all; raises NixwulfError."""

    def look(line: str) -> None:
        words = line.split()
        if len(words) == len(("read", "size")) and all(word.isdecimal() for word in words):
            observer(int(words[0]), int(words[1]))

    argv = [*PYTHON, STORE, "index", json.dumps({"folder": folder, "name": name})]
    return _answer(node, "index", run_long(node, argv, look))


def _answer(node: Connection, command: str, done: subprocess.CompletedProcess[str]) -> Document:
    name = node.node.name
    try:
        found: Document = parse_json(check_numbers(name, done.stdout), f"node {name!r}")
    except InputError:
        raise NixwulfError(no_python(node, done.returncode, done.stderr)) from None
    if problems({command: found}, "node-models"):
        raise NixwulfError(
            f"Node {name!r} answers {quoted(done.stdout)} of its models, which nixwulf's program "
            f"does not print; look at what {_LOOK.format(name)} says."
        )
    if "error" in found:
        raise NixwulfError(f"On node {node.node.name!r} {found['error']}.")
    return found


def sha256_on(node: Connection, path: str, observer: ReadObserver) -> str | None:
    """Return a model's sha256, read once and kept; None where it cannot be; raises Unreachable."""
    place = PurePosixPath(path)
    try:
        return str(index_on(node, str(place.parent), place.name, observer)["sha256"])
    except Unreachable:
        raise
    except NixwulfError:
        return None


def no_python(node: Connection, returncode: int | None, words: str) -> str:
    """Say why a node's Python printed no JSON."""
    if returncode == _NOT_FOUND:
        return (
            f"Node {node.node.name!r} has no python3 on PATH, which copies and hashes models; "
            "deploy the node or install it (macOS: 'xcode-select --install')."
        )
    name, last = node.node.name, (words.strip().splitlines() or ["no words of why"])[-1]
    return (
        f"python3 on node {name!r} ended with {returncode} and no answer: {last}; look at what "
        f"{_LOOK.format(name)} says."
    )


PORT = TCP["models"]
Observer = Callable[[str, int, int], None]
"""Called with a node's name, the bytes that it has checked and received, and the model's."""
_POLL_S = 0.05
# Nobody has read, received or hashed anything for this long: a cable, a disk or a firewall.
_SILENT_S = 120.0
# Nodes after one that fails lose their connections a moment before its driver hears why.
_BLAME_S = 5.0
# A name where nobody else may look: for a job, which has the token, or a socket.
_STATE_FILE = f"""{SHELL}
private && mktemp -u "$state/models.XXXXXX"
"""


@dataclass(frozen=True)
class Origin:
    """The first sender: a node or HERE, its folder, the digest of the manifest and all bytes."""

    name: str
    folder: str
    digest: str
    bytes: int


@dataclass
class Pushed:
    """The result of a push, by node: bytes received, whether it is complete, or why not."""

    model: str
    source: str
    fabric: str | None
    received: dict[str, int] = field(default_factory=dict)
    complete: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Broken(Exception):
    """A chain that ended early: the nodes whose own fault it is, with a sentence each."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__()
        self.faults = dict(faults)


def copy(
    cluster: Cluster,
    connections: Mapping[str, Connection],
    source: Origin,
    names: Sequence[str],
    fabric: Fabric | None,
    done: Pushed,
    observer: Observer,
) -> None:
    """Copy along a chain of nodes; one that fails is left out, and the others go on.

    What was received is kept, by node, in DONE. Raises NixwulfError where the source is at fault.
    """
    begin = time.monotonic()
    left = list(names)
    try:
        while left:
            try:
                with _chain(cluster, connections, source, left, fabric, done.model) as found:
                    _watch(*found, source.bytes, observer, done)
                return
            except Broken as broken:
                if source.name in broken.faults or not broken.faults:
                    words = broken.faults.get(source.name, "it cannot be reached over the fabric")
                    where = source.name if source.name == HERE else f"node {source.name!r}"
                    raise NixwulfError(
                        f"{done.model!r} cannot be copied from {where}: {words}."
                    ) from None
                done.failures |= broken.faults
                left = [n for n in left if n not in {*done.failures, *done.complete}]
    finally:
        done.seconds = time.monotonic() - begin


@dataclass
class _Link:
    """A machine of a chain and what it has reported; this machine's work is in a thread."""

    name: str
    process: OwnedProcess | None = None
    node: Connection | None = None
    peer: Peer | None = None
    at: int = 0
    said: Document = field(default_factory=dict)

    def look(self) -> None:
        if self.process is not None:
            lines = self.process.output[self.at :].rpartition("\n")[0]
            self.at += len(lines)
            for line in filter(None, lines.split("\n")):
                try:
                    self.said |= json.loads(check_numbers(self.name, line))
                    self.count("read", "present", "received")
                except (ValueError, TypeError, ArithmeticError, RecursionError, NixwulfError):
                    words = f"it printed {quoted(line)} and not how far it is"
                    raise Broken({self.name: words}) from None

    def count(self, *names: str) -> int:
        """The sum of some of its counters."""
        return sum(int(self.said.get(name, 0)) for name in names)

    @property
    def done(self) -> bool:
        return bool(self.said.get("done"))

    def there(self, size: int) -> int:
        """The bytes that it has of a model of SIZE."""
        return size if self.done else self.count("present", "received")

    def failure(self) -> tuple[str, str] | None:
        """The failure's kind (an exception of peer.py) and reason; None while the push goes on."""
        if self.peer is not None:
            failure = self.peer.failure
            return (type(failure).__name__, str(failure)) if failure else None
        if self.process is None or self.node is None or self.process.running:
            return None
        self.look()
        if "error" in self.said:
            return str(self.said.get("kind")), str(self.said["error"])
        if self.process.returncode is None:
            return "Refusal", "the connection to it was lost"
        words = no_python(self.node, self.process.returncode, self.process.errors)
        return "Refusal", words.rstrip(".")


def route(fabric: Fabric, nodes: Sequence[Node]) -> dict[str, str] | None:
    """Return each receiver's sender; the first node has it. None where some cannot receive.

    A chain, so that no node sends twice, and where no cable leads on, a branch of it.
    """
    sources: dict[str, str] = {}
    placed, left = list(nodes[:1]), list(nodes[1:])
    while left:
        pairs = ((one, other) for one in reversed(placed) for other in left)
        joined = (
            (one, other)
            for one, other in pairs
            if one.end_to(fabric.name, other.name) and other.end_to(fabric.name, one.name)
        )
        found = next(joined, None)
        if found is None:
            return None
        sources[found[1].name] = found[0].name
        placed.append(found[1])
        left.remove(found[1])
    return sources


@contextlib.contextmanager
def _chain(
    cluster: Cluster,
    connections: Mapping[str, Connection],
    source: Origin,
    names: Sequence[str],
    fabric: Fabric | None,
    model: str,
) -> Iterator[tuple[list[_Link], dict[str, str]]]:
    """Yield the source and the nodes after it at work, and who sends to whom; stops all."""
    order = list(names) if source.name == HERE else [source.name, *names]
    by_name = {node.name: node for node in cluster.nodes}
    sources = (route(fabric, [by_name[name] for name in order]) if fabric else {}) or {}
    job = {"name": model, "digest": source.digest, "token": secrets.token_hex(16)}
    jobs: dict[str, Document] = {
        name: {**job, "folder": cluster.models, "listen": [], "peers": []} for name in order
    }
    for name, above in sources.items():
        listen = [_address(by_name[above], fabric, name), PORT]
        if listen not in jobs[above]["listen"]:
            jobs[above]["listen"].append(listen)
        jobs[above]["peers"].append(_address(by_name[name], fabric, above))
        jobs[name]["source"] = listen
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="models-")))
        links = []
        if source.name == HERE:
            first = by_name[order[0]]
            own = _address_here(first, fabric, cluster)
            peers = [first.fabrics[fabric.name].address] if own and fabric else []
            where: Any = [own, PORT] if own else str(folder / "socket")
            peer = _peer({**job, "folder": source.folder, "listen": [where], "peers": peers})
            stack.callback(peer.close)
            links.append(_Link(HERE, peer=peer))
            sources[first.name] = HERE
            if not own:
                remote = connections[first.name].script(_STATE_FILE).strip()
                stack.enter_context(connections[first.name].lent(Path(where), remote))
                where = remote
            jobs[first.name]["source"] = where

        def start(name: str) -> _Link:
            node = connections[name]
            path = node.script(_STATE_FILE).strip()
            node.run(["sh", "-c", 'umask 077; cat >"$1"', "sh", path], stdin=json.dumps(jobs[name]))
            argv = [*PYTHON, PEER, path]
            process = OwnedProcess.start(node, f"models-{name}", argv, {}, folder)
            stack.callback(process.stop)
            return _Link(name, process, node)

        yield [*links, *each(start, order)], sources


def _address(node: Node, fabric: Fabric | None, other: str) -> str:
    end = node.end_to(fabric.name, other) if fabric else None
    return end.address if end else ""


def _peer(job: Document) -> Peer:
    """This machine as the source of a chain, at work in a thread."""
    try:
        peer = Peer(job)
    except Refusal as error:
        raise NixwulfError(f"This machine cannot send the model: {error}.") from None

    def run() -> None:
        try:
            peer.run(lambda **_: None)
        except BaseException as error:  # of any kind: the chain looks at peer.failure alone
            peer.fail(error)

    threading.Thread(target=run, daemon=True).start()
    return peer


def _address_here(node: Node, fabric: Fabric | None, cluster: Cluster) -> str | None:
    """This machine's address on a network; None where it is not on it, or is a node itself."""
    if fabric is None or fabric.name not in node.fabrics:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((node.fabrics[fabric.name].address, PORT))  # asks for the route alone
        except OSError:
            return None
        own = str(probe.getsockname()[0])
    taken = [end.address for one in cluster.nodes for end in one.all_ends]
    return own if ipaddress.IPv4Address(own) in fabric.subnet and own not in taken else None


def _watch(
    links: Sequence[_Link], sources: Mapping[str, str], size: int, observer: Observer, done: Pushed
) -> None:
    receivers = [link for link in links if link.name != done.source]
    moved, moved_at = -1, time.monotonic()
    failing_since = 0.0
    try:
        while not all(link.done for link in receivers):
            time.sleep(_POLL_S)
            for link in links:
                link.look()
            for link in receivers:
                observer(link.name, link.there(size), size)
            now = time.monotonic()
            total = sum(link.count("read", "received") for link in links)
            if total != moved:
                moved, moved_at = total, now
            elif now - moved_at > _SILENT_S:
                late = next(link for link in receivers if not link.done)
                words = f"{_SILENT_S:.0f} s after {late.there(size)} of {size} bytes"
                raise Broken({late.name: f"nothing arrived for {words}"})
            failing_since = _require_no_fault(links, sources, failing_since)
    finally:
        for link in receivers:
            if link.done or link.count("received"):
                earlier = done.received.get(link.name, 0)
                done.received[link.name] = earlier + link.count("received")
            if link.done:
                done.complete.add(link.name)


def _require_no_fault(
    links: Sequence[_Link], sources: Mapping[str, str], failing_since: float
) -> float:
    """Raise Broken where it is known whose fault a failure is, or it is not known in time.

    Gives since when something has failed, 0 where nothing has.
    """
    failures = {link.name: found for link in links if (found := link.failure())}
    if not failures:
        return failing_since
    now = time.monotonic()
    faults = _faults(sources, failures)
    if faults or now - (failing_since or now) > _BLAME_S:
        raise Broken(faults)
    return failing_since or now


def _faults(sources: Mapping[str, str], failures: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Whose fault it is, and why: wrong data are the fault of who sent them."""
    return {
        sources[name] if kind == Wrong.__name__ else name: words
        for name, (kind, words) in failures.items()
        if kind != Lost.__name__
    }
