"""A node of a lab: namespaces, mounts and links of its own, then an sshd and a reaper.

Also the files of OpenSSH and of /etc that a lab generates: keys, configurations, users, host
names."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
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

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import cache_dir, read_text
from nixwulf.inventory.fabrics import Attachment
from nixwulf.nodes.lab import connect
from nixwulf.nodes.lab.links import management_addresses, node_links, run, run_batch
from nixwulf.nodes.lab.state import Definition, StateFolder

NODE_FOLDER = Path("/run/lab")
HOME = NODE_FOLDER / "home"
# Commands mean the same whoever runs the lab, also a service's user, whose shell is nologin.
SHELL = "/bin/sh"


def search_path() -> str:
    """PATH with the folders of tc and sshd, which ordinary users' PATH often lacks."""
    inherited = os.environ.get("PATH", os.defpath).split(":")
    return ":".join(dict.fromkeys([*inherited, "/usr/sbin", "/usr/local/sbin", "/sbin"]))


def find_sshd() -> Path:
    """OpenSSH's server: on PATH, where distributions put it, or unpacked in the user's cache."""
    unpacked = cache_dir() / "openssh" / "usr" / "sbin" / "sshd"
    found = shutil.which("sshd", path=f"{search_path()}:{unpacked.parent}")
    if found is None:
        raise InputError(
            f"No sshd on PATH, in /usr/sbin, in /usr/local/sbin or at {str(unpacked)!r}; run 'make "
            "setup', which unpacks it there without installing a service."
        )
    return Path(found).resolve()


def write_all(state: StateFolder, definition: Definition, path: Sequence[Path]) -> None:
    """Write every generated file of a lab; folders of `path` come first on the nodes' PATH."""
    names = [node.name for node in definition.cluster.nodes]
    addresses = management_addresses(definition.cluster, definition.subnet)
    user_key = state.folder / "id_ed25519"
    keys = [user_key, *(_folder(state, name) / "host_key" for name in names)]
    _make_keys(keys)
    public = {key: key.with_suffix(".pub").read_text("utf-8") for key in keys}
    known_hosts = "".join(
        f"{name},{addresses[name]} {public[state.node(name) / 'host_key']}" for name in names
    )
    (state.folder / "known_hosts").write_text(known_hosts, "utf-8")
    state.connections.mkdir()
    state.ssh_config.write_text(_client(state, definition, addresses), "utf-8")
    sshd_config = _server(Path(definition.sshd), path)
    hosts = "127.0.0.1 localhost\n" + "".join(f"{addresses[name]} {name}\n" for name in names)
    for name in names:
        folder = state.node(name)
        files = {
            "sshd_config": sshd_config,
            "authorized_keys": public[user_key],
            "hosts": hosts,
            "hostname": f"{name}\n",
            "passwd": _passwd(definition.user),
            "shadow": f"{definition.user}:*:::::::\n",
        }
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
        private = folder / "home" / ".ssh"
        private.mkdir(parents=True, mode=0o700)
        shutil.copy2(user_key, private / "id_ed25519")
        (private / "known_hosts").write_text(known_hosts, "utf-8")


def _folder(state: StateFolder, node: str) -> Path:
    folder = state.node(node)
    folder.mkdir(parents=True)
    return folder


def _make_keys(keys: Sequence[Path]) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "nixwulf-lab", "-f"]
    processes: list[subprocess.Popen[str]] = []
    try:
        for key in keys:
            made = [*command, str(key)]
            processes.append(
                subprocess.Popen(made, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
        for process, key in zip(processes, keys, strict=True):
            _, words = process.communicate()
            if process.returncode != 0:
                raise InputError(
                    f"ssh-keygen made no key at {str(key)!r}: {' '.join(words.split())}"
                )
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _client(state: StateFolder, definition: Definition, addresses: dict[str, str]) -> str:
    # -I -S: the helper needs the standard library only, and starts in a third of the time. The
    # lab's wires are this machine's memory: its ssh prefers what is cheap. A key exchange that is
    # safe from quantum computers takes 65 ms of CPU at each end.
    helper = shlex.join([sys.executable, "-I", "-S", connect.__file__, str(state.control)])
    common = f"""\
Host {" ".join(addresses)}
  User {definition.user}
  IdentityFile "{state.folder}/id_ed25519"
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile "{state.folder}/known_hosts"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  PasswordAuthentication no
  BatchMode yes
  KexAlgorithms ^curve25519-sha256
  Ciphers ^aes128-gcm@openssh.com
  ControlMaster auto
  ControlPath "{state.connections}/%n"
  ControlPersist yes
  ProxyUseFdpass yes
"""
    proxies = (
        f"Host {name}\n  ProxyCommand {helper} {address}\n" for name, address in addresses.items()
    )
    return common + "".join(proxies)


def _server(sshd: Path, path: Sequence[Path]) -> str:
    search = ":".join([*map(str, path), search_path()])
    # Since 9.8 sshd starts other programs, by default where it was to be installed.
    helpers = (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth"))
    beside = [
        f"{option} {found}\n"
        for option, name in helpers
        for found in (sshd.parent / name, sshd.parents[1] / "lib" / "openssh" / name)
        if found.exists()
    ]
    return f"""\
Port 22
HostKey {NODE_FOLDER}/host_key
AuthorizedKeysFile {NODE_FOLDER}/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
MaxSessions 64
MaxStartups 64
Subsystem sftp internal-sftp
SetEnv "PATH={search}"
{"".join(beside)}"""


def _passwd(user: str) -> str:
    """The host's users, with the lab's user at home in the node's own folder.

    sshd wants a user named sshd when it runs as root; the other lines give files' owners names.
    """
    lines = []
    for line in read_text(Path("/etc/passwd")).splitlines():
        ours = ":".join([*line.split(":")[:-2], str(HOME), SHELL])
        lines.append(ours if line.startswith(f"{user}:") else line)
    names = {line.split(":")[0] for line in lines}
    if user not in names:
        lines.append(f"{user}:x:{os.getuid()}:{os.getgid()}::{HOME}:{SHELL}")
    if "sshd" not in names:
        lines.append("sshd:x:65533:65534::/run/sshd:/bin/false")
    return "".join(line + "\n" for line in lines)


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
    """Mount a file system, or bind where kind is empty; flags of mount(2), options as in mount(8).

    Raises OSError: with the target's name.
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
    """Make a node, its number from 1, in new namespaces; it waits for its links."""
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
        sysctl("net/ipv6/conf/default/disable_ipv6", "1")
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
        sysctl("net/ipv4/ip_unprivileged_port_start", "0")
        sysctl("net/ipv4/ping_group_range", f"{os.getgid()} {os.getgid()}")
    run_batch("ip", node_links(definition.cluster, definition.subnet, number))
    for end in definition.cluster.nodes[number - 1].all_ends:
        _give_ipv6(end)


def _mount_private(own: Path, hidden: Sequence[Path], shown: Sequence[str]) -> None:
    # Folders below /run or /tmp vanish behind the private ones; open, they can be bound back.
    kept = {
        path: os.open(path, os.O_PATH)
        for path in shown
        if any(Path(path).is_relative_to(folder) for folder in PRIVATE_FOLDERS)
    }
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


def _give_ipv6(end: Attachment) -> None:
    """A link-local address that ends with the IPv4 one, as on the flake's nodes: exo meets by it.

    Nothing is asked of routers or neighbours for it: that would be noise.
    """
    conf = f"net/ipv6/conf/{end.interface}"
    for key, value in (("addr_gen_mode", "1"), ("accept_ra", "0"), ("dad_transmits", "0")):
        sysctl(f"{conf}/{key}", value)
    sysctl(f"{conf}/disable_ipv6", "0")
    if Path("/proc/sys", conf).exists():
        run([["ip", "addr", "add", f"fe80::{end.address}/64", "dev", end.interface]])


def sysctl(name: str, value: str) -> None:
    """Set a value of the kernel's, where it has one of that name."""
    with suppress(FileNotFoundError):  # a kernel without IPv6
        (Path("/proc/sys") / name).write_text(value)


def _start_sshd(sshd: str) -> None:
    os.chdir("/")
    argv = [sshd, "-f", str(NODE_FOLDER / "sshd_config")]
    run([[*argv, "-t"]])  # a configuration that it refuses shows here, not as silence
    with (NODE_FOLDER / "sshd.log").open("w") as log:
        subprocess.Popen([*argv, "-D", "-e"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _reap_forever() -> NoReturn:
    while True:
        try:
            os.wait()
        except ChildProcessError:  # sshd ended and left nobody; the node stays, unreachable
            signal.pause()
