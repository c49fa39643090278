"""A hostile OpenAI-compatible endpoint: `python hostile_endpoint.py PORT NAME` serves one of many.

MISBEHAVIOURS has what each does to a connection. All else of the server is honest: the model
'mine', its list, and streams of as many tokens as were asked for. It needs nothing but Python.
"""

from __future__ import annotations

import gzip
import itertools
import json
import socketserver
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MODEL = "mine"
_GAP_S = 0.005
_TEXT = (" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog", " and")
_BLANKS = bytes(1 << 28)


@dataclass
class Asked:
    """A request: its method and path, its JSON, and its head as it came."""

    method: str
    path: str
    body: dict[str, Any]
    head: str

    @property
    def streams(self) -> bool:
        """Whether it wants a stream."""
        return bool(self.body.get("stream"))

    @property
    def most(self) -> int:
        """Tokens that it wants at most."""
        return int(self.body.get("max_tokens", 16))

    @property
    def words(self) -> int:
        """Tokens of its prompt: words."""
        found = self.body.get("prompt") or self.body.get("messages") or ""
        return max(1, len(str(found).split()))


Pieces = Iterable["bytes | float"]
"""What is sent: bytes, and seconds of silence."""


def _head(status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def _json(document: Any, status: str = "200 OK", *more: str) -> bytes:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return _head(status, "application/json", f"Content-Length: {len(data)}", *more) + data


def _event(document: Any) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return f"data: {text}\n\n".encode()


def _token(word: str = " a") -> bytes:
    return _event({"model": MODEL, "choices": [{"text": word, "finish_reason": None}]})


def _words(count: int) -> Iterator[str]:
    """A text that is none of one word over and over, which no run takes for a model's."""
    return itertools.islice(itertools.cycle(_TEXT), count)


def honest(
    asked: Asked,
    usage: Callable[[dict[str, Any]], Any] = lambda own: own,
    timings: Any = None,
) -> Pieces:
    """What an honest server answers; usage changes what it counts, timings are added."""
    if asked.path.endswith("/models"):
        yield _json({"data": [{"id": MODEL, "object": "model", "owned_by": "x"}]})
        return
    if not asked.path.endswith("/completions"):
        yield _json({"error": "no such path"}, "404 Not Found")
        return
    counts = {"prompt_tokens": asked.words, "completion_tokens": asked.most}
    counts["total_tokens"] = sum(counts.values())
    if not asked.streams:
        text = "".join(_words(asked.most))
        choice = {"text": text, "message": {"content": text}, "finish_reason": "length"}
        yield _json({"model": MODEL, "choices": [choice], "usage": usage(counts)})
        return
    yield _head(kind="text/event-stream")
    for word in _words(asked.most):
        yield _token(word)
        yield _GAP_S
    yield _event({"choices": [{"text": "", "finish_reason": "length"}]})
    last = {"choices": [], "usage": usage(counts)}
    if timings is not None:
        last["timings"] = timings
    # json.dumps writes NaN and Infinity as they are, as some servers do.
    yield _event(last) + _event("[DONE]")


def _lies(**changed: Any) -> Callable[[Asked], Pieces]:
    return lambda asked: honest(asked, lambda own: own | changed)


def _times(**timings: Any) -> Callable[[Asked], Pieces]:
    return lambda asked: honest(asked, timings=timings)


def _on(when: Callable[[Asked], bool], pieces: Callable[[Asked], Pieces]) -> Any:
    return lambda asked: pieces(asked) if when(asked) else honest(asked)


def _streams(asked: Asked) -> bool:
    return asked.streams


def _get(asked: Asked) -> bool:
    return asked.method == "GET"


def _post(asked: Asked) -> bool:
    return asked.method == "POST"


def _unstreamed(asked: Asked) -> bool:
    return _post(asked) and not asked.streams


def _ever(part: bytes, pause_s: float = 0.0, head: bytes | None = None) -> Any:
    def pieces(_asked: Asked) -> Iterator[bytes | float]:
        yield _head() if head is None else head
        while True:
            yield part
            if pause_s:
                yield pause_s

    return pieces


def _once(*pieces: bytes | float) -> Any:
    return lambda _asked: pieces


def _packed(encoding: str, data: bytes) -> bytes:
    return _json(data, "200 OK", f"Content-Encoding: {encoding}")


def _gzip_bomb(_asked: Asked) -> Pieces:
    return [_packed("gzip", gzip.compress(_BLANKS))]


def _deflate_bomb(_asked: Asked) -> Pieces:
    return [_packed("deflate", zlib.compress(_BLANKS))]


def _gzip_in_gzip(_asked: Asked) -> Pieces:
    return [_packed("gzip, gzip", gzip.compress(gzip.compress(_BLANKS)))]


def _many_models(_asked: Asked) -> Pieces:
    return [_json({"data": [{"id": f"m{n}"} for n in range(100_000)]})]


def _sse(*events: bytes) -> Any:
    return _once(_head(kind="text/event-stream"), *events)


def _late(_asked: Asked) -> Pieces:
    """Tokens of an answer that nobody waits for: half of what was asked, then silence."""
    yield _head(kind="text/event-stream")
    yield _token()
    yield 600.0


def _figures(_asked: Asked) -> Pieces:
    """Events without end, each with a figure that none had before."""
    yield _SSE
    for event in itertools.count():
        yield _event({"timings": {f"t{event}_{n}": n for n in range(1000)}, "choices": []})


def _redirect(status: str) -> Any:
    return _once(_json({}, status, "Location: http://127.0.0.2:9/v1/models"))


_SSE = _head(kind="text/event-stream")
_ERROR = "500 Internal Server Error"
_CHUNKED = _head("200 OK", "application/json", "Transfer-Encoding: chunked")
_DRIP = 1.0
_LARGE = b"x" * 65536

Misbehaviour = Callable[[Asked], Pieces]
# no output: answers that are damaged on purpose, which no server sends
MISBEHAVIOURS: dict[str, Misbehaviour] = {
    "honest": honest,
    # no output: without an end
    "drips its header": _ever(b"X", _DRIP, b"HTTP/1.1 200 OK\r\nX-A: "),
    "drips its header to a stream": _on(_streams, _ever(b"X", _DRIP, b"HTTP/1.1 200 OK\r\nX-A: ")),
    "drips its header to a POST": _on(_unstreamed, _ever(b"X", _DRIP, b"HTTP/1.1 200 OK\r\nX: ")),
    "drips its list": _on(_get, _ever(b" ", _DRIP)),
    "drips an answer": _on(_unstreamed, _ever(b" ", _DRIP)),
    "endless list": _on(_get, _ever(_LARGE)),
    "endless answer": _on(_unstreamed, _ever(_LARGE)),
    "500 without end": _on(_post, _ever(_LARGE, head=_head(_ERROR))),
    "500 without end to a stream": _on(_streams, _ever(_LARGE, head=_head(_ERROR))),
    "500 that drips": _on(_streams, _ever(b" ", _DRIP, _head(_ERROR))),
    "endless small tokens": _on(_streams, _ever(_token(), head=_SSE)),
    "endless large tokens": _on(_streams, _ever(_token("a" * 2048), head=_SSE)),
    "endless slow tokens": _on(_streams, _ever(_token(), 0.05, head=_SSE)),
    "line without end": _on(_streams, _ever(_LARGE, head=_SSE + b"data: ")),
    "endless comments": _on(_streams, _ever(b": ping\n\n", 0.05, head=_SSE)),
    "flood of comments": _on(_streams, _ever(b": ping\n\n" * 4096, head=_SSE)),
    "endless usage": _on(_streams, _ever(_event({"usage": {}, "choices": []}), head=_SSE)),
    "endless 100": _ever(b"HTTP/1.1 100 Continue\r\n\r\n", head=b""),
    "endless 103": _ever(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", head=b""),
    "silent": _once(600.0),
    "silent stream": _on(_streams, _late),
    "answers nothing": _once(),
    "closes early": _on(_streams, _once(_SSE, _token(), _token())),
    "drips a chunked answer": _on(_unstreamed, _ever(b"1\r\n \r\n", _DRIP, _CHUNKED)),
    "extension of a chunk without end": _on(_post, _ever(_LARGE, head=_CHUNKED + b"1;")),
    "trailers without end": _on(_post, _ever(b"X-A: b\r\n", head=_CHUNKED + b"0\r\n")),
    "no length and no end": _on(_post, _ever(_LARGE, head=b"HTTP/1.0 200 OK\r\n\r\n")),
    "gzip as a transfer": _on(
        _post, _once(_head("200 OK", "a/b", "Transfer-Encoding: gzip, chunked"), b"5\r\n")
    ),
    "list of small objects": _on(_get, _once(_json(b"[" + b"{}," * 1_300_000 + b"0]"))),
    "answer of small objects": _on(_unstreamed, _ever(b'{"a":0},' * 8192, head=_head() + b"[")),
    "events of small objects": _on(
        _streams, _ever(b'data: {"a": [' + b"{}," * 300_000 + b"0]}\n\n", head=_SSE)
    ),
    "wide tokens": _on(_streams, _ever(_token("\U0001f600" + "a" * 12_000), head=_SSE)),
    "new figures without end": _on(_streams, _figures),
    "model of 1 MB": _on(
        _streams, _sse(_event({"model": "m" * 1_000_000, "choices": [{"text": " a"}]}))
    ),
    "finish of 1 MB": _on(
        _streams, _sse(_event({"choices": [{"text": " a", "finish_reason": "z" * 1_000_000}]}))
    ),
    # Compressed
    "gzip bomb": _gzip_bomb,
    "gzip bomb to a stream": _on(_streams, _gzip_bomb),
    "gzip bomb to a POST": _on(_unstreamed, _gzip_bomb),
    "deflate bomb": _deflate_bomb,
    "gzip in gzip": _gzip_in_gzip,
    "br": _once(_packed("br", b"\x0b\x02\x80hello\x03")),
    "zstd": _once(_packed("zstd", b"\x28\xb5\x2f\xfd\x04\x00")),
    "encoding of nowhere": _once(_packed("x-evil", b"{}")),
    # Counts
    "a million tokens": _lies(completion_tokens=1_000_000),
    "one token too many": lambda asked: honest(
        asked, lambda own: own | {"completion_tokens": asked.most + 1}
    ),
    "twice the tokens": lambda asked: honest(
        asked, lambda own: own | {"completion_tokens": 2 * asked.most}
    ),
    "no tokens": _lies(completion_tokens=0),
    "negative tokens": _lies(completion_tokens=-5),
    "tokens of a float": _lies(completion_tokens=7.5),
    "tokens of a text": _lies(completion_tokens="16"),
    "tokens of null": _lies(completion_tokens=None),
    "tokens of true": _lies(completion_tokens=True),
    "tokens of NaN": _lies(completion_tokens=float("nan")),
    "tokens of Infinity": _lies(completion_tokens=float("inf")),
    "tokens of 1e300": _lies(completion_tokens=1e300),
    "prompt of NaN": _lies(prompt_tokens=float("nan")),
    "cached of Infinity": _lies(prompt_tokens_details={"cached_tokens": float("inf")}),
    "accepted below none": _times(predicted_n=4, draft_n=5, draft_n_accepted=-1),
    "tokens of 400 digits": _lies(completion_tokens=10**400),
    "negative prompt": _lies(prompt_tokens=-1),
    "prompt of 400 digits": _lies(prompt_tokens=10**400),
    "a billion of a prompt": _lies(prompt_tokens=10**9),
    "cached more than the prompt": lambda asked: honest(
        asked, lambda own: own | {"prompt_tokens_details": {"cached_tokens": 50 * asked.words}}
    ),
    "negative cached": _lies(prompt_tokens_details={"cached_tokens": -8}),
    "cached of a float": _lies(prompt_tokens_details={"cached_tokens": 0.5}),
    "cached of a list": _lies(prompt_tokens_details=[1]),
    "usage of a list": lambda asked: honest(asked, lambda _: [1, 2]),
    "accepted more than drafted": _times(predicted_n=4, draft_n=5, draft_n_accepted=500),
    "negative draft": _times(predicted_n=4, draft_n=-5, draft_n_accepted=-6),
    "timings of 1e308": _times(prompt_ms=1e308, predicted_ms=1e308, predicted_per_second=1e308),
    "timings of NaN": _times(prompt_ms=float("nan"), predicted_per_second=float("nan")),
    "timings of Infinity": _times(prompt_ms=1.0, predicted_per_second=float("inf")),
    "negative timings": _times(prompt_ms=-1.0, predicted_per_second=-3.0),
    "decoded longer than it took": _times(prompt_ms=1.0, predicted_ms=6e5, predicted_n=2),
    "prompt in no time": _times(prompt_ms=0.001, prompt_n=1000),
    "prompt in no time, uncounted": _times(prompt_ms=1e-300, prompt_per_second=1e-300),
    "prompt longer than it took": _times(prompt_ms=6e5, predicted_per_second=100.0),
    "decoded in no time": _times(predicted_ms=0.5, predicted_n=16),
    "speed beyond its stream": _times(prompt_ms=1.0, predicted_n=2, predicted_per_second=9e5),
    "speed below its stream": _times(prompt_ms=1.0, predicted_n=2, predicted_per_second=1e-4),
    # JSON and SSE
    "deep JSON": _on(_get, _once(_json(b"[" * 200_000))),
    "deep event": _on(_streams, _sse(b"data: " + b'{"a":' * 50_000 + b"\n\n")),
    "deep answer": _on(_unstreamed, _once(_json(b"[" * 200_000))),
    "keys twice": _on(
        _streams,
        _sse(_event('{"choices": [], "choices": 5, "usage": 1, "usage": {"prompt_tokens": 1}}')),
    ),
    "100,000 models": _on(_get, _many_models),
    "number of 5,000 digits": _on(_streams, _sse(b'data: {"x": ' + b"9" * 5000 + b"}\n\n")),
    "invalid UTF-8": _on(_streams, _sse(b"data: \xff\xfe\xfd\n\n")),
    "UTF-16": _on(_get, _once(_json('{"data": []}'.encode("utf-16")))),
    "event of a list": _on(_streams, _sse(_event([1, 2, 3]))),
    "choices of a number": _on(_streams, _sse(_event({"choices": 3}))),
    "text of an object": _on(_streams, _sse(_event({"choices": [{"text": {"a": 1}}]}))),
    "error in the stream": _on(_streams, _sse(_token(), _event({"error": {"message": "x"}}))),
    "wrong content-type": _on(_get, _once(_head(kind="text/html"), b"<html>\x1b[2J</html>")),
    "answers to a wrong request": _on(_streams, _once(_json({"data": [{"id": MODEL}]}))),
    # no output: HTTP that no server speaks
    "flood of headers": _ever(b"X-A: b\r\n", head=b"HTTP/1.1 200 OK\r\n"),
    "header of 1 GB": _ever(_LARGE, head=b"HTTP/1.1 200 OK\r\nX-A: "),
    "status line without end": _ever(_LARGE, head=b"HTTP/1.1 200 "),
    "HTTP/0.9": _once(b"garbage without a head\n"),
    "chunk of a bad size": _once(_head("200 OK", "a/b", "Transfer-Encoding: chunked"), b"ZZ\r\n"),
    "chunk of a vast size": _once(
        _head("200 OK", "a/b", "Transfer-Encoding: chunked"), b"FFFFFFFFFFFFFFFF\r\nx"
    ),
    "negative chunk": _once(_head("200 OK", "a/b", "Transfer-Encoding: chunked"), b"-1\r\nx"),
    "length too long": _once(_head("200 OK", "a/b", "Content-Length: 999999"), b"{}"),
    "two lengths": _once(_head("200 OK", "a/b", "Content-Length: 2", "Content-Length: 9"), b"{}"),
    "negative length": _once(_head("200 OK", "a/b", "Content-Length: -5"), b"{}"),
    "trailing data": lambda asked: itertools.chain(honest(asked), [b"HTTP/1.1 200 OK\r\n\r\n"]),
    "half TLS": _once(b"\x16\x03\x03\x02\x00\x02\x00\x01\xfc", 1.0),
    "WebSocket": _once(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81"
    ),
    "302 to itself": lambda asked: [_json({}, "302 Found", f"Location: {asked.path}")],
    "301": _redirect("301 Moved Permanently"),
    "302 to a POST": _on(_post, _redirect("302 Found")),
    "307 to a stream": _on(_streams, _redirect("307 Temporary Redirect")),
    "308": _redirect("308 Permanent Redirect"),
    "redirect to nowhere": _once(_json({}, "302 Found", "Location: http://[::bad\x7f/")),
    "401": _once(_json({"error": "no"}, "401 Unauthorized", "Retry-After: 1000000000")),
    "429": _on(_post, _once(_json({}, "429 Too Many Requests", "Retry-After: 1000000000"))),
    "204": _once(_head("204 No Content")),
    "status 999": _once(_head("999 Beyond")),
    "accepts slowly": lambda asked: itertools.chain([2.0], honest(asked)),
}
# Those that are answered before the request is read.
UNREAD = {"tokens before the prompt": _sse(*[_token()] * 16, _event("[DONE]"))}
MISBEHAVIOURS |= UNREAD
# These answer honest numbers in the end.
HARMLESS = ("honest", "accepts slowly", "trailing data")


def misbehaving(name: str, port: int) -> socketserver.ThreadingTCPServer:
    """A server of a misbehaviour on the loopback; port 0 takes a free one."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                asked = Asked("", "", {}, "") if name in UNREAD else self.asked()
                for piece in MISBEHAVIOURS[name](asked):
                    if isinstance(piece, float):
                        time.sleep(piece)
                    else:
                        self.wfile.write(piece)
            except (OSError, ValueError, IndexError):
                return

        def asked(self) -> Asked:
            first, *lines = iter(lambda: self.rfile.readline().decode().strip(), "")
            fields = dict(line.lower().split(": ", 1) for line in lines)
            body = self.rfile.read(int(fields.get("content-length", 0)))
            method, path, _ = first.split()
            return Asked(method, path, json.loads(body or b"{}"), "\n".join(lines))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = allow_reuse_address = True
        block_on_close = False

    return Server(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    misbehaving(sys.argv[2], int(sys.argv[1])).serve_forever(0.05)
