"""The model's copy is a phase of its case: what fails there is a record, and the sweep goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from lab_under_test import Silent, cluster_of
from test_own_cluster import NODE
from test_runs import plan_for

from nixwulf.inventory.cluster import Shape
from nixwulf.llm import random_gguf
from nixwulf.nodes import transfer
from nixwulf.nodes.ssh import connections
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.sweep import session as bench
from nixwulf.sweep.placing import Models
from nixwulf.sweep.plan import make_plan
from nixwulf.sweep.sweep_file import parse_sweep
from pair_sweep import SWEEP
from stand_in import put

FOLDER = "$HOME/.cache/nixwulf/models"
STILL_S = 2.0
WALL_S = 8
FULL = f'mount -t tmpfs -o size=64k none "{FOLDER}"'
# Who writes to it waits, as for a disk that stalls.
STALL = f'mkdir -p "{FOLDER}"; rm -f "{FOLDER}/$1"; mkfifo "{FOLDER}/$1.part"'
FLOW = f'timeout 5 cat "{FOLDER}/$1.part" >/dev/null; rm -f "{FOLDER}/$1.part"'


@pytest.fixture(scope="module")
def plan(cluster):
    return plan_for(cluster, matrix={"nodes": [1], "parallelism": ["single"]})


@pytest.fixture(scope="module")
def name(plan):
    return random_gguf.ensure(plan.sweep.models["tiny"].random).name


@pytest.fixture(scope="module")
def session(plan):
    with bench.session(plan, Silent()) as connected:
        yield connected


@pytest.fixture
def head(session):
    """A node that has no model yet."""
    session.models = Models()
    node = session.nodes["n1"]
    node.script(f'mkdir -p "{FOLDER}" && rm -rf "{FOLDER}"/*')
    return node


@pytest.fixture
def recorded(session, plan, tmp_path):
    return lambda: bench.run_one(session, plan, tmp_path, plan.cases[0], 0, lambda phase: None)


def test_a_node_whose_disk_is_full_fails_its_case_and_the_next_is_ok(head, recorded, name):
    head.script(FULL)
    try:
        record = recorded()
        left = head.script(f'ls -A "{FOLDER}"')
    finally:
        head.script(f'umount "{FOLDER}"')
    assert left == "", "a part of it fills the disk"
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "model")
    assert f"/{name}' to node 'n1': cat: " in record["failure"]["reason"]
    assert "No space left on device" in record["failure"]["reason"]
    assert record["phases"].keys() == {"model", "teardown", "engine"}
    after = recorded()
    assert after["outcome"] == "ok", after.get("failure")
    assert after["phases"]["model"] > 0


def test_a_disk_that_stalls_fails_its_case(head, recorded, name, monkeypatch):
    monkeypatch.setattr(transfer, "_STILL_S", STILL_S)
    head.script(STALL, name)
    begin = time.monotonic()
    record = recorded()
    assert time.monotonic() - begin < STILL_S + 20
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "model")
    assert "to node 'n1': nothing moved for 2 s (" in record["failure"]["reason"]
    assert " MB were sent)." in record["failure"]["reason"]
    head.script(FLOW, name)
    after = recorded()
    assert after["outcome"] == "ok", after.get("failure")


def test_a_copy_whose_ssh_dies_leaves_nothing_that_passes_for_the_whole(head, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(bytes(200_000_000))

    def interrupt(sent, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer.put(head, large, "/tmp/large/model", interrupt)
    wait = 'while [ -e "$1.part" ] && [ $((n += 1)) -lt 200 ]; do sleep 0.1; done; ls -A "${1%/*}"'
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
    wrapper = put(
        tmp_path / "bin", "ssh", f'exec {shutil.which("ssh")} -F {running.lab.ssh_config} "$@"'
    )
    own = tmp_path / "own.toml"
    text = (
        'name = "own"\n[fabrics.cable]\nkind = "ethernet"\nspeed_gbps = 10\nmtu = 1500\n'
        'subnet = "10.90.0.0/24"\n'
    )
    for node in running.lab.cluster.nodes:
        place = node.fabrics["cable"]
        text += NODE.format(
            name=node.name,
            platform="generic-x86_64",
            ssh=node.name,
            interface=place.interface,
            address=place.address,
        )
    own.write_text(text)
    (tmp_path / "own.yaml").write_text(SWEEP)

    def start(*more):
        command = [sys.executable, "-m", "nixwulf", "bench", tmp_path / "own.yaml"]
        return subprocess.Popen(
            [*map(str, command), "--cluster", str(own), "--out", str(tmp_path / "run"), *more],
            env={**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"},
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
    stalled = random_gguf.ensure(model.random).name
    running.out("n1", f"set -- {stalled}; {STALL}")
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
