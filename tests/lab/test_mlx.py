"""MLX in the lab: its ring across nodes, its two splits, and how its failures end."""

import re
import threading
import time
from functools import partial
from unittest.mock import Mock

import pytest
from lab_under_test import recorded

from nixwulf.llm import place, safetensors
from nixwulf.nodes import counters, facts
from nixwulf.nodes.facts import gather
from nixwulf.plugins import gates
from nixwulf.plugins.engines.mlx import ENGINE
from nixwulf.plugins.gates import examine
from nixwulf.plugins.gates import fabric as fabric_gates
from nixwulf.plugins.runtime.openai import GREEDY, Completions
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

PROGRESS_S = 15
RANKS_LEFT = "ls /run/nixwulf/*.pid 2>/dev/null; grep -ls mlx_lm /proc/[0-9]*/comm || true"
SMALL = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 4, "feed_forward": 256}
EXPERTS = {"architecture": "qwen3moe", "experts": 4, "experts_used": 2}
MODELS = {
    "dense": {"random": {**SMALL, "weights": "f32"}},
    "experts": {"random": {**SMALL, **EXPERTS, "weights": "f32"}},
}


def plan_for(cluster, *, parameters=None, models=None, samples=2, **matrix):
    document = {
        "name": "mlx",
        "models": {**MODELS, **(models or {})},
        "matrix": {
            "engine": ["mlx"],
            "benchmark": ["mlx_lm.benchmark"],
            "model": ["dense"],
            "nodes": [2],
            "fabric": ["thunderbolt"],
            "parallelism": ["tensor"],
            "parameters": parameters or {"n_prompt": [16], "n_gen": [8]},
            **matrix,
        },
        "samples": samples,
        "limits": {"wall_s": 120, "progress_s": PROGRESS_S},
    }
    return make_plan(parse_sweep(document, "mlx.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    plan = plan_for(
        cluster, engine=["mlx", "llama.cpp"], benchmark=["mlx_lm.benchmark", "llama-bench"]
    )
    with session.session(plan, Mock()) as connected:
        yield connected


def test_the_versions_of_mlx_are_read_without_starting_it(nodes):
    subject = gates.GateContext(
        nodes=nodes.cluster.nodes[:2],
        facts=gather(list(nodes.nodes.values())[:2], ENGINE.programs),
        engine=ENGINE,
    )
    told = examine(subject, nodes.nodes, (), [gates.all_gates()["versions"]])
    assert [(result.node, result.state) for result in told] == [("n1", "ok"), ("n2", "ok")]
    program = subject.facts["n1"].programs[ENGINE.programs[0]]
    line = nodes.nodes["n1"].script('"$@"', *ENGINE.version_command({ENGINE.programs[0]: program}))
    assert re.fullmatch(r"mlx version [\d.]+\nmlx-lm version [\d.]+\n", line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all runs, so that one node gives its tokens once for each model."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run(nodes, folder):
    return partial(recorded, nodes, folder, RANKS_LEFT)


def signal_while_measuring(nodes, folder, signal, moments):
    """Signal the second rank once the benchmark has begun its first trial, and note when."""
    script = (
        "for file in /run/nixwulf/*mlx-benchmark*.pid; do "
        'read -r leader rest <"$file"; kill "$1" "-$leader"; done'
    )

    logs = "raw/*/mlx-benchmark-*-n1.stdout"

    def watch(before):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for log in set(folder.glob(logs)) - before:
                if "Timing with" in log.read_text(errors="replace"):
                    nodes.nodes["n2"].script(script, signal)
                    moments.append(time.monotonic())
                    return
            time.sleep(0.02)

    def on_phase(phase):
        if phase == "measure":
            before = set(folder.glob(logs))
            threading.Thread(target=watch, args=[before], daemon=True).start()

    return on_phase


LONG = {"samples": 500, "parameters": {"n_prompt": [16], "n_gen": [100]}}


@pytest.mark.parametrize(
    ("model", "parallelism"), [("dense", "tensor"), ("experts", "tensor"), ("experts", "pipeline")]
)
def test_a_run_over_a_fabric_is_ok_and_proves_it(run, cluster, model, parallelism):
    record = run(plan_for(cluster, model=[model], parallelism=[parallelism]))
    assert record["outcome"] == "ok", record.get("failure")
    names = [(metric["name"], metric["unit"]) for metric in record["metrics"]]
    assert names == [("prompt", "tok/s"), ("decode", "tok/s"), ("peak_memory", "GB")]
    assert all(len(metric["samples"]) == 2 for metric in record["metrics"])
    assert record["sanity"]["text"]["agrees"]
    assert record["sanity"]["transport"]["proved"]
    assert record["engine"]["backends"] == "ring"
    assert record["engine"]["devices"] == "n1: cpu, n2: cpu"
    assert record["engine"]["version"].startswith("mlx-lm 0.")


def test_a_rank_killed_while_measuring_is_failed(run, nodes, cluster, folder):
    kill = signal_while_measuring(nodes, folder, "-KILL", [])
    record = run(plan_for(cluster, **LONG), kill)
    assert record["outcome"] == "failed"
    assert record["failure"]["phase"] == "measure"
    assert "'mlx_lm.benchmark' on node 'n2' was ended by SIGKILL." in record["failure"]["reason"]
    assert "A rank of MLX died" in record["failure"]["hint"]


def test_a_rank_stopped_while_measuring_is_a_hang(run, nodes, cluster, folder):
    moments = []
    stop = signal_while_measuring(nodes, folder, "-STOP", moments)
    record = run(plan_for(cluster, **LONG), stop)
    assert record["outcome"] == "hang"
    assert time.monotonic() - moments[0] < PROGRESS_S + 10
    assert f"was silent for {PROGRESS_S} s" in record["failure"]["reason"]


def copy_of_dense(nodes, cluster):
    """The path of a Hugging Face folder on two nodes, as a user would have put it there."""
    pair = [nodes.nodes["n1"], nodes.nodes["n2"]]
    placed = place(plan_for(cluster).sweep.models["dense"], pair, safetensors.ensure)
    for node in pair:
        node.script('rm -rf /tmp/folder && cp -r "$1" /tmp/folder', placed.path)
    return {"folder": {"path": "/tmp/folder"}}


def test_a_split_that_an_architecture_lacks_is_unsupported(run, nodes, cluster):
    models = copy_of_dense(nodes, cluster)
    record = run(plan_for(cluster, models=models, model=["folder"], parallelism=["pipeline"]))
    assert record["outcome"] == "unsupported"
    assert "by tensors only" in record["failure"]["reason"]


def test_a_model_without_a_tokenizer_is_failed_in_one_sentence(run, nodes, cluster):
    models = copy_of_dense(nodes, cluster)
    nodes.nodes["n2"].script("rm /tmp/folder/tokenizer*")
    record = run(plan_for(cluster, models=models, model=["folder"]))
    assert record["outcome"] == "failed"
    assert record["failure"]["phase"] == "sanity"
    assert "on node 'n2' says: Couldn't instantiate" in record["failure"]["reason"]


def test_mlx_and_llama_cpp_give_the_same_greedy_tokens_of_the_same_model(
    nodes, cluster, tmp_path, monkeypatch
):
    """Two engines that share no code: the random model is right in both formats."""
    monkeypatch.setattr(Completions, "prompt", lambda completer, tokens: GREEDY)
    observed = []
    for engine, benchmark in (("mlx", "mlx_lm.benchmark"), ("llama.cpp", "llama-bench")):
        matrix = {"engine": [engine], "benchmark": [benchmark]}
        plan = plan_for(cluster, nodes=[1], parallelism=["single"], **matrix)
        record = session.run_one(nodes, plan, tmp_path, plan.cases[0], 0, lambda phase: None)
        assert record["outcome"] == "ok", record.get("failure")
        observed.append(record["sanity"]["text"]["observed"])
    assert observed[0] == observed[1]


# What macOS's own tools would print of a node of the lab, in the form of its manual pages: a link
# without an address has a column less. They stand in for these tools alone; all else is as ever.
AS_ON_A_MAC = {
    "uname -s": "echo Darwin",
    "sysctl ": "printf '%s\\n' 'kern.ostype: Darwin' 'kern.osrelease: 25.2.0' 'hw.ncpu: 2' "
    "'hw.memsize: 17179869184' #",
    "vm_stat ": "printf '%s\\n' 'Mach Virtual Memory Statistics: (page size of 16384 bytes)' "
    "'Pages free: 300000.' 'File-backed pages: 100000.' 'Pages purgeable: 100.' #",
    "ifconfig ": """ip addr | awk '
      /^[0-9]/ { split($2, n, "[@:]"); printf "%s: flags=8863<UP,RUNNING> mtu %s\\n", n[1], $5 }
      $1 ~ /^inet/ { split($2, a, "/"); printf "\\t%s %s prefixlen 24\\n", $1, a[1] }' #""",
    "netstat ": """awk 'NR > 2 { sub(":", " ")
      printf "%-10s 1500  <Link#%d>  %s  %s 0 %s %s 0 %s 0\\n", $1, NR,
        $1 == "lo" ? "" : "02:00:5e:00:53:01", $3, $2, $11, $10 }' /proc/net/dev #""",
}


def test_a_ring_of_nodes_that_are_read_as_macs_is_ok_and_proved_by_netstat(
    run, cluster, monkeypatch
):
    for module in (facts, counters):
        # A command a line, for a stand-in ends in '#'.
        code = re.sub(r"(?m)^#.*\n", "", module._SCRIPT)
        script = re.sub(r"(?<!;); ", "\n", code.replace("/proc/", "/no-proc/"))
        for called, stand_in in AS_ON_A_MAC.items():
            script = script.replace(called, stand_in)
        monkeypatch.setattr(module, "_SCRIPT", script)
    monkeypatch.setattr(fabric_gates, "_PROBE", fabric_gates._PROBE.replace("/proc/", "/no-proc/"))
    record = run(plan_for(cluster))
    assert record["outcome"] == "ok", record.get("failure")
    assert {node["facts"]["kernel"] for node in record["nodes"]} == {"Darwin 25.2.0"}
    transport = record["sanity"]["transport"]
    assert transport["proved"]
    assert min(transport["bytes"].values()) > 10_000
    assert all("management" in counted for counted in transport["counters"].values())
    assert record["fabric"]["links"][0]["rtt_before"]["lost"] == 0
    assert {gate["gate"] for gate in record["gates"]} >= {"ports"}
    assert {gate["state"] for gate in record["gates"]} == {"unknown"}
