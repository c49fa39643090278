"""A TCP port of this machine's loopback that leads to an endpoint, for clients of their own."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.plugins.runtime.openai import Endpoint

_PIECE = 1 << 16
_MOST_HEAD = 1 << 16
_LENGTH = re.compile(rb"^content-length: *(\d{1,12})\r?$", re.IGNORECASE | re.MULTILINE)
_REPLACED = (b"host", b"authorization")
# llama-server (0c1e570) closes after a stream though it says keep-alive: what a client sends on
# that connection before the close has come through here is lost.
_LAST = b"\r\nConnection: close"


@contextlib.contextmanager
def loopback_port(endpoint: Endpoint, on_event: Callable[[], None]) -> Iterator[int]:
    """A port for clients that know no Unix sockets, for as long as the context lasts.

    A connection carries one request, with the headers of the endpoint's own client, so that no key
    is in the command line of another, and its answer. Other users of this machine reach the port
    too.
    """

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            near: socket.socket = self.request
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError, NixwulfError), _connected(endpoint) as far:
                _ask(endpoint, near, far)
                _answer(far, near, on_event)

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


@contextlib.contextmanager
def _connected(endpoint: Endpoint) -> Iterator[socket.socket]:
    """A connection to the server, by TLS where its address says so; raises OSError."""
    url = urlsplit(endpoint.base_url)
    with socket.socket(socket.AF_UNIX) as plain:
        plain.connect(str(endpoint.socket))
        if url.scheme != "https":
            yield plain
            return
        with web.tls().wrap_socket(plain, server_hostname=url.hostname) as secure:
            yield secure


def _ask(endpoint: Endpoint, near: socket.socket, far: socket.socket) -> None:
    """Hand on one request; raises OSError where it is none or does not come whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = near.recv(_PIECE)
        data += piece
        if not piece or len(data) > _MOST_HEAD:
            raise ConnectionError
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [one for one in head.split(b"\r\n") if one.partition(b":")[0].lower() not in _REPLACED]
    own = {"Host": urlsplit(endpoint.base_url).netloc, **endpoint.headers}
    lines += [f"{name}: {value}".encode() for name, value in own.items()]
    far.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
    length = _LENGTH.search(head)
    left = int(length[1]) - len(body) if length else 0
    while left > 0:
        piece = near.recv(min(left, _PIECE))
        if not piece:
            raise ConnectionError
        far.sendall(piece)
        left -= len(piece)


def _answer(far: socket.socket, near: socket.socket, on_event: Callable[[], None]) -> None:
    """Hand on the answer, with a header that says that nothing follows it."""
    line, end, rest = b"", b"", b""
    while not end and len(line) <= _MOST_HEAD and (piece := far.recv(_PIECE)):
        on_event()
        line, end, rest = (line + piece).partition(b"\r\n")
    near.sendall(line + (_LAST if end else b"") + end + rest)
    while piece := far.recv(_PIECE):
        on_event()
        near.sendall(piece)
    near.shutdown(socket.SHUT_WR)
