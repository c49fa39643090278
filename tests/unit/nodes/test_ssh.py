"""The user's own ssh: what the driver waits for, and for how long."""

import os
import time

import pytest

from nixwulf.core import interrupts
from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import ssh
from stand_in import put


def test_closing_a_connection_whose_master_does_not_answer_ends(monkeypatch, tmp_path):
    put(tmp_path, "ssh", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ssh, "_CLOSE_S", 0.2)
    begin = time.monotonic()
    ssh.Connection(load_cluster("framework-2").nodes[0], ()).close()
    assert time.monotonic() - begin < 30


def test_when_a_node_fails_the_threads_of_the_others_are_stopped_before_they_are_waited_for():
    begin = time.monotonic()

    def work(node):
        if node == "broken":
            raise ValueError(node)
        interrupts.wait(60)

    with pytest.raises(ValueError, match="broken"):
        ssh.each(work, ["broken", "waiting"])
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("words", "booting"),
    [
        ("ssh: connect to host n1 port 22: Connection refused", True),
        ("ssh: connect to host n1 port 22: No route to host", True),
        ("Connection timed out during banner exchange", True),
        ("root@n1: Permission denied (publickey).", False),
        ("Host key verification failed.", False),
        ("ssh: Could not resolve hostname n1: Name or service not known", False),
    ],
)
def test_only_a_silent_node_may_be_booting(words, booting):
    assert ssh.Unreachable(f"Node 'n1' did not answer: {words}").may_be_booting == booting


@pytest.mark.parametrize("where", ["", " >&2"])
def test_a_node_that_prints_more_than_is_kept_is_a_sentence(monkeypatch, tmp_path, where):
    put(tmp_path, "ssh", f"head -c 40000000 /dev/zero{where}")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    node = ssh.Connection(load_cluster("framework-2").nodes[0], ())
    with pytest.raises(NixwulfError, match="printed more than 8 MiB in answer to 'ping'"):
        node.run(["ping"])


def test_what_a_node_prints_and_reads_comes_whole(monkeypatch, tmp_path):
    put(tmp_path, "ssh", "cat; echo words >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    node = ssh.Connection(load_cluster("framework-2").nodes[0], ())
    text = "line\n" * 200_000  # more than a pipe takes
    done = node.run(["cat"], stdin=text)
    assert (done.stdout, done.stderr, done.returncode) == (text, "words\n", 3)
