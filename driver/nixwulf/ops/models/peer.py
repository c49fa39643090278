"""One machine of a chain: it receives a model from its source and sends it to the next.

The driver runs this file on nodes as text after those that it needs, in Python 3.9 or later. Data
cross a plain TCP stream on the fabric's address: only peers' addresses are accepted, and who does
not know the token of the copy is sent nothing. A chunk goes on as soon as it is hashed and written.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Union

from nixwulf.core.names import Refusal
from nixwulf.ops.models.store import (
    CHUNK,
    HASH_BYTES,
    Document,
    Place,
    checked,
    chunks_of,
    count_of,
    digest_of,
    encoded,
    sentence,
    wrong_chunks,
)

# Connections for one copy: hashing, the disk and the network then wait for each other less.
_STREAMS = 4
_CONNECT_S = 30
_PROGRESS_S = 2
_NONCE_BYTES = 16
# A manifest takes 43 bytes a MiB of the model: of 6 TB.
_MOST_MANIFEST = 1 << 28
# What has begun to come, a chunk or a manifest, is there as a whole and has no reason to wait.
_WHOLE_S = 120.0
_REQUEST = struct.Struct(">II")
_LENGTH = struct.Struct(">Q")
_MANIFEST = 0xFFFFFFFF
Where = Union[str, "list[Any]"]
"""The path of a socket, or an address and a port."""


class Lost(Refusal):
    """The machine that sends ended the connection; why, that machine says."""


class Wrong(Refusal):
    """The machine that sends has other data than it announced: the fault is there."""


class Peer:
    """A machine and its copy.

    job: folder, name, digest of the manifest, token, listen (a list of Where), peers (addresses
    that may connect) and, where it receives, source (Where).
    """

    def __init__(self, job: Document) -> None:
        self.job = job
        self.place = Place(job["folder"], job["name"])
        self.manifest: Document = {}
        self.have: list[bytearray] = []
        self.descriptors: list[int] = []
        self.stats: list[list[int]] = []
        self.read = self.present = self.received = 0
        self.failure: Refusal | None = None
        self.changed = threading.Condition()
        self.listeners = [_listen(where) for where in job["listen"]]

    def close(self) -> None:
        """Serve nobody any more."""
        self.fail(Refusal("it was ended"))
        for listener in self.listeners:
            listener.close()

    def run(self, report: Callable[..., None]) -> None:
        """Receive, then serve until it is ended; raises Refusal."""
        for listener in self.listeners:
            self._thread(self._accept, listener)
        begin = monotonic()
        work = self._thread(self._receive if "source" in self.job else self._open)
        at_work = True
        while at_work:
            work.join(_PROGRESS_S)
            # Asked before the report: work that ends at once is reported too.
            at_work = work.is_alive()
            report(read=self.read, present=self.present, received=self.received)
        # Not what nobody complained of, but what is there counts.
        if not self.failure and digest_of(self.place.known() or {}) != self.job["digest"]:
            self.fail(Refusal(f"{str(self.place.path)!r} is not what was to arrive"))
        if not self.failure:
            report(done=True, seconds=round(monotonic() - begin, 3))
        with self.changed:
            self.changed.wait_for(lambda: self.failure)
        raise self.failure or Refusal("it ended")

    def _thread(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        """Work beside; what it raises is the failure of all."""

        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as error:  # nobody else hears of it in this thread
                self.fail(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def fail(self, error: BaseException) -> None:
        """End all work because of an error of any kind; the first one counts."""
        if isinstance(error, ConnectionError):
            error = Lost(f"the connection broke: {error}")
        failure = error if isinstance(error, Refusal) else Refusal(sentence(error))
        with self.changed:
            self.failure = self.failure or failure
            self.changed.notify_all()

    def _open(self) -> None:
        """Send what is here and complete."""
        manifest = self.place.known()
        if manifest is None or digest_of(manifest) != self.job["digest"]:
            raise Refusal(f"{str(self.place.path)!r} changed before it was sent")
        names = [file["name"] for file in manifest["files"]]
        self.stats = self.place.stats(names)
        opened = [os.open(self.place.file(name), os.O_RDONLY) for name in names]
        have = [bytearray(b"\1" * count_of(file["bytes"])) for file in manifest["files"]]
        self._begin(manifest, opened, have)

    def _begin(self, manifest: Document, opened: list[int], have: list[bytearray]) -> None:
        with self.changed:
            self.descriptors, self.have, self.manifest = opened, have, manifest
            self.changed.notify_all()

    def _receive(self) -> None:
        manifest = self._receive_manifest()
        known = self.place.known()
        if known and digest_of(known) == self.job["digest"]:
            self._open()
            return
        self.place.write_side(manifest, [])
        prepared = [self._prepare(file) for file in manifest["files"]]
        self._begin(manifest, [one for one, _ in prepared], [have for _, have in prepared])
        todo = iter(
            [
                (file, c)
                for file, have in enumerate(self.have)
                for c, ok in enumerate(have)
                if not ok
            ]
        )
        lock = threading.Lock()
        for stream in [self._thread(self._fetch, todo, lock) for _ in range(_STREAMS)]:
            stream.join()
        if self.failure:
            return
        names = [file["name"] for file in manifest["files"]]
        for name, descriptor in zip(names, self.descriptors):  # noqa: B905 - Python 3.9
            os.fsync(descriptor)
            final = self.place.file(name)
            final.parent.mkdir(parents=True, exist_ok=True)
            self.place.waiting(name).replace(final)
        self.place.write_side(manifest, self.place.stats(names))

    def _receive_manifest(self) -> Document:
        with self._connected() as source:
            source.sendall(_REQUEST.pack(_MANIFEST, 0))
            length = _LENGTH.unpack(_exactly(source, _LENGTH.size))[0]
            if length > _MOST_MANIFEST:
                raise Refusal(f"a manifest of {length} bytes was announced")
            data = _exactly(source, length)
        if hashlib.sha256(data).hexdigest() != self.job["digest"]:
            raise Refusal(f"what arrived is not the manifest of {self.place.name!r}")
        return checked(self.place, json.loads(data))

    def _prepare(self, file: Document) -> tuple[int, bytearray]:
        """Open a file that is to arrive, and say which of its chunks are there already."""
        waiting, final = self.place.waiting(file["name"]), self.place.file(file["name"])
        waiting.parent.mkdir(parents=True, exist_ok=True)
        if final.is_file() and not final.is_symlink() and not waiting.exists():
            final.replace(waiting)
        have = bytearray(b"\1" * count_of(file["bytes"]))
        for chunk in wrong_chunks(waiting, file):
            have[chunk] = 0
        self.read += file["bytes"]
        self.present += min(file["bytes"], have.count(1) * CHUNK)
        descriptor = os.open(waiting, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        if os.fstat(descriptor).st_size > file["bytes"] or not have:
            os.ftruncate(descriptor, file["bytes"])
        return descriptor, have

    def _fetch(self, todo: Iterator[tuple[int, int]], lock: threading.Lock) -> None:
        files = self.manifest["files"]
        hashes = [chunks_of(file) for file in files]
        buffer = memoryview(bytearray(CHUNK))
        with self._connected() as source:
            while not self.failure:
                with lock:
                    file, chunk = next(todo, (-1, 0))
                if file < 0:
                    return
                data = buffer[: min(CHUNK, files[file]["bytes"] - chunk * CHUNK)]
                source.sendall(_REQUEST.pack(file, chunk))
                _fill(source, data)
                if hashlib.sha256(data).digest() != hashes[file][chunk]:
                    raise Wrong(
                        f"chunk {chunk} of {files[file]['name']!r} there is not what was hashed: "
                        "the file changed, or it is damaged"
                    )
                at = 0
                while at < len(data):  # a disk that is almost full takes a part
                    at += os.pwrite(self.descriptors[file], data[at:], chunk * CHUNK + at)
                with self.changed:
                    self.have[file][chunk] = 1
                    self.received += len(data)
                    self.changed.notify_all()

    def _connected(self) -> socket.socket:
        """A connection to the source, which may not listen yet; raises Lost."""
        until = monotonic() + _CONNECT_S
        while True:
            try:
                found = _connect(self.job["source"])
                break
            except OSError as error:
                if monotonic() > until or self.failure:
                    raise Lost(f"{self.job['source']} does not answer: {error}") from None
                sleep(0.05)
        found.sendall(self._answer(_exactly(found, _NONCE_BYTES)))
        return found

    def _answer(self, nonce: bytes) -> bytes:
        return hmac.new(self.job["token"].encode(), nonce, hashlib.sha256).digest()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, address = listener.accept()
            except OSError:  # it was closed
                return
            if listener.family == socket.AF_UNIX or address[0] in self.job["peers"]:
                self._thread(self._serve, peer)
            else:
                peer.close()

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, Lost, IndexError):
            peer.settimeout(_CONNECT_S)
            nonce = secrets.token_bytes(_NONCE_BYTES)
            peer.sendall(nonce)
            if not hmac.compare_digest(_exactly(peer, HASH_BYTES), self._answer(nonce)):
                return
            peer.settimeout(None)
            while True:
                self._respond(peer, *_REQUEST.unpack(_exactly(peer, _REQUEST.size)))

    def _respond(self, peer: socket.socket, file: int, chunk: int) -> None:
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self.failure
                    or (self.manifest and (file == _MANIFEST or self.have[file][chunk]))
                )
            )
        if self.failure:
            raise Lost("it failed")
        if file == _MANIFEST:
            data = encoded(self.manifest)
            peer.sendall(_LENGTH.pack(len(data)) + data)
            return
        start = chunk * CHUNK
        end = min(start + CHUNK, self.manifest["files"][file]["bytes"])
        while start < end:
            count = os.sendfile(peer.fileno(), self.descriptors[file], start, end - start)
            if not count:
                break
            start += count
        if self.stats:
            now = os.fstat(self.descriptors[file])
            if [now.st_size, now.st_mtime_ns] != self.stats[file]:
                self.fail(Refusal(f"{str(self.place.path)!r} changed while it was sent"))
                raise Lost("it changed")


def _listen(where: Where) -> socket.socket:
    if isinstance(where, str):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(where)
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(tuple(where))
        except OSError as error:
            raise Refusal(f"cannot listen on {where[0]}:{where[1]}: {error.strerror}") from None
    listener.listen(64)
    return listener


def _connect(where: Where) -> socket.socket:
    if isinstance(where, str):
        found = socket.socket(socket.AF_UNIX)
        found.connect(where)
        return found
    found = socket.create_connection((where[0], where[1]), timeout=_CONNECT_S)
    found.settimeout(None)
    return found


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    _fill(source, memoryview(data))
    return bytes(data)


def _fill(source: socket.socket, data: memoryview) -> None:
    """Read all of it: who sends may wait before its first byte, and not after; raises Lost."""
    at, until = 0, 0.0
    try:
        while at < len(data):
            count = source.recv_into(data[at:])
            if not count:
                raise Lost("the machine that sends ended the connection")
            at += count
            until = until or monotonic() + _WHOLE_S
            source.settimeout(max(0.001, until - monotonic()))
        source.settimeout(None)
    except socket.timeout:  # noqa: UP041 - Python 3.9
        raise Lost(f"{at} of {len(data)} bytes came in {_WHOLE_S:g} s") from None
    except OSError as error:
        raise Lost(f"the connection broke: {error}") from None


def _report(**values: object) -> None:
    print(json.dumps(values), flush=True)


def main(path: str) -> int:
    """Do the job of a file, which is removed at once; prints how it goes."""
    try:
        job = json.loads(Path(path).read_text("utf-8"))
        Path(path).unlink()
        Peer(job).run(_report)
    except Exception as error:  # whatever it is, the driver has to hear of it
        kind = type(error) if isinstance(error, Refusal) else Refusal
        _report(error=sentence(error), kind=kind.__name__)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
