"""An HTTP server on a Unix socket that gives prepared answers by their path; it is no engine."""

from __future__ import annotations

import json
import math
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from types import SimpleNamespace
from typing import Any, NamedTuple

from nixwulf.plugins.runtime.openai import Endpoint


class Prepared(NamedTuple):
    """An answer: its status, its body (JSON unless it is text), and more headers."""

    status: int
    body: Any
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Nothing is printed."""

    def address_string(self) -> str:
        """A Unix socket has none."""
        return ""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = json.loads(self.rfile.read(length)) if length else None
        seen = (self.path, asked, dict(self.headers))
        self.server.seen.append(seen)  # type: ignore[attr-defined]
        nothing = Prepared(404, "no such page")
        found = self.server.answers.get(self.path, nothing)  # type: ignore[attr-defined]
        status, body, headers = found(asked) if callable(found) else found
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer  # noqa: N815 - names of http.server


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that did not wait is no fault."""


@contextmanager
def answering(
    folder: Path, answers: dict[str, Any], tls: ssl.SSLContext | None = None, **more: Any
) -> Iterator[tuple[Endpoint, list[Any]]]:
    """An endpoint of such a server, and what it was asked: path, body and headers."""
    server = _Server(str(folder / "s"), _Handler)
    server.answers, server.seen = answers, []  # type: ignore[attr-defined]
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    run = SimpleNamespace(
        cluster=SimpleNamespace(is_lab=False),
        head=SimpleNamespace(limit=lambda seconds: seconds, node=SimpleNamespace(name="n1")),
        case=SimpleNamespace(seed=1, parameters=more.pop("parameters", {})),
        limits=SimpleNamespace(wall_s=60, progress_s=60),
        deadline=math.inf,
        owned=[],
        deaths=str,
        engine_facts={},
        engine_found={},
    )
    given = {"base_url": "http://box:8080", "answers_as": "mine", **more}
    try:
        yield Endpoint(run, folder / "s", "mine", None, **given), server.seen  # type: ignore[arg-type, attr-defined]
    finally:
        server.shutdown()
        server.server_close()
