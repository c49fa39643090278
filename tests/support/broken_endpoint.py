"""A faulty HTTP server on a Unix socket, for the client's way with faults; it is no engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nixwulf.plugins.runtime.openai import Endpoint

# hand-made: a head that any pieces can follow (form: tests/fixtures/openai-streams)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
Piece = bytes | float | None


def event(document: Any) -> bytes:
    """A server-sent event in a chunk of its own."""
    return chunk(b"data: " + json.dumps(document).encode() + b"\n\n")


def chunk(data: bytes) -> bytes:
    """Bytes as HTTP's chunked encoding has them."""
    # no output: the framing of a chunk
    return b"%x\r\n%s\r\n" % (len(data), data)


def text(word: str) -> bytes:
    """A token of /v1/completions; whole streams of servers are in tests/fixtures/openai-streams."""
    return event({"choices": [{"text": word, "finish_reason": None}]})


def usage(prompt: int, tokens: int) -> bytes:
    """The last event, with usage."""
    counts = {"prompt_tokens": prompt, "completion_tokens": tokens}
    return event({"choices": [], "usage": counts})


# hand-made: the least of an event (form: tests/fixtures/openai-streams)
FINISH = event({"choices": [{"text": "", "finish_reason": "length"}]})
DONE = chunk(b"data: [DONE]\n\n")


def plain(status: str, document: str) -> list[Piece]:
    """An answer that is no stream."""
    # hand-made: a refusal of any status (form: https://www.rfc-editor.org/rfc/rfc9112)
    return [f"HTTP/1.1 {status}\r\nContent-Length: {len(document)}\r\n\r\n{document}".encode()]


@asynccontextmanager
async def serving(
    folder: Path, answer: Callable[[dict[str, Any]], Sequence[Piece]]
) -> AsyncIterator[Endpoint]:
    """An endpoint that sends the pieces answer gives for a request: bytes, or seconds to wait."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        for piece in answer(json.loads(await reader.readexactly(length))):
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            elif piece is not None:
                writer.write(piece)
                await writer.drain()
        writer.close()

    socket = folder / "s"
    server = await asyncio.start_unix_server(connected, socket)
    async with server:
        yield Endpoint(None, socket, "m", None)  # type: ignore[arg-type]
