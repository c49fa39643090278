"""A local HTTP server that answers as a wall meter is documented to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(answers, status=200):
    """A local server that gives these bodies by path and query."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers.get(self.path)
            self.send_response(status if body is not None else 404)
            self.end_headers()
            if isinstance(body, Iterator):
                with suppress(OSError):
                    self.wfile.writelines(body)
                return
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def unreachable():
    """An address of this machine where nothing listens."""
    with serving({}) as url:
        return url
