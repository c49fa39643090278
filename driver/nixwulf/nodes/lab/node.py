"""A node of a lab: namespaces, mounts and links of its own, then an sshd and a reaper."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import NoReturn

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.attachments import Attachment
from nixwulf.nodes.lab.links import node_links, run, run_batch
from nixwulf.nodes.lab.ssh_files import NODE_FOLDER
from nixwulf.nodes.lab.state import Definition, StateFolder

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_TIMERSLACK = 29


class Namespace(IntFlag):
    """Kinds of namespaces, the CLONE_NEW* values of sched.h."""

    MOUNT = 0x00020000
    UTS = 0x04000000
    IPC = 0x08000000
    PID = 0x20000000
    NET = 0x40000000


class Mount(IntFlag):
    """Flags of a mount, the MS_* values of sys/mount.h."""

    NONE = 0
    NOSUID = 2
    NODEV = 4
    BIND = 4096
    REC = 16384


def unshare(namespaces: Namespace) -> None:
    """Move this process (for PID: its next child) into new namespaces; raises OSError."""
    _checked(_libc.unshare(int(namespaces)), "unshare")


def mount(source: str, target: Path, kind: str, flags: Mount, options: str = "") -> None:
    """Mount a file system, or bind a folder or file.

    Args:
        kind: of the file system, empty to bind.
        flags: of mount(2).
        options: of the file system, as in mount(8).

    Raises:
        OSError: with the target's name.
    """
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(int(flags)),
        options.encode(),
    )
    _checked(result, f"mount {kind or 'bind'} on {target}")


def set_timer_slack(nanoseconds: int) -> None:
    """How late the kernel may wake this process; 50000 ns unless set, too coarse for a switch."""
    _checked(_libc.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0), "prctl")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


# Private to each node, or its processes would meet those of other nodes there.
PRIVATE_FOLDERS = (Path("/run"), Path("/tmp"), Path("/dev/shm"))  # noqa: S108
_GROUPS = Path("/sys/fs/cgroup")  # limits of what runs in a lab are those of who brought it up
FILES_OF_ETC = ("hosts", "hostname", "passwd", "shadow")


@dataclass(frozen=True)
class Spawned:
    """A node's first process, as the supervisor sees it; it goes on when `start` gets a byte."""

    name: str
    pid: int
    start: socket.socket

    @property
    def network(self) -> str:
        """The file of its network in the /proc that is mounted here.

        That /proc is still the host's, which has another number for it, and a number is what newer
        versions of ip (seen: iproute2 6.15) look up there.
        """
        descriptor = os.pidfd_open(self.pid)
        try:
            shown = Path(f"/proc/self/fdinfo/{descriptor}").read_text("utf-8")
        finally:
            os.close(descriptor)
        return f"/proc/{shown.split('Pid:')[1].split()[0]}/ns/net"


def spawn(state: StateFolder, definition: Definition, number: int) -> Spawned:
    """Make a node in new namespaces; it waits for its links.

    Args:
        number: of the node, from 1.
    """
    ours, theirs = socket.socketpair()
    intermediate = os.fork()
    if intermediate == 0:
        _enter_namespaces(state, definition, number, theirs)
    os.waitpid(intermediate, 0)
    theirs.close()
    pid = int(ours.recv(16) or b"0")
    if pid == 0:
        raise OSError(f"node {number} did not start; see {state.log}")
    return Spawned(definition.cluster.nodes[number - 1].name, pid, ours)


def _enter_namespaces(
    state: StateFolder, definition: Definition, number: int, channel: socket.socket
) -> NoReturn:
    # A PID namespace begins with the next child; this process only makes it and ends.
    try:
        unshare(Namespace.NET | Namespace.UTS | Namespace.IPC | Namespace.MOUNT | Namespace.PID)
        # But for what `_give_ipv6` gives: IPv6's router and neighbour messages would be noise.
        _sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        child = os.fork()
        if child == 0:
            _be_node(state, definition, number, channel)
        channel.send(str(child).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _be_node(
    state: StateFolder, definition: Definition, number: int, channel: socket.socket
) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if channel.recv(1) != b"":
            _set_up(state, definition, number)
            _start_sshd(definition.sshd)
            channel.send(b"r")
            channel.close()
            _reap_forever()
    except NixwulfError as error:
        print(error.message, file=sys.stderr, flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _set_up(state: StateFolder, definition: Definition, number: int) -> None:
    name = definition.cluster.nodes[number - 1].name
    socket.sethostname(name)
    _mount_private(state.node(name), [state.folder], definition.shown)
    if os.getuid() != 0:
        _sysctl("net/ipv4/ip_unprivileged_port_start", "0")
        _sysctl("net/ipv4/ping_group_range", f"{os.getgid()} {os.getgid()}")
    run_batch("ip", node_links(definition.cluster, definition.subnet, number))
    for end in definition.cluster.nodes[number - 1].all_ends:
        _give_ipv6(end)


def _mount_private(own: Path, hidden: Sequence[Path], shown: Sequence[str]) -> None:
    # Folders below /run or /tmp vanish behind the private ones; open, they can be bound back.
    kept = {path: os.open(path, os.O_PATH) for path in shown if _is_covered(Path(path))}
    kept[str(NODE_FOLDER)] = os.open(own, os.O_PATH)
    groups = os.open(_GROUPS, os.O_PATH) if _GROUPS.is_dir() else None
    # NixOS reaches its programs through links in /run.
    links = {path: path.readlink() for path in Path("/run").iterdir() if path.is_symlink()}
    covers = [path for path in PRIVATE_FOLDERS if path.is_dir()]
    for folder in [*hidden, *covers]:
        if folder.is_dir():
            mount("tmpfs", folder, "tmpfs", Mount.NOSUID | Mount.NODEV, "mode=1777")
    for link, destination in links.items():
        link.symlink_to(destination)
    for path, descriptor in kept.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        source = f"/proc/self/fd/{descriptor}"
        mount(source, Path(path), "", Mount.BIND | Mount.REC)
        os.close(descriptor)
    for file in FILES_OF_ETC:
        target = Path("/etc") / file
        if target.exists():
            mount(str(NODE_FOLDER / file), target, "", Mount.BIND)
    mount("proc", Path("/proc"), "proc", Mount.NOSUID | Mount.NODEV)
    # /sys shows the interfaces of the network namespace that mounted it.
    mount("sysfs", Path("/sys"), "sysfs", Mount.NOSUID | Mount.NODEV)
    if groups is not None:
        mount(f"/proc/self/fd/{groups}", _GROUPS, "", Mount.BIND | Mount.REC)
        os.close(groups)
    Path("/run/sshd").mkdir(mode=0o755)


def _is_covered(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in PRIVATE_FOLDERS)


def _give_ipv6(end: Attachment) -> None:
    """A link-local address that ends with the IPv4 one, as on the flake's nodes: exo meets by it.

    Nothing is asked of routers or neighbours for it: that would be noise.
    """
    conf = f"net/ipv6/conf/{end.interface}"
    for key, value in (("addr_gen_mode", "1"), ("accept_ra", "0"), ("dad_transmits", "0")):
        _sysctl(f"{conf}/{key}", value)
    _sysctl(f"{conf}/disable_ipv6", "0")
    if Path("/proc/sys", conf).exists():
        run([["ip", "addr", "add", f"fe80::{end.address}/64", "dev", end.interface]])


def _sysctl(name: str, value: str) -> None:
    with suppress(FileNotFoundError):  # a kernel without IPv6
        (Path("/proc/sys") / name).write_text(value)


def _start_sshd(sshd: str) -> None:
    os.chdir("/")
    argv = [sshd, "-f", str(NODE_FOLDER / "sshd_config")]
    run([[*argv, "-t"]])  # a configuration that it refuses shows here, not as silence
    with (NODE_FOLDER / "sshd.log").open("w") as log:
        subprocess.Popen(
            [*argv, "-D", "-e"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _reap_forever() -> NoReturn:
    while True:
        try:
            os.wait()
        except ChildProcessError:  # sshd ended and left nobody; the node stays, unreachable
            signal.pause()
