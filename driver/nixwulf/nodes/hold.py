"""A driver's hold on its nodes: while one measures, no other uses them.

A node's own shell keeps the lock (`hold` in process.sh), for as long as this driver keeps the ssh
channel to it open: no end of a driver, a shell or a node leaves a lock behind that holds anything.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nixwulf.core import interrupts
from nixwulf.core.errors import GateError, NixwulfError, one_line
from nixwulf.core.text import login
from nixwulf.nodes.process import SHELL
from nixwulf.nodes.ssh import Connection, each

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
