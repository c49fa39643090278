"""A lab as the driver and the commands handle it: brought up, found, shaped, measured, ended."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import cache_dir
from nixwulf.core.text import did_you_mean
from nixwulf.inventory.cluster import Cluster, Shape
from nixwulf.nodes.lab.links import Shaping, management_subnet
from nixwulf.nodes.lab.node import find_sshd, search_path, write_all
from nixwulf.nodes.lab.state import (
    Definition,
    StateFolder,
    base,
    check_cluster,
    check_name,
    check_shape,
    read_definition,
    state_of,
    write_definition,
)
from nixwulf.nodes.link import RoundTrips, bandwidth, round_trips
from nixwulf.nodes.ssh import connections, open_all

ANSWER_SECONDS = 10.0
END_SECONDS = 10.0
MASTER_SECONDS = 3.0
_SOCKETS = Path("/proc/net/unix")


@dataclass(frozen=True)
class Lab:
    """A cluster of network namespaces; lifeline: a descriptor whose closing ends the lab."""

    files: StateFolder
    definition: Definition
    lifeline: int | None = None

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.definition.name

    @property
    def cluster(self) -> Cluster:
        """The cluster as it was brought up."""
        return self.definition.cluster

    @property
    def state(self) -> Path:
        """The folder with everything the lab keeps on disk."""
        return self.files.folder

    @property
    def ssh_config(self) -> Path:
        """The configuration for `ssh -F` that reaches the nodes by name."""
        return self.files.ssh_config

    @property
    def is_up(self) -> bool:
        """Whether the lab runs; one that was killed leaves its folder until `down`."""
        return self.files.is_up()

    def set_shape(self, fabric: str, shape: Shape) -> None:
        """Shape a fabric anew while the lab is up; returns when the new shape holds."""
        self._known(fabric)
        check_shape(fabric, shape)
        self._ask({"do": "link", "fabric": fabric, "shape": dataclasses.asdict(shape)})

    def shape(self, fabric: str) -> Shape:
        """The shape last asked for."""
        return Shape(**self.status()[self._known(fabric)]["shape"])

    def shaping(self, fabric: str) -> Shaping:
        """What shapes a fabric now; "none": it is unshaped."""
        return cast(Shaping, self.status()[self._known(fabric)]["shaping"])

    def status(self) -> dict[str, dict[str, Any]]:
        """Each fabric's shape, shaping, and the frames that a switch counted since it started."""
        return self._ask({"do": "status"})

    def down(self) -> None:
        """End the lab, also one whose supervisor was killed; leaves no process, mount or file."""
        self._close_connections()
        answers = False
        with suppress(NixwulfError):
            self._ask({"do": "down"})
            answers = True
        if self.lifeline is not None:
            with suppress(OSError):
                os.close(self.lifeline)
        self._wait_until_gone(kill=not answers)
        self.files.remove()

    def _kill(self) -> None:
        """For a supervisor that does not answer; the kernel ends all of its lab with it."""
        with suppress(OSError, ValueError):
            os.kill(int(self.files.process_id.read_text("utf-8")), signal.SIGKILL)

    def _close_connections(self) -> None:
        # ssh's own masters live on this machine, outside the lab. A lab that is ending removes its
        # folder meanwhile, and with it their sockets.
        sockets: list[Path] = []
        with suppress(FileNotFoundError):
            sockets = list(self.files.connections.glob("*"))
        ends = [
            subprocess.Popen(
                ["ssh", "-F", str(self.ssh_config), "-O", "exit", connection.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for connection in sockets
        ]
        until = time.monotonic() + MASTER_SECONDS
        for end, connection in zip(ends, sockets, strict=True):
            try:
                end.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                end.kill()
                end.wait()
                _kill_master(connection)

    def _wait_until_gone(self, *, kill: bool) -> None:
        try:
            lock = os.open(self.files.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            deadline = time.monotonic() + END_SECONDS
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                if kill:  # again and again: of a lab that begins, the process is not known yet
                    self._kill()
                left = deadline - time.monotonic()
                if left < END_SECONDS / 2:  # as a stopped parent of a supervisor that has ended
                    _kill_who_hold(lambda descriptor: _has_locked(descriptor, lock))
                if left < 0:
                    raise NixwulfError(f"Lab {self.name!r} did not end; see {self.files.log}.")
                time.sleep(0.01)
        finally:
            os.close(lock)

    def _known(self, fabric: str) -> str:
        if fabric not in self.cluster.fabrics:
            raise InputError(
                f"Lab {self.name!r} has no fabric {fabric!r}; "
                f"{did_you_mean(fabric, self.cluster.fabrics)}"
            )
        return fabric

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self.files.control))
                connection.sendall(json.dumps(request).encode() + b"\n")
                line = connection.makefile().readline()
        except OSError as error:
            raise NixwulfError(
                f"Lab {self.name!r} does not answer ({error.strerror or error}); clean up with: "
                f"nixwulf lab down --name {self.name}"
            ) from None
        reply: dict[str, Any] = json.loads(line) if line else {}
        if "error" in reply:
            raise NixwulfError(reply["error"])
        return reply


def _kill_master(connection: Path) -> None:
    """End the ssh that holds a connection's socket and does not answer, as a stopped one."""
    # ssh binds another name, with an ending, and links the socket to its own.
    bound = re.compile(rf"(\d+) {re.escape(str(connection))}\.\w+")
    lines = _SOCKETS.read_text("utf-8", "replace").splitlines()
    ours = {f"socket:[{match[1]}]" for match in map(bound.search, lines) if match}
    _kill_who_hold(lambda descriptor: str(descriptor.readlink()) in ours)


def _has_locked(descriptor: Path, lock: int) -> bool:
    """Whether it is the lock's file, which may be removed by now, and has the lock."""
    information = descriptor.parents[1] / "fdinfo" / descriptor.name
    same = os.path.samestat(descriptor.stat(), os.fstat(lock))
    return same and "FLOCK" in information.read_text("utf-8")


def _kill_who_hold(wanted: Callable[[Path], bool]) -> None:
    """Kill processes that have an open file by its descriptor in /proc."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if wanted(descriptor):
                os.kill(int(descriptor.parts[2]), signal.SIGKILL)


def labs() -> list[Lab]:
    """Every lab of this user, also those that were killed and not yet cleaned up."""
    found = []
    folders = sorted(base().iterdir()) if base().is_dir() else []
    for state in map(StateFolder, folders):
        # One that is ending takes its definition away at any moment.
        with suppress(InputError):
            found.append(Lab(state, read_definition(state)))
    return found


def find(name: str) -> Lab:
    """The lab of a name; raises InputError with the next command if there is none."""
    check_name(name)
    state = state_of(name)
    if not state.definition.exists():
        named = shlex.quote(name)
        raise InputError(f"No lab {name!r} is up; bring it up with: nixwulf lab up --name {named}")
    return Lab(state, read_definition(state))


PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "setsid": "util-linux",
}
NIXOS_WRAPPERS = Path("/run/wrappers")
# $0 is the file for the number of the process that the rest of the command line becomes.
_NOTED = 'echo $$ >"$0" && exec "$@"'


def up(cluster: Cluster, *, name: str, path: Sequence[Path] = (), lifeline: bool = False) -> Lab:
    """Bring a lab up; returns when each node's sshd answers.

    Args:
        cluster: its nodes, and its fabrics with their shapes.
        path: folders that come first on the nodes' PATH.
        lifeline: whether the lab ends with this process, however that ends; else it stays until
            `down`.

    Raises InputError: for what the user can mend.
    """
    check_name(name)
    check_cluster(cluster)
    namespaces = _namespace_command()
    sshd = find_sshd()
    path = [folder.resolve() for folder in path]
    # A program of Python's virtual environment needs all of that.
    environments = [one.parent for one in path if (one.parent / "pyvenv.cfg").is_file()]
    shown = [*environments, *path, sshd.parent, cache_dir(), NIXOS_WRAPPERS]
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
    try:
        state.folder.mkdir(parents=True, mode=0o700)
        with state.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_definition(state, definition)
            write_all(state, definition, path)
            held = _start_supervisor(state, namespaces, lock.fileno(), lifeline=lifeline)
        return Lab(state, definition, held)
    except FileExistsError:  # of another who brings it up
        raise
    except BaseException:
        Lab(state, definition).down()
        raise


def _start_supervisor(
    state: StateFolder, namespaces: list[str], lock: int, *, lifeline: bool
) -> int | None:
    """Start it and wait until it is ready; returns the lifeline's end to hold, if any."""
    ready, report = os.pipe()
    alive, held = os.pipe() if lifeline else (-1, -1)
    passed = [report, lock, alive]
    try:
        with state.log.open("w") as log:
            # setsid --fork: the lab's process is nobody's child, so nobody has to wait for it. Who
            # is interrupted before the supervisor is there ends what makes its namespaces.
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", _NOTED, str(state.process_id), *namespaces]
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
    try:
        message = os.read(ready, 4096).decode()
    finally:
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


@dataclass(frozen=True)
class FabricMeasurement:
    """Round trips (None: no packet came back); what one TCP stream carried, or why it did not."""

    trips: RoundTrips | None
    stream: str

    def __str__(self) -> str:
        if self.trips is None:
            return "no packet came back"
        lost = f", {self.trips.lost} packets lost" if self.trips.lost else ""
        return f"RTT {self.trips.median:.0f} us{lost}, {self.stream}"


def measure(lab: Lab, fabric_name: str) -> FabricMeasurement | None:
    """Measure a fabric, of cables the first; None when it joins no two nodes."""
    fabric, shape = lab.cluster.fabrics[fabric_name], lab.shape(fabric_name)
    attached = lab.cluster.joined(fabric_name, 2)
    if not attached:
        return None
    reached = connections(lab.cluster, lab.ssh_config)
    source, target = (reached[node.name] for node in attached)
    open_all([source, target])
    end = attached[1].end_to(fabric_name, attached[0].name)
    trips = round_trips(source, end.address) if end else None
    if trips is None:
        return FabricMeasurement(None, "")
    if shutil.which("iperf3") is None:
        return FabricMeasurement(trips, "bandwidth not measured: no iperf3 on PATH")
    # The volume sent follows the nominal speed, which a slow shape would take long to carry.
    speed = min(fabric.speed_gbps, shape.rate_gbps or fabric.speed_gbps)
    with tempfile.TemporaryDirectory() as folder:
        as_shaped = dataclasses.replace(fabric, speed_gbps=speed)
        try:
            carried = bandwidth(source, target, as_shaped, Path(folder))
        except NixwulfError as error:
            return FabricMeasurement(trips, error.message)
    return FabricMeasurement(trips, f"{carried.gbps:.2f} Gbit/s")
