"""Bringing nodes back: a lab's nodes as machines, with a real sshd that stops and comes again.

The nodes have no systemd and do not boot: 'systemctl' is a stand-in that stops sshd for a while and
gives the node another boot id. That a machine does more is only asserted by what is called.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from deploy_under_test import Desk
from lab_under_test import Running, cluster_of, processes_of

from nixwulf.cli.bench import _report
from nixwulf.core.errors import EXIT_GATE
from nixwulf.inventory.cluster import Shape, load_cluster
from nixwulf.nodes import lab
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import connections
from nixwulf.ops.recover import Recovered
from nixwulf.results.record import load
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep, save_plan
from stand_in import put

# Each boot has its own id, and a boot repairs what a test broke.
REBOOT = r"""
set -e
mkdir -p /run/current-system/sw/bin /run/ids
cat >/run/current-system/sw/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >>/run/ids/calls
setsid sh -c 'pkill -STOP -o sshd; [ "$1" = reboot ] || exit; sleep 3
  cat /proc/sys/kernel/random/uuid >/run/ids/boot
  mountpoint -q /proc/sys/kernel/random/boot_id ||
    mount --bind /run/ids/boot /proc/sys/kernel/random/boot_id
  ip link set cable mtu 1500
  pkill -CONT sshd' sh "$1" </dev/null >/dev/null 2>&1 &
END
chmod +x /run/current-system/sw/bin/systemctl
rm -f /run/ids/calls
"""


# hand-made: no builds of these numbers are at hand
# (form: https://github.com/ggml-org/llama.cpp/blob/b9270/common/arg.cpp)
OTHER_VERSIONS = 'echo "version: 640$(hostname | tr -dc 0-9) (c1c3d15)"'


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def machines(bring_up, programs):
    if os.getuid() != 0:
        pytest.skip("only root gives a node another boot id, and this lab's user is not root")
    running = bring_up(cluster_of(2, cable=Shape()), "recover", path=[programs])
    yield running
    running.lab.down()


@pytest.fixture
def desk(machines, tmp_path):
    made = Desk.make(machines, tmp_path)
    for node in ("n1", "n2"):
        made.shell(node, REBOOT)
    yield made
    made.close()


def boot_of(desk, node):
    return desk.shell(node, "cat /proc/sys/kernel/random/boot_id").strip()


def calls(desk, node):
    return desk.shell(node, "cat /run/ids/calls 2>/dev/null || true").split()


def sleeping(machines, tmp_path, node="n1"):
    """A process that the driver owns on a node."""
    found = connections(machines.lab.cluster, machines.lab.ssh_config)
    return OwnedProcess.start(found[node], "sleeper", ["sleep", "600"], {}, tmp_path / "left")


def listener_of(machines, node):
    """The sshd of a node that takes its connections, as this machine knows it."""
    found = processes_of(machines.lab)
    return next(pid for pid in found if _listens(pid) and _is_on(pid, node))


def _listens(pid):
    return "[listener]" in Path(f"/proc/{pid}/cmdline").read_text()


def _is_on(pid, node):
    command = ["nsenter", "--target", str(pid), "--uts", "hostname"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip() == node


def test_status_says_who_answers_and_what_runs_there(desk, machines, tmp_path):
    process = sleeping(machines, tmp_path)
    try:
        file = desk.cluster(ssh=("n1", "nowhere"))
        done = desk.nixwulf("preflight", "--only", "status", "--cluster", file)
    finally:
        process.stop()
    assert done.returncode == 3
    first, second = done.stdout.splitlines()
    assert first.startswith("n1: up for ")
    assert first.endswith(", runs nixwulf-left-sleeper-n1") or "sleeper" in first
    assert second.startswith("n2: does not answer: ")


def test_reboot_waits_until_every_node_answers_from_another_boot(desk):
    before = {node: boot_of(desk, node) for node in ("n1", "n2")}
    done = desk.nixwulf("nodes", "reboot", "--cluster", desk.cluster())
    assert done.returncode == 0, done.stderr
    assert {"n1: is back", "n2: is back"} <= set(done.stderr.splitlines())
    assert all(boot_of(desk, node) != before[node] for node in before)
    assert calls(desk, "n1") == ["reboot"]


def test_where_a_node_is_silent_no_other_goes_down(desk):
    done = desk.nixwulf("nodes", "reboot", "--cluster", desk.cluster(ssh=("n1", "nowhere")))
    assert done.returncode == 1
    assert "Node 'n1' is not rebooted: nothing was done, because n2 is silent" in done.stderr
    assert calls(desk, "n1") == []


def test_a_node_that_is_shut_down_is_waited_for_until_it_is_silent(desk, machines):
    file = desk.cluster()
    listener = listener_of(machines, "n2")
    try:
        done = desk.nixwulf("nodes", "shutdown", "--cluster", file, "--node", "n2", "--yes")
    finally:
        os.kill(listener, signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    assert calls(desk, "n2") == ["poweroff"]
    assert calls(desk, "n1") == []


def test_shutting_down_asks_first(desk):
    done = desk.nixwulf("nodes", "shutdown", "--cluster", desk.cluster())
    assert done.returncode != 0
    assert calls(desk, "n1") == []


def test_a_stopped_process_of_the_driver_is_ended_first_and_that_is_enough(
    desk, machines, tmp_path
):
    process = sleeping(machines, tmp_path)
    desk.shell("n1", 'until pkill -STOP -fx "sleep 600"; do sleep 0.1; done')
    done = desk.nixwulf("nodes", "recover", "--cluster", desk.cluster(), "--node", "n1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "n1: recovered by 'stop'.\n"
    assert "sleeper" in done.stderr
    process.stop()
    assert desk.shell("n1", 'pgrep -fx "sleep 600" || true') == ""


def test_what_a_reboot_repairs_is_recovered_by_one(desk):
    file = desk.cluster()
    desk.shell("n1", "ip link set cable mtu 1400")
    soft = desk.nixwulf("nodes", "recover", "--cluster", file, "--node", "n1", "--up-to", "stop")
    assert soft.returncode == 1
    assert "n1: not recovered: Node 'n1' has MTU 1400 on 'cable'" in soft.stderr
    done = desk.nixwulf("nodes", "recover", "--cluster", file, "--node", "n1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "n1: recovered by 'reboot'.\n"


def test_no_node_is_rebooted_for_the_version_of_an_engine(desk, programs):
    places = [put(programs, name) for name in ("llama-bench", "ggml-rpc-server")]
    places.append(put(programs, "llama-server", OTHER_VERSIONS))
    try:
        held = desk.nixwulf("preflight", "--cluster", desk.cluster())
        assert "refused by versions: Node 'n2' has llama.cpp 'version: 6402" in held.stdout
        done = desk.nixwulf("nodes", "recover", "--cluster", desk.cluster(), "--node", "n2")
        assert done.stdout == "n2: recovered by 'stop'.\n", done.stderr
        assert calls(desk, "n2") == []
    finally:
        for place in places:
            place.unlink()


def test_a_node_that_does_not_answer_has_its_power_switched(desk, machines):
    listener = listener_of(machines, "n2")
    switch = put(desk.folder, "switch", f"kill -CONT {listener}")
    file = desk.cluster(more=f'power_switch = {{ kind = "command", command = ["{switch}"] }}\n')
    os.kill(listener, signal.SIGSTOP)
    try:
        done = desk.nixwulf(
            "nodes", "recover", "--cluster", file, "--node", "n2", "--timeout", "20"
        )
    finally:
        os.kill(listener, signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "n2: recovered by 'power'.\n"
    assert "n2: does not answer, and may be booting: waiting up to 20 s" in done.stderr
    assert "n2: reboot: n2: " in done.stderr


def test_a_node_that_is_still_booting_is_waited_for_and_needs_no_step(desk, machines):
    listener = listener_of(machines, "n2")
    os.kill(listener, signal.SIGSTOP)
    try:
        recover = ("nodes", "recover", "--cluster", desk.cluster(), "--node", "n2")
        process = desk.start_until("n2: does not answer, and may be booting", *recover)
    finally:
        os.kill(listener, signal.SIGCONT)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (0, "n2: recovered by 'stop'.\n"), errors
    assert errors.splitlines() == ["n2: answers", "n2: stop: all gates hold"]
    assert calls(desk, "n2") == []


class Stopping:
    """An observer that stops the RPC server of the first run, and keeps what it is told."""

    def __init__(self):
        self.steps = []
        self.runs = 0

    def step(self, words):
        self.steps.append(words)

    def building(self, step, share):
        pass

    def sweep_starts(self, runs):
        pass

    def run_starts(self, case, repetition):
        self.runs += 1

    def phase_starts(self, phase):
        if phase == "measure" and self.runs == 1:
            (up,) = (one for one in lab.labs() if one.name.startswith("bench-"))
            Running(up).out("n2", "pkill -STOP rpc-server")

    def run_ends(self, record, seconds):
        pass


def plan_of_a_hang():
    document = {
        "name": "hang",
        "models": {"tiny": {"random": {"layers": 2}}},
        "matrix": {
            "model": ["tiny"],
            "nodes": [2],
            "fabric": ["rdma-like"],
            "parallelism": ["pipeline"],
            "parameters": {"n_prompt": [16], "n_gen": [8], "threads": [1]},
        },
        "samples": 1,
        "repetitions": 2,
        "on_hang": "recover",
        "limits": {"wall_s": 120, "progress_s": 6},
    }
    return make_plan(parse_sweep(document, "hang.yaml"), load_cluster("lab"))


def test_a_sweep_goes_on_after_it_has_recovered_the_nodes_of_a_hang(tmp_path):
    observer = Stopping()
    begin = time.monotonic()
    session.run_plan(plan_of_a_hang(), tmp_path, observer)
    outcomes = [load(path)["outcome"] for path in sorted(tmp_path.glob("records/*.json"))]
    assert outcomes == ["hang", "ok"], time.monotonic() - begin
    assert "Recovering n1, n2 after a hang" in observer.steps
    assert "n1: stop: all gates hold" in observer.steps


def test_a_sweep_whose_nodes_do_not_come_back_ends_with_its_report_and_exit_3(
    tmp_path, monkeypatch, capsys
):
    lost = Recovered(("n1", "n2"), None, "None of the steps helped.")
    monkeypatch.setattr(session, "recover", lambda *_, **__: [lost])
    plan = plan_of_a_hang()
    save_plan(plan, tmp_path / "plan.json")
    stopped = session.run_plan(plan, tmp_path, Stopping())
    (path,) = tmp_path.glob("records/*.json")
    assert load(path)["outcome"] == "hang"
    assert _report(tmp_path, stopped, None, None) == EXIT_GATE
    written = capsys.readouterr()
    assert "n1, n2 cannot be recovered: None of the steps helped." in written.err
    assert f"Report: {tmp_path / 'report.html'}" in written.out
