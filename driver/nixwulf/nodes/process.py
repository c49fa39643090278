"""Processes that the driver owns on nodes: started, watched and stopped, and nothing else is.

An owned process is the leader of its own process group (and, where there is systemd, in a
transient scope of its own). It lives no longer than the ssh channel that started it: when the
driver dies, even by kill -9, the channel's standard input ends and the node stops the group.

A driver's hold on its nodes: while one measures, no other uses them.

A node's own shell keeps the lock (`hold` in process.sh), for as long as this driver keeps the ssh
channel to it open: no end of a driver, a shell or a node leaves a lock behind that holds anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import signal
import subprocess
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nixwulf.core import interrupts
from nixwulf.core.errors import GateError, NixwulfError, one_line
from nixwulf.core.files import shipped_text
from nixwulf.core.text import login
from nixwulf.nodes.ssh import Connection, each

GRACE_S = 2
_AFTER_S = 30
_LAST_LINES = 8
_ERROR = re.compile(r"\b(?:error|failed|invalid|cannot|unknown)\b", re.IGNORECASE)
_SIGNAL_BASE = 128

SHELL = shipped_text("nodes/process.sh")
"""What a node's shell needs for owned processes; `private` sets $state, the driver's own folder."""
# Of each of a process's two outputs this much is kept, and of what comes after that the end: as
# much as the driver can read at once, whatever the lines, in 300 MB.
KEPT_BYTES = 8 * 2**20
_END_BYTES = 2**16
_MARK_BYTES = 64  # at least what the mark and a status have
# The node closes the channel at the end, unless somebody else still has the program's output open.
_CLOSING_S = 2.0
_TICKS_A_SECOND = 100  # USER_HZ, which Linux shows to programs whatever its own clock is


def unit_name(folder: Path, name: str) -> str:
    """What a process whose output goes to a folder is called on its node."""
    return f"nixwulf-{folder.name}-{name}"


@dataclass
class OwnedProcess:
    """A process on a node with its output in two files beside the record.

    unit: its name on the node. background: it serves others while they work. returncode is none
    while it runs or when the connection was lost; output_at is the monotonic time of its last
    output, and stdout_times and stderr_times are those of each line. left_out is how many bytes of
    its output were too many to be kept; cut_off: its node did not answer when it was stopped.
    """

    node: str
    unit: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    stdout: Path
    stderr: Path
    background: bool
    started: float = field(default_factory=time.monotonic)
    output_at: float = field(default_factory=time.monotonic)
    no_progress: re.Pattern[bytes] | None = None
    stdout_times: array[float] = field(default_factory=lambda: array("d"), repr=False)
    stderr_times: array[float] = field(default_factory=lambda: array("d"), repr=False)
    ended: float | None = None
    returncode: int | None = None
    stopped_by_driver: bool = False
    left_out: int = 0
    cut_off: bool = False
    _mark: bytes = field(default=b"", repr=False)
    _marked_at: float | None = field(default=None, repr=False)
    _after: tuple[str, ...] = field(default=(), repr=False)
    _client: subprocess.Popen[bytes] = field(init=False, repr=False)
    _readers: list[threading.Thread] = field(default_factory=list, repr=False)

    @classmethod
    def start(
        cls,
        connection: Connection,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        background: bool = False,
        after: Sequence[str] = (),
    ) -> OwnedProcess:
        """Start a program on a node; its output goes to FOLDER/<name>.stdout and .stderr.

        Args:
            name: of the process; together with the folder's it names it on the node.
            argv: the program and its arguments; a word $NAME is the value of that variable of
                ENVIRONMENT, so that a secret is in no record.
            environment: variables that it gets beside the node's own.
            folder: on this machine; made where it is not there.
            after: a command that the node runs once the program has ended, also when the driver has
                died; one of those that process.sh knows.
        """
        folder.mkdir(parents=True, exist_ok=True)
        process = cls(
            connection.node.name,
            unit_name(folder, name),
            tuple(argv),
            dict(environment),
            folder / f"{name}.stdout",
            folder / f"{name}.stderr",
            background,
            # A program that prints a mark of its own knows no other process's.
            _mark=f"nixwulf-exit-{secrets.token_hex(8)}:".encode(),
            _after=tuple(after),
        )
        given = process._given()
        own = [SHELL + 'own "$@"', "sh", process.unit, str(len(given)), str(GRACE_S * 10)]
        process._client = subprocess.Popen(
            connection.argv(["sh", "-c", *own]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the driver, which then stops in order
        )
        pipes = (process._client.stdout, process._client.stderr)
        paths = (process.stdout, process.stderr)
        times = (process.stdout_times, process.stderr_times)
        for pipe, path, moments in zip(pipes, paths, times, strict=True):
            assert pipe is not None  # noqa: S101 - PIPE was asked for
            arguments = (pipe, path.open("wb", buffering=0), moments)
            reader = threading.Thread(target=process._copy, args=arguments, daemon=True)
            reader.start()
            process._readers.append(reader)
        # It may be more than a pipe takes, and a connection may stand still.
        threading.Thread(target=process._send, args=(given,), daemon=True).start()
        return process

    def _given(self) -> bytes:
        """What the owner reads first: in a command line all users of both machines would see it."""
        variables = [
            f"export {key}={shlex.quote(value)}" for key, value in self.environment.items()
        ]
        words = [
            self.environment.get(word[1:], word) if word.startswith("$") else word
            for word in self.argv
        ]
        lines = [
            f"mark={self._mark.decode()}",
            f"after={shlex.quote(chr(10).join(self._after))}",
            f"variables={shlex.quote(chr(10).join(variables))}",
            f"set -- {shlex.join(words)}",
            "ready=1\n",
        ]
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def _send(self, given: bytes) -> None:
        assert self._client.stdin is not None  # noqa: S101 - PIPE was asked for
        with contextlib.suppress(OSError, ValueError):
            self._client.stdin.write(given)
            self._client.stdin.flush()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as the driver knows."""
        if self.ended is None:
            marked = self._marked_at
            if marked is not None and time.monotonic() - marked > _CLOSING_S:
                self._client.kill()
                self._client.wait()
            if self._client.poll() is not None:
                self._finish()
        return self.ended is None

    @property
    def program(self) -> str:
        """Its name without its place."""
        return self.argv[0].rpartition("/")[2]

    @property
    def seconds(self) -> float:
        """How long it ran, or has run."""
        return (self.ended or time.monotonic()) - self.started

    def stop(self, *, at_once: bool = False) -> None:
        """End the process group: TERM, then KILL after a grace time. Ended ones are left alone.

        at_once: where the node is known not to answer, what it does is not waited for.
        """
        if not self.running:
            return
        self.stopped_by_driver = True
        assert self._client.stdin is not None  # noqa: S101 - PIPE was asked for
        with contextlib.suppress(OSError):
            self._client.stdin.close()
        patience = GRACE_S + 8 + (_AFTER_S if self._after else 0)
        try:
            self._client.wait(timeout=_CLOSING_S if at_once else patience)
        except subprocess.TimeoutExpired:
            self._client.kill()  # the connection is gone; the node's lifeline stops the group
            self._client.wait()
            self.cut_off = True
        self._finish()

    def ending(self) -> str:
        """How it ended, in words: its exit status, or the signal that a shell counts from 128."""
        if self.returncode is None:
            return "was cut off: the connection to its node was lost"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(self.returncode - _SIGNAL_BASE).name}"
        return f"ended with {self.returncode}"

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.stdout.read_text(errors="replace") if self.stdout.exists() else ""

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return self.stderr.read_text(errors="replace") if self.stderr.exists() else ""

    def last_line(self) -> str:
        """The line of its standard error that most likely gives the reason why it ended.

        Of the last ones the last that names an error: some programs add advice after it.
        """
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        last = lines[-1:-_LAST_LINES:-1]
        return next(filter(_ERROR.search, last), last[0] if last else "it printed nothing")

    def _finish(self) -> None:
        for reader in self._readers:
            reader.join(timeout=5)
        with contextlib.suppress(OSError):
            self._client.stdin.close()  # type: ignore[union-attr] # PIPE was asked for
        self.ended = time.monotonic()

    def _copy(self, pipe: IO[bytes], file: IO[bytes], times: array[float]) -> None:
        """Keep what comes: up to a limit all of it, then the end; its lines get times."""
        kept = left_out = 0
        held = end = b""
        with pipe, file:
            for part in iter(lambda: pipe.readline(_END_BYTES), b""):
                output, mark, status = (held + part).rpartition(self._mark)
                held = b""
                if mark and status.endswith(b"\n"):
                    self.returncode, self._marked_at = int(status), time.monotonic()
                else:
                    output += mark + status
                    if not output.endswith(b"\n"):  # too long a line, which may end in half a mark
                        output, held = output[:-_MARK_BYTES], output[-_MARK_BYTES:]
                if not output:
                    continue
                if self.no_progress is None or not self.no_progress.search(output):
                    self.output_at = time.monotonic()
                if kept < KEPT_BYTES:
                    kept += len(output)
                    self._write(file, output, times)
                else:
                    left_out += max(0, len(end) + len(output) - _END_BYTES)
                    end = (end + output)[-_END_BYTES:]
            if left_out:
                self.left_out += left_out
                self._write(file, b"\n[%d bytes are left out here]\n" % left_out, times)
            for line in (end + held).splitlines(keepends=True):
                self._write(file, line, times)

    def _write(self, file: IO[bytes], output: bytes, times: array[float]) -> None:
        times.append(time.monotonic())
        # A full disk must not block the program; writing the record will report it.
        with contextlib.suppress(OSError):
            file.write(output)


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds of one process since it began, as the kernel counts them."""

    program: str
    user: float
    kernel: float


def cpu_times(connection: Connection, process: OwnedProcess) -> list[CpuTime]:
    """Of a process on a Linux node and all of its session; empty where it cannot be read."""
    times = []
    for line in connection.script(SHELL + 'cpu_times "$1"', process.unit).splitlines():
        program, user, kernel = line.rsplit(" ", 2)
        times.append(CpuTime(program, int(user) / _TICKS_A_SECOND, int(kernel) / _TICKS_A_SECOND))
    return times


def stop_orphans(connection: Connection) -> list[str]:
    """Stop what a killed driver's killed owner left on a node; their names."""
    return connection.script(SHELL + "sweep orphans").split()


def stop_owned(connection: Connection) -> list[str]:
    """Stop what drivers have started on a node and that still runs, and their hold; the names."""
    stopped = connection.script(SHELL + "sweep all").splitlines()
    return [name.removesuffix(".pid") for name in stopped]


_ANSWER_S = 30.0
# What a driver that was killed ran has two seconds after TERM.
_ENDING_S = 4.0
_RELEASE_S = 2.0
_HOLDS, _HELD_BY = "nixwulf-holds", "nixwulf-held-by "


@dataclass
class Hold:
    """What is held for a purpose, such as "sweep 'smoke'", which other drivers are shown."""

    purpose: str
    _channels: list[subprocess.Popen[str]] = field(default_factory=list, repr=False)

    def take(self, nodes: Iterable[Connection]) -> None:
        """Hold nodes instead of those that were held before.

        Raises:
            GateError: another driver holds one of them.
            NixwulfError: one of them did not answer.
        """
        self.release()
        try:
            self._take_all(sorted(nodes, key=lambda node: node.node.ssh))
        except BaseException:
            self.release()
            raise

    def _take_all(self, nodes: Sequence[Connection]) -> None:
        try:
            each(lambda node: self._take(node, 0), nodes)
        except GateError:
            # Of two drivers that begin at once each may have some of the nodes: in turn, the one
            # that has the first node gets the others too. A driver that ends is waited for.
            self.release()
            for node in nodes:
                self._take(node, _ENDING_S)

    def release(self) -> None:
        """Let go of what is held; of a node that does not answer, its own sshd will."""
        channels, self._channels = self._channels, []
        for channel in channels:
            assert channel.stdin is not None  # noqa: S101 - PIPE was asked for
            with contextlib.suppress(OSError):
                channel.stdin.close()
        until = time.monotonic() + _RELEASE_S
        for channel in channels:
            try:
                channel.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                channel.kill()
                channel.wait()
            assert channel.stdout is not None  # noqa: S101 - PIPE was asked for
            channel.stdout.close()

    def _take(self, node: Connection, wait_s: float) -> None:
        channel = interrupts.popen(
            node.argv(["sh", "-c", SHELL + 'hold "$1"', "sh", f"{wait_s * 10:.0f}"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the driver, which then stops in order
        )
        self._channels.append(channel)
        assert channel.stdin is not None  # noqa: S101 - PIPE was asked for
        assert channel.stdout is not None  # noqa: S101 - PIPE was asked for
        limit = threading.Timer(_ANSWER_S, channel.kill)
        limit.start()
        try:
            words = []
            with contextlib.suppress(BrokenPipeError):
                channel.stdin.write(f"{self._who()}\n")
                channel.stdin.flush()
            for line in channel.stdout:  # a login shell may print a greeting first
                if line.startswith(_HOLDS):
                    return
                if line.startswith(_HELD_BY):
                    raise GateError(
                        f"Node {node.node.name!r} is in use: {line.removeprefix(_HELD_BY).strip()} "
                        "holds it; wait for its end, or, if its driver was lost, end it by "
                        "'nixwulf nodes recover --up-to stop'."
                    )
                words.append(line)
        finally:
            limit.cancel()
        reason = " ".join(words[-3:]) or f"no answer in {_ANSWER_S:g} s"
        raise NixwulfError(f"Node {node.node.name!r} cannot be held: {reason}")

    def _who(self) -> str:
        """The beginning of what names the holder: its node adds from where and since when."""
        return one_line(
            f"{self.purpose} ({login() or f'user {os.getuid()}'}, process {os.getpid()}"
        )


@contextlib.contextmanager
def holding(nodes: Iterable[Connection], purpose: str) -> Iterator[None]:
    """Nodes held while the block lasts; raises what `Hold.take` does."""
    hold = Hold(purpose)
    hold.take(nodes)
    try:
        yield
    finally:
        hold.release()
