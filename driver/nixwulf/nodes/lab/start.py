"""Bringing a lab up: checks, the state folder, and the supervisor's start."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import cache_dir
from nixwulf.inventory.cluster import Cluster
from nixwulf.nodes.lab.checks import check_cluster, check_name
from nixwulf.nodes.lab.handle import Lab
from nixwulf.nodes.lab.links import management_subnet
from nixwulf.nodes.lab.linux import search_path
from nixwulf.nodes.lab.ssh_files import find_sshd, write_all
from nixwulf.nodes.lab.state import Definition, StateFolder, state_of, write_definition

PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "setsid": "util-linux",
}
NIXOS_WRAPPERS = Path("/run/wrappers")


def up(cluster: Cluster, *, name: str, path: Sequence[Path] = (), lifeline: bool = False) -> Lab:
    """Bring a lab up; returns when each node's sshd answers.

    path: folders that come first on the nodes' PATH. lifeline: the lab ends with this process,
    however that ends; else it stays until `down`. Raises InputError for what the user can mend.
    """
    check_name(name)
    check_cluster(cluster)
    namespaces = _namespace_command()
    sshd = find_sshd()
    path = [folder.resolve() for folder in path]
    shown = [*path, sshd.parent, cache_dir(), NIXOS_WRAPPERS]
    state = state_of(name)
    definition = Definition(
        name=name,
        cluster=cluster,
        subnet=management_subnet(cluster),
        user=_user(),
        sshd=str(sshd),
        shown=tuple(str(folder) for folder in shown if folder.is_dir()),
    )
    if state.is_up():
        raise InputError(f"A lab {name!r} is up; end it with: nixwulf lab down --name {name}")
    state.remove()
    state.folder.mkdir(parents=True, mode=0o700)
    lock = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_definition(state, definition)
        write_all(state, definition, path)
        held = _start_supervisor(state, namespaces, lock, lifeline=lifeline)
    except BaseException:
        os.close(lock)
        Lab(state, definition).down()
        raise
    os.close(lock)
    return Lab(state, definition, held)


def _start_supervisor(
    state: StateFolder, namespaces: list[str], lock: int, *, lifeline: bool
) -> int | None:
    """Start it and wait until it is ready; returns the lifeline's end to hold, if any."""
    ready, report = os.pipe()
    alive, held = os.pipe() if lifeline else (-1, -1)
    passed = [report, lock, alive]
    try:
        with state.log.open("w") as log:
            # setsid --fork: the lab's process is nobody's child, so nobody has to wait for it.
            subprocess.run(
                ["setsid", "--fork", *namespaces]
                + [sys.executable, "-m", "nixwulf.nodes.lab.supervisor", str(state.folder)]
                + [str(descriptor) for descriptor in passed],
                check=True,
                env={**os.environ, "PATH": search_path()},
                pass_fds=[descriptor for descriptor in passed if descriptor >= 0],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
    finally:
        os.close(report)
        if lifeline:
            os.close(alive)
    # Not until its end: the nodes' processes have the pipe too.
    message = os.read(ready, 4096).decode()
    os.close(ready)
    if message == "ready":
        return held if lifeline else None
    if not message:  # it ended before it could say why
        message = f"The lab did not start: {state.last_words()}"
    raise NixwulfError(message)


def _namespace_command() -> list[str]:
    """The command that starts a program as process 1 of a lab's namespaces, tried once."""
    for program, package in PROGRAMS.items():
        if shutil.which(program, path=search_path()) is None:
            raise InputError(f"No {program!r} on PATH; install your distribution's {package}.")
    command = ["unshare", "--net", "--mount", "--ipc", "--uts"]
    if os.getuid() != 0:
        # The user stays itself, with all capabilities over the lab's namespaces and none elsewhere;
        # sshd cannot run as a mapped root (it calls setgroups, which is refused).
        command += ["--user", "--map-current-user", "--keep-caps"]
    tried = subprocess.run(
        [*command, "ip", "link", "set", "lo", "up"],
        env={**os.environ, "PATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        raise InputError(
            f"This machine refuses the namespaces of a lab ({' '.join(tried.stderr.split())!r}); "
            + _remedy()
        )
    return [*command, "--pid", "--fork", "--kill-child"]


def _remedy() -> str:
    apparmor = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if os.getuid() == 0:
        return "root here lacks CAP_SYS_ADMIN; give the container more (docker run --privileged)."
    with suppress(OSError):
        if apparmor.read_text().strip() == "1":
            return f"run it with sudo, or: sudo sysctl kernel.{apparmor.name}=0"
    return "run it with sudo, or: sudo sysctl user.max_user_namespaces=10000"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "lab"
