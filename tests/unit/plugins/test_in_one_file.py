"""An engine, a benchmark, a gate, a meter and a power switch are one file each.

All commands know them.

They measure nothing: what is tested is that nothing else has to be edited.
"""

import json
import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest
from click.testing import CliRunner

from healthy_pair import CLUSTER, FW1, facts_of
from meter_server import serving
from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.ops import preflight
from nixwulf.plugins import benchmarks, engines, gates, meters, switches
from nixwulf.tune.render import serving as to_serve
from stand_in import put

sys.path.append("tools/docs")

# no output: packages by what is added to them
PACKAGES = {
    "engine": engines,
    "benchmark": benchmarks,
    "gate": gates,
    "meter": meters,
    "switch": switches,
}
CACHES = (
    engines.all_engines,
    engines.performance,
    benchmarks.all_benchmarks,
    gates.all_gates,
    meters.all_meters,
    switches.all_switches,
)
# no output: plug-ins
FILES = {
    "engine": '''
"""tiny-engine: a test of how engines are added, which serves nothing."""

from contextlib import contextmanager

from nixwulf.core.registry import Parameter
from nixwulf.plugins.engines import Engine, Performance
from nixwulf.plugins.runtime.run import RunFailure


class Tiny(Engine):
    """An engine of a test.

    It says of itself that it serves nothing.
    """

    name = "tiny-engine"
    parameters = {"tiny_option": Parameter(default=3, help="an option of the test's")}
    programs = ("tiny-serve",)
    version_options = ("--version",)
    ports = (50990,)
    api_port = 50990
    apis = ("chat",)
    model_suffixes = (".tiny",)
    native_benchmark = "tiny-bench"
    parallelisms = ("pipeline",)
    performance = Performance(family="llama.cpp", collective="ring")

    def start(self, run):
        raise RunFailure("tiny-engine is a test and serves nothing.")

    def greedy_tokens(self, run, count):
        raise RunFailure("tiny-engine is a test and serves nothing.")

    @contextmanager
    def endpoint(self, run):
        raise RunFailure("tiny-engine is a test and serves nothing.")


ENGINE = Tiny()
''',
    "benchmark": '''
"""tiny-bench: a test of how benchmarks are added, which measures nothing."""

from nixwulf.core.registry import Parameter
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime.run import RunFailure


class TinyBench(Benchmark):
    """A benchmark of a test.

    It says of itself that it measures nothing.
    """

    name = "tiny-bench"
    parameters = {
        "n_prompt": Parameter(default=8, help="tokens"),
        "n_gen": Parameter(default=8, help="tokens"),
    }
    engines = ("tiny-engine",)
    ports = (50991,)

    def measure(self, run):
        raise RunFailure("tiny-bench is a test and measures nothing.")


BENCHMARK = TinyBench()
''',
    "gate": '''
"""Gate: a test of how gates are added, which refuses the first node."""

from nixwulf.plugins.gates import Gate, refused

GATES = (
    Gate(
        name="tiny-gate",
        holds="the node is not the first one",
        reads="nothing",
        fix="take the file of the test away",
        concerns=lambda context, node: True,
        judge=lambda context, node: (
            [refused(f"Node {node.name!r} is the first.")] if node is context.nodes[0] else []
        ),
    ),
)
''',
    "meter": '''
"""Meters: a test of how they are added."""

from nixwulf.plugins.meters import MeterKind

METERS = (MeterKind("tiny-meter", lambda channel: f"/tiny/{channel}", lambda a, _: a["tiny"]),)
''',
    "switch": '''
"""Power switches: a test of how they are added."""

from pathlib import Path

from nixwulf.plugins.switches import SwitchKind


def _cycle(node, switch, off_s):
    Path(switch.command[0]).write_text(node)


SWITCHES = (SwitchKind("tiny-switch", "command", _cycle),)
''',
}
# no output: a sweep
SWEEP = """
name: tiny
models: {m: {path: /models/m.tiny}}
matrix:
  engine: [tiny-engine]
  benchmark: [tiny-bench]
  model: [m]
  nodes: [1, 2]
  fabric: [cable]
  parallelism: [single, pipeline, tensor]
  parameters: {tiny_option: [4]}
"""
LLAMA = ("--facts-of", "Llama-3.1-70B", "--quant", "Q4_K_M")


@pytest.fixture(autouse=True)
def plugged(tmp_path, monkeypatch):
    """The files, each in a folder that its package reads too."""
    for kind, package in PACKAGES.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / f"tiny_{kind}.py").write_text(FILES[kind])
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    invalidate_caches()
    for known in CACHES:
        known.cache_clear()
    yield
    for known in CACHES:
        known.cache_clear()
    for kind, package in PACKAGES.items():
        sys.modules.pop(f"{package.__name__}.tiny_{kind}", None)


def printed(*arguments):
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP)
    return path


def test_engines_shows_where_the_programs_of_one_are(empty):
    put(empty / "bin", "tiny-serve")
    assert f"tiny-serve: {empty}/bin/tiny-serve" in printed("engines")


def test_bench_plans_its_cases_and_says_why_others_are_left_out(sweep):
    printed("validate", sweep)
    plan = printed("bench", sweep, "--cluster", "framework-2", "--dry-run", "--waive", "tiny-gate")
    assert "tiny-bench" in plan
    assert "tiny_option" in plan
    assert "tiny-engine splits a model by pipeline only" in plan


def test_predict_takes_the_constants_of_its_family_and_its_collective():
    asked = ("predict", "--cluster", "framework-2", "--model", "Llama-3.1-70B-Q4_K_M")
    found = json.loads(printed(*asked, "--engine", "tiny-engine", "--format", "json"))
    assert {way["parallelism"] for way in found["ways"]} == {"single", "pipeline"}
    other = json.loads(printed(*asked, "--engine", "llama.cpp", "--format", "json"))
    assert found["ways"][0]["decode"] == other["ways"][0]["decode"]
    assert found["left_out"][0]["why"] == "tiny-engine splits a model by pipeline only"


def test_tune_ranks_the_models_that_it_reads_by_its_own_benchmark():
    asked = ("tune", "--cluster", "framework-2", "--model", "/models/m.tiny", *LLAMA, "--dry-run")
    ranking = printed(*asked, "--goal", "prompt")
    assert "2 nodes" in ranking
    other = CliRunner().invoke(cli, [*asked, "--engine", "vllm"])
    assert "those that do: tiny-engine" in other.output


def test_tune_prints_how_to_serve_what_it_measured():
    argv = ["/bin/tiny-serve", "--port", "50990"]
    record = {
        "case": {"engine": "tiny-engine", "nodes": 1, "parameters": {}},
        "commands": [{"node": "fw1", "argv": argv, "environment": {}}],
    }
    way = to_serve(record, CLUSTER, 1)
    assert [one.line for one in way.servers] == ["/bin/tiny-serve --port 50990"]
    assert "http://127.0.0.1:50990/v1/chat/completions" in way.then[0]


def test_preflight_holds_it_against_the_nodes(monkeypatch):
    facts = facts_of()
    monkeypatch.setattr(preflight, "open_all", lambda nodes: {})
    monkeypatch.setattr(preflight, "gather_each", lambda nodes, programs: facts)
    found = preflight.preflight(CLUSTER, {}, gates=["tiny-gate"])
    assert [(r.gate, r.node, r.state) for r in found.results] == [
        ("tiny-gate", "fw1", "refused"),
        ("tiny-gate", "fw2", "ok"),
    ]
    assert preflight.preflight(CLUSTER, {}, ["tiny-gate"], ["tiny-gate"]).of("waived")


def test_the_gate_of_ports_knows_those_of_all():
    context = gates.context_of_cluster(CLUSTER, facts_of())
    # no output: what `cat /proc/net/tcp` begins with, and a socket on port 50991
    table = "  sl  local_address rem_address   st\n   0: 0100007F:C72F 00000000:0000 0A 0 0 0 0 0\n"
    context = gates.GateContext(**{**vars(context), "answers": {"ports": {FW1.name: table}}})
    (result,) = [gates.result_of(gates.all_gates()["ports"], context, FW1, ())]
    assert any("50991" in text and "tiny-bench" in text for text in result.sentences)


def test_a_cluster_file_names_it_and_its_watts_are_read(tmp_path):
    # no output: a cluster file
    more = 'name = "fw1"\nmeter = { kind = "tiny-meter", url = "URL" }\n'
    text = Path(CLUSTER.source).read_text().replace('name = "fw1"\n', more)
    with serving({"/tiny/0": {"tiny": 41.5}}) as url:
        path = tmp_path / "mine.toml"
        path.write_text(text.replace("URL", url))
        printed("validate", path)
        meter = load_cluster(path).nodes[0].meter
        assert meters.read(meter) == 41.5


def test_a_cluster_file_names_it_and_it_turns_the_power_off_and_on(tmp_path):
    mark = tmp_path / "mark"
    # no output: a cluster file
    more = f'name = "fw1"\npower_switch = {{ kind = "tiny-switch", command = ["{mark}"] }}\n'
    path = tmp_path / "mine.toml"
    path.write_text(Path(CLUSTER.source).read_text().replace('name = "fw1"\n', more))
    printed("validate", path)
    switches.cycle("fw1", load_cluster(path).nodes[0].power_switch)
    assert mark.read_text() == "fw1"


@pytest.mark.repository
def test_the_reference_describes_them():
    import parameters

    made = parameters.pages()
    # no output: a page of the reference
    begin = "### tiny-engine\n\nA test of how engines are added, which serves nothing."
    assert begin in made["parameters.md"]
    assert "Listens on `50990`" in made["parameters.md"]
    assert "### tiny-bench" in made["parameters.md"]
    assert "`tiny-gate`" in made["gates.md"]
