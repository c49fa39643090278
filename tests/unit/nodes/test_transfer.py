"""Copies and long commands over ssh, with this machine's shell in the place of a node's."""

import os
import signal
import threading
import time

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import transfer
from nixwulf.nodes.ssh import Connection, Unreachable
from nixwulf.nodes.transfer import put, run_long

STILL_S = 1.0


class Here(Connection):
    """This machine in the place of a node."""

    def argv(self, command=()):
        return list(command)


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(transfer, "_STILL_S", STILL_S)
    return Here(load_cluster("lab").nodes[0], ())


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(400_000_000)
    return path


def test_a_file_is_copied_whole_and_its_folder_made(node, tmp_path):
    (tmp_path / "from").write_bytes(os.urandom(3_000_000))
    sent = []
    put(node, tmp_path / "from", str(tmp_path / "a b" / "to"), lambda *now: sent.append(now))
    assert (tmp_path / "a b" / "to").read_bytes() == (tmp_path / "from").read_bytes()
    assert [path.name for path in (tmp_path / "a b").iterdir()] == ["to"]
    assert {size for _, size in sent} <= {3_000_000}


def test_an_empty_file_is_copied(node, tmp_path):
    (tmp_path / "from").touch()
    put(node, tmp_path / "from", str(tmp_path / "to"))
    assert (tmp_path / "to").read_bytes() == b""


def test_a_copy_that_is_cut_off_is_not_taken_for_a_whole_file(node, large, tmp_path):
    """The input of the node's program ends when the connection does, and not in an error."""
    folder = tmp_path / "there"

    class Cut(Here):
        def argv(self, command=()):
            shell, option, script, *rest = command
            return [shell, option, f"head -c 1000000 | ({script})", *rest]

    with pytest.raises(NixwulfError, match=r"the connection was lost \(.* of 400.0 MB were sent"):
        put(Cut(node.node, ()), large, str(folder / "model"))
    assert list(folder.iterdir()) == []


def test_a_copy_that_stands_still_ends_and_says_how_far_it_came(node, large, tmp_path):
    os.mkfifo(tmp_path / "model.part")  # who writes to it waits, as for a disk that stalls
    begin = time.monotonic()
    with pytest.raises(NixwulfError) as caught:
        put(node, large, str(tmp_path / "model"))
    assert STILL_S <= time.monotonic() - begin < STILL_S + 10
    assert f"to node {node.node.name!r}: nothing moved for 1 s (0.0 of 400.0 MB were sent)." in (
        caught.value.message
    )


def test_a_slow_copy_that_moves_goes_on_for_longer_than_it_may_stand_still(node, tmp_path):
    (tmp_path / "from").write_bytes(bytes(400_000))
    os.mkfifo(tmp_path / "to.part")

    def drain():
        with (tmp_path / "to.part").open("rb", buffering=0) as pipe:
            while pipe.read(40_000):
                time.sleep(STILL_S / 4)

    threading.Thread(target=drain, daemon=True).start()
    begin = time.monotonic()
    # A pipe has no size: that it got all is not seen, and it is refused at the end alone.
    with pytest.raises(NixwulfError, match=r"\(0.4 of 0.4 MB were sent\)"):
        put(node, tmp_path / "from", str(tmp_path / "to"))
    assert time.monotonic() - begin > 1.5 * STILL_S


def test_a_copy_ends_at_the_deadline_of_its_connection(node, large, tmp_path):
    os.mkfifo(tmp_path / "model.part")
    bounded = node.until(time.monotonic() + STILL_S / 2)
    with pytest.raises(NixwulfError, match="the time that it had was up"):
        put(bounded, large, str(tmp_path / "model"))


def test_a_node_that_refuses_to_write_is_quoted(node, tmp_path):
    (tmp_path / "from").touch()
    (tmp_path / "file").touch()
    with pytest.raises(NixwulfError, match="to node 'n1': mkdir: .*file"):
        put(node, tmp_path / "from", str(tmp_path / "file" / "to"))


def test_a_long_command_reports_and_its_whole_output_comes(node):
    script = "for n in 1 2 3; do echo $n 3 >&2; sleep 0.2; done; echo done; exit 3"
    lines = []
    done = run_long(node, ["sh", "-c", script], lines.append)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", "1 3\n2 3\n3 3\n")
    assert lines[-1] == "3 3"


def test_a_long_command_that_reports_nothing_more_ends(node, tmp_path):
    script = 'echo 1 3 >&2; echo $$ >"$1"; exec sleep 1000'
    with pytest.raises(Unreachable, match="Node 'n1' gave no answer"):
        run_long(node, ["sh", "-c", script, "sh", str(tmp_path / "pid")], lambda line: None)
    process = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def test_an_interrupt_ends_what_runs(node, tmp_path):
    def interrupt(line):
        raise KeyboardInterrupt

    script = 'echo $$ >"$1"; echo 1 3 >&2; exec sleep 1000'
    with pytest.raises(KeyboardInterrupt):
        run_long(node, ["sh", "-c", script, "sh", str(tmp_path / "pid")], interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)


def test_an_ssh_that_fails_is_quoted(node):
    with pytest.raises(Unreachable, match="did not answer: no route"):
        run_long(node, ["sh", "-c", "echo no route >&2; exit 255"], lambda line: None)
