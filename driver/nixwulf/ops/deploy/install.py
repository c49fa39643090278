"""Installing: one nixos-anywhere a node, all at the same time, each with a log of its own.

Updating deployed nodes: build once, copy to all, then switch all; who is lost goes back.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from nixwulf.core import interrupts
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import shipped_text
from nixwulf.core.text import clean
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.inventory.platforms import load_platform
from nixwulf.nodes.ssh import Connection, Unreachable, as_options, each
from nixwulf.ops.deploy.flake import (
    COLLECT,
    FEATURES,
    NO_ROOM,
    Built,
    announce,
    build_here,
    error_of,
    installable,
    lacks_nix,
    store_address,
    systems_built_here,
)
from nixwulf.ops.deploy.machine import Machine, gather_machines
from nixwulf.ops.deploy.plan import NodePlan
from nixwulf.ops.deploy.refusals import absent_interfaces, in_use, other_cluster

_GRACE_S = 5
_POLL_S = 0.1
Report = Callable[[str, str], None]
"""Called with a node's name and what happens there."""


@dataclass
class InstallationRun:
    """A nixos-anywhere that runs or has ended; step is the last that it named."""

    node: str
    log: Path
    process: subprocess.Popen[bytes]
    step: str = "starting"
    last_line: str = "it printed nothing"
    reader: threading.Thread | None = field(default=None, repr=False)

    @property
    def failure(self) -> str | None:
        """Why it did not succeed, or None."""
        code = self.process.returncode
        if code == 0:
            return None
        what = f"nixos-anywhere ended with {code}" if code > 0 else "nixos-anywhere was ended"
        return (
            f"Node {self.node!r} is not installed: {what} at {self.step!r} ({self.last_line}); "
            f"see {self.log}, then run the same command again."
        )


def check_programs(wanted: Sequence[str]) -> None:
    """Raise InputError when what installs nodes is not on this machine."""
    if wanted and (lacking := lacks_nix()):
        raise InputError(f"Nothing can be installed from here, because {lacking}.")
    if wanted and shutil.which("nixos-anywhere") is None:
        raise InputError(
            "'nixos-anywhere' is not on PATH; run this as 'nix run .#deploy -- ...', which brings "
            "what it needs."
        )


def build_installers(plans: Sequence[NodePlan], flake: str) -> None:
    """Build what nodes are booted into, once a platform; raises NixwulfError.

    What nixos-anywhere then builds here of their systems is said before.
    """
    local = systems_built_here()
    own = [
        installable(flake, plan.attribute)
        for plan in plans
        if "--flake" in plan.command and load_platform(plan.node.platform)["system"] in local
    ]
    if own:
        announce(["nix", "build", *FEATURES, "--no-link", *own], "The systems are")
    for plan in {plan.build: plan for plan in plans if plan.build}.values():
        Path("runs").mkdir(exist_ok=True)
        build_here(plan.build, "An installer is", f" {_elsewhere(plan, plans)}")


def _elsewhere(plan: NodePlan, plans: Sequence[NodePlan]) -> str:
    """What to do where this machine cannot build a node's installer."""
    system, ssh = load_platform(plan.node.platform)["system"], plan.node.ssh
    for one in plans:
        if (own := one.machine) and own.nixos and not own.installer and own.system == system:
            there = f"{store_address(one.node.ssh)} {system}"
            command = shlex.join([*plan.build, "--builders", there, "--max-jobs", "0"])
            can = f"Node {one.node.name!r} runs NixOS and can build it"
            return f"{can}: run '{command}', then this again."
    if system in systems_built_here():
        return "Where it cannot be built, boot the image of the platform, or use --prebuilt."
    return (
        f"This machine builds no {system!r}: start a builder (on a Mac 'nix run "
        "nixpkgs#darwin.linux-builder'), or boot a released installer "
        "(https://github.com/nix-community/nixos-images/releases), give it your key by "
        f"'ssh-copy-id {ssh}', and run the same command again."
    )


def install(
    plans: Sequence[NodePlan],
    connections: Mapping[str, Connection],
    folder: Path,
    report: Report,
    limit_s: float,
) -> dict[str, str | None]:
    """Install nodes in parallel; what was started is ended before this returns, whatever happens.

    Each node's log goes to the folder; limit_s is of all together.

    Returns:
        By name why a node was not installed, None for those that were.

    Raises InputError: ssh would take any machine for a node; nothing was started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    running: list[InstallationRun] = []
    pinned = {plan.node.name: pinned_ssh(connections[plan.node.name]) for plan in plans}
    with ExitStack() as stack:
        stack.callback(_end, running, report)
        for plan in plans:
            connections[plan.node.name].close()  # it would outlive the system that it leads to
            path = stack.enter_context(_path_with(pinned[plan.node.name]))
            running.append(_start(plan, folder, path, report))
        deadline = time.monotonic() + limit_s
        while any(one.process.poll() is None for one in running):
            if time.monotonic() > deadline:
                _end(running, report)
                break
            time.sleep(_POLL_S)
    return {one.node: one.failure for one in running}


def pinned_ssh(connection: Connection) -> str:
    """A program 'ssh' that accepts only the host key by which the node was reached before.

    nixos-anywhere makes ssh check no host key, by options before those that it can be given; of
    options that ssh reads twice the first counts, so only a program of that name comes before.

    Raises InputError: the user's ssh keeps no host key of the node.
    """
    words = connection.fresh().options
    if connection.node.host_key is None:
        words = (*as_options(_known(connection)), *words)
    return f'#!/bin/sh\nexec {shlex.join([shutil.which("ssh") or "ssh", *words])} "$@"\n'


def _known(connection: Connection) -> dict[str, str]:
    """The settings by which ssh accepts what its own files know of the node, and nothing else."""
    settings = dict(connection.settings())
    files = settings.get("userknownhostsfile", "")
    if not {*files.split()} - {"/dev/null", "none"}:
        raise InputError(
            f"ssh keeps no host key of node {connection.node.name!r} (UserKnownHostsFile is "
            f"{files!r}), so that any machine could be installed in its place; give it a "
            "known_hosts file in ~/.ssh/config, or a host_key in the cluster file."
        )
    return {"StrictHostKeyChecking": "yes", "UserKnownHostsFile": files}


@contextmanager
def _path_with(ssh: str) -> Iterator[str]:
    """PATH with a program 'ssh' of this text first on it."""
    with tempfile.TemporaryDirectory(prefix="nixwulf-ssh-") as folder:
        program = Path(folder) / "ssh"
        program.write_text(ssh, "utf-8")
        program.chmod(0o700)
        yield f"{folder}:{os.environ.get('PATH', os.defpath)}"


def _start(plan: NodePlan, folder: Path, path: str, report: Report) -> InstallationRun:
    log = folder / f"{plan.node.name}.log"
    process = subprocess.Popen(
        plan.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": path},
        # Without a terminal nobody is asked for a password, and Ctrl-C is for the driver.
        start_new_session=True,
    )
    one = InstallationRun(plan.node.name, log, process)
    one.reader = threading.Thread(target=_copy, args=(one, report), daemon=True)
    one.reader.start()
    return one


def _copy(one: InstallationRun, report: Report) -> None:
    """Keep the output, and report each step: nixos-anywhere prints '### WORDS ###'."""
    assert one.process.stdout is not None  # noqa: S101 - PIPE was asked for
    with one.log.open("wb", buffering=0) as log:
        for line in one.process.stdout:
            with suppress(OSError):  # a full disk must not stop an installation half-way
                log.write(line)
            words = clean(line.decode("utf-8", "replace")).strip()
            step = re.fullmatch(r"### (.+) ###", words)
            if step:
                one.step = step[1]
                report(one.node, step[1])
            elif words:
                one.last_line = words


def _end(running: Sequence[InstallationRun], report: Report) -> None:
    """End what still runs: TERM to the whole group, KILL after a grace time."""
    left = [one for one in running if one.process.poll() is None]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in left:
            if one.process.poll() is None:
                os.killpg(one.process.pid, number)
        deadline = time.monotonic() + _GRACE_S
        while any(one.process.poll() is None for one in left) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    for one in left:
        report(one.node, f"ended at {one.step!r}; see {one.log}")
    for one in running:
        if one.reader is not None:
            one.reader.join(timeout=_GRACE_S)


def check_extra_files(folder: Path) -> None:
    """Raise InputError where something in a folder may not be copied to a new system's root.

    nixos-anywhere unpacks it as the files of root, with the modes that they have here.
    """
    try:
        if not folder.is_dir():
            raise InputError(f"--extra-files is '{folder}', which is no folder; name one.")
        for parent, folders, files in os.walk(folder, onerror=_raise):
            for path in sorted(Path(parent, name) for name in [*folders, *files]):
                problem = _why_not_copied(folder, path)
                if problem:
                    raise InputError(f"--extra-files: '{path}' {problem}")
    except OSError as error:
        command = shlex.join(["ls", "-ld", str(error.filename)])
        raise InputError(
            f"--extra-files: '{error.filename}' cannot be read ({error.strerror}); see '{command}'."
        ) from None


def _raise(error: OSError) -> None:
    raise error


def _why_not_copied(folder: Path, path: Path) -> str | None:
    inside, mode = path.relative_to(folder), path.lstat().st_mode
    own = stat.S_IMODE(mode)
    if stat.S_ISLNK(mode):
        target, real = path.readlink(), Path(os.path.realpath(path))
        if target.is_absolute() or not real.is_relative_to(folder.resolve()):
            return f"leads to '{target}', out of the folder; put the file itself there."
    elif stat.S_ISREG(mode):
        if own & 0o077:
            command = shlex.join(["chmod", "go=", str(path)])
            return f"can be read by others here (mode {own:o}); run '{command}'."
        path.open("rb").close()
    elif not stat.S_ISDIR(mode):
        return "is neither a file nor a folder; take it out."
    elif own & 0o022 or (_is_of_all(inside) and own & 0o055 != 0o055):  # noqa: PLR2004
        command = shlex.join(["chmod", "755", str(path)])
        return f"has mode {own:o}, and the node's '/{inside}' would have it too; run '{command}'."
    return None


def _is_of_all(inside: Path) -> bool:
    """Whether it is a folder that all services of a system look into, such as /etc or /var/lib."""
    top, *below = inside.parts
    return (top != "root" and not below) or (top == "var" and len(below) == 1)


_SCRIPT = shipped_text("ops/deploy/update.sh")
_PAUSE_S = 2.0
_ROLLING_BACK_S = 120
_ANSWER_S = 300  # installing a boot loader may take its time
_PREVIOUS = re.compile(r"^previous (\d+) (/\S+) (.+)$", re.ASCII | re.MULTILINE)

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
    build = ["nix", "build", *FEATURES, "--no-link", "--print-build-logs", *derivations]
    return build if derivations else []


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

    targets: nodes, which are reached, and the systems that they are to run. expected_cluster: the
    cluster whose systems they may run besides their own.

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
        script, name = _SCRIPT, target.node.name
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
    """Switch nodes, each to its system; one that is not reached again in `seconds` goes back."""
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
    script, fresh = _SCRIPT, target.connection.fresh()
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
