"""A node that loses its power: its packets stop, and neither RST nor FIN says so."""

import os
import shutil
import subprocess
import threading
import time

import pytest
from lab_under_test import Silent, cluster_of, processes_of

from nixwulf.inventory.cluster import Shape, parse_cluster
from nixwulf.nodes import ssh
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE
from nixwulf.results.record import load, save
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep
from stand_in import put

PROGRESS_S = 4
KEEPALIVE_S = 2
# docs/nix.md has 90, of which ssh's keepalive takes three intervals; here they are short.
BEYOND_S = 90 - 3 * (ssh.KEEPALIVE_S - KEEPALIVE_S)


@pytest.fixture
def machines(bring_up, tmp_path, monkeypatch):
    """A lab whose nodes are reached as machines are: with the driver's own settings of ssh."""
    if os.getuid() != 0:
        pytest.skip("only root enters another process's network namespace")
    running = bring_up(cluster_of(2, cable=Shape()), "vanished")
    wrapper = put(tmp_path / "bin", "ssh", _ssh(running))
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh, "KEEPALIVE_S", KEEPALIVE_S)
    yield running
    running.lab.down()


def _ssh(running):
    return f'exec {shutil.which("ssh")} -F {running.lab.ssh_config} "$@"'


def cluster_of_machines(running):
    places = {node.name: node.fabrics["cable"] for node in running.lab.cluster.nodes}
    fabric = {"kind": "ethernet", "speed_gbps": 10, "mtu": 1500, "subnet": "10.90.0.0/24"}
    nodes = [
        {
            "name": name,
            "platform": "generic-x86_64",
            "ssh": name,
            "fabrics": {"cable": {"interface": place.interface, "address": place.address}},
        }
        for name, place in places.items()
    ]
    document = {"name": "own", "fabrics": {"cable": fabric}, "nodes": nodes}
    return parse_cluster(document, "own.toml")


def long_plan(running):
    document = {
        "name": "vanished",
        "matrix": {
            "benchmark": ["iperf3"],
            "nodes": [2],
            "fabric": ["cable"],
            "parameters": {"seconds": [200]},
        },
        "samples": 1,
        "limits": {"wall_s": 400, "progress_s": PROGRESS_S},
    }
    return make_plan(parse_sweep(document, "vanished.yaml"), cluster_of_machines(running))


def vanish(running, name):
    """Take all links of a node down, as this machine's root: no process of the node hears of it."""
    for process_id in processes_of(running.lab):
        enter = ["nsenter", "--target", str(process_id), "--uts", "--net"]
        done = subprocess.run([*enter, "hostname"], capture_output=True, text=True, check=False)
        if done.stdout.strip() == name:
            for link in (MANAGEMENT_INTERFACE, "cable"):
                subprocess.run([*enter, "ip", "link", "set", link, "down"], check=True)
            return
    pytest.fail(f"{name} has no process")


def once_streaming(folder, action):
    """Do something once the server of the run has counted two intervals of its stream."""

    def watch():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for log in folder.glob("raw/*/iperf3-server-*.stdout"):
                if log.read_text(errors="replace").count("bits/sec") > 1:
                    action()
                    return
            time.sleep(0.05)

    return lambda phase: phase == "measure" and threading.Thread(target=watch, daemon=True).start()


@pytest.mark.parametrize("name", ["n2", "n1"])
def test_a_node_that_vanishes_in_a_run_leaves_a_record_in_bounded_time(machines, tmp_path, name):
    plan, vanished = long_plan(machines), []

    def lose():
        vanish(machines, name)
        vanished.append(time.monotonic())

    with session.session(plan, Silent()) as connected:
        on_phase = once_streaming(tmp_path, lose)
        record = session.run_one(connected, plan, tmp_path, plan.cases[0], 0, on_phase)
        ended = time.monotonic()
        save(record, path := tmp_path / "record.json")
        assert load(path)["failure"]["phase"] == "measure"
        assert record["outcome"] in {"failed", "hang"}
        assert repr(name) in record["failure"]["reason"]
        assert ended - vanished[0] < PROGRESS_S + BEYOND_S
        left = connected.nodes["n1" if name == "n2" else "n2"]
        assert left.script("grep -ls iperf3 /proc/[0-9]*/comm || true") == ""
        again = session.run_one(connected, plan, tmp_path, plan.cases[0], 1, lambda phase: None)
        assert again["failure"]["phase"] == "facts"
        assert f"Node {name!r} did not answer" in again["failure"]["reason"]
        assert time.monotonic() - ended < BEYOND_S
