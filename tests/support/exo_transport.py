"""A stand-in for exo's Rust transport, to run exo's own Python by hand where that cannot be built.

exo (https://github.com/exo-explore/exo, commit b5375f8) carries messages between its nodes by
`exo_rs`, bindings of zenoh whose packages are on no registry. Written from their interface
(rust/exo_rs/exo_rs.pyi) alone, this offers the same names: linked as `exo_rs.py` into the folder
of exo's packages, all else of a run is exo's own: API, election, placement, downloads, runners,
MLX's ring. It is not zenoh and not its discovery: it finds nobody, but dials the addresses in
NIXWULF_EXO_PEERS ("10.77.2.1,10.77.2.2", its own among them) at the port that exo listens on, and
sends each message over TCP to all whose namespace is its own. So a run with it says nothing of how
nodes of exo meet, of lost messages, or of how fast they travel.

It also makes MLX pause for a second before its ranks meet. While they do, MLX 0.32.0 of PyPI holds
Python's lock, and the thread by which an exo's runner reports that it connects needs that lock: on
a busy machine it comes too late, and the last rank, which waits for the report, never begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["FromSwarm", "NetworkingHandle", "Pidfile", "PidfileError"]

PEERS = "NIXWULF_EXO_PEERS"
_REDIAL_S = 0.5


class FromSwarm:
    """What the network reports."""

    Connection: ClassVar[Any]
    Message: ClassVar[Any]


@dataclass(frozen=True)
class _Connection(FromSwarm):
    connected: bool


@dataclass(frozen=True)
class _Message(FromSwarm):
    topic: str
    data: bytes


FromSwarm.Connection, FromSwarm.Message = _Connection, _Message


class NetworkingHandle:
    """A node among its peers. It begins in the loop that first waits for it, as exo has two."""

    def __init__(self, identity: str, namespace: str, port: int) -> None:
        self._identity, self._namespace, self._port = identity, namespace, port
        self._topics: set[str] = set()
        self._peers: dict[str, asyncio.StreamWriter] = {}
        self._reports: asyncio.Queue[FromSwarm] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    @staticmethod
    def new(
        identity: str, namespace: str, listen_port: int, discovery_service_port: int
    ) -> NetworkingHandle:
        """A node; nothing listens at the port of a discovery that is not there."""
        del discovery_service_port
        return NetworkingHandle(identity, namespace, listen_port)

    async def recv(self) -> FromSwarm:
        """The next report, waited for."""
        return await self._reports.get()

    async def gossipsub_subscribe(self, topic: str) -> bool:
        """Whether a topic was not listened to before."""
        if not self._tasks:
            addresses = [one for one in os.environ.get(PEERS, "").split(",") if one]
            server = await asyncio.start_server(self._answer, "0.0.0.0", self._port)  # noqa: S104
            self._tasks.append(asyncio.create_task(server.serve_forever()))
            self._tasks += [asyncio.create_task(self._dial(one)) for one in addresses]
        new = topic not in self._topics
        self._topics.add(topic)
        return new

    async def gossipsub_unsubscribe(self, topic: str) -> bool:
        """Whether a topic was listened to before."""
        old = topic in self._topics
        self._topics.discard(topic)
        return old

    async def gossipsub_publish(self, topic: str, data: bytes) -> None:
        """Send to all peers; nothing comes back to the sender."""
        name = topic.encode()
        head = len(name).to_bytes(2, "big") + len(data).to_bytes(4, "big")
        for writer in list(self._peers.values()):
            with contextlib.suppress(ConnectionError):
                writer.write(head + name + data)
                await writer.drain()

    async def _dial(self, address: str) -> None:
        """Keep a connection to an address, unless it leads here or to one that dials itself."""
        while True:
            with contextlib.suppress(OSError, EOFError):
                await self._meet(*await asyncio.open_connection(address, self._port), dialled=True)
            await asyncio.sleep(_REDIAL_S)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await self._meet(reader, writer, dialled=False)

    async def _meet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, dialled: bool
    ) -> None:
        """Hand over what a peer sends until it goes; the greater of two identities dials."""
        writer.write(f"{self._identity} {self._namespace}\n".encode())
        peer, _, namespace = (await reader.readline()).decode().strip().partition(" ")
        greater = self._identity > peer if dialled else peer > self._identity
        if not peer or namespace != self._namespace or not greater or peer in self._peers:
            writer.close()
            return
        self._peers[peer] = writer
        await self._reports.put(_Connection(True))
        try:
            while True:
                head = await reader.readexactly(6)
                topic = (await reader.readexactly(int.from_bytes(head[:2], "big"))).decode()
                data = await reader.readexactly(int.from_bytes(head[2:], "big"))
                if topic in self._topics:
                    await self._reports.put(_Message(topic, data))
        finally:
            del self._peers[peer]
            writer.close()
            await self._reports.put(_Connection(False))


class PidfileError(Exception):
    """Another exo runs."""


class Pidfile:
    """A file with a process's number, locked while it runs."""

    def __init__(self, path: str | os.PathLike[str], mode: int) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, mode)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise PidfileError(f"{path} is locked by another exo") from error

    def write(self) -> None:
        """Write this process's number."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def as_raw_fd(self) -> int:
        """The open file's number."""
        return self._file

    def close(self) -> None:
        """Unlock and remove the file."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def _pause_before_ranks_meet() -> None:
    with contextlib.suppress(ImportError):
        from mlx.core import distributed

        meet = distributed.init

        def init(*arguments: Any, **options: Any) -> Any:
            time.sleep(1)
            return meet(*arguments, **options)

        distributed.init = init


_pause_before_ranks_meet()
