"""The stand-in for exo's Rust transport carries what that would, within one namespace."""

import asyncio

import pytest

import exo_transport
from exo_transport import FromSwarm, NetworkingHandle, Pidfile, PidfileError

PORT = 52414


async def joined(monkeypatch, address, peers, identity, namespace="ours"):
    """A node at an address of the loopback, where each has the port to itself."""
    monkeypatch.setenv(exo_transport.PEERS, ",".join(peers))
    start = asyncio.start_server

    def at(answer, _, port):
        return start(answer, address, port)

    monkeypatch.setattr(asyncio, "start_server", at)
    node = NetworkingHandle.new(identity, namespace, PORT, 52413)
    assert await node.gossipsub_subscribe("commands")
    assert not await node.gossipsub_subscribe("commands")
    monkeypatch.setattr(asyncio, "start_server", start)
    return node


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, 10)


def test_a_message_reaches_the_other_node_of_the_namespace_once_and_not_its_sender(monkeypatch):
    places = ["127.10.0.1", "127.10.0.2", "127.10.0.3"]

    async def talk():
        first = await joined(monkeypatch, places[0], places, "b1")
        second = await joined(monkeypatch, places[1], places, "a2")
        stranger = await joined(monkeypatch, places[2], places, "c3", "theirs")
        assert await soon(first.recv()) == FromSwarm.Connection(True)
        assert await soon(second.recv()) == FromSwarm.Connection(True)
        await first.gossipsub_publish("unheard", b"lost")
        await first.gossipsub_publish("commands", b"x" * 100_000)
        match await soon(second.recv()):
            case FromSwarm.Message(topic, data):
                assert (topic, data) == ("commands", b"x" * 100_000)
        await asyncio.sleep(2 * exo_transport._REDIAL_S)
        return [node._reports.qsize() for node in (first, second, stranger)]

    assert asyncio.run(talk()) == [0, 0, 0]


def test_a_second_exo_of_one_home_is_refused(tmp_path):
    path = tmp_path / "cache" / "exo.pid"
    first = Pidfile(path, 0o600)
    first.write()
    with pytest.raises(PidfileError, match="locked by another exo"):
        Pidfile(path, 0o600)
    first.close()
    Pidfile(path, 0o600).close()
    assert not path.exists()
