"""Processes that the driver owns on nodes: started, watched and stopped, and nothing else is.

An owned process is the leader of its own process group (and, where there is systemd, in a
transient scope of its own). It lives no longer than the ssh channel that started it: when the
driver dies, even by kill -9, the channel's standard input ends and the node stops the group.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nixwulf.nodes.ssh import Connection

GRACE_S = 2
_AFTER_S = 30
_LAST_LINES = 8
_ERROR = re.compile(r"\b(?:error|failed|invalid|cannot|unknown)\b", re.IGNORECASE)
_SIGNAL_BASE = 128
_EXIT_MARK = b"nixwulf-exit:"
_LONGEST_STATUS = 8
_HELD = len(_EXIT_MARK) + _LONGEST_STATUS
_LONGEST_PIECE = 1 << 16
_MOST_KEPT = 16 << 20  # of one stream; all of it is read into memory more than once
_LEFT_OUT = b"\n[nixwulf: it printed more than 16 MiB; the rest is left out]\n"

# A process number alone could by now be a stranger's: the start time (proc(5), field 22) decides;
# macOS, which has no /proc, gives it to the second.
_STARTED = """
started() {
  if read -r line 2>/dev/null <"/proc/$1/stat"; then
    set -- ${line##*) }
    echo "${20}"
  else
    set -- $(TZ=UTC0 LC_ALL=C ps -o lstart= -p "$1" 2>/dev/null)
    echo "$*"
  fi
}
"""

# A line for each process that still runs of those that drivers own on a node: of this user, and of
# all others whose files may be read, as root may.
LIST_OWNED = f"""
{_STARTED}
owned() {{
  for file in "${{XDG_RUNTIME_DIR:-/tmp}}/nixwulf-$(id -u)"/*.pid /run/user/*/nixwulf-*/*.pid \\
    /tmp/nixwulf-*/*.pid; do
    [ -r "$file" ] || continue
    read -r child _ since <"$file"
    [ -n "$since" ] && [ "$(started "$child")" = "$since" ] || continue
    name=${{file##*/}}; name=${{name%.pid}}; user=${{file%/*}}; user=${{user##*-}}
    [ "$user" = "$(id -u)" ] || name="$name of user $(id -nu "$user" 2>/dev/null || echo "$user")"
    echo "$name"
  done | sort -u
}}
"""

# Launchers such as MPI's give each child a process group of its own, inside the session of the
# process that is owned (proc(5), field 6): what is left of the session at the end is ours too.
# macOS shows no sessions, so there such a child is not found.
_SESSION = """
session() {
  for found in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$found" || continue
    set -- "$1" ${line##*) }
    [ "$5" != "$1" ] || { found=${found#/proc/}; echo "${found%/stat}"; }
  done
}
end_session() {
  for found in $(session "$1"); do kill -KILL "$found" 2>/dev/null; done
}
"""

# $1 is the name of the process, $2 what to run when it has ended, however that came about, quoted
# for a shell, and the rest its command line. The exit status travels on stderr,
# because ssh's own 255 could be either the program's or the connection's. macOS has no setsid, but
# a sh (bash) whose job control makes the process group.
_OWNER = f"""
{_STARTED}{_SESSION}
name=$1; after=$2; shift 2
state=${{XDG_RUNTIME_DIR:-/tmp}}/nixwulf-$(id -u); mkdir -p "$state"; chmod 700 "$state"
scope=
if [ -d /run/systemd/system ]; then
  [ "$(id -u)" = 0 ] || user=--user
  scope="systemd-run $user --scope --quiet --collect"
  if $scope true 2>/dev/null; then scope="$scope --unit=$name"; else scope=; fi
fi
exec 3<&0
if command -v setsid >/dev/null; then
  setsid $scope "$@" </dev/null 3<&- &
else
  set -m
  $scope "$@" </dev/null 3<&- &
  set +m
fi
child=$!
{{ echo "$child $$ $(started "$child")"; echo "$after"; }} >"$state/$name.pid"
stop() {{
  kill -TERM "-$child" 2>/dev/null
  waited=0
  while kill -0 "-$child" 2>/dev/null && [ $waited -lt {GRACE_S * 10} ]; do
    sleep 0.1; waited=$((waited + 1))
  done
  kill -KILL "-$child" 2>/dev/null; end_session "$child"
  [ -z "$scope" ] || systemctl $user stop "$name.scope" 2>/dev/null
}}
( while read -r _; do :; done <&3; stop ) >/dev/null 2>&1 &
lifeline=$!
exec 3<&-
wait "$child" 2>/dev/null; status=$?
kill -KILL "-$child" 2>/dev/null; end_session "$child"
kill "$lifeline" 2>/dev/null
eval "$after" </dev/null >/dev/null 2>&1
rm -f "$state/$name.pid"
echo "{_EXIT_MARK.decode()}$status" >&2
"""

# An owner that was itself killed cannot stop its child: the next driver on the node does. With $1
# 'all' those of living owners are stopped too.
_SWEEP = f"""
{_STARTED}{_SESSION}
state=${{XDG_RUNTIME_DIR:-/tmp}}/nixwulf-$(id -u)
for file in "$state"/*.pid; do
  [ -e "$file" ] || continue
  {{ read -r child owner since; read -r after; }} <"$file"
  [ "$1" = orphans ] && kill -0 "$owner" 2>/dev/null && continue
  if [ -n "$since" ] && [ "$(started "$child")" = "$since" ]; then
    kill -KILL "-$child" 2>/dev/null && echo "${{file##*/}}"
    end_session "$child"
  fi
  eval "$after" </dev/null >/dev/null 2>&1
  rm -f "$file"
done
exit 0
"""


# $1 is the name of the process; a line for each process of its session: its program,
# then its CPU time in user mode and in the kernel, all threads' (proc(5), fields 14 and 15).
_CPU_TIMES = f"""
{_SESSION}
read -r child rest 2>/dev/null <"${{XDG_RUNTIME_DIR:-/tmp}}/nixwulf-$(id -u)/$1.pid" || exit 0
for member in $(session "$child"); do
  read -r line 2>/dev/null <"/proc/$member/stat" || continue
  program=${{line#*\\(}}; program=${{program%)*}}
  set -- ${{line##*) }}
  echo "$program ${{12}} ${{13}}"
done
"""
_TICKS_A_SECOND = 100  # USER_HZ, which Linux shows to programs whatever its own clock is


def unit_name(folder: Path, name: str) -> str:
    """What a process whose output goes to a folder is called on its node."""
    return f"nixwulf-{folder.name}-{name}"


@dataclass
class OwnedProcess:
    """A process on a node with its output in two files beside the record.

    unit: its name on the node. background: it serves others while they work. returncode is none
    while it runs or when the connection was lost; output_at is the monotonic time of its last
    output, and stdout_times and stderr_times are those of each line.
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
    stdout_times: array[float] = field(default_factory=lambda: array("d"), repr=False)
    stderr_times: array[float] = field(default_factory=lambda: array("d"), repr=False)
    ended: float | None = None
    returncode: int | None = None
    stopped_by_driver: bool = False
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
            connection: the node.
            name: of the process; together with the folder's it names it on the node.
            argv: the program and its arguments.
            environment: variables that it gets beside the node's own.
            folder: on this machine; made where it is not there.
            background: it serves others while they work.
            after: a command that the node runs once the program has ended, also when the driver has
                died.
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
            _after=tuple(after),
        )
        assignments = [f"{key}={value}" for key, value in environment.items()]
        owner = ["sh", "-c", _OWNER, "sh", process.unit, shlex.join(after)]
        command = [*owner, "env", *assignments, *argv]
        process._client = subprocess.Popen(
            connection.argv(command),
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
        return process

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as the driver knows."""
        if self.ended is None and self._client.poll() is not None:
            self._finish()
        return self.ended is None

    @property
    def seconds(self) -> float:
        """How long it ran, or has run."""
        return (self.ended or time.monotonic()) - self.started

    def stop(self) -> None:
        """End the process group: TERM, then KILL after a grace time. Ended ones are left alone."""
        if not self.running:
            return
        self.stopped_by_driver = True
        assert self._client.stdin is not None  # noqa: S101 - PIPE was asked for
        with contextlib.suppress(BrokenPipeError):
            self._client.stdin.close()
        try:
            self._client.wait(timeout=GRACE_S + 8 + (_AFTER_S if self._after else 0))
        except subprocess.TimeoutExpired:
            self._client.kill()  # the connection is gone; the node's lifeline stops the group
            self._client.wait()
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
        self.ended = time.monotonic()

    def _copy(self, pipe: IO[bytes], file: IO[bytes], times: array[float]) -> None:
        written, before = 0, b""
        with file:
            while line := pipe.readline(_LONGEST_PIECE):
                output, mark, status = (before + line).rpartition(_EXIT_MARK)
                if mark and status.strip().isdigit() and len(status) < _LONGEST_STATUS:
                    self.returncode = int(status)
                else:
                    output = before + line
                # The mark may be behind a text without an end of line, and cut in two.
                whole = line.endswith(b"\n") or len(line) < _LONGEST_PIECE
                output, before = (output, b"") if whole else (output[:-_HELD], output[-_HELD:])
                if output:
                    self.output_at = time.monotonic()
                    if (written := written + len(output)) > _MOST_KEPT:
                        output = _LEFT_OUT if written - len(output) <= _MOST_KEPT else b""
                    else:
                        times.append(self.output_at)
                    # A full disk must not block the program; writing the record will tell of it.
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
    for line in connection.script(_CPU_TIMES, process.unit).splitlines():
        program, user, kernel = line.rsplit(" ", 2)
        times.append(CpuTime(program, int(user) / _TICKS_A_SECOND, int(kernel) / _TICKS_A_SECOND))
    return times


def stop_orphans(connection: Connection) -> list[str]:
    """Stop what a killed driver's killed owner left on a node; their names."""
    return connection.script(_SWEEP, "orphans").split()


def stop_owned(connection: Connection) -> list[str]:
    """Stop all that drivers have started on a node and that still runs; their names."""
    return [name.removesuffix(".pid") for name in connection.script(_SWEEP, "all").split()]
