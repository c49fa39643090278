"""A run while it goes on: its case on nodes, owned processes and two clocks.

Replicas: servers of the whole model, on each node of a run or on each of its groups of nodes.

Each is started as one alone. No request crosses the fabric: the driver sends it to a head over ssh.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from nixwulf.core.interrupts import end_of_standstill
from nixwulf.core.secrets import named_secrets, use
from nixwulf.inventory.cluster import Cluster, Fabric
from nixwulf.inventory.fabrics import Attachment
from nixwulf.llm import PlacedModel
from nixwulf.llm.model_facts import Sizes
from nixwulf.nodes import container
from nixwulf.nodes.container import Toolbox
from nixwulf.nodes.counters import Counters, read
from nixwulf.nodes.facts import Facts
from nixwulf.nodes.power import PowerSession
from nixwulf.nodes.process import OwnedProcess, cpu_times, unit_name
from nixwulf.nodes.ssh import Connection, Unreachable, each, run_all
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import Case, Limits
from nixwulf.results.identity import REPLICAS

# A silent run whose fabric carries this much works: a model at a token in ten seconds hands on over
# 300 kB in a minute, a stopped peer leaves retransmissions and window probes, a few kilobytes. One
# node has no fabric, and llama-bench prints nothing inside a sample; there CPU time is progress.
PROGRESS_BYTES = 100_000
PROGRESS_CPU_S = 0.5
_POLL_S = 0.02
_TEARDOWN_S = 10


@dataclass(frozen=True)
class Sign:
    """What a silent program does while it works: a number that grows, as of now.

    least: how much more of it is progress. words: with a place for how much more there was.
    """

    amount: float
    least: float
    words: str


Outcome = Literal["failed", "fallback", "gibberish", "hang", "skipped", "timeout", "unsupported"]
"""Of a run that did not end ok, as in a record."""


class RunFailure(Exception):
    """A run that does not end ok: its outcome, and one sentence of why."""

    def __init__(self, reason: str, outcome: Outcome = "failed") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


def failure_of(process: OwnedProcess, what: str, outcome: Outcome = "failed") -> RunFailure:
    """A failure by how a process ended and the last line that it printed."""
    return RunFailure(f"{what} {process.ending()}: {process.last_line()}", outcome)


@dataclass
class Run:
    """A case in progress on connected nodes, the head first.

    deadline is in monotonic seconds; model is its path on the nodes that read it, empty where
    there is none, tokenizer that of its file where the sweep names one, draft that of the model
    that drafts tokens for it, sizes those of its header.
    engine_facts and warnings go into the record; engine_found is what an engine found out or made
    up for the run, by kind and name. waived are names of gates that may refuse; power is what the
    session knows of that of its nodes. proof_from are counters as of `prove_from_here`. bring_model
    brings another model of the sweep by its name, by '' the first; without a sweep there is none.
    toolboxes are the case's, empty without one.
    """

    name: str
    case: Case
    cluster: Cluster
    nodes: tuple[Connection, ...]
    model: str
    limits: Limits
    raw: Path
    deadline: float
    facts: Mapping[str, Facts] = field(default_factory=dict)
    owned: list[OwnedProcess] = field(default_factory=list)
    toolboxes: dict[str, Toolbox] = field(default_factory=dict)
    engine_facts: dict[str, str] = field(default_factory=dict)
    engine_found: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    waived: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    power: PowerSession = field(default_factory=PowerSession)
    tokenizer: str = ""
    draft: str = ""
    draft_bytes: int = 0
    bring_model: Callable[[str], PlacedModel] = dict[str, PlacedModel]().__getitem__
    sizes: Sizes | None = None
    proof_from: dict[str, Counters] = field(default_factory=dict)
    scratch: str = field(default_factory=lambda: f"/tmp/nixwulf-{secrets.token_hex(8)}")  # noqa: S108 - nobody can know it
    _with_scratch: set[str] = field(default_factory=set)

    @property
    def head(self) -> Connection:
        """The node on which clients run."""
        return self.nodes[0]

    @property
    def workers(self) -> tuple[Connection, ...]:
        """The other nodes."""
        return self.nodes[1:]

    @property
    def fabric(self) -> Fabric | None:
        """The fabric that the case is about; None on one node."""
        return self.cluster.fabrics[self.case.fabric] if self.case.fabric else None

    def extend(self, seconds: float) -> None:
        """What the driver waits for by itself is not the run's; before anything is started."""
        self.deadline += seconds
        self.nodes = tuple(node.until(self.deadline) for node in self.nodes)

    def on_first(self, count: int) -> Run:
        """The same model on the first nodes, in a pipeline: what it starts, the run owns."""
        case = replace(self.case, nodes=count, parallelism="pipeline")
        if count == 1:
            case = replace(case, fabric=None, transport=None, parallelism="single")
        return replace(self, case=case, nodes=self.nodes[:count])

    def program(self, name: str, node: Connection | None = None) -> str:
        """Where a node, else the head, has a program; raises RunFailure where a gate was waived."""
        where = (node or self.head).node.name
        place = self.facts[where].programs.get(name)
        if place is None:
            raise RunFailure(f"Node {where!r} lacks {name!r} on PATH; install it there.")
        return place

    @property
    def links(self) -> tuple[tuple[Connection, Connection], ...]:
        """What joins its nodes: the head with each worker; of cables each, with both ends."""
        if self.fabric is None or self.fabric.link_prefix is None:
            return tuple((self.head, worker) for worker in self.workers if self.fabric)
        pairs = combinations(self.nodes, 2)
        name = self.fabric.name
        return tuple((one, two) for one, two in pairs if one.node.end_to(name, two.node.name))

    def link_conditions(self, source: Connection, target: Connection) -> dict[str, str]:
        """Of a metric of one link: the worker, and who sends where that is not the head."""
        sender = {} if source is self.head else {"from": source.node.name}
        return {**sender, "worker": target.node.name}

    def data_address(self, node: Connection, other: Connection | None = None) -> str:
        """A node's address on the case's fabric, or loopback when one node runs alone.

        other: who reaches it by that; None: the head, or of the head's own the first worker.
        """
        return self.end(node, other).address if self.case.fabric else "127.0.0.1"

    def end(self, node: Connection, other: Connection | None = None) -> Attachment:
        """A node's end of what joins it to another on the fabric, as of `data_address`.

        Raises RunFailure: no cable joins them.
        """
        other = other or (self.head if node is not self.head else self.workers[0])
        end = node.node.end_to(self.case.fabric or "", other.node.name)
        if end is None:
            raise RunFailure(
                f"No cable of {self.case.fabric!r} joins {node.node.name!r} and "
                f"{other.node.name!r}; take nodes that are cabled each to each.",
                "unsupported",
            )
        return end

    def ends(self, node: Connection) -> tuple[Attachment, ...]:
        """All of a node's ports on the fabric that lead to nodes of the run."""
        others = [other.node.name for other in self.nodes if other is not node]
        return node.node.ends(self.case.fabric or "", others)

    def meeting_end(self, node: Connection) -> Attachment:
        """Where all other nodes of the run reach a node: of cables on their control network."""
        if self.on_cables and self.fabric and self.fabric.control:
            return node.node.fabrics[self.fabric.control]
        return self.end(node)

    def meeting_address(self, node: Connection) -> str:
        """The same as an address, or loopback when one node runs alone."""
        return self.meeting_end(node).address if self.case.fabric else "127.0.0.1"

    @property
    def meeting_subnet(self) -> IPv4Network | None:
        """The network on which the nodes of a run meet; None on one node."""
        if self.fabric is None:
            return None
        if self.on_cables and self.fabric.control:
            return self.cluster.fabrics[self.fabric.control].subnet
        if self.fabric.link_prefix is None:
            return self.fabric.subnet
        return IPv4Network((self.end(self.head).address, self.fabric.link_prefix), strict=False)

    @property
    def on_cables(self) -> bool:
        """Whether more than two nodes are on cables, so that a node has no one address."""
        return self.fabric is not None and bool(self.fabric.link_prefix) and len(self.nodes) > 2  # noqa: PLR2004

    def require_rdma(self, node: Connection) -> None:
        """Raise RunFailure where one of a node's ends on the fabric has no RDMA device."""
        if not all(end.rdma_devices for end in self.ends(node)):
            raise RunFailure(
                f"Node {node.node.name!r} has no rdma_device on the fabric {self.case.fabric!r}; "
                "add it to the cluster file ('rdma link' lists them).",
                "skipped",
            )

    def start(
        self,
        node: Connection,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        background: bool = False,
        after: Sequence[str] = (),
    ) -> OwnedProcess:
        """Start a program in the case's toolbox, if any; it ends at the latest with the run.

        name: of the process in the run's raw folder. background: whether it is there for others, so
        that its end is an error.
        """
        self.folder(node)
        environment = {**environment, **passthrough.environment(self.case.parameters)}
        full_name = f"{name}-{node.node.name}"
        toolbox = self.toolboxes.get(node.node.name)
        if toolbox:
            unit = unit_name(self.raw, full_name)
            argv = toolbox.argv(unit, argv, environment, self.scratch)
            after = container.removal(unit)
        use(named_secrets(argv, environment))
        process = OwnedProcess.start(
            node, full_name, argv, environment, self.raw, background=background, after=after
        )
        self.owned.append(process)
        return process

    def folder(self, node: Connection) -> str:
        """The run's folder on a node, made by the first call: only this user may look into it.

        It has one name on all nodes, which nobody can know before, and goes with the run.
        """
        if node.node.name not in self._with_scratch:
            node.script('mkdir -m 700 "$1"', self.scratch)
            self._with_scratch.add(node.node.name)
        return self.scratch

    def output(self, node: Connection, script: str, *arguments: str, timeout_s: float = 60) -> str:
        """What a short script prints where the engine's programs are.

        arguments: $1, $2, ... timeout_s: seconds that it may take.

        Raises NixwulfError: it failed or took longer.
        """
        toolbox = self.toolboxes.get(node.node.name)
        if not toolbox:
            return node.script(script, *arguments, timeout_s=timeout_s)
        name = unit_name(self.raw, f"look-{node.node.name}")
        shell = ["sh", "-c", script, "sh", *arguments]
        argv = toolbox.argv(name, shell, (), self.folder(node))
        return node.script('"$@"', *argv, timeout_s=timeout_s)

    def outputs(self, script: str) -> list[str]:
        """The same of every node, at the same time."""
        return each(lambda node: self.output(node, script), self.nodes)

    def execute(
        self, node: Connection, name: str, argv: Sequence[str], environment: Mapping[str, str]
    ) -> OwnedProcess:
        """Run a program to its end under both clocks.

        name: of the process in the run's raw folder.

        Raises RunFailure: `timeout` or `hang`.
        """
        process = self.start(node, name, argv, environment)
        self.watch(process)
        return process

    def watch(
        self, process: OwnedProcess, life: Callable[[], tuple[Sign, ...]] | None = None
    ) -> None:
        """Wait until a process ends; stops it and raises RunFailure at either limit.

        life: signs of life of a program that works silently, where its node shows none.
        """
        clocks = Clocks(self, process, life)
        while process.running:
            time.sleep(_POLL_S)
            clocks.check()

    @property
    def servers(self) -> list[OwnedProcess]:
        """The processes that are there for others until the run ends."""
        return [process for process in self.owned if process.background]

    def deaths(self) -> str:
        """A sentence, after a space, for each server that has ended by itself.

        To be asked before a client is stopped: some servers do not survive that.
        """
        return "".join(
            f" {server.program!r} on node {server.node!r} {server.ending()}."
            for server in self.servers
            if not server.running and not server.stopped_by_driver
        )

    def stop(self) -> None:
        """Stop every process of this run that still goes on, the last started first."""
        for process in reversed(self.owned):
            process.stop(at_once=process.node in self._gone)
        reached = self._with_scratch - self._gone
        made = [node.until(None) for node in self.nodes if node.node.name in reached]
        run_all(made, ["rm", "-rf", self.scratch], timeout_s=_TEARDOWN_S)
        self._with_scratch.clear()

    @property
    def _gone(self) -> set[str]:
        return {process.node for process in self.owned if process.cut_off}

    def signs_of_life(self, process: OwnedProcess | None) -> tuple[Sign, ...]:
        """Of a silent run: bytes on the fabric, or CPU time alone; empty where it is not counted.

        Raises Unreachable: a node did not answer.
        """
        if self.fabric is None:
            times = cpu_times(self.head, process) if process else []
            spent = sum(time.user + time.kernel for time in times)
            return (Sign(spent, PROGRESS_CPU_S, "it used {:.2f} s of CPU time"),) if times else ()
        counters = read(self.workers)
        carried = 0
        for node in self.workers:
            counted, ends = counters[node.node.name], self.ends(node)
            devices = [counted.rdma.get(name) for end in ends for name in end.rdma_devices]
            carried += sum(counted.interfaces.get(end.interface, 0) for end in ends)
            carried += sum(device.carried for device in devices if device)
        return (Sign(carried, PROGRESS_BYTES, "the fabric carried {:,.0f} bytes"),)

    def prove_from_here(self) -> None:
        """The proof of transport begins anew: what placed or loaded a model is no part of it."""
        self.proof_from.update(self.counters())

    def counters(self) -> dict[str, Counters]:
        """The counters of every node; empty on one node, whose run crosses no network."""
        return read(self.nodes) if self.fabric else {}


class Clocks:
    """The two clocks of a run, held against one of its processes or a foreign server from now on.

    A silent process is looked at twice, half of progress_s apart. What ends its silence is output,
    an event, or that this driver stood still itself, for then nobody listened.
    """

    def __init__(
        self,
        run: Run,
        process: OwnedProcess | None,
        life: Callable[[], tuple[Sign, ...]] | None = None,
    ) -> None:
        """Start the progress clock; the wall clock has run since the run began.

        process: what is watched, and stopped at a limit; None: somebody else's server. life: signs
        of life of a silent program; None: those of the run.
        """
        self._run = run
        self._process = process
        self._signs = life or (lambda: run.signs_of_life(process))
        self._half_s = run.limits.progress_s / 2
        self._seen: tuple[Sign, ...] | None = None
        self._event_at = time.monotonic()
        self._look_at = self._answered_at = end_of_standstill()
        self._begin(self._event_at)

    def on_event(self) -> None:
        """Something came from the process beside its output, such as over a socket."""
        self._event_at = time.monotonic()

    def check(self) -> None:
        """Stop the process and raise RunFailure, timeout or hang, when a clock has run out."""
        run, now = self._run, time.monotonic()
        if now > run.deadline:
            self._end("timeout", f"The run took longer than {run.limits.wall_s:g} s")
        output_at = self._process.output_at if self._process else 0.0
        came_at = max(output_at, self._event_at, end_of_standstill())
        if came_at > self._progress_at:
            self._begin(came_at)
        if now < self._look_at:
            return
        try:
            seen = self._signs()
        except Unreachable as error:
            # A node that does not answer says nothing of the run, until it has been asked for long.
            if now - self._answered_at > run.limits.progress_s:
                silence = "and nothing shows whether it works"
                self._end("hang", f"{self._silence()}, {silence}: {error.message.rstrip('.')}")
            self._look_at = time.monotonic() + self._half_s / 4
            return
        before, self._seen, self._answered_at = self._seen, seen, time.monotonic()
        self._look_at = self._answered_at + self._half_s
        if before is None:
            return
        grown = [(b, b.amount - a.amount) for a, b in zip(before, seen, strict=False)]
        if any(more >= sign.least for sign, more in grown):
            self._begin(self._answered_at)
            return
        words = " and ".join(sign.words.format(more) for sign, more in grown)
        looked = f"in the last {self._half_s:g} s {words}" if words else "its CPU time is not known"
        self._end("hang", f"{self._silence()}, and {looked}")

    def _begin(self, progress_at: float) -> None:
        self._progress_at = progress_at
        self._look_at = self._answered_at = progress_at + self._half_s
        self._seen = None

    def _silence(self) -> str:
        program = repr(self._process.program) if self._process else "The endpoint"
        return f"{program} was silent for {self._run.limits.progress_s:g} s"

    def _end(self, outcome: Outcome, reason: str) -> NoReturn:
        deaths = self._run.deaths()
        if self._process:
            self._process.stop()
        raise RunFailure(f"{reason}.{deaths}", outcome)


T = TypeVar("T")


def servers_of(case: Mapping[str, Any]) -> int:
    """How many servers share the nodes of a case, as a record has it."""
    if case.get("parallelism") == REPLICAS:
        return int(case["nodes"])
    return int(case.get("parameters", {}).get("servers", 1))


def groups_of(nodes: Sequence[T], servers: int) -> tuple[Sequence[T], ...]:
    """The nodes of each server: as many each, in the cluster's order, its head first."""
    size = len(nodes) // servers
    return tuple(nodes[place * size : (place + 1) * size] for place in range(servers))


def slots_of(concurrency: int, servers: int) -> tuple[int, ...]:
    """Requests in flight on each server where they are spread evenly; 0 on those that are idle."""
    least, more = divmod(concurrency, servers)
    return tuple(least + (number < more) for number in range(servers))


def of_one_server(case: Case) -> Case:
    """The case of one of several servers; any other case as it is."""
    servers = servers_of(case.document())
    if servers == 1:
        return case
    parameters = {**case.parameters, **({"servers": 1} if "servers" in case.parameters else {})}
    if "concurrency" in parameters:
        parameters["concurrency"] = max(1, *slots_of(parameters["concurrency"], servers))
    split = "single" if case.parallelism == REPLICAS else case.parallelism
    return replace(case, nodes=case.nodes // servers, parallelism=split, parameters=parameters)


def replicas(run: Run) -> tuple[Run, ...]:
    """A run for each of several servers, whose processes are the whole run's too; else the run."""
    case = of_one_server(run.case)
    if case is run.case:
        return (run,)
    return tuple(
        replace(
            run,
            # By it engines that look for others of their kind tell groups apart, as exo does.
            name=f"{run.name}-{group[0].node.name}",
            case=case,
            nodes=tuple(group),
            owned=_Owned(run.owned, {node.node.name for node in group}),
        )
        for group in groups_of(run.nodes, servers_of(run.case.document()))
    )


class _Owned(list[OwnedProcess]):
    """The processes of some nodes among those of a run; what is added is the whole run's too."""

    def __init__(self, whole: list[OwnedProcess], nodes: Collection[str]) -> None:
        super().__init__(process for process in whole if process.node in nodes)
        self._whole = whole

    def append(self, process: OwnedProcess) -> None:
        super().append(process)
        self._whole.append(process)

    def extend(self, processes: Iterable[OwnedProcess]) -> None:
        for process in processes:
            self.append(process)
