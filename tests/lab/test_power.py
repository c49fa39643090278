"""A run's power is watched on real nodes; what cannot be read is said, and costs no run."""

import shutil
import time
from dataclasses import replace
from functools import partial

import pytest
import test_machine_benchmarks
from lab_under_test import Silent, recorded
from test_runs import plan_for

from meter_server import serving, unreachable
from nixwulf.inventory.cluster import Meter, load_cluster
from nixwulf.nodes.power import PowerSession
from nixwulf.sweep import power, session

ENERGY = {"StatusSNS": {"ENERGY": {"Power": 88}}}
SAMPLER_LEFT = "grep -lsa 'intel-rap[l]' /proc/[0-9]*/cmdline || true"


@pytest.fixture(scope="module")
def meters():
    """Answers of four meters: of n1 and n2 together, of n3, and of n4."""
    answers = {"/cm?cmnd=Status%208": ENERGY, "/status": b"<html>"}
    with serving(answers) as url:
        pair = Meter("tasmota", url)
        yield pair, pair, Meter("shelly", url), Meter("shelly", unreachable())


@pytest.fixture(scope="module")
def cluster(meters):
    lab = load_cluster("lab")
    nodes = [replace(node, meter=meter) for node, meter in zip(lab.nodes, meters, strict=True)]
    return replace(lab, nodes=tuple(nodes))


# Files of a machine whose GPU takes 15 W at 45 C: in a virtual machine there is mostly nothing.
MACHINE = """
mkdir -p /tmp/machine/proc/sys/kernel/random
cat /proc/sys/kernel/random/boot_id >/tmp/machine/proc/sys/kernel/random/boot_id
[ "$1" = n1 ] || exit 0
mkdir -p /tmp/machine/sys/class/hwmon/hwmon0
cd /tmp/machine/sys/class/hwmon/hwmon0
echo amdgpu >name; echo 15000000 >power1_average; echo 45000 >temp1_input
"""


@pytest.fixture(scope="module")
def nodes(cluster):
    if shutil.which("nvidia-smi") or shutil.which("vcgencmd"):
        pytest.skip("What this machine itself tells would be in the records.")
    with (
        pytest.MonkeyPatch.context() as patch,
        session.session(plan_for(cluster), Silent()) as connected,
    ):
        patch.setattr(power, "ROOT", "/tmp/machine")
        for name, node in connected.nodes.items():
            node.script(MACHINE, name)
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, SAMPLER_LEFT)


def test_a_run_has_the_watts_of_a_machine_once_and_those_of_its_meter(run, cluster, tmp_path):
    record = run(plan_for(cluster, parameters={"n_gen": [64]}, samples=3))
    assert record["outcome"] == "ok", record.get("failure")
    power = record["power"]
    n1, n2 = power["nodes"]["n1"], power["nodes"]["n2"]
    assert n1["celsius"] == {"amdgpu (hwmon0)": 45.0}
    assert n1["watts"]["amdgpu"]["average"] == n1["watts"]["amdgpu"]["idle"] == 15.0
    assert n1["absent"].keys() == {"mhz", "throttling"}
    begin, end = n1["window"]
    assert end - begin == pytest.approx(power["seconds"], abs=0.01)
    (raw,) = tmp_path.glob("raw/*/power-n1.stdout")
    times = [float(line.split()[0]) for line in raw.read_text().splitlines() if " amdgpu:" in line]
    assert times[0] < begin < end < times[-1] + 0.5, "samples from before to after"
    assert set(n2["absent"].values()) == {"the same machine as n1"}
    (wall,) = power["meters"]
    assert wall["nodes"] == ["n1", "n2"]
    assert "also_feeds" not in wall
    assert wall["watts"]["average"] == wall["watts"]["idle"] == 88
    assert wall["watts"]["joules"] == pytest.approx(88 * power["seconds"], rel=0.01)
    assert "absent" not in power
    assert {entry["name"] for entry in power["efficiency"]} == {"prompt", "decode"}
    assert {entry["source"] for entry in power["efficiency"]} == {"amdgpu", "wall"}
    assert power["throttled"] == []
    assert f"raw/{record['id']}/power-meter-n1.stdout" in record["raw"]
    assert "127.0.0.1" not in str(power)


def test_hpl_has_the_watts_of_the_time_in_which_it_solved(run, cluster):
    options = {"n": 2400, "nb": 80, "threads": 1}
    record = run(test_machine_benchmarks.plan_for(cluster, "hpl", nodes=1, **options))
    assert record["outcome"] == "ok", record.get("failure")
    gflops, seconds = record["metrics"]
    told = next(one for one in record["power"]["efficiency"] if one["source"] == "amdgpu")
    assert (told["name"], told["unit"], told["watts"]) == ("gflops", "Gflop/s/W", 15.0)
    assert told["seconds"] == pytest.approx(seconds["value"], abs=0.002)
    assert told["value"] == pytest.approx(gflops["value"] / 15, rel=1e-3)
    assert seconds["value"] < record["power"]["seconds"] / 2, "hpcc does much else before"


def test_meters_that_do_not_answer_cost_no_run(run, cluster):
    record = run(plan_for(cluster, matrix={"nodes": [4]}))
    assert record["outcome"] == "ok", record.get("failure")
    absent = {wall["nodes"][0]: wall.get("absent") for wall in record["power"]["meters"]}
    assert absent == {
        "n1": None,
        "n3": "It answered with something that is not JSON.",
        "n4": "It did not answer (ConnectError).",
    }


def test_a_sampler_that_is_killed_costs_no_run(run, nodes, cluster):
    def kill(phase):
        if phase == "launch":
            nodes.nodes["n1"].script(
                "for file in /run/nixwulf/*-power-n1.pid; do "
                'read -r child _ <"$file"; kill -KILL "-$child"; done'
            )
            time.sleep(1.5)  # longer than a sampler of a busy node may be silent

    matrix = {"nodes": [1], "parallelism": ["single"]}
    record = run(plan_for(cluster, matrix=matrix), kill)
    assert record["outcome"] == "ok", record.get("failure")
    assert "printed nothing for the last" in record["power"]["nodes"]["n1"]["absent"]["sampler"]
    assert "watts" not in record["power"]["nodes"]["n1"]
    assert record["power"]["meters"][0]["also_feeds"] == ["n2"]


def test_a_machine_without_power_readings_has_the_reason_for_each_node(
    run, cluster, nodes, monkeypatch
):
    monkeypatch.setattr(power, "ROOT", "/tmp/nothing")
    nodes.power = PowerSession()
    bare = replace(cluster, nodes=tuple(replace(node, meter=None) for node in cluster.nodes))
    connections = {
        name: replace(c, node=replace(c.node, meter=None)) for name, c in nodes.nodes.items()
    }
    monkeypatch.setattr(nodes, "nodes", connections)
    record = run(plan_for(bare))
    assert record["outcome"] == "ok", record.get("failure")
    for name in ("n1", "n2"):
        absent = record["power"]["nodes"][name]["absent"]
        assert absent.keys() == {"watts", "celsius", "mhz", "throttling"}
        assert absent["watts"].startswith("no RAPL counter")
    assert record["power"]["absent"].startswith("No source of watts. n1, n2: no RAPL counter")
    assert nodes.power.silent.keys() == {"n1", "n2"}, "no later run of the session asks again"
