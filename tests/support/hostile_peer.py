"""Who answers in the place of a node that sends a model: hostile_peer.py PORT NAME ADDRESS FILE.

It knows no token. FILE has the true manifest, as who listens on the fabric could have read it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import repeat
from pathlib import Path

Send = Callable[[bytes], object]
_NONCE, _ANSWER, _REQUEST = 16, 32, 8
_MANIFEST = 0xFFFFFFFF
_MIB = 1 << 20


def _length(of: int) -> bytes:
    return struct.pack(">Q", of)


def _drip(send: Send) -> None:
    while True:
        send(b"\0")
        time.sleep(1)


def _endless(send: Send) -> None:
    for piece in repeat(bytes(_MIB)):
        send(piece)
        time.sleep(0.01)


def _wait(_: Send) -> None:
    threading.Event().wait()


# What follows the nonce, in the place of the manifest.
MANIFESTS: Mapping[str, Callable[[Send], object]] = {
    "says a length of 2^62": lambda send: send(_length(2**62)),
    "says a length of 2^64 - 1": lambda send: send(_length(2**64 - 1)),
    "says a length of 2^34 and sends it": lambda send: (send(_length(2**34)), _endless(send)),
    "says a length of 0": lambda send: send(_length(0)),
    "drips a manifest": lambda send: (send(_length(1000)), _drip(send)),
    "ends within a length": lambda send: send(b"\0\0\0"),
    "ends within a manifest": lambda send: send(_length(1000) + b"{"),
    "sends another manifest": lambda send: send(_length(13) + b'{"files": []}'),
    "sends a manifest that is none": lambda send: send(_length(100_000) + b"[" * 100_000),
    "is silent before the manifest": _wait,
}
# What each request for a chunk is answered with, after the true manifest.
CHUNKS: Mapping[str, Callable[[Send], object]] = {
    "sends other chunks": lambda send: send(os.urandom(_MIB)),
    "drips a chunk": _drip,
    "is silent before a chunk": _wait,
    "ends within a chunk": lambda send: send(bytes(1000)),
}
# In the place of all.
_WHOLE: Mapping[str, Callable[[Send], object]] = {
    "closes at once": lambda send: None,
    "is silent": _wait,
    "sends noise without end": _endless,
}
MISBEHAVIOURS = (*MANIFESTS, *CHUNKS, *_WHOLE)


def _exactly(client: socket.socket, count: int) -> bytes:
    data = client.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise ConnectionError
    return data


def _answer(client: socket.socket, name: str, manifest: bytes) -> None:
    if name in _WHOLE:
        _WHOLE[name](client.sendall)
        return
    client.sendall(os.urandom(_NONCE))
    _exactly(client, _ANSWER)
    while True:
        file, _ = struct.unpack(">II", _exactly(client, _REQUEST))
        if file != _MANIFEST:
            CHUNKS[name](client.sendall)
            if name == "ends within a chunk":
                return
        elif name in CHUNKS:
            client.sendall(_length(len(manifest)) + manifest)
        else:
            MANIFESTS[name](client.sendall)
            return


def main() -> None:
    """Answer for ever."""
    port, name, address, file = sys.argv[1:]
    if name not in MISBEHAVIOURS:
        sys.exit(f"{name!r} is none of: {', '.join(MISBEHAVIOURS)}")
    manifest = Path(file).read_bytes()

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):  # who asked had enough
            _answer(client, name, manifest)

    listener = socket.create_server((address, int(port)))
    while True:
        client, _ = listener.accept()
        print("asked", flush=True)
        threading.Thread(target=serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main()
