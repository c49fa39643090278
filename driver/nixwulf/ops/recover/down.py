"""Nodes that go down and come back: who answers, which go together, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import permutations
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.core.interrupts import wait
from nixwulf.inventory.cluster import Cluster
from nixwulf.inventory.fabrics import KINDS
from nixwulf.nodes.process import SHELL
from nixwulf.nodes.ssh import Connection, Unreachable, each

_SCRIPT = Path(str(resources.files("nixwulf"))) / "ops" / "recover" / "node.sh"
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
    script = SHELL + _SCRIPT.read_text("utf-8")
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
    """Reboot nodes and wait until each answers from another boot.

    Args:
        deadline_s: seconds that each may take.
        report: called with a node's name and what happens there.

    Returns:
        Why not, by node; empty when all have.
    """
    return _down(nodes, "reboot", deadline_s, report)


def shut_down(nodes: Sequence[Connection], deadline_s: float, report: Report) -> dict[str, str]:
    """Shut nodes down and wait until none answers.

    Args:
        deadline_s: seconds that each may take.
        report: called with a node's name and what happens there.

    Returns:
        Why not, by node; empty when all have.
    """
    return _down(nodes, "poweroff", deadline_s, report)


def await_boot(node: Connection, before: str, until: float) -> bool:
    """Wait until a node answers from another boot.

    Args:
        node: the node, over connections that are made anew.
        before: the identity of the boot that it is in, or was in.
        until: the monotonic time, in seconds, at which to give up.

    Returns:
        Whether it answers from another boot.
    """
    while time.monotonic() < until:
        found = state(node)
        if found.error is None and found.boot != before:
            return True
        wait(POLL_S)
    return False


def await_answer(node: Connection, limit_s: float, report: Report) -> None:
    """Wait until a node that may be booting answers, or refuses.

    Args:
        node: the node, over connections that are made anew.
        limit_s: how long to wait, in seconds.
        report: called once with the node's name and what is waited for, if it is.
    """
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
            return _await_silence(node, until)
        if not await_boot(node, before[name].boot, until):
            return f"it is not back after {deadline_s:g} s"
        report(name, "is back")
        return None

    failures = each(one, nodes)
    return {node.node.name: words for node, words in zip(nodes, failures, strict=True) if words}


def _await_silence(node: Connection, until: float) -> str | None:
    while time.monotonic() < until:
        if state(node).error is not None:
            return None
        wait(POLL_S)
    return "it still answers"
