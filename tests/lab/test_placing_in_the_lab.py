"""A model is brought to the nodes in a phase of its case: what fails there fails that alone."""

import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from lab_under_test import Silent, as_machines, cluster_of, desk, recorded

from nixwulf.inventory.cluster import Shape
from nixwulf.llm import gguf
from nixwulf.nodes import transfer
from nixwulf.nodes.ssh import connections
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.sweep import session as bench
from nixwulf.sweep.plan import make_plan, parse_sweep
from pair_sweep import SWEEP
from stand_in import put

FOLDER = '"$HOME/.cache/nixwulf/models"'
FULL = f"mkdir -p {FOLDER} && mount -t tmpfs -o size=64k none {FOLDER}"
EMPTY = f"umount {FOLDER}"
# Who writes to it waits, as for a disk that stalls.
STALL = f'mkdir -p {FOLDER} && mkfifo {FOLDER}/"$1.part"'
FLOW = f'timeout 5 cat {FOLDER}/"$1.part" >/dev/null; rm -f {FOLDER}/"$1.part"'
STILL_S = 2.0
WALL_S = 8


def plan_for(cluster, layers, **changes):
    matrix = {"nodes": [1], "parallelism": ["single"]}
    matrix |= {"model": ["tiny"], "parameters": {"n_prompt": [16], "n_gen": [4], "threads": [1]}}
    document = {
        "name": "placing",
        "models": {"tiny": {"random": {"layers": layers}}},
        "matrix": matrix,
        "samples": 1,
        "limits": {"wall_s": 60, "progress_s": 10},
        **changes,
    }
    return make_plan(parse_sweep(document, "placing.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with bench.session(plan_for(cluster, 2), Silent()) as connected:
        yield connected


def test_a_node_without_space_fails_the_case_and_leaves_no_part_of_a_model(
    nodes, cluster, tmp_path
):
    plan = plan_for(cluster, 3)
    nodes.nodes["n1"].script(FULL)
    try:
        left = f"ls -A {FOLDER}"
        record = recorded(nodes, tmp_path / "full", "true", plan)
        assert nodes.nodes["n1"].script(left) == ""
    finally:
        nodes.nodes["n1"].script(EMPTY)
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "model")
    assert "No space left" in record["failure"]["reason"]
    assert "to node 'n1'" in record["failure"]["reason"]
    assert recorded(nodes, tmp_path / "then", "true", plan)["outcome"] == "ok"


def test_the_time_that_a_model_takes_is_in_the_record(nodes, cluster, tmp_path):
    record = recorded(nodes, tmp_path, "true", plan_for(cluster, 4))
    assert record["outcome"] == "ok"
    assert record["phases"]["model"] > 0


def test_a_disk_that_stalls_fails_the_case(nodes, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_STILL_S", STILL_S)
    plan, head = plan_for(cluster, 5), nodes.nodes["n1"]
    name = gguf.ensure(plan.sweep.models["tiny"].random).name
    head.script(STALL, name)
    begin = time.monotonic()
    record = bench.run_one(nodes, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
    assert time.monotonic() - begin < STILL_S + 20
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "model")
    assert "to node 'n1': nothing moved for 2 s (" in record["failure"]["reason"]
    assert " MB were sent)." in record["failure"]["reason"]
    head.script(FLOW, name)
    assert recorded(nodes, tmp_path / "then", "true", plan)["outcome"] == "ok"


def test_a_copy_whose_ssh_dies_leaves_nothing_that_passes_for_the_whole(nodes, tmp_path):
    head, large = nodes.nodes["n1"], tmp_path / "large"
    large.write_bytes(bytes(200_000_000))

    def interrupt(sent, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer.put(head, large, "/tmp/large/model", interrupt)
    wait = 'while [ -e "$1.part" ] && [ $((n += 1)) -lt 200 ]; do sleep 0.1; done; '
    wait += 'ls -A "${1%/*}" 2>/dev/null; :'  # the folder may not have been made yet
    assert head.script(wait, "/tmp/large/model") == ""


@pytest.mark.parametrize(("phase", "muted"), [("gates", "*"), ("link", "*' -s 56 '*")])
def test_a_mute_ping_ends_with_the_run_s_time(bring_up, tmp_path, phase, muted):
    script = f'case "$*" in {muted}) exec sleep 1000 ;; esac; exec {shutil.which("ping")} "$@"'
    programs = put(tmp_path / "bin", "ping", script).parent
    machines = cluster_of(2, cable=Shape())
    document = {
        "name": "mute",
        "matrix": {"benchmark": ["iperf3"], "nodes": [2], "fabric": ["cable"]},
        "limits": {"wall_s": WALL_S, "progress_s": 60},
    }
    plan = make_plan(parse_sweep(document, "mute.yaml"), machines)
    running = bring_up(machines, "mute", path=[programs])
    try:
        nodes = connections(machines, running.lab.ssh_config)
        session = bench.Session(machines, nodes, running.lab)
        begin = time.monotonic()
        record = bench.run_one(session, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
        took = time.monotonic() - begin
    finally:
        running.lab.down()
    assert (record["outcome"], record["failure"]["phase"]) == ("timeout", phase)
    assert f"The run took longer than {WALL_S} s." in record["failure"]["reason"]
    assert WALL_S <= took < WALL_S + 10


@pytest.fixture
def machines(bring_up, tmp_path):
    """A lab whose nodes are a cluster of one's own, and a command that benches it."""
    programs = ENGINE.install_local(lambda step, share: None).programs.values()
    running = bring_up(
        cluster_of(2, cable=Shape()), "placing", path=sorted({one.parent for one in programs})
    )
    environment = desk(running, tmp_path)
    own = tmp_path / "own.toml"
    own.write_text(as_machines(running.lab.cluster))
    (tmp_path / "own.yaml").write_text(SWEEP)

    def start(*more):
        command = [sys.executable, "-m", "nixwulf", "bench", tmp_path / "own.yaml"]
        return subprocess.Popen(
            [*map(str, command), "--cluster", str(own), "--out", str(tmp_path / "run"), *more],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    yield running, start
    running.lab.down()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_a_model_is_copied_ends_the_driver(machines, number):
    running, start = machines
    model = parse_sweep(yaml.safe_load(SWEEP), "own.yaml").models["tiny"]
    stalled = gguf.ensure(model.random).name
    running.out("n1", f"set -- '{stalled}'; {STALL}")
    process = start()
    # The look is not what it looks for.
    copying = f"grep -ls '[/]{stalled}' /proc/[0-9]*/cmdline || true"
    deadline = time.monotonic() + 60
    while not running.out("n1", copying):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
    begin = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    took = time.monotonic() - begin
    assert process.returncode == 130, errors
    assert "Interrupted: 0 of 1 runs are kept" in errors
    assert took < 5
