"""OpenSSH to the nodes: the user's own client and config, one multiplexed connection a node."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from nixwulf.core import interrupts, printed
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import read_text, runtime_dir
from nixwulf.inventory.cluster import Cluster, Node

CONNECT_TIMEOUT_S = 10
# ssh gives a silent node up after three of these without an answer (ServerAliveCountMax).
KEEPALIVE_S = 15
_CLOSE_S = 10
_RUNTIME_PATH_MAXIMUM = 37
SSH_FAILED = 255
_BYTES_S = 120
# Connecting, and answering a control command of a connection that is there, take less.
_OPEN_S = 30
Item = TypeVar("Item")
Result = TypeVar("Result")


# What ssh prints of a machine that is off, is booting or hangs; not of a refused key.
_SILENCE = (
    *("Connection refused", "timed out", "Connection reset", "Connection closed"),
    *("No route to host", "Host is down", "gave no answer"),
)


class Unreachable(NixwulfError):
    """A node did not answer over ssh; its message has ssh's own: 255 alone explains nothing."""

    @property
    def may_be_booting(self) -> bool:
        """Whether it may answer later: it was silent, and has not refused a key."""
        return any(words in self.message for words in _SILENCE)


@dataclass(frozen=True)
class Connection:
    """One node reached over ssh; options precede the host on every command line.

    deadline: in monotonic seconds, when every command ends at the latest; None: at its own limit.
    """

    node: Node
    options: tuple[str, ...]
    deadline: float | None = field(default=None, compare=False, kw_only=True)

    def argv(self, command: Sequence[str] = ()) -> list[str]:
        """The ssh command line that runs a command, quoted for the node's shell."""
        remote = [shlex.join(command)] if command else []
        return ["ssh", *self.options, *_OURS, "-T", self.node.ssh, *remote]

    def fresh(self) -> Connection:
        """The same node over connections of its own: one that is shared may be a dead one."""
        return replace(self, options=("-o", "ControlPath=none", *self.options))

    def until(self, deadline: float | None) -> Connection:
        """The same with another deadline."""
        return replace(self, deadline=deadline)

    def settings(self) -> list[tuple[str, str]]:
        """What ssh makes of the options and the user's config for this node: keyword and value."""
        command = ["ssh", *self.options, "-G", self.node.ssh]
        done = _control(command)
        pairs = (line.partition(" ") for line in done.stdout.splitlines())
        return [(key, value) for key, _, value in pairs]

    def close(self) -> None:
        """End the shared connection, if there is one; a master that does not answer is left."""
        _control(["ssh", *self.options, *_OURS, "-O", "exit", self.node.ssh])

    def open(self) -> None:
        """Start the shared connection; raises Unreachable with ssh's own words."""
        options = (*self.options, *as_options({"RemoteCommand": "none"}))
        master = ["ssh", *options, "-o", "ControlMaster=auto", "-fN", self.node.ssh]
        # The master that stays behind keeps stderr open: a pipe would never reach its end.
        returncode, words = -1, ""
        with tempfile.TemporaryFile("w+") as stderr:
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = interrupts.run(
                    master,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    timeout=_OPEN_S,
                )
                returncode = done.returncode
            stderr.seek(0)
            words = self._why(stderr.read())
        if returncode == -1:
            words = f"ssh gave no answer in {_OPEN_S} s, and may be stopped ('ssh -O exit' ends it)"
        if returncode != 0:
            raise Unreachable(
                f"Node {self.node.name!r} cannot be reached: {words or 'ssh failed'}; try "
                f"'ssh {self.node.ssh} true'."
            )
        self._require_shell()

    def _require_shell(self) -> None:
        """Raise Unreachable where what logs in runs no such commands as ours, or prints more."""
        answer = self.run(_PROBE, timeout_s=_OPEN_S)
        if answer.stdout == _MARK and answer.returncode == 0:
            return
        name = self.node.name
        more = answer.stdout.removesuffix(_MARK)
        if answer.stdout.endswith(_MARK) and answer.returncode == 0:
            raise Unreachable(
                f"The login shell of node {name!r} prints {quoted(more.strip())} before the output "
                "of every command; let only terminals see it: begin ~/.bashrc there with "
                "'case $- in *i*) ;; *) return ;; esac'."
            )
        # Every shell knows this form, and where there is none it is printed why.
        asked = _popen([*self.argv(), 'echo "$SHELL"'])
        shell = " ".join(self._finish(asked, ["echo"], None, _OPEN_S).stdout.split())
        words = " ".join((more or answer.stderr).split())
        raise Unreachable(
            f"Node {name!r} runs no commands of a POSIX shell: its user's login shell is "
            f"{quoted(shell) if shell.startswith('/') else 'none that runs commands'} "
            f"({words or 'it printed nothing'}); set another there by 'chsh -s /bin/bash'."
        )

    def run(
        self, command: Sequence[str], *, stdin: str | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a short command to its end; raises Unreachable where the node does not answer."""
        return self._finish(self._start(command, stdin), command, stdin, timeout_s)

    def _start(self, command: Sequence[str], stdin: str | None = None) -> subprocess.Popen[str]:
        return _popen(self.argv(command), stdin)

    def _finish(
        self,
        process: subprocess.Popen[str],
        command: Sequence[str],
        stdin: str | None,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        timeout_s = self.limit(timeout_s)
        try:
            output, words = printed.communicate(process, stdin, timeout_s)
        except printed.TooMuch:
            raise NixwulfError(
                f"Node {self.node.name!r} printed more than {printed.MOST_CHARACTERS >> 20} MiB "
                f"in answer to {command[0]!r}, which ended it; try it there by "
                f"'ssh {self.node.ssh}'."
            ) from None
        except subprocess.TimeoutExpired:
            raise Unreachable(
                f"Node {self.node.name!r} gave no answer to {command[0]!r} in {timeout_s:.0f} s."
            ) from None
        finally:
            process.kill()
            process.wait()
        if process.returncode == SSH_FAILED:
            raise self.no_answer(words)
        return subprocess.CompletedProcess(command, process.returncode, output, words)

    def _why(self, words: str) -> str:
        return mismatch(self.node, words) or " ".join(words.split())

    def script(self, text: str, *arguments: str, timeout_s: float = 60) -> str:
        """The output of a POSIX shell script, which gets the arguments as $1, $2, ...

        Raises:
            Unreachable: the node did not answer.
            NixwulfError: the script failed.
        """
        done = self.run(["sh", "-s", "--", *arguments], stdin=text, timeout_s=timeout_s)
        if done.returncode != 0:
            raise NixwulfError(
                f"A command on node {self.node.name!r} failed: "
                + " ".join((done.stderr or done.stdout or "it printed nothing").split())
            )
        return done.stdout

    def first_bytes(self, path: str, count: int) -> bytes:
        """As many bytes of a file as there are, at most COUNT; empty when it cannot be read.

        Raises Unreachable: the node did not answer, or its disk did not.
        """
        script = '[ -f "$1" ] && exec head -c "$2" -- "$1"'  # a FIFO would be waited for
        command = self.argv(["sh", "-c", script, "sh", path, str(count)])
        limit = self.limit(_BYTES_S)
        try:
            done = interrupts.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(
                f"Node {self.node.name!r} read nothing more of {path!r} in {limit:.0f} s; look at "
                "the disk there."
            ) from None
        if done.returncode == SSH_FAILED:
            raise self.no_answer(done.stderr.decode(errors="replace"))
        found: bytes = done.stdout
        return found

    def limit(self, seconds: float) -> float:
        """So many seconds, or what is left until the deadline."""
        left = math.inf if self.deadline is None else self.deadline - time.monotonic()
        return max(0.1, min(seconds, left))

    def no_answer(self, words: str) -> Unreachable:
        """The error for an ssh that ended with SSH_FAILED, by what it printed."""
        return Unreachable(
            f"Node {self.node.name!r} did not answer: {self._why(words)}; try "
            f"'ssh {self.node.ssh} true'."
        )

    @contextlib.contextmanager
    def forwarded(self, socket: str) -> Iterator[Path]:
        """A local Unix socket that leads to one on the node, for as long as the context lasts."""
        with tempfile.TemporaryDirectory(dir=_socket_folder()) as folder:  # TMPDIR may be long
            local = Path(folder) / "socket"
            with self._tunnel("-L", f"{local}:{socket}"):
                yield local

    @contextlib.contextmanager
    def lent(self, local: Path, remote: str) -> Iterator[None]:
        """A Unix socket on the node that leads to a local one, for as long as the context lasts."""
        try:
            with self._tunnel("-R", f"{remote}:{local}"):
                yield
        finally:
            self.run(["rm", "-f", remote])

    @contextlib.contextmanager
    def _tunnel(self, *sockets: str) -> Iterator[None]:
        control = ["ssh", *self.options, *_OURS, *sockets, "-O"]
        done = _control([*control, "forward", self.node.ssh])
        if done.returncode != 0:
            raise Unreachable(
                f"Node {self.node.name!r} forwards no socket: {' '.join(done.stderr.split())}"
            )
        try:
            yield
        finally:
            _control([*control, "cancel", self.node.ssh])


# As our commands are: of several lines, quoted, with a character that csh replaces even so.
_MARK = "nixwulf\n"
_PROBE = ("sh", "-c", "echo 'nixwulf'\n[ \"$1\" = '!' ]", "sh", "!")
# Settings of a user's config that make of a command another one, or of its input nothing.
_OURS = (
    *("-o", "RemoteCommand=none", "-o", "StdinNull=no"),
    *("-o", "ForkAfterAuthentication=no", "-o", "SessionType=default"),
)


def _popen(argv: Sequence[str], stdin: str | None = None) -> subprocess.Popen[str]:
    return interrupts.popen(
        argv,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _control(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What an ssh that only asks this machine answers; 255 where one stands still."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_CLOSE_S
        )
    except subprocess.TimeoutExpired:
        words = f"the shared connection gave no answer in {_CLOSE_S} s"
        return subprocess.CompletedProcess(command, SSH_FAILED, "", words)


def connections(cluster: Cluster, lab_config: Path | None = None) -> dict[str, Connection]:
    """A connection for each node, not yet open; a lab's nodes are known to its own ssh config."""
    if lab_config is not None:
        # ssh starts a ProxyCommand by $SHELL, and bash reads ~/.bashrc there: pyenv may take long.
        os.environ["SHELL"] = "/bin/sh"
        return {node.name: Connection(node, ("-F", str(lab_config))) for node in cluster.nodes}
    return connect(cluster.nodes)


def connect(nodes: Iterable[Node], config: Path | None = None) -> dict[str, Connection]:
    """A connection for each node, not yet open; config: an ssh config in place of the user's."""
    folder = _socket_folder()
    settings = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "ControlPath": str(folder / "%C"),
        "ControlPersist": "60",
        "ServerAliveInterval": str(KEEPALIVE_S),
    }
    found = {}
    for node in nodes:
        own: Mapping[str, str] = pin(node, folder)
        words: tuple[str, ...] = ()
        if config is not None:
            # What ssh makes of %C does not tell one file's host from another's of the same name.
            name = hashlib.sha256(f"{config.resolve()} {node.ssh}".encode()).hexdigest()[:40]
            own, words = {"ControlPath": str(folder / name)}, ("-F", str(config))
        found[node.name] = Connection(node, (*words, *as_options({**settings, **own})))
    return found


_KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.+)")


def hosts_of(config: Path) -> list[str]:
    """The hosts that an ssh config names, without patterns; raises InputError where it has none."""
    found = list(dict.fromkeys(_hosts_of(config)))
    if not found:
        raise InputError(
            f"{config} names no host, for a pattern such as 'Host *' is none; give the hosts on "
            "the command line."
        )
    return found


def _hosts_of(config: Path) -> Iterator[str]:
    for line in read_text(config).splitlines():
        match = _KEYWORD.match(line)
        if match is None or match[1].lower() not in {"host", "include"}:
            continue
        for word in shlex.split(match[2], comments=True):
            if match[1].lower() == "host":
                if not re.search(r"[*?!]", word):
                    yield word
            else:
                place = Path.home() / ".ssh" / Path(word).expanduser()
                for file in sorted(place.parent.glob(place.name)):
                    yield from _hosts_of(file)


def as_options(settings: Mapping[str, str]) -> tuple[str, ...]:
    """ssh's settings as words of a command line."""
    return tuple(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))


def _socket_folder() -> Path:
    """A folder that is only ours, with a short path: a socket's may have 107 bytes in all.

    ssh adds 58 to it: 40 of %C, and a temporary ending while it connects.
    """
    runtime = runtime_dir()
    ours = Path(f"/tmp/nixwulf-ssh-{os.getuid()}")  # noqa: S108 - checked below
    short = runtime is not None and len(os.fsencode(runtime)) < _RUNTIME_PATH_MAXIMUM
    folder = runtime / "nixwulf-ssh" if runtime and short else ours
    folder.mkdir(exist_ok=True, mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError(
            f"The folder {str(folder)!r} for ssh's sockets is not only yours; remove it, or "
            "set XDG_RUNTIME_DIR to a folder that is."
        )
    return folder


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function for each node, all at once; what it returned, in the order of the items.

    It runs in a thread a node, of a pool that an exception or an interrupt ends.
    """
    chosen = list(items)
    with interrupts.Pool(max(1, len(chosen))) as pool:
        return list(pool.map(function, chosen))


def run_all(
    nodes: Sequence[Connection], command: Sequence[str], *, timeout_s: float = 60
) -> list[subprocess.CompletedProcess[str] | Unreachable]:
    """Run a command on nodes at the same time, all within timeout_s.

    Each answer, or that there was none, in the order of the nodes.
    """
    deadline = time.monotonic() + timeout_s

    def answer(
        node: Connection, process: subprocess.Popen[str]
    ) -> subprocess.CompletedProcess[str] | Unreachable:
        try:
            return node._finish(process, command, None, max(0.1, deadline - time.monotonic()))
        except Unreachable as error:
            return error

    # All start before the first is waited for: a thread a node cost a fifth more on two cores.
    started: list[tuple[Connection, subprocess.Popen[str]]] = []
    try:
        started += ((node, node._start(command)) for node in nodes)
        return [answer(node, process) for node, process in started]
    finally:
        for _, process in started:
            process.kill()


def open_all(nodes: Iterable[Connection]) -> dict[str, str]:
    """Open connections in parallel; the words of failure by node name, empty when all answer."""

    def attempt(connection: Connection) -> str | None:
        try:
            connection.open()
        except Unreachable as error:
            return error.message
        return None

    chosen = list(nodes)
    words = each(attempt, chosen)
    return {c.node.name: word for c, word in zip(chosen, words, strict=True) if word is not None}


_MISMATCH = ("HOST IDENTIFICATION HAS CHANGED", "Host key verification failed")


def alias(node: Node) -> str:
    """The name under which ssh looks for a pinned key, whatever the node's address is."""
    return f"nixwulf-{node.name}"


def known_hosts(node: Node) -> str:
    """The known_hosts file of a node whose key is pinned."""
    kind, key = (node.host_key or "").split(" ")[:2]
    return f"{alias(node)} {kind} {key}\n"


def pin(node: Node, folder: Path) -> dict[str, str]:
    """The ssh settings that accept a node's pinned key alone; empty where none is pinned.

    The names of the file and of the shared connection come from the key: a connection that was
    opened while another key or none was pinned is never used again.
    """
    if node.host_key is None:
        return {}
    text = known_hosts(node)
    name = hashlib.sha256(f"{node.ssh} {text}".encode()).hexdigest()[:40]
    file = folder / f"{name}.known"
    if not file.exists():
        part = folder / f"{name}.{os.getpid()}"
        part.touch(mode=0o600)
        part.write_text(text, "utf-8")
        part.replace(file)
    return {
        "UserKnownHostsFile": str(file),
        "GlobalKnownHostsFile": "/dev/null",
        "KnownHostsCommand": "none",
        "VerifyHostKeyDNS": "no",
        "UpdateHostKeys": "no",
        "HostKeyAlias": alias(node),
        "StrictHostKeyChecking": "yes",
        "ControlPath": str(folder / name),
    }


def mismatch(node: Node, words: str) -> str | None:
    """What ssh's words mean when it refused a pinned key, or None."""
    if node.host_key is None and _MISMATCH[0] in words:
        named = re.search(r'-R "?([\w.:\[\]-]+)', words)
        host = shlex.quote(named[1] if named else node.ssh.rpartition("@")[2])
        again = f"if it was installed anew, forget the old one by 'ssh-keygen -R {host}'"
        return f"its host key changed; {again}; else another machine answers"
    if node.host_key is None or not any(mark in words for mark in _MISMATCH):
        return None
    return (
        f"it has another host key than the host_key of node {node.name!r} in the cluster file; "
        "correct host_key if the machine was replaced or booted an installer of its own"
    )


@dataclass(frozen=True)
class ThisMachine(Connection):
    """The driver's own machine, as a place of owned processes: what starts there needs no ssh."""

    def argv(self, command: Sequence[str] = ()) -> list[str]:
        """The command itself."""
        return list(command)


THIS_MACHINE = ThisMachine(Node("driver", "", ""), ())
"""In records its processes are of the node 'driver'."""
