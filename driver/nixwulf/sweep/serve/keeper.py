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

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import read_text, write_atomically, write_json
from nixwulf.core.schema import check
from nixwulf.nodes.process import Hold
from nixwulf.nodes.ssh import Connection, ThisMachine, connect, each
from nixwulf.sweep.serve import control, counters, seen, units
from nixwulf.sweep.serve.counters import ServerCounters
from nixwulf.sweep.serve.service import (
    EVENTS,
    FILE,
    PROXY,
    STATUS,
    ServedGroup,
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
_CANARY_S, _HOLD_S, _TIDY_S = 60.0, 60.0, 300.0
_KEPT_SAMPLES = 60
_MOST_EVENTS = 1 << 26
# Of statuses that a server gives to a request of ours: these say that it works, and is busy.
_BUSY = frozenset({429, 503})
_SERVER_ERROR = 500
Looks = Mapping[str, NodeLook | None]
"""By node; None of one that did not answer."""


@dataclass
class TryOut:
    """The watch's own request to a server: what came of it, when it was sent, what it took."""

    state: Canary = "none"
    text: str | None = None
    sent: float = float("-inf")
    seconds: float | None = None


@dataclass
class Guarded:
    """A server under watch.

    path: of its counters, once it is known; told: what they said last; samples: the last ones, for
    evidence. repair: a restart that goes on; restarts: times of those before, seconds since 1970;
    restarted_at: monotonic, of one after which it has not answered yet. down: why it is left alone;
    waits: for a node.
    """

    group: ServedGroup
    watched: Watched = field(default_factory=Watched)
    path: str = ""
    told: ServerCounters = field(default_factory=partial(ServerCounters, answers=False))
    canary: TryOut = field(default_factory=TryOut)
    samples: list[ServerSample] = field(default_factory=list)
    repair: Future[None] | None = None
    restarts: list[float] = field(default_factory=list)
    restarted_at: float | None = None
    down: str = ""
    waits: bool = False


class Keeper:
    """The watch over one service, on its head."""

    def __init__(self, name: str) -> None:
        """Read the service and its earlier events; raises InputError where there is none."""
        self.folder = Path.home() / ".local" / "state" / "nixwulf" / "serve" / name
        self.service = read_service(read_text(self.folder / FILE), str(self.folder / FILE))
        head = self.service.host(self.service.head)
        others = [one.node for one in self.service.hosts if one is not head]
        self.nodes: dict[str, Connection] = {head.name: ThisMachine(head.node, ())}
        self.nodes |= connect(others)
        self.servers = [Guarded(group) for group in self.service.groups]
        self._hold = Hold(f"service {name!r}")
        self._held, self._tried_hold, self._tidied = False, float("-inf"), float("-inf")
        self._opened = {head.name}
        self._pool = ThreadPoolExecutor(len(self.servers))
        self._looked: tuple[float, Looks] = time.monotonic(), dict.fromkeys(self.nodes)
        self._seen: seen.SeenService = {"watched": True, "servers": {}, "nodes": {}}
        self._writing = threading.Lock()
        self._remember()

    def _remember(self) -> None:
        """Restarts count since a person last started the service, also by a watch before this."""
        servers = {one.group.name: one for one in self.servers}
        with suppress(NixwulfError):
            for line in read_text(self.folder / EVENTS, _MOST_EVENTS).splitlines():
                with suppress(ValueError, KeyError, NixwulfError):
                    event = json.loads(line)
                    check(event, "event", EVENTS)
                    if event["action"] == "started":
                        servers[event["server"]].restarts.clear()
                    elif event["action"] == "restarted":
                        servers[event["server"]].restarts.append(seconds_of(event["at"]))

    def run(self) -> None:
        """Watch for ever."""
        if self.service.metrics_port:
            with suppress(OSError):  # the port is another's: what is served goes on without them
                seen.publish(self.service, lambda: self._seen)
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
        look = looks[self.service.head]
        if self.service.proxied and look and not look.units[PROXY].process:
            _say(f"{moment()} nginx has ended, and is started again")
            with suppress(NixwulfError):
                units.start(self.nodes[self.service.head], self.service.name, PROXY)
        self._tell(looks)

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

    def _looks(self) -> Looks:
        service = self.service
        tidy = time.monotonic() - self._tidied > _TIDY_S
        if tidy:
            self._tidied = time.monotonic()

        def look(name: str) -> NodeLook | None:
            node, own = self.nodes[name], [*service.of(name)]
            own += [PROXY] if service.proxied and name == service.head else []
            try:
                if tidy:
                    units.trim(node, service.name, own)
                counted = bool(service.host(name).interfaces)
                found = units.look(node, service.name, own, counted=counted)
                if name not in self._opened:  # a connection of its own for each look costs 60 ms
                    self._opened.add(name)
                    node.open()
                return found
            except NixwulfError:
                self._opened -= {name}
                return None

        return dict(zip(self.nodes, each(look, self.nodes), strict=True))

    def _judge(self, server: Guarded, looks: Looks) -> None:
        sample = self._sample(server, looks)
        server.samples = [*server.samples[1 - _KEPT_SAMPLES :], sample]
        server.watched = step(server.watched, sample, self.service.limits)
        lost = [one.node for one in sample.ranks if one.running is None]
        if server.watched.troubled:
            if gone := lost[0] if lost else self._cut_off(server):
                if not server.waits:
                    why = f"{server.watched.why} It is restarted when node {gone!r} is back."
                    self._event(server, "waits", why)
                server.waits = True
            else:
                server.repair = self._pool.submit(self._repair, server)
            return
        server.waits = False
        state, canary = server.watched.state, server.canary
        if server.restarted_at and (canary.state == "answered" or state == "decoding"):
            self._healed(server, server.restarted_at)
        if state == "idle" and canary.state != "waiting":
            doubt = lost or any(one.stopped for one in sample.ranks)
            if doubt or time.monotonic() - canary.sent > _CANARY_S:
                self._try_out(server)

    def _cut_off(self, server: Guarded) -> str:
        """A node without which a restart would not help, or nothing."""
        with suppress(NixwulfError):
            return control.cut_off(self.service, server.group, self.nodes)
        return ""

    def _sample(self, server: Guarded, looks: Looks) -> ServerSample:
        ranks = []
        for one in server.group.units:
            look = looks[one.node]
            sign = look.units.get(one.unit) if look else None
            known = (sign.process > 0, sign.stopped, sign.cpu_s) if sign else (None,)
            ranks.append(RankSign(one.unit, one.node, *known))
        fetch = partial(self._fetch, server.group)
        if not server.path:
            with suppress(web.NoAnswer):
                server.path = counters.find_path(fetch)
        told = server.told = counters.read(fetch, server.path or counters.MODELS)
        powers = [look.watts for look in looks.values() if look and look.watts is not None]
        return ServerSample(
            time.monotonic(),
            tuple(ranks),
            told.answers,
            told.prompted,
            told.generated,
            told.requests,
            self._carried(server.group, looks),
            sum(powers) if len(powers) == len(looks) else None,
            server.canary.state,
        )

    def _fetch(self, group: ServedGroup, path: str) -> web.Reply:
        return web.fetch(web.client(group.base_url), "GET", path, counters.ANSWER_S)

    def _carried(self, group: ServedGroup, looks: Looks) -> int | None:
        """Bytes of the fabric at the other nodes of a server, less those of the watch's own ssh.

        None of one node, and where a node does not answer.
        """
        others = {one.node for one in group.units} - {group.head}
        found = 0
        for name in others:
            host, look = self.service.host(name), looks[name]
            if look is None:
                return None
            told = look.counters
            found += sum(seen.carried(host, look).values())
            found -= told.own if told.management in host.interfaces else 0
        return found if others else None

    def _try_out(self, server: Guarded) -> None:
        """Send the request that shows whether an idle server works, and do not wait for it."""
        canary = server.canary = TryOut("waiting", sent=time.monotonic())
        path, body = self.service.canary
        limit = 2 * self.service.limits.still_s + _CANARY_S

        def ask() -> None:
            state: Canary = "none"
            with suppress(web.NoAnswer):
                reply = web.fetch(web.client(server.group.base_url), "POST", path, limit, json=body)
                canary.text = control.text_of(reply)
                canary.seconds = round(time.monotonic() - canary.sent, 3)
                refused = reply.status >= _SERVER_ERROR and reply.status not in _BUSY
                answered = canary.text is not None
                state = "answered" if answered else "failed" if refused else "none"
            canary.state = state  # of one before a restart nobody reads it

        threading.Thread(target=ask, daemon=True).start()

    def _healed(self, server: Guarded, since: float) -> None:
        server.restarted_at = None
        why = "It answers again."
        if server.canary.text not in (None, self.service.text):
            why = f"It answers again, with another text than at first: {server.canary.text!r}."
        self._event(server, "healed", why, seconds={"healed": round(time.monotonic() - since, 1)})

    def _repair(self, server: Guarded) -> None:
        """Keep evidence, then restart a server, or leave it down; raises nothing."""
        began, why = time.monotonic(), server.watched.why
        still = {"noticed": round(server.watched.still_s, 1)}
        kept = self._evidence(server.group, server.samples)
        server.restarts = recent(server.restarts, time.time())
        try:
            control.stop_server(self.service, server.group, self.nodes)
            still["kept"] = round(time.monotonic() - began, 1)
            if stay_down(server.restarts, time.time()):
                server.down = (
                    f"{why} It stays down, for {MOST_RESTARTS} restarts in {HOUR_S / 60:.0f} min "
                    "did not help."
                )
                self._event(server, "down", server.down, kept, still)
                return
            server.restarts.append(time.time())
            self._event(server, "restarted", why, kept, still)
            server.canary, server.path = TryOut(), ""
            control.start_server(self.service, server.group, self.nodes)
            server.restarted_at = began
        except units.Gone as error:
            with suppress(NixwulfError):
                control.stop_server(self.service, server.group, self.nodes)
            server.down = f"It stays down: {error.message}"
            self._event(server, "down", server.down, kept)
        except Exception as error:  # the watch goes on whatever came, and tries it again
            self._event(server, "waits", f"It could not be restarted: {error}")
        server.watched = Watched()

    def _evidence(self, group: ServedGroup, samples: list[ServerSample]) -> str:
        """A folder with all that may tell why: a file a node, and the last samples."""
        name = f"evidence/{moment().replace(':', '')}-{group.name}"
        folder = self.folder / name
        names = list(dict.fromkeys(one.node for one in group.units))

        def of(node: str) -> str:
            return units.evidence(self.nodes[node], self.service.name, group.of(node))

        try:
            folder.mkdir(parents=True, mode=0o700)
            for node, text in zip(names, each(of, names), strict=True):
                write_atomically(folder / f"{node}.txt", text)
            write_json(folder / "samples.json", [asdict(one) for one in samples])
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
        name, state, count = server.group.name, server.watched.state, len(server.restarts)
        at, known = moment(), seconds or {}
        event = ServiceEvent(
            self.service.name, name, at, state, why, action, evidence, known, count
        )
        document = event.document()
        _say(f"{at} {name}: {action}: {why}")
        with suppress(OSError, NixwulfError), self._writing:
            check(document, "event", EVENTS)
            with (self.folder / EVENTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(document) + "\n")

    def _tell(self, looks: Looks) -> None:
        """Keep what is seen for /metrics, and write it for 'nixwulf serve status' and 'top'."""
        now, (then, before) = time.monotonic(), self._looked
        self._looked = now, dict(looks)
        nodes = {
            name: seen.seen_node(self.service.host(name), one, before[name], now - then)
            if one
            else None
            for name, one in looks.items()
        }
        self._seen = {
            "at": moment(),
            "watched": True,
            "held": self._held,
            "servers": {one.group.name: self._seen_server(one) for one in self.servers},
            "nodes": nodes,
        }
        with suppress(OSError, NixwulfError):
            write_json(self.folder / STATUS, self._seen)

    def _seen_server(self, one: Guarded) -> seen.SeenServer:
        state: seen.SeenState = "restarting" if one.repair else one.watched.state
        prompt_per_s, decode_per_s = seen.rates(one.samples)
        return {
            "state": "down" if one.down else state,
            "why": one.down or one.watched.why,
            "still_s": round(one.watched.still_s, 1),
            "restarts": len(recent(one.restarts, time.time())),
            "requests": one.told.requests,
            "queued": one.told.queued,
            "prompted": one.told.prompted,
            "generated": one.told.generated,
            "prompt_per_s": prompt_per_s,
            "decode_per_s": decode_per_s,
            "first_token_s": one.told.first_token_s,
            "first_tokens": one.told.first_tokens,
            "canary_s": one.canary.seconds,
        }


def _say(words: str) -> None:
    """Write to the watch's log, whose disk may be full: that is no reason to end."""
    with suppress(OSError):
        print(words, flush=True)
