"""Machines of a chain on this one: who is let in, what is sent again, what a full disk does."""

import json
import os
import random
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

from nixwulf.ops.models import store
from nixwulf.ops.models.machines import BOTH, PEER, PYTHON, STORE
from nixwulf.ops.models.peer import Lost, Peer, Wrong
from nixwulf.ops.models.store import Refusal

MIB = 1 << 20
NAME = "a.gguf"


@pytest.fixture
def sender(tmp_path):
    """A folder with a model, and the job of who sends it."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / NAME).write_bytes(random.Random(1).randbytes(6 * MIB + 3))  # noqa: S311
    digest = store.index(str(folder), NAME)["digest"]
    job = {"folder": str(folder), "name": NAME, "digest": digest, "token": "right"}
    return {**job, "listen": [str(tmp_path / "s")], "peers": []}


def receiver(sender, folder, **more):
    folder.mkdir(exist_ok=True)
    job = {key: sender[key] for key in ("name", "digest", "token")}
    return {**job, "folder": str(folder), "listen": [], "source": sender["listen"][0], **more}


@contextmanager
def at_work(job):
    peer = Peer(job)

    def run():
        with suppress(Refusal):
            peer.run(lambda **_: None)

    threading.Thread(target=run, daemon=True).start()
    try:
        yield peer
    finally:
        peer.close()


def received(job):
    """What a machine reports, until it has all; raises what it fails by."""
    said = {}

    class Done(Exception):
        pass

    def report(**values):
        said.update(values)
        if values.get("done"):
            raise Done

    with pytest.raises(Done):
        Peer(job).run(report)
    return said


def test_a_copy_is_what_was_sent_and_a_second_one_is_not_sent(sender, tmp_path):
    with at_work(sender):
        job = receiver(sender, tmp_path / "copy")
        assert received(job)["received"] == 6 * MIB + 3
        assert received(job)["received"] == 0
    assert (tmp_path / "copy" / NAME).read_bytes() == (tmp_path / "source" / NAME).read_bytes()


def test_work_that_ends_before_it_is_looked_at_is_reported_too(sender, tmp_path, monkeypatch):
    started = Peer._thread

    def ended(self, *arguments):
        thread = started(self, *arguments)
        thread.join()
        return thread

    monkeypatch.setattr(Peer, "_thread", ended)
    monkeypatch.setattr(Peer, "_receive", lambda self: None)
    assert received(receiver(sender, tmp_path / "copy"))["received"] == 0


def test_what_was_there_before_a_cut_is_not_sent_again(sender, tmp_path):
    job = receiver(sender, tmp_path / "copy")
    part = tmp_path / "copy" / store.SIDE / "incoming" / NAME
    part.parent.mkdir(parents=True)
    part.write_bytes((tmp_path / "source" / NAME).read_bytes()[: 4 * MIB + 500])
    with at_work(sender):
        assert received(job)["received"] == 2 * MIB + 3


def test_a_copy_by_hand_that_is_right_is_only_read(sender, tmp_path):
    job = receiver(sender, tmp_path / "copy")
    data = bytearray((tmp_path / "source" / NAME).read_bytes())
    data[MIB] ^= 1
    (tmp_path / "copy" / NAME).write_bytes(data)
    with at_work(sender):
        assert received(job)["received"] == MIB
    assert store.verify(job["folder"], NAME)["damaged"] == {}


def test_who_does_not_know_the_token_gets_nothing(sender, tmp_path):
    with at_work(sender), pytest.raises(Lost):
        Peer(receiver(sender, tmp_path / "copy", token="wrong")).run(lambda **_: None)  # noqa: S106
    assert not (tmp_path / "copy" / NAME).exists()


def test_an_address_that_is_no_peers_gets_nothing(sender):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {**sender, "listen": [["127.0.0.1", port]], "peers": ["127.0.0.2"]}
    with at_work(job), socket.create_connection(("127.0.0.1", port)) as stranger:
        assert stranger.recv(1) == b""


def test_a_model_that_changes_while_it_is_sent_is_complete_nowhere(sender, tmp_path):
    with at_work(sender) as source:
        received(receiver(sender, tmp_path / "first"))
        os.utime(tmp_path / "source" / NAME, (1, 1))
        with pytest.raises(Refusal):
            Peer(receiver(sender, tmp_path / "copy")).run(lambda **_: None)
        assert "changed while it was sent" in str(source.failure)
    (entry,) = store.list_models(str(tmp_path / "copy"))["models"]
    assert entry["state"] == "incomplete"


def test_wrong_data_are_the_fault_of_who_sent_them(sender, tmp_path):
    path = tmp_path / "source" / NAME
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(2 * MIB)
        file.write(b"\0" * 9)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with at_work(sender), pytest.raises(Wrong, match="chunk 2 of 'a.gguf' there is not what was"):
        Peer(receiver(sender, tmp_path / "copy")).run(lambda **_: None)


def test_a_manifest_of_another_model_is_refused(sender, tmp_path):
    with at_work(sender), pytest.raises(Refusal, match="is not the manifest of 'a.gguf'"):
        Peer(receiver(sender, tmp_path / "copy", digest="0" * 64)).run(lambda **_: None)


def test_a_disk_that_takes_no_more_is_a_sentence_and_what_arrived_is_kept(sender, tmp_path):
    job = tmp_path / "job"
    job.write_text(json.dumps(receiver(sender, tmp_path / "copy")))
    limited = ["sh", "-c", 'ulimit -f 4096; exec "$@"', "sh", sys.executable, *PYTHON[1:]]
    with at_work(sender):
        done = subprocess.run(
            [*limited, BOTH, STORE, PEER, str(job)], capture_output=True, text=True, check=False
        )
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["kind"] == "Refusal"
    assert "File too large" in last["error"]
    assert not job.exists()
    (entry,) = store.list_models(str(tmp_path / "copy"))["models"]
    assert entry["state"] == "incomplete"
    assert entry["present"] > 0
