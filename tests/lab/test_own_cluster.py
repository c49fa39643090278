"""A cluster of one's own: the nodes of a lab, reached as machines are, through the user's ssh.

OpenSSH finds the user's config by the password file, so a wrapper named ssh stands for it here.
"""

import json
import re
import subprocess
import sys

import pytest
from lab_under_test import cluster_of, desk

from nixwulf.inventory.cluster import Shape
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.plugins.gates import all_gates
from nixwulf.results.record import load
from pair_sweep import SWEEP

NODE = """
[[nodes]]
name = "{name}"
platform = "{platform}"
ssh = "{ssh}"
fabrics.cable = {{ interface = "{interface}", address = "{address}" }}
"""


@pytest.fixture(scope="module")
def machines(bring_up):
    programs = ENGINE.install_local(lambda step, share: None).programs.values()
    cluster = cluster_of(2, cable=Shape(delay_us=200))
    running = bring_up(cluster, "machines", path=sorted({program.parent for program in programs}))
    yield running
    running.lab.down()


@pytest.fixture
def nixwulf(machines, tmp_path):
    environment = desk(machines, tmp_path)

    def run(*arguments):
        command = [sys.executable, "-m", "nixwulf", *map(str, arguments)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.fixture
def own(machines, tmp_path):
    def write(mtu=1500, ssh=("n1", "n2"), address=None, platform="generic-x86_64"):
        text = (
            f'name = "own"\n[fabrics.cable]\nkind = "ethernet"\nspeed_gbps = 10\nmtu = {mtu}\n'
            'subnet = "10.90.0.0/24"\n'
        )
        for name, host in zip(("left", "right"), ssh, strict=True):
            node = {"left": "n1", "right": "n2"}[name]
            place = {n.name: n for n in machines.lab.cluster.nodes}[node].fabrics["cable"]
            text += NODE.format(
                name=name,
                platform=platform,
                ssh=host,
                interface=place.interface,
                address=address if address and name == "right" else place.address,
            )
        path = tmp_path / "own.toml"
        path.write_text(text)
        return path

    return write


def test_a_cluster_that_is_as_its_file_says_passes_by_either_name_of_the_check(nixwulf, own):
    done = nixwulf("preflight", "--cluster", own(), "--gate", "fabric", "--gate", "versions")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["gate", "ssh", "fabric", "versions"]
    earlier = nixwulf("cluster", "check", own())
    assert earlier.returncode == 0, earlier.stderr
    assert done.stdout in earlier.stdout
    assert "All 2 nodes answer and are on their fabrics." in earlier.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mtu": 9000}, "Node 'left' has MTU 1500 on 'cable'"),
        ({"address": "10.90.0.99"}, "Node 'right' does not have the address '10.90.0.99'"),
        ({"ssh": ("n1", "no-such-host")}, "Node 'right' cannot be reached: "),
    ],
)
def test_what_is_not_as_the_file_says_is_named_and_exits_3(nixwulf, own, changes, message):
    for words in (("preflight", "--gate", "fabric", "--cluster"), ("cluster", "check")):
        done = nixwulf(*words, own(**changes))
        assert done.returncode == 3, done.stderr
        assert message in done.stdout
    file_alone = nixwulf("preflight", "--only", "file", "--cluster", own(**changes))
    assert file_alone.returncode == 0


def test_preflight_holds_every_gate_and_prints_json(nixwulf, own):
    done = nixwulf("preflight", "--cluster", own(), "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document.keys() == {"schema_version", "cluster", "passed", "results"}
    assert document["passed"]
    states = {(r["gate"], r["node"]): r["state"] for r in document["results"]}
    assert {gate for gate, _ in states} == {"ssh", *all_gates()}
    assert states["fabric", "left"] == states["path-mtu", "right"] == "ok"


def test_preflight_exits_3_unless_what_refuses_is_waived(nixwulf, own):
    done = nixwulf("preflight", "--cluster", own(mtu=1400))
    assert done.returncode == 3
    assert re.search(r"^gate +left +right$", done.stdout, re.MULTILINE)
    assert re.search(r"^fabric +REFUSED +REFUSED$", done.stdout, re.MULTILINE)
    assert "refused by fabric: Node 'left' has MTU 1500 on 'cable'" in done.stdout
    waived = nixwulf("preflight", "--cluster", own(mtu=1400), "--waive", "fabric")
    assert waived.returncode == 0, waived.stdout + waived.stderr
    assert "waived by fabric: Node 'left' has MTU 1500" in waived.stdout


def test_preflight_says_of_a_node_that_does_not_answer_that_it_does_not(nixwulf, own):
    done = nixwulf("preflight", "--cluster", own(ssh=("n1", "no-such-host")))
    assert done.returncode == 3
    assert re.search(r"^ssh +ok +REFUSED$", done.stdout, re.MULTILINE)
    assert "Node 'right' cannot be reached: " in done.stdout


def test_nodes_exec_reaches_them(nixwulf, own):
    done = nixwulf("nodes", "exec", "--cluster", own(), "--", "hostname")
    assert done.stdout.splitlines() == ["left: n1", "right: n2"]


def test_a_sweep_runs_on_them(nixwulf, own, tmp_path):
    (tmp_path / "own.yaml").write_text(SWEEP)
    folder = tmp_path / "run"
    done = nixwulf("bench", tmp_path / "own.yaml", "--cluster", own(), "--out", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (folder / "records").glob("*.json")
    record = load(path)
    assert record["outcome"] == "ok"
    assert record["cluster"] == {"name": "own", "platforms": ["generic-x86_64"], "lab": False}
    assert "shaped_by" not in record["fabric"]
    assert record["fabric"]["links"][0]["rtt_before"]["median"] > 300


def test_a_gate_that_refuses_ends_in_exit_3_with_a_record_that_says_why(nixwulf, own, tmp_path):
    (tmp_path / "own.yaml").write_text(SWEEP)
    folder = tmp_path / "run"
    cluster = own(mtu=9000)
    done = nixwulf("bench", tmp_path / "own.yaml", "--cluster", cluster, "--out", folder)
    assert done.returncode == 3, done.stdout + done.stderr
    (path,) = (folder / "records").glob("*.json")
    assert "Gate 'fabric': Node 'left' has MTU 1500" in load(path)["failure"]["reason"]


# What a namespace on this machine is not: a Strix Halo with its kernel and its GPU.
NOT_HERE = ("gpu", "gtt", "kernel", "governor", "known-bad", "memory", "usb4")


@pytest.mark.parametrize(
    ("backend", "outcome", "reason"),
    [
        (
            "any",
            "failed",
            "has a GPU; install a build for vulkan or rocm, or ask",
        ),
        (
            "vulkan",
            "skipped",
            "has no device of vulkan for llama.cpp, its llama-bench",
        ),
        ("cpu", "ok", ""),
    ],
)
def test_a_build_for_the_cpu_is_used_on_a_node_with_a_gpu_only_where_the_cpu_is_asked_for(
    nixwulf, own, tmp_path, backend, outcome, reason
):
    (tmp_path / "own.yaml").write_text(SWEEP.replace("threads:", f"backend: [{backend}], threads:"))
    folder = tmp_path / "run"
    waive = [word for gate in NOT_HERE for word in ("--waive", gate)]
    cluster = own(platform="framework-desktop")
    nixwulf("bench", tmp_path / "own.yaml", "--cluster", cluster, "--out", folder, *waive)
    (path,) = (folder / "records").glob("*.json")
    record = load(path)
    assert record["outcome"] == outcome, record.get("failure")
    assert reason in record.get("failure", {}).get("reason", "")
