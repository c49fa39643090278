"""Installing: one nixos-anywhere a node, all at the same time, each with a log of its own."""

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
from dataclasses import dataclass, field
from pathlib import Path

from nixwulf.core.errors import InputError
from nixwulf.core.text import clean
from nixwulf.inventory.platforms import load_platform
from nixwulf.nodes.ssh import Connection, as_options
from nixwulf.ops.deploy.building import announce, build_here, store_address, systems_built_here
from nixwulf.ops.deploy.flake import FEATURES, installable, lacks_nix
from nixwulf.ops.deploy.plan import NodePlan

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

    Args:
        connections: to them, by name.
        folder: where each node's log goes.
        report: called with a node's name and each step there.
        limit_s: seconds that all may take together.

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
