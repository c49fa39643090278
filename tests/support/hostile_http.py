"""What any HTTP server can do to the client that asks it, whatever it was asked for."""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

Send = Callable[[bytes], object]
Answer = Callable[[Send, str], None]
"""Sends the whole answer to a request of a path, or never ends."""
_DRIP_S = 1.0
_PIECE = b" " * (1 << 16)
_PIECE_S = 0.001  # 64 MB a second: enough to be seen, and a client can be ended before it has all
_HEAD = "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}\r\n"


def head(status: str = "200 OK", **headers: object) -> bytes:
    """A status line and headers, whose names have '_' for '-'."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return _HEAD.format(status=status, more=more).encode()


def body(content: bytes, status: str = "200 OK", **headers: object) -> Answer:
    """An answer that ends."""
    return lambda send, _: send(
        head(status, **{"Content_Length": len(content), **headers}) + content
    )


def dripping(start: bytes, drop: bytes) -> Answer:
    """A drop a second after a start, for ever: no limit of a single read is ever reached."""

    def answer(send: Send, _: str) -> None:
        send(start)
        while True:
            send(drop)
            time.sleep(_DRIP_S)

    return answer


def endless(start: bytes, piece: bytes = _PIECE) -> Answer:
    """Piece after piece, for ever."""

    def answer(send: Send, _: str) -> None:
        send(start)
        while True:
            send(piece)
            time.sleep(_PIECE_S)

    return answer


def bomb(send: Send, _: str) -> None:
    """Two GiB of blanks in two MB: whole blocks of a deflate stream, each 16 MiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = packer.compress(b" " * (1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    send(head(Content_Encoding="gzip") + first)
    for again in repeat(block, 127):
        send(again)


def silent(send: Send, _: str) -> None:
    """Nothing, and the connection stays."""
    del send
    threading.Event().wait()


ANSWERS: Mapping[str, Answer] = {
    "drips its header": dripping(b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
    "drips its body": dripping(head(Content_Length=1 << 40), b" "),
    "drips its body in chunks": dripping(head(Transfer_Encoding="chunked"), b"1\r\n \r\n"),
    "never ends its body": endless(head()),
    "never ends its headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"),
    "never ends a refusal": endless(head("500 Internal Server Error")),
    "unpacks to 2 GiB": bomb,
    "points at itself": lambda send, path: (
        send(head("302 Found", Location=path, Content_Length=0)) and None
    ),
    "points ever further": lambda send, path: (
        send(
            head("307 Temporary Redirect", Location=f"{path.partition('?')[0]}a", Content_Length=0)
        )
        and None
    ),
    "is silent": silent,
    "closes at once": lambda send, path: None,
    "sends noise": lambda send, path: send(os.urandom(4096)) and None,
    "speaks TLS": lambda send, path: send(b"\x15\x03\x01\x00\x02\x02\x28") and None,
    "answers half": body(b'{"a": ', Content_Length=1000),
    "has a text for a length": body(b"{}", Content_Length="ten"),
    "has a negative length": body(b"{}", Content_Length=-1),
    "has a chunk of 2^64": body(
        b"FFFFFFFFFFFFFFFF\r\n{}", Content_Length="0\r\nTransfer-Encoding: chunked"
    ),
    "nests 100,000 lists": body(b"[" * 100_000),
    "has half an object": body(b"{"),
    "has a list": body(b"[]"),
    "has a null": body(b"null"),
    "has other bytes than UTF-8": body(b'{"a": "\xff\xfe\x00"}'),
    "has a number of 5,000 digits": body(b"9" * 5000),
}


def serve(port: int, answer: Callable[[BaseHTTPRequestHandler], Answer | None]) -> None:
    """Serve on loopback for ever; a line is printed for each request.

    Args:
        port: of 127.0.0.1.
        answer: what is done to a request; None: nothing more, it was answered.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            print(self.command, self.path[:200], flush=True)
            self.close_connection = True
            try:
                if found := answer(self):
                    found(self.connection.sendall, self.path)
            except OSError:
                pass  # the client had enough

        do_GET = do_HEAD = do_POST = _do  # noqa: N815 - names of http.server

        def log_message(self, *_: object) -> None:
            """Nothing but what is printed above."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away is none."""

    Server(("127.0.0.1", port), Handler).serve_forever()


def chosen(names: Mapping[str, object]) -> tuple[int, str, list[str]]:
    """The port, the misbehaviour and what else stands on the command line."""
    _, port, name, *more = sys.argv
    if name not in names:
        sys.exit(f"{name!r} is none of: {', '.join(names)}")
    return int(port), name, more
