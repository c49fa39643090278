"""A right OpenAI-compatible server that prints all it is asked: canary_endpoint.py PORT ADDRESS.

A token is a word, one each STEP_S seconds; the answer to a prompt is the same each time.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEP_S = 0.01
MODEL = "mine"
_WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing but what is printed of each request."""

    def _json(self, document: Any, status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        print(self.command, self.path, dict(self.headers), flush=True)
        if self.path == "/v1/models":
            self._json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self._json({"error": "no such page"}, 404)

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        print(self.command, self.path, dict(self.headers), text, flush=True)
        if self.path != "/v1/completions":
            self._json({"error": "no such page"}, 404)
            return
        asked = json.loads(text)
        prompt, count = str(asked["prompt"]), int(asked["max_tokens"])
        start = sum(map(ord, prompt))
        words = [f" {_WORDS[(start + at) % len(_WORDS)]}" for at in range(count)]
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": count}
        if not asked.get("stream"):
            choice = {"text": "".join(words), "finish_reason": "length"}
            self._json({"model": MODEL, "choices": [choice], "usage": usage})
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number, word in enumerate(words, 1):
            time.sleep(STEP_S)
            finish = "length" if number == count else None
            self._event({"model": MODEL, "choices": [{"text": word, "finish_reason": finish}]})
        self._event({"model": MODEL, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, document: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        self.wfile.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that went away is none."""


def main() -> None:
    """Answer for ever."""
    _, port, address = sys.argv
    _Server((address, int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    main()
