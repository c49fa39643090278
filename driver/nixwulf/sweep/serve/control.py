"""A service brought up, found again, stopped: what its commands and its watch do with its nodes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from nixwulf import __version__
from nixwulf.core import web
from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.core.schema import check
from nixwulf.core.secrets import cut
from nixwulf.core.text import as_typed, did_you_mean
from nixwulf.nodes.facts import listeners
from nixwulf.nodes.ssh import Connection, Unreachable, each
from nixwulf.plugins.runtime.openai_stream import MESSAGE_TEXTS
from nixwulf.sweep.serve import proxy, units
from nixwulf.sweep.serve.counters import MODELS
from nixwulf.sweep.serve.seen import SeenService
from nixwulf.sweep.serve.service import (
    EVENTS,
    FILE,
    PROXY,
    STATUS,
    WATCH,
    ServedGroup,
    Service,
    ServiceEvent,
    moment,
    read_service,
)
from nixwulf.sweep.serve.trial import UnitCommand
from nixwulf.sweep.serve.watch import State

Nodes = Mapping[str, Connection]
_WORKERS_S, _ASK_S, _POLL_S = 15.0, 5.0, 0.2
_MOST_TEXT = 2000
_NO_ECHO = 1  # of ping; other statuses say that it cannot be asked
_SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; :"


@dataclass(frozen=True)
class LiveService:
    """A service and the connections to the nodes of its cluster."""

    service: Service
    nodes: Nodes

    @property
    def head(self) -> Connection:
        """Where its files and its URL are."""
        return self.nodes[self.service.head]


def find_all(nodes: Nodes) -> list[LiveService]:
    """The services of a cluster's nodes, by name; of those that do not answer there are none.

    Raises Unreachable where none answers.
    """
    silent: list[Unreachable] = []

    def own(node: Connection) -> list[Service]:
        try:
            names = units.services(node, FILE)
            texts = {name: units.show(node, name, FILE) for name in names}
        except Unreachable as error:
            silent.append(error)
            return []
        return [read_service(text, f"{node.node.name}: {name}") for name, text in texts.items()]

    services = [one for several in each(own, nodes.values()) for one in several]
    if silent and len(silent) == len(nodes):
        raise silent[0]
    return [LiveService(one, nodes) for one in sorted(services, key=lambda one: one.name)]


def find(nodes: Nodes, name: str | None) -> LiveService:
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


def place(live: LiveService, commands: Iterable[UnitCommand], key: str = "") -> None:
    """Write what starts its processes on their nodes, and the service itself on its head.

    key: without which nginx lets nobody in; it is kept on the head alone.

    Raises GateError: one of its ports is in use, or nginx is missing.
    """
    require_ports(live)
    for one in commands:
        units.write(live.nodes[one.node], live.service.name, one.unit, one.argv, one.environment)
    if live.service.proxied:
        proxy.write(live.head, live.service, key)
    save(live)


def save(live: LiveService) -> None:
    """Write the service on its head."""
    text = json.dumps(live.service.document(), indent=1)
    units.save(live.head, live.service.name, FILE, text)


def require_ports(live: LiveService) -> None:
    """Raise GateError where something else listens on a port of the service."""
    service = live.service
    own = {service.port, service.metrics_port} - {0}
    wanted = {*((service.head, one) for one in own), *((g.head, g.port) for g in service.groups)}
    for group in service.groups:
        wanted |= {(one.node, port) for one in group.units[:-1] for port in group.worker_ports}
    for name, port in sorted(wanted):
        if port in _listening(live.nodes[name]):
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
    # Not every engine's workers listen; where one had to and does not, the last one says so.
    for name in {one.node for one in workers} if group.worker_ports else ():
        while not _listening(nodes[name]) & {*group.worker_ports} and time.monotonic() < until:
            time.sleep(_POLL_S)
    units.start(nodes[last.node], service.name, last.unit, group.needs)


def cut_off(service: Service, group: ServedGroup, nodes: Nodes) -> str:
    """A node that the head of its server does not reach over the fabric, or nothing."""
    for name in dict.fromkeys(one.node for one in group.units):
        if address := service.host(name).address:
            done = nodes[group.head].run(["ping", "-n", "-c", "1", "-W", "1", address])
            if done.returncode == _NO_ECHO:
                return name
    return ""


def stop_server(service: Service, group: ServedGroup, nodes: Nodes) -> None:
    """Stop a server's processes, the one that answers first; raises what stopping one did."""
    for one in reversed(group.units):
        units.stop(nodes[one.node], service.name, one.unit)


Ask = Callable[..., web.Reply]


@contextmanager
def reached(node: Connection, host: str, port: int, limit_s: float = _ASK_S) -> Iterator[Ask]:
    """Asks a server through ssh to its node, by method, path and json; raises NoAnswer."""
    with node.forwarded(f"{host}:{port}") as local:

        def ask(method: str, path: str, body: Mapping[str, object] | None = None) -> web.Reply:
            client = web.client(f"http://{host}:{port}", local)
            return web.fetch(client, method, path, limit_s, json=body)

        yield ask


def wait_until_answers(live: LiveService, group: ServedGroup) -> float:
    """Wait until a server answers; gives the seconds.

    Raises NixwulfError: a process of it has ended, or it takes longer than its limit.
    """
    service, begin = live.service, time.monotonic()
    with reached(live.nodes[group.head], group.host, group.port) as ask:
        while True:
            with suppress(web.NoAnswer):
                if ask("GET", MODELS).ok:
                    return time.monotonic() - begin
            for one in group.units:
                node = live.nodes[one.node]
                if not units.look(node, service.name, [one.unit]).units[one.unit].process:
                    last = units.show(node, service.name, f"{one.unit}.log", 3)
                    raise NixwulfError(
                        f"{one.unit!r} on node {one.node!r} has ended: {' '.join(last.split())}"
                    )
            if time.monotonic() - begin > service.limits.start_s:
                more = as_typed("serve", "logs", service.name)
                limit = f"{service.limits.start_s:.0f} s"
                raise NixwulfError(
                    f"The server on node {group.head!r} does not answer in {limit}; see {more}."
                )
            time.sleep(_POLL_S)


def try_out(live: LiveService, group: ServedGroup) -> str:
    """What a server answers to the request that tries it out; raises NixwulfError."""
    path, body = live.service.canary
    limit = max(_ASK_S, live.service.limits.still_s)
    with reached(live.nodes[group.head], group.host, group.port, limit) as ask:
        try:
            reply = ask("POST", path, body)
        except web.NoAnswer as error:
            raise NixwulfError(f"The server on {group.head!r} gives no text: {error}.") from None
    text = text_of(reply)
    if text is None:
        raise NixwulfError(f"The server on {group.head!r} answers {path!r} by {reply.status}.")
    return text


def text_of(reply: web.Reply) -> str | None:
    """The text of an answer to a completion or a chat; None of what has none."""
    with suppress(KeyError, IndexError, TypeError, AttributeError):
        choice = reply.json["choices"][0] if reply.ok else {}
        parts = [choice["text"]] if "text" in choice else map(choice["message"].get, MESSAGE_TEXTS)
        return cut("".join(str(one) for one in parts if one), _MOST_TEXT)
    return None


def bring_up(live: LiveService, on_step: Callable[[str], None]) -> LiveService:
    """Start all of a service but its watch, and try each server out before the URL is told.

    Gives it with the text that was answered. Raises NixwulfError, after which nothing of it runs.
    """
    service = live.service
    try:
        for group in service.groups:
            on_step(f"Starting {', '.join(one.unit for one in group.units)}")
            start_server(service, group, live.nodes)
        texts = []
        for group in service.groups:
            seconds = wait_until_answers(live, group)
            texts.append(try_out(live, group))
            on_step(f"The server on {group.head} answers after {seconds:.1f} s")
        if len({*texts}) > 1:
            raise NixwulfError(
                f"The servers answer one request with different texts, "
                f"{' and '.join(map(repr, texts))}; bring one model and one build to all nodes."
            )
        if service.proxied:
            units.start(live.head, service.name, PROXY)
            _wait_for_url(live)
        live = replace(live, service=replace(service, text=texts[0]))
        save(live)
    except BaseException:
        with suppress(NixwulfError):
            take_down(live)
        raise
    return live


def _wait_for_url(live: LiveService) -> None:
    until = time.monotonic() + _ASK_S
    with reached(live.head, live.service.address, live.service.port) as ask:
        while time.monotonic() < until:
            with suppress(web.NoAnswer):
                reply = ask("GET", MODELS)
                if reply.ok or (live.service.closed and reply.status == web.UNAUTHORIZED):
                    return
            time.sleep(_POLL_S)
    logs_ = as_typed("serve", "logs", live.service.name)
    raise NixwulfError(f"nginx leads to no server; see {logs_}.")


def take_down(live: LiveService) -> list[str]:
    """Stop the watch, the URL and all servers of a service; a sentence for each that failed."""
    service, problems = live.service, []
    own = [(service.head, WATCH), (service.head, PROXY)]
    own += [(one.node, one.unit) for group in service.groups for one in reversed(group.units)]
    for name, unit in own:
        try:
            if name not in live.nodes:
                raise NixwulfError(f"The cluster file has no node {name!r} any more.")
            units.stop(live.nodes[name], service.name, unit)
        except NixwulfError as error:
            problems.append(f"{unit!r} may still run: {error.message}")
    servers = {one.name: {"state": "stopped", "why": ""} for one in service.groups}
    units.save(live.head, service.name, STATUS, json.dumps({"at": moment(), "servers": servers}))
    return problems


def start_watch(live: LiveService) -> list[str]:
    """Start the watch on the head; sentences of what it cannot do, or why there is none."""
    service, here = live.service, Path(sys.executable).parent / "nixwulf"
    others = [one.ssh for one in service.hosts if one.name != service.head]
    answer = live.head.script(
        shipped_text("sweep/serve/can_watch.sh"), str(here), __version__, *others
    )
    lines = [line.partition(" ") for line in answer.splitlines()]
    programs = [words for key, _, words in lines if key == "program"]
    lost = [words for key, _, words in lines if key == "lost"]
    problem, remedy = f"lacks nixwulf {__version__}", "install it there"
    if programs and lost:
        problem = f"does not reach {', '.join(lost)} by 'ssh -o BatchMode=yes'"
        remedy = "let it in there"
    if lost or not programs:
        again = f"{remedy}, and run {as_typed('serve', 'restart', service.name)}"
        return [f"Nobody watches it: node {service.head!r} {problem}; {again}."]
    units.write(live.head, service.name, WATCH, [programs[0], "serve", "watch", service.name], {})
    return units.keep(live.head, service.name, WATCH)


def note(live: LiveService, state: State, why: str, action: str) -> None:
    """Add an event of all servers to those of a service."""
    found = (
        ServiceEvent(live.service.name, group.name, moment(), state, why, action).document()
        for group in live.service.groups
    )
    for document in found:
        check(document, "event", EVENTS)
        units.save(live.head, live.service.name, EVENTS, json.dumps(document) + "\n", add=True)


def events(live: LiveService, count: int | None) -> list[dict[str, object]]:
    """The last events of a service, the oldest first; a line that is none is left out."""
    text = units.show(live.head, live.service.name, EVENTS, count)
    return [document for line in text.splitlines() if (document := _read(line))]


def described(live: LiveService, seen: SeenService) -> dict[str, object]:
    """As JSON: the service's name, its URL and all that its watch saw."""
    return {"name": live.service.name, "url": live.service.url, **seen}


def status(live: LiveService) -> SeenService:
    """What its watch last saw, and whether it runs now."""
    seen = _read(units.show(live.head, live.service.name, STATUS)) or {}
    look = units.look(live.head, live.service.name, [WATCH])
    watched = look.units[WATCH].process > 0
    return cast(SeenService, {"servers": {}, "nodes": {}, **seen, "watched": watched})


def _read(text: str) -> dict[str, object] | None:
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        return document if isinstance(document, dict) else None
    return None


def logs(live: LiveService, lines: int, chosen: Sequence[str]) -> Iterator[tuple[str, str]]:
    """'NODE UNIT' and the last lines of a service's processes, of those chosen, or all."""
    service = live.service
    own = {unit.unit: unit.node for group in service.groups for unit in group.units}
    own |= {PROXY: service.head} if service.proxied else {}
    own |= {WATCH: service.head}
    for name in chosen:
        if name not in own:
            raise InputError(f"No unit {name!r}; {did_you_mean(name, own)}")
    for unit, node in own.items():
        if not chosen or unit in chosen:
            yield f"{node} {unit}", units.show(live.nodes[node], service.name, f"{unit}.log", lines)
