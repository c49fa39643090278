"""A TCP port of this machine's loopback that leads to the Unix socket of an HTTP server."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_PIECE = 1 << 16
# llama-server (0c1e570) closes after a stream though it says keep-alive: what a client sends on
# that connection before the close has come through here is lost.
_LAST = b"\r\nConnection: close"


@contextlib.contextmanager
def loopback_port(target: Path, on_event: Callable[[], None]) -> Iterator[int]:
    """A port for clients that know no Unix sockets, for as long as the context lasts.

    Each answer closes its connection, as those to the client of `serve` do. Other users of this
    machine reach the port too.

    Args:
        target: the Unix socket.
        on_event: called whenever something came from it.
    """

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            near: socket.socket = self.request
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
                far.connect(str(target))
                sending = threading.Thread(target=_copy, args=(near, far), daemon=True)
                sending.start()
                _copy(_Answer(far, on_event), near)
                near.shutdown(socket.SHUT_RDWR)  # ends the other copy, which reads of it
                sending.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Relay) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


class _Answer:
    """What comes from the server, with a header that says that nothing follows it."""

    def __init__(self, source: socket.socket, on_event: Callable[[], None]) -> None:
        self._source = source
        self._on_event = on_event
        self._begun = False

    def recv(self, size: int) -> bytes:
        piece = self._source.recv(size)
        self._on_event()
        while piece and not self._begun:
            line, end, rest = piece.partition(b"\r\n")
            if end:
                self._begun = True
                return line + _LAST + end + rest
            more = self._source.recv(size)
            self._begun = not more
            piece += more
        return piece


def _copy(source: socket.socket | _Answer, sink: socket.socket) -> None:
    """All that comes until the source ends, which the sink then sees."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
