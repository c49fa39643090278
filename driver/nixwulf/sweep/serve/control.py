"""A service brought up, found again, stopped: what its commands and its watch do with its nodes."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf import __version__
from nixwulf.core import web
from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.schema import check
from nixwulf.core.text import did_you_mean
from nixwulf.nodes.facts import listeners
from nixwulf.nodes.ssh import Connection, Unreachable, each
from nixwulf.plugins.runtime.openai_stream import MESSAGE_TEXTS
from nixwulf.sweep.serve import proxy, units
from nixwulf.sweep.serve.counters import MODELS
from nixwulf.sweep.serve.service import (
    EVENTS,
    FILE,
    PROXY,
    STATUS,
    WATCH,
    ServedGroup,
    Service,
    ServiceEvent,
    read_service,
)
from nixwulf.sweep.serve.trial import Command

if TYPE_CHECKING:
    import httpx

Nodes = Mapping[str, Connection]
_WORKERS_S = 15.0
_ASK_S = 5.0
_POLL_S = 0.2
_MOST_TEXT = 2000
_SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; :"
# Whether a program here is this version, and each of the other nodes can be reached from here.
_CAN_WATCH = """
for one in "$1" nixwulf; do
  "$one" --version 2>/dev/null | grep -qF "version $2" || continue
  echo "program $(command -v "$one")"
  break
done
shift 2
for one; do
  ssh -o BatchMode=yes -o ConnectTimeout=5 "$one" true </dev/null 2>/dev/null || echo "lost $one"
done
"""


@dataclass(frozen=True)
class Found:
    """A service and the connections to its nodes, as far as they are of the cluster."""

    service: Service
    nodes: Nodes

    @property
    def head(self) -> Connection:
        """Where its files and its URL are."""
        return self.nodes[self.service.head]


def find_all(nodes: Nodes) -> list[Found]:
    """The services of a cluster's nodes, by name; of those that do not answer there are none."""

    def own(node: Connection) -> list[Service]:
        with suppress(Unreachable):
            names = units.services(node, FILE)
            texts = {name: units.show(node, name, FILE) for name in names}
            return [read_service(text, f"{node.node.name}: {name}") for name, text in texts.items()]
        return []

    services = [one for several in each(own, nodes.values()) for one in several]
    return [Found(one, nodes) for one in sorted(services, key=lambda one: one.name)]


def find(nodes: Nodes, name: str | None) -> Found:
    """The service of a name, or the only one; raises InputError with those there are."""
    found = {one.service.name: one for one in find_all(nodes)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    if not found:
        raise InputError("Nothing is served here; start something by 'nixwulf serve best.yaml'.")
    if name is None:
        raise InputError(f"Several services are here: {', '.join(found)}; name one of them.")
    raise InputError(f"No service {name!r} is here; {did_you_mean(name, found)}")


def place(service: Service, commands: Iterable[Command], nodes: Nodes) -> None:
    """Write what starts its processes on their nodes, and the service itself on its head.

    Raises GateError: one of its ports is in use.
    """
    require_ports(service, nodes)
    for one in commands:
        units.write(nodes[one.node], service.name, one.unit, one.argv, one.environment)
    if service.proxied:
        proxy.write(nodes[service.head], service)
    save(service, nodes)


def save(service: Service, nodes: Nodes) -> None:
    """Write the service on its head."""
    text = json.dumps(service.document(), indent=1)
    units.save(nodes[service.head], service.name, FILE, text)


def require_ports(service: Service, nodes: Nodes) -> None:
    """Raise GateError where something else listens on a port of the service."""
    wanted = [(one.head, one.port) for one in service.groups]
    wanted += [(service.head, service.port)]
    for group in service.groups:
        wanted += [(u.node, port) for u in group.units[:-1] for port in group.worker_ports]
    for name, port in dict.fromkeys(wanted):
        if port in _listening(nodes[name]):
            raise GateError(
                f"Port {port} of node {name!r} is in use; see 'ss -tlnp' there, or give another "
                "by --port."
            )


def _listening(node: Connection) -> set[int]:
    return {port for _, port in listeners(node.script(_SOCKETS))}


def start_server(service: Service, group: ServedGroup, nodes: Nodes) -> None:
    """Start a server's processes: workers first, and once they listen the one that answers.

    Raises:
        Gone: Its model is not there any more.
        NixwulfError: A node cannot start one, or does not answer.
    """
    *workers, last = group.units
    for one in workers:
        units.start(nodes[one.node], service.name, one.unit)
    until = time.monotonic() + _WORKERS_S
    for name in dict.fromkeys(one.node for one in workers):
        while not _listening(nodes[name]) & {*group.worker_ports}:
            if not group.worker_ports or time.monotonic() > until:
                break  # not every engine's workers listen; where one had to, the last one says so
            time.sleep(_POLL_S)
    units.start(nodes[last.node], service.name, last.unit, group.needs)


def stop_server(service: Service, group: ServedGroup, nodes: Nodes) -> None:
    """Stop a server's processes, the one that answers first; raises what stopping one did."""
    for one in reversed(group.units):
        units.stop(nodes[one.node], service.name, one.unit)


@contextmanager
def reached(node: Connection, host: str, port: int) -> Iterator[Callable[[], httpx.AsyncClient]]:
    """Makes clients of a server, through ssh to its node."""
    with node.forwarded(f"{host}:{port}") as local:
        yield lambda: web.client(f"http://{host}:{port}", local)


def wait_until_answers(found: Found, group: ServedGroup) -> float:
    """Wait until a server answers; gives the seconds.

    Raises NixwulfError: a process of it has ended, or it takes longer than its limit.
    """
    begin = time.monotonic()
    service, nodes = found.service, found.nodes
    with reached(nodes[group.head], group.host, group.port) as client:
        while True:
            with suppress(web.NoAnswer):
                if web.fetch(client(), "GET", MODELS, _ASK_S).ok:
                    return time.monotonic() - begin
            for one in group.units:
                node = nodes[one.node]
                if not units.look(node, service.name, [one.unit]).units[one.unit].process:
                    last = units.show(node, service.name, f"{one.unit}.log", 3)
                    raise NixwulfError(
                        f"{one.unit!r} on node {one.node!r} has ended: {' '.join(last.split())}"
                    )
            if time.monotonic() - begin > service.limits.start_s:
                raise NixwulfError(
                    f"The server on node {group.head!r} does not answer "
                    f"{service.limits.start_s:.0f} s after its start; see 'nixwulf serve logs "
                    f"{service.name}'."
                )
            time.sleep(_POLL_S)


def try_out(found: Found, group: ServedGroup) -> str:
    """What a server answers to the request that tries it out; raises NixwulfError."""
    path, body = found.service.canary
    limit = max(_ASK_S, found.service.limits.still_s)
    with reached(found.nodes[group.head], group.host, group.port) as client:
        try:
            reply = web.fetch(client(), "POST", path, limit, json=body)
        except web.NoAnswer as error:
            raise NixwulfError(
                f"The server on {group.head!r} gave no text: {error.message}."
            ) from None
    text = text_of(reply)
    if text is None:
        raise NixwulfError(
            f"The server on {group.head!r} answered {reply.status} to {path!r}, and no text."
        )
    return text


def text_of(reply: web.Reply) -> str | None:
    """The text of an answer to a completion or a chat; None of what has none."""
    with suppress(KeyError, IndexError, TypeError, AttributeError):
        choice = reply.json["choices"][0] if reply.ok else {}
        if "text" in choice:
            return str(choice["text"])[:_MOST_TEXT]
        parts = (choice["message"].get(key) for key in MESSAGE_TEXTS)
        return "".join(str(one) for one in parts if one)[:_MOST_TEXT]
    return None


def bring_up(found: Found, on_step: Callable[[str], None]) -> Found:
    """Start all of a service but its watch, and try each server out before the URL is told.

    Gives it with the text that was answered. Raises NixwulfError, after which nothing of it runs.
    """
    service, nodes = found.service, found.nodes
    try:
        for group in service.groups:
            on_step(f"Starting {', '.join(one.unit for one in group.units)}")
            start_server(service, group, nodes)
        texts = []
        for group in service.groups:
            seconds = wait_until_answers(found, group)
            texts.append(try_out(found, group))
            on_step(f"The server on {group.head} answers after {seconds:.1f} s")
        if len({*texts}) > 1:
            quoted = " and ".join(map(repr, texts))
            raise NixwulfError(
                f"The servers answer one request with different texts, {quoted}; bring one model "
                "and one build to all nodes."
            )
        if service.proxied:
            units.start(found.head, service.name, PROXY)
            with reached(found.head, "127.0.0.1", service.port) as client:
                _until_ok(client)
        found = replace(found, service=replace(service, text=texts[0]))
        save(found.service, nodes)
    except BaseException:
        with suppress(NixwulfError):
            take_down(found)
        raise
    return found


def _until_ok(client: Callable[[], httpx.AsyncClient]) -> None:
    until = time.monotonic() + _ASK_S
    while True:
        with suppress(web.NoAnswer):
            if web.fetch(client(), "GET", MODELS, _ASK_S).ok:
                return
        if time.monotonic() > until:
            raise NixwulfError("nginx leads to no server; see 'nixwulf serve logs'.")
        time.sleep(_POLL_S)


def take_down(found: Found) -> list[str]:
    """Stop the watch, the URL and all servers of a service; a sentence for each that failed."""
    service, problems = found.service, []
    own = [(service.head, WATCH), (service.head, PROXY)]
    own += [(one.node, one.unit) for g in service.groups for one in reversed(g.units)]
    for name, unit in own:
        node = found.nodes.get(name)
        try:
            if node is None:
                raise NixwulfError(f"The cluster file has no node {name!r} any more.")
            units.stop(node, service.name, unit)
        except NixwulfError as error:
            problems.append(f"{unit!r} may still run: {error.message}")
    return problems


def start_watch(found: Found) -> list[str]:
    """Start the watch on the head; sentences of what it cannot do, or why there is none."""
    service = found.service
    program = Path(sys.executable).parent / "nixwulf"
    others = [one.ssh for one in service.hosts if one.name != service.head]
    lines = found.head.script(_CAN_WATCH, str(program), __version__, *others).splitlines()
    place_ = next((one.removeprefix("program ") for one in lines if one.startswith("program ")), "")
    lost = [one.removeprefix("lost ") for one in lines if one.startswith("lost ")]
    if not place_:
        return [
            f"Nobody watches it: node {service.head!r} lacks nixwulf {__version__}; install it "
            "there, and run 'nixwulf serve restart'."
        ]
    if lost:
        return [
            f"Nobody watches it: node {service.head!r} does not reach {', '.join(lost)} by 'ssh -o "
            "BatchMode=yes'; let it in there, and run 'nixwulf serve restart'."
        ]
    units.write(found.head, service.name, WATCH, [place_, "serve", "watch", service.name], {})
    return units.keep(found.head, service.name, WATCH)


def record_event(found: Found, event: ServiceEvent) -> None:
    """Add an event to those of its service."""
    document = event.document()
    check(document, "event", "serve")
    text = json.dumps(document) + "\n"
    units.save(found.head, found.service.name, EVENTS, text, add=True)


def events(found: Found, count: int | None) -> list[dict[str, object]]:
    """The last events of a service, the oldest first; a line that is none is left out."""
    text = units.show(found.head, found.service.name, EVENTS, count)
    return [document for line in text.splitlines() if (document := _read(line))]


def status(found: Found) -> dict[str, object]:
    """What its watch last saw; empty where it never saw anything."""
    return _read(units.show(found.head, found.service.name, STATUS)) or {}


def watch_runs(found: Found) -> bool:
    """Whether its watch runs now."""
    look = units.look(found.head, found.service.name, [WATCH])
    return look.units[WATCH].process > 0


def _read(text: str) -> dict[str, object] | None:
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        return document if isinstance(document, dict) else None
    return None


def logs(found: Found, lines: int, chosen: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Node, unit and text of the last lines of a service's processes, of those chosen, or all."""
    service = found.service
    own = [(one.node, one.unit) for group in service.groups for one in group.units]
    own += [(service.head, PROXY)] if service.proxied else []
    own.append((service.head, WATCH))
    for name in chosen:
        if name not in {unit for _, unit in own}:
            raise InputError(f"No unit {name!r}; {did_you_mean(name, [unit for _, unit in own])}")
    for node, unit in own:
        if not chosen or unit in chosen:
            text = units.show(found.nodes[node], service.name, f"{unit}.log", lines)
            yield node, unit, re.sub(r"\n+$", "", text)
