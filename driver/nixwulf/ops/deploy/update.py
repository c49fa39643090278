"""Updating deployed nodes: build once, copy to all, then switch all; who is lost goes back."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from nixwulf.core import interrupts
from nixwulf.core.errors import NixwulfError, quoted
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.nodes.ssh import Connection, Unreachable, each
from nixwulf.ops.deploy.building import store_address
from nixwulf.ops.deploy.flake import COLLECT, FEATURES, NO_ROOM, Built, error_of
from nixwulf.ops.deploy.machine import Machine, gather_machines
from nixwulf.ops.deploy.refusals import absent_interfaces, in_use, other_cluster

_SCRIPT = Path(str(resources.files("nixwulf"))) / "ops" / "deploy" / "update.sh"
_PAUSE_S = 2.0
_ROLLING_BACK_S = 120
_ANSWER_S = 300  # installing a boot loader may take its time
_PREVIOUS = re.compile(r"^previous (\d+) (/\S+) (.+)$", re.ASCII | re.MULTILINE)
Report = Callable[[str, str], None]

GOOD = {"updated", "unchanged"}


@dataclass(frozen=True)
class Target:
    """A node and the system that it is to run.

    installable: the system as nix names it in a flake; empty for one that is built already. here:
    whether this machine builds or has it. generation: its number and date, where it is one that the
    node had before.
    """

    connection: Connection
    system: Built
    installable: str
    here: bool
    generation: str = ""

    @property
    def node(self) -> Node:
        """The node."""
        return self.connection.node


@dataclass(frozen=True)
class Update:
    """What came of a node: its state, whether it needs a reboot, and the lines of its log.

    idle: new services of a fabric that did not start. generation: as of its target.

    The states are 'updated', 'unchanged', 'rolled-back', 'rollback-failed', 'refused', 'lost', and
    'lost-late': lost after the command to keep the new system, so that it may boot either.
    """

    node: Node
    state: str
    reboot: bool = False
    words: str = ""
    idle: tuple[str, ...] = ()
    generation: str = ""


def build_command(targets: Sequence[Target]) -> list[str]:
    """The one build of all systems that are built on this machine; empty when none is."""
    derivations = sorted(
        {f"{t.system.derivation}^out" for t in targets if t.here and t.system.derivation}
    )
    return (
        ["nix", "build", *FEATURES, "--no-link", "--print-build-logs", *derivations]
        if derivations
        else []
    )


def bring_command(target: Target) -> list[str]:
    """How a system comes to a node: copied, or built there when it is of another architecture.

    What is built here has no signature; a node trusts root, who asks it to want none.
    """
    address = store_address(target.node.ssh)
    if target.here:
        unsigned = "--no-check-sigs"
        return ["nix", "copy", *FEATURES, unsigned, "--to", address, target.system.path]
    store = ["--eval-store", "auto", "--store", address]
    return ["nix", "build", *FEATURES, "--no-link", *store, target.installable]


def nix_environment(connection: Connection) -> dict[str, str]:
    """nix reaches a node as the driver does, but over a connection of its own.

    nix copy hangs on a shared one: https://github.com/NixOS/nix/issues/8480
    """
    return {**os.environ, "NIX_SSHOPTS": shlex.join(connection.fresh().options)}


def unfit(cluster: Cluster, targets: Sequence[Target], expected_cluster: str | None) -> list[str]:
    """Why nodes are left alone, from one round trip to each.

    Args:
        targets: nodes, which are reached, and the systems that they are to run.
        expected_cluster: the cluster whose systems they may run besides their own.

    Returns:
        A sentence for each node that did not answer, on which a sweep has processes (a switch would
        end or slow them), that runs another cluster's system, or that lacks a fabric's interface.
    """
    found = gather_machines([target.connection for target in targets])
    reasons: list[str] = []
    for target in targets:
        machine = found[target.node.name]
        if isinstance(machine, Machine):
            reasons += in_use(target.node, machine)
            reasons += other_cluster(target.node, cluster, machine, expected_cluster)
            if target.system.layout is not None:
                reasons += absent_interfaces(target.node, cluster, machine, target.system.layout)
        else:
            reasons.append(machine.message)
    return reasons


def bring_all(targets: Sequence[Target]) -> list[str]:
    """Bring each node its system, in parallel; why not, where that failed."""

    def attempt(target: Target) -> str | None:
        command = bring_command(target)
        done = interrupts.ask(command, env=nix_environment(target.connection))
        if done.returncode == 0:
            return None
        then = f"run '{shlex.join(command)}'"
        if NO_ROOM.search(done.stderr):
            then = f"make room there: 'ssh {target.node.ssh} {COLLECT}'"
        return f"Node {target.node.name!r} has not got its system: {error_of(done.stderr)}; {then}."

    return [words for words in each(attempt, targets) if words]


def previous(targets: Sequence[Target]) -> tuple[list[Target], list[str]]:
    """Targets that are each node's generation before its present one, and why there is none."""

    def ask(target: Target) -> Target | str:
        script, name = _SCRIPT.read_text("utf-8"), target.node.name
        try:
            answer = target.connection.script(script, "previous", name, timeout_s=_ANSWER_S)
        except NixwulfError as error:
            return error.message
        line = _PREVIOUS.search(answer)
        if line is None:
            return (
                f"Node {name!r} answered with {quoted(answer)}, expected the generation before its "
                "present one; see 'nixos-rebuild list-generations' there."
            )
        return replace(target, system=Built(None, line[2]), generation=f"{line[1]} {line[3]}")

    found = each(ask, targets)
    return (
        [one for one in found if isinstance(one, Target)],
        [one for one in found if isinstance(one, str)],
    )


def switch_all(targets: Sequence[Target], seconds: int, report: Report) -> list[Update]:
    """Switch nodes in parallel, each to its system, which it has.

    Args:
        seconds: after which a node goes back that was not reached again.
        report: called with a node's name and what happens there.
    """
    # Interrupted: nobody comes back to the nodes, and so they go back.
    return each(
        lambda target: replace(_switch(target, seconds, report), generation=target.generation),
        targets,
    )


def _switch(target: Target, seconds: int, report: Report) -> Update:
    """Activate, then come back over a connection that began after the activation had ended.

    Only that shows that the node can be reached; until 'finish' has run over it, the node goes back
    by itself.
    """
    node, path = target.node, target.system.path
    script, fresh = _SCRIPT.read_text("utf-8"), target.connection.fresh()
    number = target.generation.partition(" ")[0]
    start = ("start", node.name, path, str(seconds), number)
    try:
        started = fresh.script(script, *start, timeout_s=_ANSWER_S)
    except Unreachable as error:
        # The node may have taken the command: it is asked below what came of it.
        report(node.name, error.message)
        started = "state started"
    except NixwulfError as error:
        return Update(node, "refused", words=error.message)
    first = _parse(node, started)
    if first.state == "unchanged":
        return first
    report(node.name, "activating")
    deadline = time.monotonic() + seconds + _ROLLING_BACK_S
    log, words, mode = "", "", "look"
    while time.monotonic() < deadline:
        try:
            answer = fresh.script(script, mode, node.name, path, timeout_s=_ANSWER_S)
        except NixwulfError as error:
            words = error.message
        else:
            found = _parse(node, answer)
            log = log or found.words
            if found.state == "activated":
                mode = "finish"
                continue
            if found.state not in {"busy", "rolling-back"}:
                return replace(
                    found, words=" ".join(dict.fromkeys(filter(None, (log, found.words))))
                )
            words = f"Node {node.name!r} was still {found.state} at the last answer."
        interrupts.wait(_PAUSE_S)
    return Update(node, "lost-late" if mode == "finish" else "lost", words=log or words)


def _parse(node: Node, output: str) -> Update:
    """What the script printed; a node that printed nothing is busy."""

    def after(word: str) -> list[str]:
        return [line.removeprefix(word) for line in output.splitlines() if line.startswith(word)]

    return Update(
        node,
        after("state ")[-1] if after("state ") else "busy",
        reboot="reboot" in output.splitlines(),
        words=" ".join(" ".join(after("log ")).split()),
        idle=tuple(after("idle ")),
    )


def sentence(update: Update) -> str:
    """What came of a node, and what to do."""
    name = update.node.name
    because = f": {update.words}" if update.words else ""
    again = "; correct the configuration and update again."
    if update.generation:
        again = "; see what else there is by 'nixos-rebuild list-generations' there."
    idle = ", ".join(update.idle)
    start = f"'ssh {update.node.ssh} systemctl restart {' '.join(update.idle)}'"
    if idle and update.state == "updated":
        return f"Node {name!r} is updated, and {idle} did not start; run {start}."
    generation = f"runs generation {update.generation} again"
    return {
        "updated": f"Node {name!r} {generation if update.generation else 'is updated'}.",
        "unchanged": f"Node {name!r} runs this system already.",
        "rolled-back": f"Node {name!r} went back to its old system{because}{again}",
        "rollback-failed": f"Node {name!r} could not go back{because}; reboot it: it boots the old "
        "system.",
        "lost": f"Node {name!r} does not answer{because}; reboot it: it boots the old system.",
        "lost-late": f"Node {name!r} does not answer, and may have kept its new system{because}; "
        "when it answers again, update again: that shows which system it runs.",
        "refused": f"Node {name!r} is not switched{because}",
    }.get(update.state, f"Node {name!r}: {update.state}{because}")
