"""Machines of a chain on this one: who is let in, what is sent again, what a full disk does."""

import base64
import hashlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from nixwulf.core.names import Refusal
from nixwulf.ops.models import peer, push, store
from nixwulf.ops.models.peer import Lost, Peer, Wrong
from nixwulf.ops.models.push import PEER, PYTHON

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
    found = Peer(job)

    def run():
        with suppress(Refusal):
            found.run(lambda **_: None)

    threading.Thread(target=run, daemon=True).start()
    try:
        yield found
    finally:
        found.close()


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

    def ended(self, work, *arguments):
        thread = started(self, work, *arguments)
        if work == self._receive:
            thread.join()
        return thread

    monkeypatch.setattr(Peer, "_thread", ended)
    with at_work(sender):
        assert received(receiver(sender, tmp_path / "copy"))["received"] == 6 * MIB + 3


def test_a_copy_of_which_nobody_complains_and_that_is_not_there_is_a_failure(
    sender, tmp_path, monkeypatch
):
    monkeypatch.setattr(Peer, "_receive", lambda self: None)
    with pytest.raises(Refusal, match="is not what was to arrive"):
        Peer(receiver(sender, tmp_path / "copy")).run(lambda **_: None)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyError, SystemExit, RecursionError])
def test_an_error_of_any_kind_in_any_thread_is_a_failure(sender, tmp_path, monkeypatch, error):
    def fetch(self, todo, lock):
        raise error("by the test")

    monkeypatch.setattr(Peer, "_fetch", fetch)
    said = {}
    with at_work(sender), pytest.raises(Refusal, match="by the test"):
        Peer(receiver(sender, tmp_path / "copy")).run(lambda **values: said.update(values))
    assert "done" not in said


def test_a_source_in_a_thread_that_cannot_go_on_says_so(sender, monkeypatch):
    def serve(self, peer):
        raise MemoryError("by the test")

    monkeypatch.setattr(Peer, "_serve", serve)
    source = push._peer(sender)
    with closing(source), socket.socket(socket.AF_UNIX) as found:
        found.connect(sender["listen"][0])
        with source.changed:
            assert source.changed.wait_for(lambda: source.failure, 10)
    assert "MemoryError" in str(source.failure)


@pytest.fixture
def open_folder():
    """A folder that another user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(),
    reason="only root may become another user, who has to reach a Python",
)
@pytest.mark.parametrize("processes", range(1, 9))
def test_a_user_who_may_start_so_many_processes_has_all_of_it_or_is_told_why(
    sender, open_folder, processes
):
    user = 200_000 + os.getpid()  # the limit counts all processes of a user
    job = receiver(sender, open_folder / "copy", source=str(open_folder / "s"))
    (open_folder / "job").write_text(json.dumps(job))
    for path in (open_folder, open_folder / "job", open_folder / "copy"):
        os.chown(path, user, user)
    with at_work({**sender, "listen": [job["source"]]}):
        (open_folder / "s").chmod(0o777)
        limit = ["prlimit", f"--nproc={processes}", "/usr/bin/python3"]
        with subprocess.Popen(
            [*limit, *PYTHON[1:], PEER, str(open_folder / "job")],
            stdout=subprocess.PIPE, text=True, user=user, group=user, extra_groups=[],
        ) as process:  # fmt: skip
            lines = (json.loads(line) for line in process.stdout)
            last = next(line for line in lines if "done" in line or "error" in line)
            process.terminate()
            assert process.wait(10)
    (entry,) = store.list_models(str(open_folder / "copy"))["models"] or [{"state": "nothing"}]
    assert ("done" in last) == (entry["state"] == "complete")
    assert "done" in last or "'ulimit -u'" in last["error"]
    # The main thread, the work and a stream are 3; with all streams it is 6.
    assert ("done" in last) or processes < 6
    assert ("error" in last) or processes > 2


class Hostile:
    """Whoever answers first where a source should be: it knows no token, and needs none."""

    def __init__(self, where, *pieces, pause_s=0.0):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(where)
        self.listener.listen()
        self.pieces, self.pause_s = pieces, pause_s

    def __enter__(self):
        threading.Thread(target=self._answer, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _answer(self):
        with suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                with peer:
                    peer.sendall(bytes(16))
                    peer.recv(32 + 8)
                    for piece in self.pieces:
                        peer.sendall(piece)
                        time.sleep(self.pause_s)


def announced(manifest):
    data = json.dumps(manifest, sort_keys=True).encode()
    return struct.pack(">Q", len(data)) + data


def evil(name, **more):
    """A manifest of NAME whose only file has another name, or says something else of it."""
    file = {
        "name": name,
        "bytes": 1,
        "sha256": "0" * 64,
        "chunks": base64.b64encode(bytes(32)),
        **more,
    }
    file["chunks"] = file["chunks"].decode()
    return {"name": NAME, "bytes": file["bytes"], "sha256": "0" * 64, "files": [file]}


@pytest.mark.parametrize(
    ("pieces", "digest"),
    [
        ([struct.pack(">Q", 1 << 62)], None),
        ([struct.pack(">Q", 1 << 29), bytes(1 << 20)], None),
        ([struct.pack(">Q", 100), b"{"], None),
        ([struct.pack(">Q", 0)], None),
        ([struct.pack(">Q", 4), b"null"], b"null"),
        ([struct.pack(">Q", 2), b"{}"], b"{}"),
        ([struct.pack(">Q", 90_000), b"[" * 90_000], b"[" * 90_000),
        ([announced(evil("../../x"))], None),
        *(
            ([announced(manifest)], json.dumps(manifest, sort_keys=True).encode())
            for manifest in (
                evil("../../x"), evil("/etc/x"), evil(f"{NAME}/../../x"), evil("b.gguf"),
                evil(NAME, bytes=1 << 62), evil(NAME, bytes=-1), evil(NAME, bytes=1.5),
                evil(f"{NAME}/.nixwulf/x"), evil(f"{NAME}/a\0b"), evil(f"{NAME}/a\\..\\b"),
            )
        ),
    ],
)  # fmt: skip
def test_a_source_that_is_none_ends_in_a_sentence_and_leaves_nothing(
    sender, tmp_path, pieces, digest
):
    job = receiver(sender, tmp_path / "copy")
    if digest is not None:
        job["digest"] = hashlib.sha256(digest).hexdigest()
    (tmp_path / "job").write_text(json.dumps(job))
    with Hostile(job["source"], *pieces):
        done = subprocess.run(
            [sys.executable, *PYTHON[1:], PEER, str(tmp_path / "job")],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["error"]
    assert not done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.name in {"x", "b.gguf"}]
    assert store.list_models(job["folder"])["models"] == []


def test_a_source_that_drips_ends_when_a_whole_chunk_should_be_there(sender, tmp_path, monkeypatch):
    monkeypatch.setattr(peer, "_WHOLE_S", 0.5)
    with (
        Hostile(sender["listen"][0], struct.pack(">Q", 1000), *[b"x"] * 100, pause_s=0.05),
        pytest.raises(Lost, match="of 1000 bytes came"),
    ):
        Peer(receiver(sender, tmp_path / "copy")).run(lambda **_: None)


@pytest.mark.parametrize(
    "line",
    ["nonsense", "7", f'{{"read": {2**64}}}', '{"read": "x"}', '{"read": 1e999}', "[" * 9999],
)
def test_what_a_node_prints_that_is_no_report_is_its_fault(line):
    link = push._Link("n1", SimpleNamespace(output=f"{line}\n"))
    with pytest.raises(push.Broken) as broken:
        link.look()
    assert list(broken.value.faults) == ["n1"]


def test_a_disk_that_takes_a_part_of_a_chunk_gets_the_rest(sender, tmp_path, monkeypatch):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:300_000], at))
    with at_work(sender):
        received(receiver(sender, tmp_path / "copy"))
    assert (tmp_path / "copy" / NAME).read_bytes() == (tmp_path / "source" / NAME).read_bytes()


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
            [*limited, PEER, str(job)], capture_output=True, text=True, check=False
        )
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["kind"] == "Refusal"
    assert "File too large" in last["error"]
    assert not job.exists()
    (entry,) = store.list_models(str(tmp_path / "copy"))["models"]
    assert entry["state"] == "incomplete"
    assert entry["present"] > 0
