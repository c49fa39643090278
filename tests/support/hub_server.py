"""A local server with the endpoints of a Hugging Face hub that its library uses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "5b0e6a8c9d1f2a3b4c5d6e7f8091a2b3c4d5e6f7"


@dataclass
class Hub:
    """What it has and does; files by name, each of a repository 'org/name' at COMMIT.

    refusal: status and X-Error-Code of every answer; gated: files alone are refused; cut_after:
    bytes of the next file that are sent before the connection breaks, and nothing is answered any
    more; lies: files whose stated sha256 is another's; instead: by a word of its path, what answers
    a request in place of the hub, given the handler.
    """

    files: dict[str, bytes]
    refusal: tuple[int, str] | None = None
    gated: bool = False
    cut_after: int | None = None
    lies: set[str] = field(default_factory=set)
    instead: dict[str, Callable] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def sha256(self, name: str) -> str:
        """As it says."""
        content = self.files[name] + (b"!" if name in self.lies else b"")
        return hashlib.sha256(content).hexdigest()

    def info(self) -> dict:
        """As /api/models answers, every file in LFS."""
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "blobId": "0" * 40,
                "lfs": {"sha256": self.sha256(name), "size": len(data), "pointerSize": 130},
            }
            for name, data in self.files.items()
        ]
        return {
            "_id": "1",
            "id": "org/name",
            "modelId": "org/name",
            "sha": COMMIT,
            "siblings": siblings,
        }


@contextmanager
def serving(hub: Hub):
    """The hub at a port of this machine, its URL in hub.url."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, headers, body=b""):
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self):
            hub.asked.append((self.path, self.headers.get("Range", "")))
            for word, answer in hub.instead.items():
                if word in self.path:
                    with suppress(OSError):  # of a client that has heard enough
                        answer(self)
                    self.close_connection = True
                    return None
            if hub.refusal:
                status, code = hub.refusal
                headers = {"X-Error-Code": code} if code else {}
                return self.answer(status, headers, b"{}")
            path = unquote(self.path.partition("?")[0])
            if path.startswith("/api/models/org/name"):
                revision = path.partition("/revision/")[2] or "main"
                if revision not in {"main", COMMIT}:
                    return self.answer(404, {"X-Error-Code": "RevisionNotFound"}, b"{}")
                return self.answer(200, {}, json.dumps(hub.info()).encode())
            name = path.removeprefix(f"/org/name/resolve/{COMMIT}/").removeprefix("/files/")
            if name not in hub.files:
                return self.answer(404, {"X-Error-Code": "RepoNotFound"}, b"{}")
            if hub.gated:
                return self.answer(403, {"X-Error-Code": "GatedRepo"}, b"{}")
            return self.send_file(name)

        do_HEAD = do_GET  # noqa: N815

        def send_file(self, name):
            data = hub.files[name]
            tag = f'"{hub.sha256(name)}"'
            headers = {"ETag": tag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            start, end, status = 0, len(data), 200
            wanted = self.headers.get("Range", "")
            if wanted and self.headers.get("If-Range", tag) == tag:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, end, status = int(first), min(end, int(last or end) + 1), 206
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            body = data[start:end]
            headers["Content-Length"] = str(len(body))
            if self.command == "GET" and hub.cut_after is not None:
                body, hub.cut_after = body[: hub.cut_after], None
                hub.refusal = (503, "")
                self.close_connection = True
            self.answer(status, headers, body)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
