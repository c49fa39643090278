"""A run's power is watched on real nodes; what cannot be read is said, and costs no run."""

from dataclasses import replace

import pytest
from test_runs import Silent, plan_for

from meter_server import serving, unreachable
from nixwulf import bench
from nixwulf.cluster import Meter, load_cluster
from nixwulf.record import load, save

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


@pytest.fixture(scope="module")
def nodes(cluster):
    """The lab; n1 has a thermal zone of its own, since most virtual machines have none."""
    with bench.session(plan_for(cluster), Silent()) as connected:
        connected.nodes["n1"].script(
            "mount -t tmpfs none /sys/class/thermal && cd /sys/class/thermal && "
            "mkdir thermal_zone0 && cd thermal_zone0 && echo acpitz >type && echo 45000 >temp"
        )
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    def one(plan, on_phase=lambda phase: None):
        record = bench.run_one(nodes, plan, tmp_path, plan.cases[0], 0, on_phase)
        path = tmp_path / "records" / f"{record['id']}.json"
        save(record, path)
        assert "".join(node.script(SAMPLER_LEFT) for node in nodes.nodes.values()) == ""
        return load(path)

    return one


def test_a_run_tells_the_heat_of_a_machine_and_the_watts_of_its_meter(run, cluster, tmp_path):
    record = run(plan_for(cluster, parameters={"n_gen": [64]}, samples=3))
    assert record["outcome"] == "ok", record.get("failure")
    power = record["power"]
    n1, n2 = power["nodes"]["n1"], power["nodes"]["n2"]
    assert n1["celsius"]["acpitz (thermal_zone0)"] == 45.0
    begin, end = n1["window"]
    assert end - begin == pytest.approx(power["seconds"], abs=0.01)
    (raw,) = tmp_path.glob("raw/*/power-n1.stdout")
    times = [float(line.split()[0]) for line in raw.read_text().splitlines() if " temp:" in line]
    assert times[0] < begin < end < times[-1] + 1.2, "samples from before to after"
    assert set(n2["absent"].values()) == {"the same machine as n1"}
    assert ("watts" in n1) != ("watts" in n1["absent"])
    (wall,) = power["meters"]
    assert wall["nodes"] == ["n1", "n2"]
    assert "also_feeds" not in wall
    assert wall["watts"]["average"] == wall["watts"]["idle"] == 88
    assert wall["watts"]["joules"] == pytest.approx(88 * power["seconds"], rel=0.01)
    assert "absent" not in power
    assert {entry["name"] for entry in power["efficiency"]} == {"prompt", "decode"}
    assert power["throttled"] == []
    assert f"raw/{record['id']}/power-meter-n1.stdout" in record["raw"]
    assert "127.0.0.1" not in str(power)


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
                'for file in "${XDG_RUNTIME_DIR:-/tmp}/nixwulf-$(id -u)"/*-power-n1.pid; do '
                'read -r child _ <"$file"; kill -KILL "-$child"; done'
            )

    matrix = {"nodes": [1], "parallelism": ["single"]}
    record = run(plan_for(cluster, matrix=matrix), kill)
    assert record["outcome"] == "ok", record.get("failure")
    assert "said nothing for the last" in record["power"]["nodes"]["n1"]["absent"]["sampler"]
    assert "celsius" not in record["power"]["nodes"]["n1"]
    assert record["power"]["meters"][0]["also_feeds"] == ["n2"]
