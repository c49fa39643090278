"""What the driver starts on a node is its own: it stops that, always, and nothing else."""

import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from lab_under_test import cluster_of

from nixwulf.cli.main import cli
from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.facts import gather
from nixwulf.nodes.process import OwnedProcess, stop_orphans
from nixwulf.nodes.ssh import Connection, connections, open_all


@pytest.fixture(scope="module")
def nodes(bring_up) -> Iterator[dict[str, Connection]]:
    running = bring_up(cluster_of(2, plain=Shape()), "processes")
    found = connections(running.lab.cluster, running.lab.ssh_config)
    assert open_all(found.values()) == {}
    yield found
    running.lab.down()


@pytest.fixture
def node(nodes):
    return nodes["n1"]


def sleeping(node, seconds):
    """How many processes of the node sleep for so long."""
    script = """
    for file in /proc/[0-9]*/cmdline; do
      [ "$(tr '\\0' ' ' <"$file" 2>/dev/null)" != "sleep $1 " ] || echo "$file"
    done
    """
    return len(node.script(script, str(seconds)).split())


def comes_after(node, name):
    """A stand-in for Ray's program, which leaves a file when it is asked to stop Ray."""
    script = """
    mkdir -p "/tmp/$1"; printf '#!/bin/sh\\n>"/tmp/%s/after"\\n' "$1" >"/tmp/$1/ray"
    chmod +x "/tmp/$1/ray"
    """
    node.script(script, name)
    return [f"/tmp/{name}/ray", "stop", "--force"]


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_output_and_exit_status_arrive_apart(node, tmp_path):
    argv = ["sh", "-c", "echo result; echo remark >&2; exit 7"]
    process = OwnedProcess.start(node, "say", argv, {}, tmp_path)
    until(lambda: not process.running)
    assert process.returncode == 7
    assert process.stdout.read_text() == "result\n"
    assert process.last_line() == "remark"


def test_arguments_and_environment_reach_the_program_as_they_are(node, tmp_path):
    strange = "a b; $(id) 'c' \"d\" *"
    argv = ["sh", "-c", 'printf "%s|%s" "$1" "$NAME"', "sh", strange]
    process = OwnedProcess.start(node, "strange", argv, {"NAME": strange}, tmp_path)
    until(lambda: not process.running)
    assert process.stdout.read_text() == f"{strange}|{strange}"


def test_stopping_ends_the_whole_group_and_no_stranger(node, tmp_path):
    node.run(["sh", "-c", "sleep 3001 >/dev/null 2>&1 &"])
    argv = ["sh", "-c", "sleep 3002 & sleep 3002"]
    process = OwnedProcess.start(node, "group", argv, {}, tmp_path)
    until(lambda: sleeping(node, 3002) == 2)
    process.stop()
    assert process.stopped_by_driver
    until(lambda: sleeping(node, 3002) == 0)
    assert sleeping(node, 3001) == 1


def test_a_program_that_ignores_term_is_killed(node, tmp_path):
    argv = ["sh", "-c", "trap '' TERM; while :; do sleep 3003; done"]
    process = OwnedProcess.start(node, "stubborn", argv, {}, tmp_path)
    until(lambda: sleeping(node, 3003) == 1)
    process.stop()
    until(lambda: sleeping(node, 3003) == 0)


def test_a_process_ends_with_the_drivers_ssh_client(node, tmp_path):
    process = OwnedProcess.start(node, "lost", ["sleep", "3004"], {}, tmp_path)
    until(lambda: sleeping(node, 3004) == 1)
    process._client.kill()
    until(lambda: sleeping(node, 3004) == 0)
    assert not process.running
    assert "connection to its node was lost" in process.ending()


def test_what_comes_after_a_process_runs_however_it_ends(node, tmp_path):
    def ended(name, argv):
        after = comes_after(node, name)
        return OwnedProcess.start(node, name, argv, {}, tmp_path, after=after)

    def happened(name):
        return node.run(["test", "-e", f"/tmp/{name}/after"]).returncode == 0

    alone = ended("alone", ["true"])
    until(lambda: not alone.running)
    stopped = ended("stopped", ["sleep", "3017"])
    until(lambda: sleeping(node, 3017) == 1)
    stopped.stop()
    assert happened("alone")
    assert happened("stopped")
    lost = ended("cut", ["sleep", "3018"])
    until(lambda: sleeping(node, 3018) == 1)
    lost._client.kill()
    until(lambda: happened("cut"))


def test_what_a_program_starts_in_a_process_group_of_its_own_ends_with_it(node, tmp_path):
    """Open MPI's daemon does so with each rank, and one that is stopped heeds KILL alone."""
    script = (
        "set -m; sleep 3019 & until grep -qx sleep /proc/$!/comm; do :; done; "
        "kill -STOP $!; echo stopped; sleep 3020"
    )
    for how in (OwnedProcess.stop, lambda process: process._client.kill()):
        process = OwnedProcess.start(node, "launcher", ["bash", "-c", script], {}, tmp_path)
        until(lambda p=process: p.stdout.exists() and p.stdout.read_text() == "stopped\n")
        assert sleeping(node, 3019) == 1
        how(process)
        until(lambda: sleeping(node, 3019) + sleeping(node, 3020) == 0)


def test_what_a_killed_owner_left_is_stopped_by_the_next_driver(node, tmp_path):
    after = comes_after(node, "orphan")
    process = OwnedProcess.start(node, "orphan", ["sleep", "3005"], {}, tmp_path, after=after)
    until(lambda: sleeping(node, 3005) == 1)
    other = OwnedProcess.start(node, "held", ["sleep", "3006"], {}, tmp_path)
    until(lambda: sleeping(node, 3006) == 1)
    kill_owner_and_lifeline = """
    read -r child owner since <$(echo /run/nixwulf/*-orphan.pid)
    for status in $(grep -ls "^PPid:.$owner$" /proc/[0-9]*/status); do
      other=${status#/proc/}; other=${other%/status}
      [ "$other" = "$child" ] || kill -9 "$other"
    done
    kill -9 "$owner"
    """
    node.script(kill_owner_and_lifeline)
    assert sleeping(node, 3005) == 1
    assert [name.rpartition("-")[2] for name in stop_orphans(node)] == ["orphan.pid"]
    assert node.run(["test", "-e", "/tmp/orphan/after"]).returncode == 0
    until(lambda: sleeping(node, 3005) == 0)
    until(lambda: not process.running)
    assert sleeping(node, 3006) == 1, "a living owner's process is not an orphan"
    other.stop()


def test_a_stranger_that_got_an_orphans_number_is_left_alone(node):
    leave = """
    setsid sleep 3007 >/dev/null 2>&1 &
    mkdir -p -m 700 /run/nixwulf
    echo "$! 999999 12345" >/run/nixwulf/nixwulf-old.pid
    """
    node.script(leave)
    until(lambda: sleeping(node, 3007) == 1)
    assert stop_orphans(node) == []
    assert sleeping(node, 3007) == 1


def test_whatever_a_program_prints_is_bounded_and_its_end_is_kept(node, tmp_path):
    script = (
        "head -c 60000000 /dev/zero | tr '\\0' x; echo; echo nixwulf-exit:abc >&2; echo end; exit 3"
    )
    process = OwnedProcess.start(node, "endless", ["sh", "-c", script], {}, tmp_path)
    until(lambda: not process.running)
    assert process.returncode == 3
    assert process.stdout.stat().st_size < 9 * 2**20
    assert process.output.endswith("end\n")
    assert process.left_out > 50_000_000
    assert process.errors == "nixwulf-exit:abc\n"


def test_a_child_in_its_own_session_that_holds_the_output_ends_too(node, tmp_path):
    process = OwnedProcess.start(
        node, "daemon", ["sh", "-c", "setsid sleep 3021 & exit 0"], {}, tmp_path
    )
    until(lambda: not process.running)
    assert process.returncode == 0
    until(lambda: sleeping(node, 3021) == 0)


def test_no_command_line_shows_the_environment(node, tmp_path):
    secret = {"RAY_AUTH_TOKEN": "s3cr3t-of-a-test"}
    process = OwnedProcess.start(node, "secret", ["sleep", "3022"], secret, tmp_path)
    until(lambda: sleeping(node, 3022) == 1)
    assert node.script("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").count("s3cr3t") == 0
    assert "s3cr3t" not in " ".join(process._client.args)
    process.stop()


def test_a_strangers_state_folder_is_refused_and_nothing_in_it_runs(node):
    node.script("mv /run/nixwulf /run/was; mkdir -m 777 /run/nixwulf")
    try:
        with pytest.raises(NixwulfError, match="is not private to user"):
            stop_orphans(node)
    finally:
        node.script("rm -rf /run/nixwulf; mv /run/was /run/nixwulf")


def test_facts_of_a_node_are_its_own(nodes):
    facts = gather(nodes.values(), ["ping", "no-such-program"])
    assert [facts[name].hostname for name in ("n1", "n2")] == ["n1", "n2"]
    assert "ping" in facts["n1"].programs
    assert "no-such-program" not in facts["n1"].programs
    attachment = nodes["n2"].node.fabrics["plain"]
    assert attachment.address in facts["n2"].addresses
    assert facts["n2"].mtus[attachment.interface] == 1500


def test_nodes_exec_names_each_node_and_keeps_the_exit_code(nodes):
    result = CliRunner().invoke(cli, ["nodes", "exec", "--", "hostname"])
    assert result.exit_code == 0
    assert result.output.splitlines() == ["n1: n1", "n2: n2"]
    result = CliRunner().invoke(cli, ["nodes", "exec", "--node", "n2", "--", "false"])
    assert result.exit_code == 1


def test_nodes_exec_refuses_a_node_that_is_not_there(nodes):
    result = CliRunner().invoke(cli, ["nodes", "exec", "--node", "n9", "--", "true"])
    assert result.exit_code == 2
    assert "No node 'n9' in 'test'; known: n1, n2." in result.output
