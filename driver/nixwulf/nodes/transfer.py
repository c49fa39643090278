"""What takes long over ssh and shows how far it is: it may take as long as it moves."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from select import PIPE_BUF, select
from typing import IO

from nixwulf.core import interrupts
from nixwulf.core.errors import NixwulfError
from nixwulf.core.interrupts import end_of_standstill
from nixwulf.nodes.ssh import SSH_FAILED, Connection, Unreachable

_POLL_S = 0.02
# A disk or a network of which nothing is heard for so long does not come back by itself.
_STILL_S = 120.0
_MB = 1e6
_LINE_BYTES = 200
# Only what has all of its bytes gets the name: the input ends also when the connection does.
_PUT = """
mkdir -p "$(dirname "$1")" && cat >"$1.part" && [ "$(($(wc -c <"$1.part")))" -eq "$2" ] &&
  mv "$1.part" "$1" && exit
rm -f "$1.part"
exit 1
"""


def put(
    node: Connection,
    local: Path,
    remote: str,
    observer: Callable[[int, int], None] = lambda sent, size: None,
) -> None:
    """Copy a file to an absolute path on a node, whole or not at all.

    It ends at the connection's deadline, if it has one, and where nothing moves. observer: called
    with how many bytes of how many have been sent. Raises NixwulfError where it did not arrive.
    """
    size = local.stat().st_size
    command = node.argv(["sh", "-c", _PUT, "sh", remote, str(size)])
    with local.open("rb") as file, tempfile.TemporaryFile("w+") as words:

        def sent() -> int:
            return os.lseek(file.fileno(), 0, os.SEEK_CUR)  # ssh reads by the same offset

        process = interrupts.popen(command, stdin=file, stdout=words, stderr=words)
        stopped = _follow(node, process, sent, lambda count: observer(count, size))
        words.seek(0)
        why = stopped or " ".join(words.read().split()) or "the connection was lost"
        if process.returncode != 0:
            raise NixwulfError(
                f"Cannot copy {str(local)!r} to node {node.node.name!r}: {why} "
                f"({sent() / _MB:.1f} of {size / _MB:.1f} MB were sent)."
            )


def run_long(
    node: Connection, command: Sequence[str], observer: Callable[[str], None]
) -> subprocess.CompletedProcess[str]:
    """Run a command that reports how far it is on its standard error.

    It ends at the connection's deadline, if it has one, and where it reports nothing more: then, or
    of a silent node, it raises Unreachable. observer: called with each last line.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as words:

        def last(size: int) -> None:
            # No other offset than ssh's own: it writes by the same one.
            end = os.pread(words.fileno(), _LINE_BYTES, max(0, size - _LINE_BYTES))
            observer(end.decode(errors="replace").rstrip("\n").rpartition("\n")[2])

        process = interrupts.popen(
            node.argv(command), stdin=subprocess.DEVNULL, stdout=output, stderr=words
        )
        stopped = _follow(node, process, lambda: os.fstat(words.fileno()).st_size, last)
        output.seek(0)
        words.seek(0)
        errors = words.read()
        if stopped:
            raise Unreachable(
                f"Node {node.node.name!r} gave no answer to {command[0]!r}: {stopped}."
            )
        if process.returncode == SSH_FAILED:
            raise node.no_answer(errors)
        return subprocess.CompletedProcess(command, process.returncode, output.read(), errors)


def relay(sender: subprocess.Popen[bytes], receiver: subprocess.Popen[bytes]) -> str:
    """What one process prints, given to another, until both have ended, which they do in any case.

    Returns:
        Why that was cut off, as nothing moved; empty where it was not.
    """
    assert sender.stdout and receiver.stdin  # noqa: S101, PT018 - the caller asked for pipes
    try:
        still = _pump(sender.stdout, receiver.stdin)
        if not still:
            sender.wait(_STILL_S)
            receiver.wait(_STILL_S)
    except subprocess.TimeoutExpired:
        still = f"its end did not come in {_STILL_S:g} s"
    finally:
        for process in (sender, receiver):
            process.kill()
            process.wait()
    return still


def _pump(source: IO[bytes], target: IO[bytes]) -> str:
    """Bytes from one pipe to another until its end; why it stood still, empty where it did not."""
    with target:
        while select([source], [], [], _STILL_S)[0]:
            part = os.read(source.fileno(), PIPE_BUF)
            if not part:
                return ""
            if not select([], [target], [], _STILL_S)[1]:
                return f"nothing more was taken for {_STILL_S:g} s"
            try:
                os.write(target.fileno(), part)
            except BrokenPipeError:  # its own words say why
                return ""
    return f"nothing more was sent for {_STILL_S:g} s"


def _follow(
    node: Connection,
    process: subprocess.Popen[str],
    count: Callable[[], int],
    observer: Callable[[int], None],
) -> str:
    """Wait for a process as long as a count grows; why it was ended, empty where it was not."""
    begin = moved = time.monotonic()
    limit, at = node.limit(math.inf), 0
    try:
        while process.poll() is None:
            interrupts.wait(_POLL_S)
            now = count()
            if now != at:
                at, moved = now, time.monotonic()
                observer(at)
            elif time.monotonic() - max(moved, end_of_standstill()) > _STILL_S:
                return f"nothing moved for {_STILL_S:g} s"
            if time.monotonic() - begin > limit:
                return f"the time that it had was up after {limit:.0f} s"
        return ""
    finally:
        process.kill()
        process.wait()
