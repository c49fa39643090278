"""One driver a run folder and one a node, with real drivers, real sshd and real ends of both."""

import os
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner
from lab_under_test import as_machines, cluster_of, desk

from nixwulf.cli.main import cli
from nixwulf.core.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, GateError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.process import Hold, OwnedProcess, holding, stop_owned
from nixwulf.nodes.ssh import connections, open_all
from nixwulf.ops.recover import state
from nixwulf.results.record import load

SWEEP = """
name: NAME
matrix: {benchmark: [iperf3], nodes: [2], fabric: [cable], parameters: {seconds: [SECONDS]}}
samples: 1
"""
LOCKS = "ls /run/nixwulf 2>/dev/null || true"


@pytest.fixture(scope="module")
def machines(bring_up):
    running = bring_up(cluster_of(2, cable=Shape()), "locks")
    yield running
    running.lab.down()


@pytest.fixture
def nodes(machines):
    found = connections(machines.lab.cluster, machines.lab.ssh_config)
    assert open_all(found.values()) == {}
    yield found
    for node in found.values():
        assert node.script(LOCKS) == ""


@pytest.fixture
def drive(machines, tmp_path):
    """Start a driver at a desk whose ssh reaches the lab's nodes as machines."""
    environment = desk(machines, tmp_path)
    (tmp_path / "own.toml").write_text(as_machines(machines.lab.cluster))
    started = []

    def start(*arguments):
        one = subprocess.Popen(
            [sys.executable, "-m", "nixwulf", *map(str, arguments)],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(one)
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture
def bench(drive, tmp_path):
    def start(name, seconds):
        text = SWEEP.replace("NAME", name).replace("SECONDS", str(seconds))
        (tmp_path / f"{name}.yaml").write_text(text)
        sweep, folder = tmp_path / f"{name}.yaml", tmp_path / name
        return drive("bench", sweep, "--cluster", tmp_path / "own.toml", "--out", folder)

    return start


def end(one, expected):
    output = one.communicate(timeout=120)[0]
    assert one.returncode == expected, output
    return " ".join(output.split())


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs_iperf3(node):
    return node.script("grep -ls iperf3 /proc/[0-9]*/comm || true") != ""


def outcomes(folder):
    return [load(path)["outcome"] for path in sorted((folder / "records").glob("*.json"))]


def test_a_second_driver_on_the_nodes_or_in_the_folder_is_refused_until_the_first_ends(
    nodes, bench, drive, tmp_path
):
    first = bench("first", 90)
    until(lambda: runs_iperf3(nodes["n2"]))
    same_folder = drive("bench", "--resume", tmp_path / "first")
    other = bench("second", 1)
    words = end(same_folder, EXIT_USAGE)
    assert "first' is in use by user '" in words
    assert f"or end it with 'kill {first.pid}'." in words
    words = end(other, EXIT_GATE)
    assert "is in use: sweep 'first' (" in words
    assert f"process {first.pid} at " in words
    assert "nixwulf nodes recover --up-to stop" in words
    assert outcomes(tmp_path / "second") == []
    assert first.poll() is None
    assert runs_iperf3(nodes["n2"])
    first.terminate()
    end(first, EXIT_INTERRUPTED)
    assert not (tmp_path / "first/.lock").exists()


def test_a_driver_that_is_killed_keeps_nobody_from_nodes_and_folder(nodes, bench, drive, tmp_path):
    first = bench("first", 3)
    until(lambda: runs_iperf3(nodes["n2"]))
    first.kill()
    end(drive("bench", "--resume", tmp_path / "first"), EXIT_OK)
    assert outcomes(tmp_path / "first") == ["ok"]


def test_of_two_drivers_that_begin_at_once_one_gets_all_nodes(nodes):
    holds = [Hold(f"sweep {n}") for n in range(2)]
    begin, answers = threading.Barrier(2), []

    def take(hold):
        begin.wait()
        try:
            hold.take(nodes.values())
            answers.append("holds")
        except GateError as error:
            answers.append(error.message)

    for _ in range(3):
        answers.clear()
        threads = [threading.Thread(target=take, args=(hold,)) for hold in holds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers[0] == "holds"
        assert "is in use: sweep " in answers[1]
        (refused,) = (hold for hold in holds if not hold._channels)
        holds.remove(refused)
        assert len(holds[0]._channels) == len(nodes)
        holds.append(refused)
        for hold in holds:
            hold.release()


def test_a_shell_that_was_killed_on_the_node_holds_it_no_longer(nodes):
    with holding(nodes.values(), "first"):
        nodes["n1"].script("read -r shell _ </run/nixwulf/n1.1.lock; kill -9 $shell")
        with holding([nodes["n1"]], "second"):
            assert "second (" in state(nodes["n1"]).sentence()


def test_a_lock_whose_process_number_is_by_now_a_strangers_holds_nothing(nodes):
    leave = """
    mkdir -p -m 700 /run/nixwulf; sleep 3100 >/dev/null 2>&1 &
    printf '%s\\n' "$! $! 12345" "sweep 'old'" >/run/nixwulf/n1.1.lock; echo $!
    """
    stranger = nodes["n1"].script(leave).strip()
    try:
        with holding(nodes.values(), "second"):
            assert nodes["n1"].run(["kill", "-0", stranger]).returncode == 0
    finally:
        nodes["n1"].run(["kill", stranger])


def test_a_link_of_a_lab_on_which_a_sweep_runs_is_not_changed(machines, nodes):
    words = ["lab", "link", "cable", "--name", "locks", "--delay-us", "700"]
    before = machines.lab.shape("cable")
    with holding(nodes.values(), "sweep 'first'"):
        refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == EXIT_GATE
    assert "is in use: sweep 'first' (" in refused.output
    assert machines.lab.shape("cable") == before
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == EXIT_OK, done.output
    assert machines.lab.shape("cable").delay_us == 700


def test_who_holds_a_node_is_shown_and_stopping_all_lets_go(nodes, tmp_path):
    hold = Hold("sweep 'first'")
    hold.take(nodes.values())
    process = OwnedProcess.start(nodes["n1"], "server", ["sleep", "3101"], {}, tmp_path / "run")
    until(lambda: "server" in state(nodes["n1"]).sentence())
    assert f"sweep 'first' ({os.environ.get('USER', 'root')}, process {os.getpid()} at " in (
        state(nodes["n1"]).sentence()
    )
    stopped = stop_owned(nodes["n1"])
    assert [name for name in stopped if name.startswith("sweep 'first' (")]
    with holding([nodes["n1"]], "second"):
        pass
    process.stop()
    hold.release()
