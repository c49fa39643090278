"""A program whose output is damaged: damage.py MARK HOW REAL ARGUMENT...

MARK is a file that is made when there is damage. The program is put in the place of the real one.
'version' and 'help' are answered by that one; the client of iperf3 is damaged, its server is not.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

_NUMBER = rb"-?\d+\.?\d*(?:[eE][+-]?\d+)?"
# What is done to the whole output of the program.
WHOLE = {
    "empty": lambda _: b"",
    "object": lambda _: b"{}\n",
    "list": lambda _: b"[]\n",
    "null": lambda _: b"null\n",
    "text": lambda _: b"Segmentation fault (core dumped)\n",
    "number": lambda _: b"42\n",
    "half": lambda out: out[: len(out) // 2],
    "noise": lambda out: bytes(
        b if i % 50 else random.Random(i).randrange(256)  # noqa: S311 - the same noise each time
        for i, b in enumerate(out)
    ),
    "nul": lambda out: out.replace(b" ", b"\0"),
    "surrogate": lambda out: re.sub(rb'"([a-z]+)"(?=\s*[,}])', rb'"\\ud800\1"', out),
    "huge-numbers": lambda out: re.sub(rb"(?<=[ :=])" + _NUMBER, b"9" * 400, out),
    "infinite-numbers": lambda out: re.sub(rb"(?<=[ :=])" + _NUMBER, b"1e999", out),
    "no-numbers": lambda out: re.sub(rb"(?<=[ :=])" + _NUMBER, b"NaN", out),
    "zeros": lambda out: re.sub(rb"(?<=[ :=])" + _NUMBER, b"0", out),
    "negative": lambda out: re.sub(rb"(?<=[ :=])(?=\d)", b"-", out),
    "strings": lambda out: re.sub(rb"(?<=[ :=,\[])(" + _NUMBER + rb")", rb'"\1"', out),
    "nulls": lambda out: re.sub(rb"(?<=: )" + _NUMBER, b"null", out),
    "twice": lambda out: out + out,
    "reversed": lambda out: b"\n".join(reversed(out.splitlines())),
    "latin": lambda out: out.replace(b"e", b"\xe9"),
    "carriage-returns": lambda out: out.replace(b"\n", b"\r"),
    "escapes": lambda out: out.replace(b'"', b'\x1b[31m"'),
}  # fmt: skip
# What is printed before the real output, or what becomes of the program.
ENDS = (
    *("exit-1", "exit-255", "killed", "mark", "long-line", "endless", "silent", "deaf", "daemon"),
    *("slow", "errors", "closes"),
)
# What becomes of a model's copy, or of the node that takes it.
COPIES = ("disk full", "silent", "sshd killed", "sshd stopped", "no shell", "cut off")
_TOKENS = {"tokens": list(range(64))}


def _completion(*positions: Any) -> dict[str, Any]:
    return {**_TOKENS, "choices": [{"text": "", "logprobs": {"content": list(positions)}}]}


def _position(number: Any, logprob: Any) -> dict[str, Any]:
    return {"id": number, "top_logprobs": [{"id": number, "logprob": logprob}]}


# To each request of a server: for the tokens of a text, and for what follows it.
ANSWERS: dict[str, Any] = {
    "object": {}, "list": [], "null": None, "text": "hello", "number": 7,
    "no-tokens": {"tokens": None}, "text-tokens": {"tokens": ["a", "b"]},
    "few-tokens": {"tokens": [1]}, "huge-tokens": {"tokens": [10**400] * 64},
    "float-tokens": {"tokens": [1e30] * 64}, "negative-tokens": {"tokens": [-1] * 64},
    "nested-tokens": {"tokens": [[[1]]]}, "no-choices": {**_TOKENS, "choices": []},
    "no-logprobs": {**_TOKENS, "choices": [{"text": "a", "logprobs": None}]},
    "no-positions": _completion(), "few-positions": _completion(_position(1, -1.0)),
    "negative-position": _completion(*[_position(-1, -1.0)] * 32),
    "huge-position": _completion(*[_position(10**400, -1.0)] * 32),
    "text-position": _completion(*[_position("a", -1.0)] * 32),
    "certain-position": _completion(*[_position(1, 7.0)] * 32),
    "no-number": _completion(*[_position(1, float("nan"))] * 32),
}  # fmt: skip
SERVER_ENDS = ("status-500", "html", "half-answer", "no-answer", "never-healthy", "resets")


def _serve(path: str, how: str) -> None:
    body = json.dumps(ANSWERS.get(how)).encode()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            if self.command == "POST":
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
            health = self.path.startswith("/health")
            if (how == "never-healthy" and health) or (how == "status-500" and not health):
                self.send_error(503 if health else 500)
                return
            if not health and how == "no-answer":
                time.sleep(1000)
            if not health and how == "resets":
                os._exit(1)
            content = b'{"status":"ok"}' if health else body
            if not health and how == "html":
                content = b"<html>502 Bad Gateway"
            self.send_response(200)
            self.send_header("Content-Length", str(len(content) + (how == "half-answer") * 99))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815

        def address_string(self) -> str:
            return "client"

    class Server(HTTPServer):
        address_family = socket.AF_UNIX

        def server_bind(self) -> None:
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = "unix", 0

    Server(path, Handler).serve_forever()  # type: ignore[arg-type]


def _silent() -> None:
    time.sleep(1000)


def _deaf() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _silent()


def _endless() -> None:
    while True:
        os.write(1, b"still here, and so is the next line\n" * 20)


def _long_line() -> None:
    for _ in range(600):
        os.write(1, b"x" * 1_000_000)


def _copy(how: str) -> None:
    """In the place of the cat that takes a file on a node."""
    if how == "disk full":
        os.write(2, b"cat: write error: No space left on device\n")
        sys.exit(1)
    if how == "no shell":
        Path("~/.bashrc").expanduser().write_text("echo This account is not available.; exit 1\n")
        sys.exit(1)
    if how == "cut off":
        os.read(0, 1000)
        sys.exit(0)
    if how.startswith("sshd"):
        number = signal.SIGSTOP if how == "sshd stopped" else signal.SIGKILL
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if b"sshd" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), number)
    _silent()


# What is done before the real program runs.
_BEFORE = {
    "silent": _silent,
    "deaf": _deaf,
    "endless": _endless,
    "long-line": _long_line,
    "mark": lambda: os.write(1, b"nixwulf-exit:abc\nnixwulf-exit:0\n"),
    "errors": lambda: os.write(2, os.urandom(1_000_000)),
    "slow": lambda: time.sleep(2),
    "daemon": lambda: subprocess.Popen(["sleep", "300"], start_new_session=True),
    "killed": lambda: os.kill(os.getpid(), signal.SIGSEGV),
}


def main(mark: str, how: str, real: str, arguments: list[str]) -> None:
    """Be the real program, damaged."""
    name = Path(real).name
    asks = {"--version", "--help", "-h", "--list-devices", "-v"} & set(arguments)
    if asks or (name == "iperf3" and "-c" not in arguments):
        os.execv(real, [real, *arguments])  # noqa: S606 - no shell is needed
    if name == "cat" and Path("/proc/self/fd/1").readlink().suffix != ".part":
        os.execv(real, [real, *arguments])  # noqa: S606
    Path(mark).touch()
    if name == "cat":
        _copy(how)
    if name == "llama-server":
        _serve(arguments[arguments.index("--host") + 1], how)
    if how in _BEFORE:
        _BEFORE[how]()
    done = subprocess.run([real, *arguments], stdout=subprocess.PIPE, check=False)
    output = WHOLE[how](done.stdout) if how in WHOLE else done.stdout
    if how == "closes":
        os.close(2)
    sys.stdout.buffer.write(output)
    sys.stdout.flush()
    sys.exit({"exit-1": 1, "exit-255": 255}.get(how, done.returncode))


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
