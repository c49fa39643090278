"""Nodes that hang: their state, rebooting, shutting down, and recovering from soft to hard.

Nodes that go down and come back: who answers, which go together, and how long it takes. Recovering
takes them up a ladder until their gates hold again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import shipped_text
from nixwulf.core.interrupts import wait
from nixwulf.inventory.cluster import LAB_PLATFORM, Cluster, Node
from nixwulf.inventory.fabrics import KINDS
from nixwulf.nodes.process import SHELL, stop_owned
from nixwulf.nodes.ssh import Connection, Unreachable, each
from nixwulf.ops.preflight import preflight
from nixwulf.plugins import switches
from nixwulf.plugins.gates import all_gates

_ANSWER_S = 20
_DAY_S, _HOUR_S = 86400, 3600


@dataclass(frozen=True)
class NodeState:
    """What a node answered: boot identifies its boot, uptime_s counts since then.

    error is None where it answered, and may_be_booting is for one that did not; owned are names of
    processes that drivers started there.
    """

    name: str
    boot: str = ""
    uptime_s: int | None = None
    owned: tuple[str, ...] = ()
    error: str | None = None
    may_be_booting: bool = False

    def sentence(self) -> str:
        """One line for people."""
        if self.error is not None:
            return f"{self.name}: does not answer: {self.error}"
        since = "" if self.uptime_s is None else f" for {_duration(self.uptime_s)}"
        owned = f", runs {', '.join(self.owned)}" if self.owned else ""
        return f"{self.name}: up{since}{owned}"


def run_script(node: Connection, *arguments: str) -> str:
    """The output of node.sh over a connection of its own; raises NixwulfError."""
    script = SHELL + shipped_text("ops/recover/node.sh")
    return node.fresh().script(script, *arguments, timeout_s=_ANSWER_S)


def states(nodes: Iterable[Connection]) -> list[NodeState]:
    """The states of nodes, asked at the same time; every one ends within twenty seconds."""
    return each(state, nodes)


def state(node: Connection) -> NodeState:
    """The state of one node."""
    try:
        return parse(node.node.name, run_script(node, "state"))
    except NixwulfError as error:
        booting = isinstance(error, Unreachable) and error.may_be_booting
        return NodeState(node.node.name, error=error.message, may_be_booting=booting)


def parse(name: str, output: str) -> NodeState:
    """A node's state from the lines of node.sh; those that are not known are left out."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    uptime = found.get("uptime", [""])[-1]
    return NodeState(
        name,
        boot=found.get("boot", [""])[-1],
        uptime_s=int(uptime) if uptime.isdecimal() else None,
        owned=tuple(found.get("owned", ())),
    )


def _duration(seconds: int) -> str:
    if seconds >= _DAY_S:
        return f"{seconds // _DAY_S} d {seconds % _DAY_S // _HOUR_S} h"
    if seconds >= _HOUR_S:
        return f"{seconds // _HOUR_S} h {seconds % _HOUR_S // 60} min"
    return f"{seconds} s"


def groups(cluster: Cluster, names: Iterable[str]) -> list[tuple[str, ...]]:
    """The nodes of these names, and with each those that have to go down when it does.

    Both hosts of a USB4 RDMA link have to. Each node is in one group, in the cluster's order.
    """
    neighbours: dict[str, set[str]] = {node.name: {node.name} for node in cluster.nodes}
    for fabric in cluster.fabrics.values():
        if KINDS[fabric.kind].paired:
            for one, other in permutations(cluster.nodes_on(fabric.name), 2):
                if one.end_to(fabric.name, other.name):
                    neighbours[one.name].add(other.name)
    found: list[tuple[str, ...]] = []
    left = dict.fromkeys(names)
    while left:
        group, new = set[str](), {next(iter(left))}
        while new:
            group |= new
            new = set[str]().union(*(neighbours[name] for name in new)) - group
        found.append(tuple(node.name for node in cluster.nodes if node.name in group))
        left = {name: None for name in left if name not in group}
    return found


POLL_S = 2.0
Report = Callable[[str, str], None]


def reboot(nodes: Sequence[Connection], deadline_s: float, report: Report) -> dict[str, str]:
    """Reboot nodes, each within deadline_s to an answer from another boot; failures by node."""
    return _down(nodes, "reboot", deadline_s, report)


def shut_down(nodes: Sequence[Connection], deadline_s: float, report: Report) -> dict[str, str]:
    """Shut nodes down and wait until none answers, each for deadline_s; failures by node."""
    return _down(nodes, "poweroff", deadline_s, report)


def await_boot(node: Connection, before: str, until: float) -> bool:
    """Whether a node, asked anew, answers from another boot until a monotonic time, seconds."""
    while time.monotonic() < until:
        found = state(node)
        if found.error is None and found.boot != before:
            return True
        wait(POLL_S)
    return False


def await_answer(node: Connection, limit_s: float, report: Report) -> None:
    """Wait, for limit_s, until a node that may be booting answers a new connection or refuses."""
    until = time.monotonic() + limit_s
    waited = False
    while (found := state(node)).may_be_booting and time.monotonic() < until:
        if not waited:
            report(found.name, f"does not answer, and may be booting: waiting up to {limit_s:g} s")
            waited = True
        wait(POLL_S)
    if waited and found.error is None:
        report(found.name, "answers")


def _down(
    nodes: Sequence[Connection], action: str, deadline_s: float, report: Report
) -> dict[str, str]:
    until = time.monotonic() + deadline_s
    before = {found.name: found for found in states(nodes)}
    silent = {name: found.error for name, found in before.items() if found.error is not None}
    if silent:
        # Nodes that are linked go down together or not at all, so nothing is done to any.
        return {
            name: silent.get(name) or f"nothing was done, because {', '.join(silent)} is silent"
            for name in before
        }

    def one(node: Connection) -> str | None:
        name = node.node.name
        try:
            run_script(node, action)
        except NixwulfError as error:
            return error.message
        running = before[name].owned
        report(name, f"goes down, and with it {', '.join(running)}" if running else "goes down")
        if action == "poweroff":
            while time.monotonic() < until:
                if state(node).error is not None:
                    return None
                wait(POLL_S)
            return "it still answers"
        if not await_boot(node, before[name].boot, until):
            return f"it is not back after {deadline_s:g} s"
        report(name, "is back")
        return None

    failures = each(one, nodes)
    return {node.node.name: words for node, words in zip(nodes, failures, strict=True) if words}


STEPS = ("stop", "reset", "reboot", "power")
_SETTLE_S = {"stop": 5.0, "reset": 30.0}
# Desk-side machines take one to two minutes from power to sshd.
_BOOT_S = 120.0


@dataclass(frozen=True)
class Recovered:
    """What became of nodes that go down together: the step that helped, or why none did."""

    nodes: tuple[str, ...]
    step: str | None
    words: str = ""


def recover(
    cluster: Cluster,
    connections: Mapping[str, Connection],
    names: Sequence[str],
    report: Report,
    *,
    waived: Sequence[str] = (),
    deadline_s: float = 600.0,
    steps: Sequence[str] = STEPS,
) -> list[Recovered]:
    """Take each group of nodes that go down together up the ladder: a result for each group.

    Groups do not wait for each other.

    names: nodes to recover; those that go down with them are recovered too. deadline_s: seconds
    that each boot may take: of a node that is silent at first, of a reboot and of switching the
    power.

    Raises InputError: a power switch that its kind cannot be.
    """
    switches.require_known(cluster)

    def climb(group: Sequence[str]) -> Recovered:
        nodes = [connections[name] for name in group]
        return _Ladder(cluster, nodes, report, waived, deadline_s).climb(steps)

    return each(climb, groups(cluster, names))


@dataclass
class _Ladder:
    """One group of nodes on its way up."""

    cluster: Cluster
    nodes: Sequence[Connection]
    report: Report
    waived: Sequence[str]
    deadline_s: float
    wrong: str = ""

    def climb(self, steps: Sequence[str]) -> Recovered:
        """Step after step until the gates hold."""
        names = tuple(node.node.name for node in self.nodes)
        if not self._lab():
            limit_s = min(_BOOT_S, self.deadline_s)
            each(lambda node: await_answer(node, limit_s, self.report), self.nodes)
        actions: dict[str, Callable[[], str | None]] = {
            "stop": self._stop,
            "reset": self._reset,
            "reboot": self._reboot,
            "power": self._power,
        }
        for step in steps:
            unfit = actions[step]()
            if unfit:
                self._say(f"{step}: {unfit}")
                continue
            if self._fit(_SETTLE_S.get(step, self.deadline_s)):
                self._say(f"{step}: all gates hold")
                return Recovered(names, step)
            self._say(f"{step}: {self.wrong}")
        return Recovered(names, None, self.wrong)

    def _say(self, words: str) -> None:
        for node in self.nodes:
            self.report(node.node.name, words)

    def _fit(self, seconds: float) -> bool:
        """Whether every gate but that of versions holds on every node, within some seconds."""
        until = time.monotonic() + seconds
        gates = [name for name in all_gates() if name != "versions"]  # what no step changes
        connections = {node.node.name: node.fresh() for node in self.nodes}
        while True:
            refused = preflight(self.cluster, connections, self.waived, gates).of("refused")
            if not refused:
                return True
            self.wrong = refused[0].sentences[0]
            if time.monotonic() > until:
                return False
            wait(POLL_S)

    def _stop(self) -> str | None:
        """Stop what the driver owns; a node that does not answer needs more."""
        for node in self.nodes:
            try:
                stopped = stop_owned(node.fresh())
            except NixwulfError as error:
                self.wrong = error.message
                return error.message
            if stopped:
                self.report(node.node.name, f"stopped {', '.join(stopped)}")
        return None

    def _reset(self) -> str | None:
        """Reset the GPU, and load the modules of links anew; not that of a linked pair."""
        if self._lab():
            return "nothing to reset on a namespace"
        done = []
        for node in self.nodes:
            try:
                output = run_script(node, "reset", *_modules(self.cluster, node.node))
            except NixwulfError as error:
                return error.message
            done += [line for line in output.splitlines() if line.startswith("did ")]
        return None if done else "nothing that can be reset"

    def _reboot(self) -> str | None:
        if self._lab():
            return "a namespace does not reboot: 'nixwulf lab down', then 'nixwulf lab up'"
        failures = reboot(self.nodes, self.deadline_s, self.report)
        return "; ".join(f"{name}: {words}" for name, words in failures.items()) or None

    def _power(self) -> str | None:
        """Switch the power of all of them, whoever still answers."""
        without = [node.node.name for node in self.nodes if node.node.power_switch is None]
        if without:
            return f"no power_switch in the cluster file for {', '.join(without)}"
        before = {found.name: found.boot for found in states(self.nodes)}
        # Each is switched on again, whatever becomes of another's switch.
        failures = [words for words in each(_cycle, self.nodes) if words]
        if failures:
            self.wrong = " ".join(failures)  # and no gate: it may be off, and nothing else counts
            return self.wrong
        until = time.monotonic() + self.deadline_s
        for node in self.nodes:
            if not await_boot(node, before[node.node.name], until):
                self.wrong = (
                    f"Node {node.node.name!r} is not back {self.deadline_s:g} s after its power "
                    "was switched; look at its screen, and whether it starts with the power."
                )
                return self.wrong
        return None

    def _lab(self) -> bool:
        return any(node.node.platform == LAB_PLATFORM for node in self.nodes)


def _cycle(node: Connection) -> str | None:
    """Why a node's power could not be switched off and on again."""
    if node.node.power_switch is not None:
        try:
            switches.cycle(node.node.name, node.node.power_switch)
        except NixwulfError as error:
            return error.message
    return None


def _modules(cluster: Cluster, node: Node) -> list[str]:
    """Modules of a node's links that may be loaded anew: ssh must not cross the link."""
    host = node.ssh.rpartition("@")[2]
    kinds = {name: KINDS[cluster.fabrics[name].kind] for name in node.fabric_names}
    if any(kind.paired for kind in kinds.values()):
        return []
    others = [
        kind for name, kind in kinds.items() if any(end.address != host for end in node.ends(name))
    ]
    return sorted({kind.module for kind in others if kind.module})
