"""How to serve what a run measured: the commands of its record, less what only measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from nixwulf.inventory.cluster import Cluster
from nixwulf.nodes import link
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime.run import groups_of, servers_of, slots_of
from nixwulf.results.record import Record

_JSON = "-H 'Content-Type: application/json' -d"


@dataclass(frozen=True)
class Started:
    """A program as a record has it, or one to be started."""

    node: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def program(self) -> str:
        """Its name without its place."""
        return PurePosixPath(self.argv[0]).name

    @property
    def line(self) -> str:
        """As a shell takes it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join([*(["env", *variables] if variables else []), *self.argv])


@dataclass(frozen=True)
class Written:
    """A file on a node."""

    node: str
    path: str
    text: str


@dataclass(frozen=True)
class Serving:
    """What starts on the nodes, in order; the last one of the head answers there on its loopback.

    before: files that they read; then: what is typed on one's own machine, where the head's port
    is; notes: what to know, as sentences. replicas: the servers of other nodes beside it, each with
    the whole model.
    """

    head: str
    servers: tuple[Started, ...]
    port: int
    then: tuple[str, ...]
    before: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()
    replicas: tuple[Serving, ...] = ()


@dataclass(frozen=True)
class MeasuredRun:
    """A run that was measured; slots: requests at once that a server of it is to have room for.

    started: the last of each program on each node, for those before gave the text to compare with.
    """

    record: Record
    cluster: Cluster
    slots: int
    started: tuple[Started, ...]

    @property
    def case(self) -> Mapping[str, Any]:
        """Of its record."""
        return dict(self.record["case"])

    @property
    def fabric(self) -> str:
        """What it crosses, empty on one node."""
        return str(self.case.get("fabric") or "")

    @property
    def head(self) -> str:
        """The node that answers: the first of those that its fabric joins."""
        nodes = self.cluster.nodes
        if self.fabric:
            nodes = self.cluster.joined(self.fabric, int(self.case["nodes"]))
        return nodes[0].name

    def alone(self) -> Iterator[MeasuredRun]:
        """Each of its servers where several share its nodes, as a run of its own nodes."""
        case, servers = self.case, servers_of(self.case)
        count = int(case["nodes"])
        joined = self.cluster.joined(self.fabric, count) if self.fabric else self.cluster.nodes
        for nodes in groups_of(joined[:count], servers):
            own = {**case, "nodes": len(nodes)}
            if len(nodes) == 1:
                own["parallelism"] = "single"
            names = {node.name for node in nodes}
            yield MeasuredRun(
                {**self.record, "case": own},
                replace(self.cluster, nodes=tuple(nodes)),
                max(1, *slots_of(self.slots, servers)),
                tuple(one for one in self.started if one.node in names),
            )

    def of(self, *programs: str) -> tuple[Started, ...]:
        """What was started of some programs."""
        return tuple(one for one in self.started if one.program in programs)


def measured_run(engine: Engine, record: Record, cluster: Cluster, slots: int) -> MeasuredRun:
    """A record's run, without its clients and without what makes its servers be measured well.

    engine: that of the record's case.
    """
    found: dict[tuple[str, str], Started] = {}
    for entry in record["commands"]:
        environment = {
            name: value
            for name, value in entry.get("environment", {}).items()
            if name not in engine.measuring_variables
        }
        one = Started(entry["node"], tuple(entry["argv"]), environment)
        begin = " ".join(PurePosixPath(word).name for word in one.argv[:3])
        if not any(f" {client} " in f" {begin} " for client in (*link.PROGRAMS, *engine.clients)):
            found.pop((one.node, one.program), None)
            found[one.node, one.program] = one
    return MeasuredRun(record, cluster, slots, tuple(found.values()))


def serving(
    engine: Engine,
    run: MeasuredRun,
    servers: Sequence[Started],
    model: str = "",
    before: Sequence[Written] = (),
    notes: Sequence[str] = (),
) -> Serving:
    """Servers of a run, and a request to try them with.

    servers: in the order of starting. model: its name in a request; empty: the server needs none.
    """
    chat = "completions" not in engine.apis
    named = {"model": model} if model else {}
    asked: dict[str, Any] = {"prompt": "The quick brown fox"}
    if chat:
        asked = {"messages": [{"role": "user", "content": "Hello"}]}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    ask = post(engine.api_port, path, {**named, **asked, "max_tokens": 16})
    return Serving(run.head, tuple(servers), engine.api_port, (ask,), tuple(before), tuple(notes))


def post(port: int, path: str, body: Mapping[str, Any] | None) -> str:
    """A line that sends a body to a server on this machine."""
    return f"curl http://127.0.0.1:{port}{path} {_JSON} {shlex.quote(json.dumps(body))}"
