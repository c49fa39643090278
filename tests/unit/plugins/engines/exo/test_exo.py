"""What exo is started with, by what its releases print, and its own benchmark's rows.

Run in the lab (examples/exo), not yet on hardware. tests/fixtures/exo is what two releases print:
see tools/fixtures/exo.py.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from launch_plan import planned
from nixwulf.plugins.engines import devices, exo
from nixwulf.plugins.engines.exo import ENGINE, ENVIRONMENT, argv, network
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep import phases
from stand_in import put

ID = "mlx-community/Llama-3.3-70B-Instruct-4bit"
FIXTURES = Path("tests/fixtures/exo")
RELEASES = ("v1.0.71", "b5375f8")
LAB = FIXTURES.parent / "exo-lab"
TINY = "nixwulf/tiny"
CHECKOUT = os.environ.get("NIXWULF_EXO_CHECKOUT")


def help_of(release):
    return (FIXTURES / release / "help.txt").read_text()


@pytest.fixture
def plan(tmp_path):
    def make(transport="rdma", parallelism="tensor", nodes=2, fabric="mesh"):
        matrix = {
            "engine": ["exo"],
            "benchmark": ["serve"],
            "nodes": [nodes],
            "fabric": [fabric],
            "transport": [transport],
            "parallelism": [parallelism],
            "parameters": {"api": ["chat"]},
        }
        return planned(tmp_path, "mac-studio-4", {"id": ID}, matrix, exo="/bin/exo")

    return make


@pytest.mark.parametrize(
    ("release", "options", "variables"),
    [
        ("v1.0.71", "--libp2p-port 52414", {"EXO_LIBP2P_NAMESPACE": "nixwulf-run"}),
        ("b5375f8", "--namespace nixwulf-run --zenoh-port 52414 --discovery-port 52413", {}),
    ],
)
def test_each_release_is_started_with_its_own_options_alone_in_the_runs_namespace(
    plan, release, options, variables
):
    run = plan()
    found = network({node.node.name: help_of(release) for node in run.nodes}, "nixwulf-run")
    assert [" ".join(argv(run, node, found)) for node in run.nodes] == [
        f"/bin/exo --force-master {options}",
        f"/bin/exo {options}",
    ]
    assert found.environment == variables
    assert ENVIRONMENT["EXO_OFFLINE"] == "true"


@pytest.mark.parametrize("release", RELEASES)
def test_every_option_that_a_node_is_started_with_is_in_the_releases_help(plan, release):
    run = plan()
    found = network({"mac-a": help_of(release)}, "nixwulf-run")
    for node in run.nodes:
        options = {word for word in argv(run, node, found) if word.startswith("--")}
        assert options
        assert options <= set(re.findall(r"--[\w-]+", help_of(release)))


@pytest.mark.parametrize("releases", [RELEASES, RELEASES[::-1]])
def test_two_releases_of_one_version_are_refused_with_the_nodes_and_an_option(releases):
    texts = {node: help_of(release) for node, release in zip("ab", releases, strict=True)}
    new, old = sorted(texts, key=lambda node: "--zenoh-port" not in texts[node])
    with pytest.raises(RunFailure) as caught:
        network(texts, "nixwulf-run")
    assert caught.value.outcome == "unsupported"
    assert f"on node {new!r} and not on node {old!r}" in str(caught.value)
    assert "install one commit on all nodes" in str(caught.value)


# hand-made: the releases before --libp2p-port (2da740c) need a Rust extension of their time to run
# (form: https://github.com/exo-explore/exo/blob/v1.0.68/src/exo/main.py)
@pytest.mark.parametrize("text", ["usage: EXO [-h] [--no-api]", "ImportError: no exo_rs", ""])
def test_an_exo_with_neither_network_is_refused_with_the_releases_that_have_one(text):
    with pytest.raises(RunFailure, match=r"install v1\.0\.71, or commit 09f9ea3 or a later one"):
        network({"a": text}, "nixwulf-run")


def test_the_driver_asks_each_node_for_its_help_before_it_starts_anything(tmp_path):
    matrix = {
        "engine": ["exo"],
        "benchmark": ["serve"],
        "nodes": [2],
        "fabric": ["mesh"],
        "transport": ["tcp"],
        "parallelism": ["pipeline"],
        "parameters": {"api": ["chat"]},
    }
    answers = {"script": "usage: EXO [-h] [--no-api]"}
    run = planned(tmp_path, "mac-studio-4", {"id": ID}, matrix, answers, exo="/bin/exo")
    with pytest.raises(RunFailure, match="has neither '--zenoh-port' nor '--libp2p-port'"):
        ENGINE.start(run)
    assert not run.started


@pytest.mark.skipif(
    not CHECKOUT, reason="NIXWULF_EXO_CHECKOUT names no checkout of exo with its dependencies"
)
def test_the_fixtures_are_what_exos_own_classes_print(tmp_path):
    script = Path("tools/fixtures/exo.py")
    made = [sys.executable, script, tmp_path, CHECKOUT]
    subprocess.run(made, check=True, timeout=300)
    (release,) = tmp_path.iterdir()
    kept = FIXTURES / release.name
    assert {file.name: file.read_text() for file in release.iterdir()} == {
        file.name: file.read_text() for file in kept.iterdir()
    }


def test_what_exo_cannot_run_is_left_out_with_the_reason(plan):
    point = {"nodes": 1, "parallelism": "single", "parameters": {"api": "completions"}}
    assert "chat only" in ENGINE.unsupported(point)
    assert "not random weights" in ENGINE.unsupported({**point, "random": object()})
    run = plan()
    run.model = "/models/folder"
    with pytest.raises(RunFailure, match="give the model an id"):
        ENGINE.start(run)
    assert not run.started


class Started:
    """exo as its release answers, on the nodes that the driver's launch plan started.

    Its topology is made as b5375f8 makes it: an edge leads to a node whose API answers, and to no
    other (src/exo/worker/main.py); what it places and where the ring meets is the release's own.
    """

    def __init__(self, run, release):
        self.asked = []
        self.placed = {}
        self.runners = [{"RunnerReady": {}}] * 2
        self.run = run
        text = (FIXTURES / release / "previews.json").read_text()
        for name, node in zip(("node-a", "node-b"), run.nodes, strict=True):
            text = text.replace(f'"{name}"', f'"{node.node.name}"')
        self.previews = json.loads(text)["previews"]

    def ask(self, endpoint, request):
        self.asked.append(request)
        if request == exo.NODES:
            return [one.node for one in self.run.started]
        if request == exo.NETWORKS:
            return {
                node.node.name: {"interfaces": [
                    {"name": end.interface, "ipAddress": end.address}
                    for end in node.node.all_ends
                ]}
                for node in self.run.nodes
            }  # fmt: skip
        if request.path == "/instance/previews":
            return {"previews": [one for one in self.previews if self.has_edges(one)]}
        if request == exo.RUNNERS:
            shards = [next(iter(one.values()))["shardAssignments"] for one in self.placed.values()]
            parts = [part for one in shards for part in one["runnerToShard"]]
            return dict(zip(parts, self.runners, strict=False))
        if request.path == "/instance":
            instance = request.body["instance"]
            self.placed[next(iter(instance.values()))["instanceId"]] = instance
        if request.method == "DELETE":
            self.placed.clear()
        return dict(self.placed)

    def has_edges(self, preview):
        nodes = next(iter(preview["instance"].values()))["shardAssignments"]["nodeToRunner"]
        answering = {one.node for one in self.run.started if "--no-api" not in one.argv}
        return len(nodes) == 1 or set(nodes) <= answering


@pytest.fixture(params=RELEASES)
def exos(request, plan, monkeypatch):
    """exo on what the driver will start for a ring on two of the four Macs."""
    run = plan("tcp", "pipeline")
    exos = Started(run, request.param)
    exos.device = "metal"
    versions = (LAB / "versions.txt").read_text()

    def script(self, text, *arguments, timeout_s=60):
        if text == exo.HELP:
            return help_of(request.param)
        asks_device = any(devices.MARK in word for word in arguments)
        # no output: what the driver's own script prints
        return f"{devices.MARK} {exos.device}\n" if asks_device else versions

    monkeypatch.setattr(type(run.nodes[0]), "script", script)
    monkeypatch.setattr(exo, "_api", lambda run: nullcontext(Mock(run=run)))
    monkeypatch.setattr(exo, "Clocks", Mock())
    monkeypatch.setattr(exo, "_SETTLE_S", 0)
    monkeypatch.setattr(exo, "_ask", exos.ask)
    monkeypatch.setattr(type(run), "prove_from_here", lambda run: exos.asked.append("PROOF"))
    run.deadline = 1e9
    return exos


@pytest.fixture
def world(exos):
    """The same once the driver has started it."""
    ENGINE.start(exos.run)
    return exos


def test_the_record_has_versions_with_the_commit_and_what_each_node_computes_on(world):
    run = world.run
    found = "exo 0.3.70 b5375f8ce, mlx 0.32.0, mlx-lm 0.32.2"
    assert run.engine_facts["version"] == found
    assert run.engine_facts["devices"] == ", ".join(f"{n.node.name}: metal" for n in run.nodes)


def test_an_exo_whose_python_is_not_found_runs_without_a_version(exos, tmp_path, monkeypatch):
    """As that of a wrapper, which is a shell's."""
    wrapper = put(tmp_path, "exo")
    run = exos.run
    for facts in run.facts.values():
        facts.programs["exo"] = str(wrapper)
    told = type(run.nodes[0]).script

    def script(self, text, *arguments, timeout_s=60):
        if text == exo.HELP:
            return told(self, text, *arguments)
        shell = ["sh", "-c", text, "sh", *arguments]
        return subprocess.run(shell, capture_output=True, text=True, check=True).stdout

    monkeypatch.setattr(type(run.nodes[0]), "script", script)
    ENGINE.start(run)
    assert "version" not in run.engine_facts
    assert len(run.started) == 2


def test_an_exo_that_would_compute_on_a_macs_cpu_is_failed_before_it_is_started(exos):
    exos.device = "cpu"
    with pytest.raises(RunFailure, match="computes on the CPU.* environment of exo") as caught:
        ENGINE.start(exos.run)
    assert caught.value.outcome == "failed"
    assert not exos.run.started


def test_what_the_driver_starts_meets_and_is_placed_on_two_nodes_of_the_fabric(world):
    run = world.run
    with ENGINE.endpoint(run):
        (instance,) = world.placed.values()
        hosts = instance["MlxRingInstance"]["hostsByNode"]
        ends = [run.data_address(node) for node in run.nodes]
        a, b = (node.node.name for node in run.nodes)
        own = exo._NO_HOSTS[0]
        assert {one["ip"] for one in hosts[a]} == {own, ends[1]}
        assert {one["ip"] for one in hosts[b]} == {own, ends[0]}
    assert world.placed == {}


def test_the_proof_of_transport_begins_when_exo_is_ready_and_nothing_is_asked_after(world):
    run = world.run
    world.asked.clear()
    with ENGINE.endpoint(run):
        assert world.asked[-2:] == [exo.RUNNERS, "PROOF"]
        assert world.asked.count(exo.DOWNLOADS) == 0, "exo lists every model that it knows"


def test_a_placement_that_hangs_is_told_with_the_states_of_its_parts_and_why(world, monkeypatch):
    silent = json.loads((LAB / "runners-silent.json").read_text())
    world.runners = [state for state in silent.values() if "RunnerIdle" in state]
    hang = RunFailure("'exo' was silent for 150 s.", "hang")
    monkeypatch.setattr(exo, "Clocks", Mock(return_value=Mock(check=Mock(side_effect=hang))))
    found = pytest.raises(RunFailure, match="silent for 150 s.*RunnerIdle, RunnerIdle")
    with found as caught, ENGINE.endpoint(world.run):
        pass
    assert caught.value.outcome == "hang"
    assert "ranks did not meet" in phases.hint_for(str(caught.value))
    assert world.placed == {}


def test_a_node_of_exo_that_the_cluster_file_does_not_have_is_named(world):
    run = world.run
    placed = exo.require_placement(ID, run.case, {"previews": world.previews})
    with pytest.raises(RunFailure, match="has no address of the cluster file"):
        exo._on_fabric(run, placed, {})


def lab_answer(name):
    """What two nodes of exo answered in the lab: see tools/fixtures/exo-lab.py."""
    return json.loads((LAB / f"{name}.json").read_text())


def test_the_ring_that_exo_took_in_the_lab_is_what_the_driver_makes_of_its_answers(tmp_path):
    matrix = {
        "engine": ["exo"],
        "benchmark": ["serve"],
        "nodes": [2],
        "fabric": ["thunderbolt"],
        "transport": ["tcp"],
        "parallelism": ["pipeline"],
        "parameters": {"api": ["chat"]},
    }
    run = planned(tmp_path, "lab", {"id": TINY}, matrix, exo="/bin/exo")
    previewed = exo.require_placement(TINY, run.case, lab_answer("previews"))
    request = exo._on_fabric(run, previewed, lab_answer("networks"))
    assert request.path == "/instance"
    assert request.body == lab_answer("creation")
    (taken,) = lab_answer("instances").values()
    assert taken == request.body["instance"]
    here, there = (run.data_address(node) for node in run.nodes)
    rings = [
        [one["ip"] for one in ring] for ring in taken["MlxRingInstance"]["hostsByNode"].values()
    ]
    assert sorted(rings) == sorted([[exo._NO_HOSTS[0], here], [there, exo._NO_HOSTS[0]]])


def test_the_answers_of_exo_in_the_lab_are_read():
    assert len(lab_answer("nodes")) == 2
    instance = exo.placed_instance(TINY, (), lab_answer("instances"))
    assert set(instance.runners) == set(lab_answer("nodes"))
    assert exo.is_ready(instance, lab_answer("runners"))
    assert exo.download_problem(instance, lab_answer("downloads")) is None
    assert len(exo.tokens(lab_answer("chat"))) == 32
