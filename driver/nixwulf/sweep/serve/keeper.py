"""The watch as a service on the head: a look each five seconds, evidence, restarts, events.

It judges nothing by itself: samples and what they mean are in watch.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import read_text, write_atomically, write_json
from nixwulf.core.schema import check
from nixwulf.nodes.process import Hold
from nixwulf.nodes.ssh import Connection, ThisMachine, connect, each
from nixwulf.sweep.serve import control, counters, units
from nixwulf.sweep.serve.counters import CounterSource, ServerCounters
from nixwulf.sweep.serve.service import (
    EVENTS,
    FILE,
    PROXY,
    STATUS,
    ServedGroup,
    Service,
    ServiceEvent,
    moment,
    read_service,
    seconds_of,
)
from nixwulf.sweep.serve.units import NodeLook
from nixwulf.sweep.serve.watch import (
    HOUR_S,
    MOST_RESTARTS,
    Canary,
    RankSign,
    ServerSample,
    Watched,
    recent,
    stay_down,
    step,
)

LOOK_S = 5.0
_CANARY_S = 60.0
_HOLD_S, _TIDY_S = 60.0, 300.0
_KEPT_SAMPLES = 60
# Of statuses that a server gives to a request of ours: these say that it works, and is busy.
_BUSY = frozenset({429, 503})
_SERVER_ERROR = 500


def home(name: str) -> Path:
    """The folder of a service on this machine, its head."""
    return Path.home() / ".local" / "state" / "nixwulf" / "serve" / name


def connections(service: Service) -> dict[str, Connection]:
    """The nodes of a service, as its head reaches them: itself without ssh."""
    others = [one.node for one in service.hosts if one.name != service.head]
    own = ThisMachine(service.host(service.head).node, ())
    return {service.head: own, **connect(others)}


@dataclass
class TryOut:
    """The watch's own request to a server: what came of it, and when it was last sent."""

    state: Canary = "none"
    text: str | None = None
    sent: float = float("-inf")
    number: int = 0


@dataclass
class Guarded:
    """A server under watch.

    source: of its counters, once they are known; samples: the last ones, for evidence. repair: a
    restart that goes on. restarts: their times of the last hour, seconds since 1970. down: whether
    it is left alone; waits: whether a restart waits for a node. troubled_at: monotonic, of the
    trouble that is not healed yet.
    """

    group: ServedGroup
    watched: Watched = field(default_factory=Watched)
    source: CounterSource | None = None
    canary: TryOut = field(default_factory=TryOut)
    samples: list[ServerSample] = field(default_factory=list)
    repair: Future[None] | None = None
    restarts: list[float] = field(default_factory=list)
    down: str = ""
    waits: bool = False
    restarted_at: float | None = None


class Keeper:
    """The watch over one service, on its head."""

    def __init__(self, name: str) -> None:
        """Read the service and its earlier events; raises InputError where there is none."""
        self.folder = home(name)
        self.service = read_service(read_text(self.folder / FILE), str(self.folder / FILE))
        self.nodes = connections(self.service)
        self.servers = [Guarded(group) for group in self.service.groups]
        self._hold = Hold(f"service {name!r}")
        self._held, self._tried_hold, self._tidied = False, float("-inf"), float("-inf")
        self._pool = ThreadPoolExecutor(len(self.servers))
        self._writing = threading.Lock()
        self._remember()

    def _remember(self) -> None:
        """Restarts of the last hour count, also those before this process began."""
        for one in self._events():
            for server in self.servers:
                if one.get("server") != server.group.name:
                    continue
                if one["action"] == "started":
                    server.restarts.clear()
                elif one["action"] == "restarted":
                    server.restarts.append(seconds_of(str(one["at"])))

    def _events(self) -> list[dict[str, Any]]:
        found = []
        with suppress(NixwulfError):
            for line in read_text(self.folder / EVENTS, 1 << 26).splitlines():
                with suppress(ValueError, NixwulfError):
                    document = json.loads(line)
                    check(document, "event", EVENTS)
                    found.append(document)
        return found

    def run(self) -> None:
        """Watch for ever."""
        try:
            while True:
                begin = time.monotonic()
                self.once()
                time.sleep(max(0.0, begin + LOOK_S - time.monotonic()))
        finally:
            self._hold.release()

    def once(self) -> None:
        """One look at all nodes and servers, and what follows of it."""
        self._keep_others_off()
        whole = [one for one in self.servers if self._is_whole(one)]
        looks = self._looks()  # later than that: a look during a restart finds processes missing
        for server in whole:
            self._judge(server, looks)
        self._keep_url(looks)
        self._tell()

    def _is_whole(self, server: Guarded) -> bool:
        """Whether a server is neither down nor just being restarted."""
        if server.repair is not None and server.repair.done():
            server.repair.result()
            server.repair = None
        return server.repair is None and not server.down

    def _keep_others_off(self) -> None:
        """Hold the nodes, so that nothing is measured beside what is served."""
        if self._held or time.monotonic() - self._tried_hold < _HOLD_S:
            return
        self._tried_hold = time.monotonic()
        with suppress(NixwulfError):
            self._hold.take(self.nodes.values())
            self._held = True

    def _looks(self) -> dict[str, NodeLook | None]:
        service = self.service

        def one(item: tuple[str, Connection]) -> NodeLook | None:
            name, node = item
            own = [
                *service.of(name),
                *([PROXY] if service.proxied and name == service.head else []),
            ]
            try:
                if tidy:
                    units.trim(node, service.name, own)
                counted = bool(service.host(name).interfaces) and name != service.head
                return units.look(node, service.name, own, counted=counted)
            except NixwulfError:
                return None

        tidy = time.monotonic() - self._tidied > _TIDY_S
        if tidy:
            self._tidied = time.monotonic()

        return dict(zip(self.nodes, each(one, self.nodes.items()), strict=True))

    def _judge(self, server: Guarded, looks: Mapping[str, NodeLook | None]) -> None:
        sample = self._sample(server, looks)
        server.samples = [*server.samples[1 - _KEPT_SAMPLES :], sample]
        server.watched = step(server.watched, sample, self.service.limits)
        lost = [one.node for one in sample.ranks if one.running is None]
        if server.watched.troubled:
            if lost:
                self._wait_for(server, lost[0])
            else:
                server.repair = self._pool.submit(self._repair, server)
            return
        server.waits = False
        state, canary = server.watched.state, server.canary
        if server.restarted_at and (canary.state == "answered" or state == "decoding"):
            self._healed(server)
        if state == "idle" and canary.state != "waiting":
            doubt = lost or any(one.stopped for one in sample.ranks)
            if doubt or time.monotonic() - canary.sent > _CANARY_S:
                self._try_out(server)

    def _sample(self, server: Guarded, looks: Mapping[str, NodeLook | None]) -> ServerSample:
        group, ranks = server.group, []
        for one in group.units:
            look = looks[one.node]
            sign = look.units.get(one.unit) if look else None
            if sign is None:
                ranks.append(RankSign(one.unit, one.node, None))
            else:
                running = sign.process > 0
                ranks.append(RankSign(one.unit, one.node, running, sign.stopped, sign.cpu_s))
        told = self._told(server)
        powers = [look.watts for look in looks.values() if look and look.watts is not None]
        return ServerSample(
            time.monotonic(),
            tuple(ranks),
            told.answers,
            told.prompted,
            told.generated,
            told.requests,
            self._carried(group, looks),
            sum(powers) if len(powers) == len(looks) else None,
            server.canary.state,
        )

    def _told(self, server: Guarded) -> ServerCounters:
        fetch = partial(self._fetch, server.group)
        if server.source is None:
            with suppress(web.NoAnswer):
                server.source = counters.find_source(fetch)
        return counters.read(fetch, server.source)

    def _fetch(self, group: ServedGroup, path: str) -> web.Reply:
        return web.fetch(web.client(group.base_url), "GET", path, counters.ANSWER_S)

    def _carried(self, group: ServedGroup, looks: Mapping[str, NodeLook | None]) -> int | None:
        """Bytes of the fabric at the other nodes of a server, without ssh's own; None of one node.

        Of a node that does not answer nothing is known, and so nothing of the sum.
        """
        found = 0
        others = {one.node for one in group.units} - {group.head}
        for name in others:
            host, look = self.service.host(name), looks[name]
            if look is None:
                return None
            told = look.counters
            for interface in host.interfaces:
                own = told.own if interface == told.management else 0
                found += told.interfaces.get(interface, 0) - own
            found += sum(told.rdma[one].carried for one in host.devices if one in told.rdma)
        return found if others else None

    def _try_out(self, server: Guarded) -> None:
        """Send the request that shows whether an idle server works, and do not wait for it."""
        canary = server.canary
        canary.number += 1
        canary.state, canary.sent = "waiting", time.monotonic()
        number = canary.number
        path, body = self.service.canary
        limit = 2 * self.service.limits.still_s + _CANARY_S

        def ask() -> None:
            state: Canary = "none"
            text = None
            with suppress(web.NoAnswer):
                reply = web.fetch(web.client(server.group.base_url), "POST", path, limit, json=body)
                text = control.text_of(reply)
                refused = reply.status >= _SERVER_ERROR and reply.status not in _BUSY
                state = "answered" if text is not None else "failed" if refused else "none"
            if canary.number == number:  # else it was one of before a restart
                canary.state, canary.text = state, text

        threading.Thread(target=ask, daemon=True).start()

    def _healed(self, server: Guarded) -> None:
        began = server.restarted_at or 0.0
        server.restarted_at = None
        same = server.canary.text in (None, self.service.text)
        self._event(
            server,
            "healed",
            "It answers again."
            if same
            else f"It answers again, with another text than at first: {server.canary.text!r}.",
            seconds={"healed": round(time.monotonic() - began, 1)},
        )

    def _wait_for(self, server: Guarded, node: str) -> None:
        if not server.waits:
            server.waits = True
            self._event(
                server, "waits", f"{server.watched.why} It is restarted when {node!r} does."
            )

    def _repair(self, server: Guarded) -> None:
        """Keep evidence, then restart a server, or leave it down; raises nothing."""
        noticed = {"noticed": round(server.watched.still_s, 1)}
        began = time.monotonic()
        kept = self._evidence(server)
        server.restarts = recent(server.restarts, time.time())
        why = server.watched.why
        try:
            control.stop_server(self.service, server.group, self.nodes)
            if stay_down(server.restarts, time.time()):
                hour = f"{MOST_RESTARTS} restarts in {HOUR_S / 60:.0f} min did not help"
                self._leave_down(server, f"{why} It stays down, for {hour}.", kept, noticed)
                return
            server.restarts.append(time.time())
            self._event(server, "restarted", why, kept, noticed)
            server.canary = TryOut()
            server.source = None
            control.start_server(self.service, server.group, self.nodes)
            server.restarted_at = began
        except units.Gone as error:
            self._leave_down(server, f"It stays down: {error.message}", kept, noticed)
        except Exception as error:  # the watch goes on whatever came, and tries it again
            self._event(server, "waits", f"It could not be restarted: {error}")
        server.watched = Watched()

    def _leave_down(
        self, server: Guarded, why: str, kept: str, seconds: Mapping[str, float]
    ) -> None:
        with suppress(NixwulfError):
            control.stop_server(self.service, server.group, self.nodes)
        server.down = why
        self._event(server, "down", why, kept, seconds)

    def _evidence(self, server: Guarded) -> str:
        """A folder with all that may tell why: a file a node, and the last samples."""
        name = f"evidence/{moment().replace(':', '')}-{server.group.name}"
        folder = self.folder / name
        group = server.group
        names = list(dict.fromkeys(one.node for one in group.units))

        def of(node: str) -> str:
            return units.evidence(self.nodes[node], self.service.name, group.of(node))

        try:
            folder.mkdir(parents=True, mode=0o700)
            for node, text in zip(names, each(of, names), strict=True):
                write_atomically(folder / f"{node}.txt", text)
            write_json(folder / "samples.json", [asdict(one) for one in server.samples])
        except (OSError, NixwulfError):  # as of a full disk, which is no reason not to restart
            return ""
        return name

    def _event(
        self,
        server: Guarded,
        action: str,
        why: str,
        evidence: str = "",
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        event = ServiceEvent(
            self.service.name,
            server.group.name,
            moment(),
            server.watched.state,
            why,
            action,
            evidence,
            seconds or {},
            len(server.restarts),
        )
        document = event.document()
        print(f"{event.at} {event.server}: {event.action}: {event.why}", flush=True)
        with suppress(OSError, NixwulfError), self._writing:
            check(document, "event", EVENTS)
            with (self.folder / EVENTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(document) + "\n")

    def _keep_url(self, looks: Mapping[str, NodeLook | None]) -> None:
        """nginx holds no state: where it has ended it is started again."""
        look = looks[self.service.head]
        if self.service.proxied and look and not look.units[PROXY].process:
            print(f"{moment()} nginx has ended, and is started again", flush=True)
            with suppress(NixwulfError):
                units.start(self.nodes[self.service.head], self.service.name, PROXY)

    def _tell(self) -> None:
        """Write what is seen, for 'nixwulf serve status'."""
        servers = {
            one.group.name: {
                "state": "down" if one.down else "restarting" if one.repair else one.watched.state,
                "why": one.down or one.watched.why,
                "still_s": round(one.watched.still_s, 1),
                "requests": one.samples[-1].requests if one.samples else None,
                "restarts": len(recent(one.restarts, time.time())),
            }
            for one in self.servers
        }
        with suppress(OSError, NixwulfError):
            write_json(
                self.folder / STATUS, {"at": moment(), "held": self._held, "servers": servers}
            )
