"""Stream chunks at a fixed rate, for figures of the client's own cost. It is no engine.

Usage: event_source.py SOCKET. A request's seed is the rate in chunks a second; 0 is without pause.
"""

from __future__ import annotations

import asyncio
import json
import sys

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# As long as those of llama-server.
TOKEN = {
    "choices": [{"text": " bito", "index": 0, "logprobs": None, "finish_reason": None}],
    "created": 1795284217,
    "model": "llama-8x384-f16-12895c7aeb0d.gguf",
    "system_fingerprint": "b0-0c1e570",
    "object": "text_completion",
    "id": "chatcmpl-tEgvGpQ6epFx0nYbxYRmsI5jNOvVmWRq",
}


def chunk(*events: str) -> bytes:
    """Server-sent events in one chunk of HTTP."""
    data = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request with max_tokens chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].split()[0])
    request = json.loads(await reader.readexactly(length))
    count, rate = request["max_tokens"], request["seed"]
    clock = asyncio.get_running_loop().time
    begin, token = clock(), chunk(json.dumps(TOKEN))
    writer.write(HEAD)
    for index in range(count):
        writer.write(token)
        await writer.drain()
        await asyncio.sleep(max(0, begin + (index + 1) / rate - clock()) if rate else 0)
    usage = {"prompt_tokens": 1, "completion_tokens": count}
    writer.write(chunk(json.dumps({"choices": [], "usage": usage}), "[DONE]") + b"0\r\n\r\n")
    await writer.drain()
    writer.close()


async def serve(socket: str) -> None:
    """Answer until ended."""
    server = await asyncio.start_unix_server(answer, socket)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
