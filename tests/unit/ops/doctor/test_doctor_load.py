"""A load of machines and links: a speed beside what the machine's and the fabric's kind have."""

import json
from subprocess import CompletedProcess
from types import MappingProxyType, SimpleNamespace

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Node, load_cluster
from nixwulf.inventory.platforms import load_platform
from nixwulf.llm import PlacedModel
from nixwulf.nodes import link
from nixwulf.nodes.facts import NodeReading
from nixwulf.ops.doctor import load
from nixwulf.ops.doctor.findings import Subject
from nixwulf.ops.doctor.load import load_links, load_machines
from tool_outputs import fixture

FRAMEWORK = load_cluster("framework-2")
NODES = {node.name: SimpleNamespace(node=node) for node in FRAMEWORK.nodes}


def loaded(monkeypatch, gbps, trip_us=150.0):
    """What is found where streams carry so much, or end so, and trips take so long."""

    def stream(source, target, fabric, folder):
        if isinstance(gbps, Exception):
            raise gbps
        return link.Bandwidth(gbps, 0)

    monkeypatch.setattr(link, "bandwidth", stream)
    monkeypatch.setattr(link, "round_trips", lambda ours, to: link.RoundTrips((trip_us,), 0))
    steps = []
    return list(load_links(NODES, FRAMEWORK, steps.append)), steps


def states(found, check):
    return {one.read.split("'")[1]: one.state for one in found if one.check == check}


def test_a_link_as_its_kind_is_ok_and_each_is_told_before(monkeypatch):
    found, steps = loaded(monkeypatch, 9.3)
    assert set(states(found, "link-rate").values()) == {"ok"}
    assert len(steps) == len(FRAMEWORK.fabrics) == len(states(found, "link-rate"))
    assert all(one.mend == "" for one in found)


@pytest.mark.parametrize(("gbps", "trip_us"), [(0.4, 150.0), (9.3, 5000.0)])
def test_a_link_that_is_slow_or_late_is_named_with_its_mend(monkeypatch, gbps, trip_us):
    found, _ = loaded(monkeypatch, gbps, trip_us)
    slow = gbps < 1
    assert set(states(found, "link-rate").values()) == {"wrong" if slow else "ok"}
    assert set(states(found, "link-latency").values()) == {"ok" if slow else "warning"}
    assert all("both ends" in one.mend for one in found if one.state != "ok")


def test_a_stream_that_does_not_end_is_wrong(monkeypatch):
    found, _ = loaded(monkeypatch, NixwulfError("iperf3 did not carry 375 MB 'in 15 s'."))
    assert {(one.check, one.state) for one in found} == {("link-rate", "wrong")}


ROWS = fixture("llama.cpp/0.7.0-build-11669-commit-Debian/llama-bench.cpu.jsonl").splitlines()
WEIGHTS = 545_000_000


def rows(tokens_a_second, backends="Vulkan"):
    """What llama-bench printed on a CPU, with another speed and other back ends."""
    found = [json.loads(row) | {"backends": backends, "avg_ts": tokens_a_second} for row in ROWS]
    return "".join(f"{json.dumps(one)}\n" for one in found)


def machine(monkeypatch, printed, status=0, watts=MappingProxyType({})):
    """What the load finds on a Framework Desktop whose llama-bench prints so, and ends so."""
    monkeypatch.setattr(load, "_watts", lambda node: watts)
    monkeypatch.setattr(load, "place", lambda model, *rest: PlacedModel(model, "/m", WEIGHTS))
    # hand-made: where the program is (form: nodes/facts.sh)
    programs = "/bin/llama-bench\n--\n" if status is not None else "--\n"
    hot = NodeReading.of(programs + fixture("doctor/strix-halo.txt").partition("--\n")[2])
    monkeypatch.setattr(load, "gather_readings", lambda *_: {"n1": hot})
    done = CompletedProcess([], status or 0, "" if status else printed, printed)
    node = SimpleNamespace(node=Node("n1", "", "n1"), run=lambda *_, **__: done)
    subject = Subject(node.node, hot, load_platform("framework-desktop"))
    return {one.check: one for one in load_machines({"n1": node}, [subject], lambda words: None)}


@pytest.mark.parametrize(("speed", "state"), [(300.0, "ok"), (40.0, "warning")])
def test_a_machine_is_held_against_what_is_predicted_of_its_platform(monkeypatch, speed, state):
    found = machine(monkeypatch, rows(speed))["load-decode"]
    assert found.state == state
    assert f"{speed * WEIGHTS / 1e9:.3g} GB/s" in found.read
    assert bool(found.mend) == (state != "ok")


def test_clocks_and_heat_are_judged_by_what_was_read_under_the_load(monkeypatch):
    found = machine(monkeypatch, rows(300.0))
    assert found["gpu-clock"].state == "ok"
    assert set(found) == {"gpu-clock", "load-decode"}


@pytest.mark.parametrize(("watts", "state"), [(61.5, "ok"), (12.0, "warning")])
def test_watts_under_the_load_are_judged_by_what_the_chip_takes(monkeypatch, watts, state):
    found = machine(monkeypatch, rows(300.0), watts={"amdgpu:hwmon4": watts})["load-watts"]
    assert found.state == state
    assert f"{watts:g} W" in found.read
    assert "30 W" in found.expected


def test_a_gpu_that_does_not_compute_is_named(monkeypatch):
    found = machine(monkeypatch, rows(30.0, "CPU"))["load-decode"]
    assert (found.state, "engines install" in found.mend) == ("warning", True)


@pytest.mark.parametrize("status", [None, 1])
def test_a_machine_without_a_llama_bench_that_runs_is_unknown(monkeypatch, status):
    # no output: a program that died
    found = machine(monkeypatch, "error: no device\n", status)
    assert [(one.check, one.state) for one in found.values()][-1] == ("load-decode", "unknown")
    assert "engines install" in found["load-decode"].mend
