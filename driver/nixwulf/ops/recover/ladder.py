"""Recovering nodes, from soft to hard, until their gates hold again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nixwulf.core.errors import NixwulfError
from nixwulf.core.interrupts import wait
from nixwulf.inventory.cluster import LAB_PLATFORM, Cluster, Node
from nixwulf.inventory.fabric_kinds import KINDS
from nixwulf.nodes.process import stop_owned
from nixwulf.nodes.ssh import Connection, each
from nixwulf.ops.preflight import preflight
from nixwulf.ops.recover import down
from nixwulf.ops.recover.down import Report, groups, run_script, states
from nixwulf.plugins import switches
from nixwulf.plugins.gates import all_gates

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
    """Take each group of nodes up the ladder; groups do not wait for each other.

    Args:
        connections: to all nodes of the cluster, by name.
        names: nodes to recover; those that go down with them are recovered too.
        report: called with a node's name and what happens there.
        deadline_s: seconds that each boot may take: of a node that is silent at first, of a reboot
            and of switching the power.

    Returns:
        A result for each group of nodes that go down together.

    Raises InputError: a power switch that its kind cannot be.
    """
    switches.require_known(cluster)

    def climb(group: Sequence[str]) -> Recovered:
        nodes = [connections[name] for name in group]
        return _Ladder(cluster, nodes, report, waived, deadline_s).climb(steps)

    return each(climb, groups(cluster, names))


class _Ladder:
    """One group of nodes on its way up."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[Connection],
        report: Report,
        waived: Sequence[str],
        deadline_s: float,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._report = report
        self._waived = waived
        self._deadline_s = deadline_s
        self._wrong = ""

    def climb(self, steps: Sequence[str]) -> Recovered:
        """Step after step until the gates hold."""
        names = tuple(node.node.name for node in self._nodes)
        if not self._lab():
            limit_s = min(_BOOT_S, self._deadline_s)
            each(lambda node: down.await_answer(node, limit_s, self._report), self._nodes)
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
            if self._fit(_SETTLE_S.get(step, self._deadline_s)):
                self._say(f"{step}: all gates hold")
                return Recovered(names, step)
            self._say(f"{step}: {self._wrong}")
        return Recovered(names, None, self._wrong)

    def _say(self, words: str) -> None:
        for node in self._nodes:
            self._report(node.node.name, words)

    def _fit(self, seconds: float) -> bool:
        """Whether every gate but that of versions holds on every node, within some seconds."""
        until = time.monotonic() + seconds
        gates = [name for name in all_gates() if name != "versions"]  # what no step changes
        connections = {node.node.name: node.fresh() for node in self._nodes}
        while True:
            refused = preflight(self._cluster, connections, self._waived, gates).of("refused")
            if not refused:
                return True
            self._wrong = refused[0].sentences[0]
            if time.monotonic() > until:
                return False
            wait(down.POLL_S)

    def _stop(self) -> str | None:
        """Stop what the driver owns; a node that does not answer needs more."""
        for node in self._nodes:
            try:
                stopped = stop_owned(node.fresh())
            except NixwulfError as error:
                self._wrong = error.message
                return error.message
            if stopped:
                self._report(node.node.name, f"stopped {', '.join(stopped)}")
        return None

    def _reset(self) -> str | None:
        """Reset the GPU, and load the modules of links anew; not that of a linked pair."""
        if self._lab():
            return "nothing to reset on a namespace"
        done = []
        for node in self._nodes:
            try:
                output = run_script(node, "reset", *_modules(self._cluster, node.node))
            except NixwulfError as error:
                return error.message
            done += [line for line in output.splitlines() if line.startswith("did ")]
        return None if done else "nothing that can be reset"

    def _reboot(self) -> str | None:
        if self._lab():
            return "a namespace does not reboot: 'nixwulf lab down', then 'nixwulf lab up'"
        failures = down.reboot(self._nodes, self._deadline_s, self._report)
        return "; ".join(f"{name}: {words}" for name, words in failures.items()) or None

    def _power(self) -> str | None:
        """Switch the power of all of them, whoever still answers."""
        without = [node.node.name for node in self._nodes if node.node.power_switch is None]
        if without:
            return f"no power_switch in the cluster file for {', '.join(without)}"
        before = {found.name: found.boot for found in states(self._nodes)}
        # Each is switched on again, whatever becomes of another's switch.
        failures = [words for words in each(_cycle, self._nodes) if words]
        if failures:
            self._wrong = " ".join(failures)  # and no gate: it may be off, and nothing else counts
            return self._wrong
        until = time.monotonic() + self._deadline_s
        for node in self._nodes:
            if not down.await_boot(node, before[node.node.name], until):
                self._wrong = (
                    f"Node {node.node.name!r} is not back {self._deadline_s:g} s after its power "
                    "was switched; look at its screen, and whether it starts with the power."
                )
                return self._wrong
        return None

    def _lab(self) -> bool:
        return any(node.node.platform == LAB_PLATFORM for node in self._nodes)


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
