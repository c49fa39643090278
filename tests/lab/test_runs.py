"""Every way in which a run can end is a record, in bounded time, and the sweep goes on."""

import dataclasses
import threading
import time
from functools import partial

import pytest
from lab_under_test import Silent, recorded

from nixwulf.llm import gguf, place
from nixwulf.nodes.lab.links import MANAGEMENT_INTERFACE, management_addresses, management_subnet
from nixwulf.plugins.engines.llama_cpp import LlamaCpp
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep import session as bench
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.transport import CHATTER_BYTES

PROGRESS_S = 4
SERVERS_LEFT = "grep -ls -e rpc-server -e llama- /proc/[0-9]*/comm || true"


def plan_for(cluster, **changes):
    parameters = {"n_prompt": [16], "n_gen": [4], "threads": [1], **changes.pop("parameters", {})}
    matrix = {
        "model": ["tiny"],
        "nodes": [2],
        "fabric": ["gbe5"],
        "parallelism": ["pipeline"],
        "parameters": parameters,
        **changes.pop("matrix", {}),
    }
    document = {
        "name": "faults",
        "models": {"tiny": {"random": {}}},
        "matrix": matrix,
        "samples": 1,
        "limits": {"wall_s": 60, "progress_s": PROGRESS_S},
        **changes,
    }
    return make_plan(parse_sweep(document, "faults.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with bench.session(plan_for(cluster), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, SERVERS_LEFT)


def signal_server(nodes, name, signal):
    script = (
        "for comm in $(grep -ls rpc-server /proc/[0-9]*/comm); do process=${comm%/comm}; "
        'kill "$1" "${process#/proc/}"; done'
    )
    nodes.nodes[name].script(script, signal)


def when_measuring(nodes, folder, action):
    """Do something once llama-bench has begun its first sample."""

    def watch():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for log in folder.glob("raw/*/llama-bench-n1.stderr"):
                if "generation run" in log.read_text(errors="replace"):
                    action()
                    return
            time.sleep(0.02)

    def on_phase(phase):
        if phase == "measure":
            threading.Thread(target=watch, daemon=True).start()

    return on_phase


def long_plan(cluster, **changes):
    return plan_for(cluster, parameters={"n_prompt": [0], "n_gen": [1500]}, samples=20, **changes)


@pytest.mark.parametrize("parallelism", ["pipeline", "tensor"])
def test_a_run_over_a_fabric_is_ok_and_proves_it(run, cluster, parallelism):
    record = run(plan_for(cluster, matrix={"parallelism": [parallelism]}))
    assert record["outcome"] == "ok", record.get("failure")
    assert {metric["name"] for metric in record["metrics"]} == {"prompt", "decode"}
    assert record["sanity"]["text"]["agrees"]
    transport = record["sanity"]["transport"]
    assert transport["proved"]
    assert set(transport["bytes"]) == {"n1", "n2"}
    for counters in transport["counters"].values():
        assert counters["management"]["interface"] == MANAGEMENT_INTERFACE
        assert 0 <= counters["management"]["bytes"] < CHATTER_BYTES  # without the driver's own
    link = record["fabric"]["links"][0]
    assert link["rtt_before"]["median"] > 400
    assert 0 < link["bandwidth"]["value"] < 5
    assert record["fabric"]["shaped_by"] in {"netem", "switch"}


def test_an_rpc_server_killed_while_measuring_is_failed(run, nodes, cluster, tmp_path):
    kill = when_measuring(nodes, tmp_path, lambda: signal_server(nodes, "n2", "-KILL"))
    record = run(long_plan(cluster), kill)
    assert record["outcome"] == "failed"
    assert record["failure"]["phase"] == "measure"
    assert "'ggml-rpc-server' on node 'n2' was ended by SIGKILL." in record["failure"]["reason"]
    assert "An RPC server died" in record["failure"]["hint"]
    assert [node["name"] for node in record["nodes"] if "log_tail" in node] == ["n1", "n2"]


def test_an_rpc_server_stopped_while_measuring_is_a_hang(run, nodes, cluster, tmp_path):
    stop = when_measuring(nodes, tmp_path, lambda: signal_server(nodes, "n2", "-STOP"))
    begin = time.monotonic()
    record = run(long_plan(cluster), stop)
    assert record["outcome"] == "hang"
    assert f"was silent for {PROGRESS_S} s" in record["failure"]["reason"]
    assert time.monotonic() - begin < 55, "the wall limit ended it, not the progress limit"


def test_an_rpc_server_stopped_before_the_known_answer_is_a_hang(run, nodes, cluster):
    def stop(phase):
        if phase == "sanity":
            signal_server(nodes, "n2", "-STOP")

    record = run(plan_for(cluster), stop)
    assert record["outcome"] == "hang"
    assert record["failure"]["phase"] == "sanity"
    assert "'llama-server' was silent for" in record["failure"]["reason"]


def test_a_long_sample_on_one_node_is_no_hang(run, cluster):
    parameters = {"n_prompt": [0], "n_gen": [1500]}
    matrix = {"nodes": [1], "parallelism": ["single"]}
    limits = {"wall_s": 200, "progress_s": PROGRESS_S}
    record = run(plan_for(cluster, parameters=parameters, matrix=matrix, limits=limits))
    assert record["outcome"] == "ok", record["failure"]
    sample = 1500 / record["metrics"][0]["value"]
    assert sample > PROGRESS_S, "the sample was too short to prove anything"


def test_a_program_stopped_on_one_node_is_a_hang(run, nodes, cluster, tmp_path):
    def stop():
        script = (
            "for comm in $(grep -lsx llama-bench /proc/[0-9]*/comm); do "
            "process=${comm%/comm}; kill -STOP ${process#/proc/}; done"
        )
        nodes.nodes["n1"].script(script)

    matrix = {"nodes": [1], "parallelism": ["single"]}
    record = run(long_plan(cluster, matrix=matrix), when_measuring(nodes, tmp_path, stop))
    assert record["outcome"] == "hang"
    assert "it used 0.00 s of CPU time" in record["failure"]["reason"]


def test_a_port_that_is_closed_is_failed(run, nodes, cluster):
    def close(phase):
        if phase == "measure":
            signal_server(nodes, "n2", "-KILL")

    record = run(plan_for(cluster), close)
    assert record["outcome"] == "failed"
    assert "Failed to connect" in record["failure"]["reason"]


def test_a_model_file_that_is_cut_short_is_failed(run, nodes, cluster):
    head = nodes.nodes["n1"]
    whole = place(plan_for(cluster).sweep.models["tiny"], [head], gguf.ensure).path
    head.script('head -c 1000000 "$1" >/tmp/cut.gguf', whole)
    record = run(plan_for(cluster, models={"tiny": {"path": "/tmp/cut.gguf"}}))
    assert record["outcome"] == "failed"
    assert "model" in record["failure"]["hint"]


def test_a_model_file_that_is_missing_is_refused_by_a_gate(run, cluster):
    record = run(plan_for(cluster, models={"tiny": {"path": "/nowhere.gguf"}}))
    assert record["outcome"] == "skipped"
    assert record["failure"]["phase"] == "gates"
    assert "has no model '/nowhere.gguf'" in record["failure"]["reason"]


def test_a_run_longer_than_the_wall_limit_is_a_timeout_and_no_server_is_blamed(run, cluster):
    limits = {"wall_s": 8, "progress_s": 60}
    record = run(long_plan(cluster, limits=limits, matrix={"parallelism": ["tensor"]}))
    assert record["outcome"] == "timeout"
    # Stopping the client ends servers that are sending to it. A busy machine is still at its texts.
    failure = record["failure"]
    assert failure.keys() == {"phase", "reason"}
    assert failure["phase"] in {"sanity", "measure"}
    assert failure["reason"] == "The run took longer than 8 s."


def test_text_that_differs_from_one_nodes_is_gibberish(run, nodes, cluster, tmp_path):
    other = plan_for(cluster, models={"tiny": {"random": {"seed": 7}}})
    assert run(other)["outcome"] == "ok"
    (reference,) = (tmp_path / "references").glob("*.json")
    plan = plan_for(cluster)
    digests = [one.cases[0].model_digest[:12] for one in (other, plan)]
    reference.rename(reference.with_name(reference.name.replace(*digests)))
    record = run(plan)
    assert record["outcome"] == "gibberish"
    assert "After a prompt of 64 tokens the text is another one" in record["failure"]["reason"]
    text = record["sanity"]["text"]
    assert text["expected"][text["first_difference"]] != text["observed"][text["first_difference"]]
    (numbers,) = text["prompts"]
    assert numbers["mean_divergence"] > numbers["limit"]
    assert record["metrics"] == []


TINY = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 4, "feed_forward": 512}


def test_a_text_is_judged_on_a_long_prompt_where_the_model_has_the_context(run, cluster):
    models = {"tiny": {"random": {**TINY, "context": 4352}}}
    limits = {"wall_s": 300, "progress_s": 60}
    record = run(plan_for(cluster, models=models, limits=limits))
    assert record["outcome"] == "ok", record["failure"]
    text = record["sanity"]["text"]
    assert [one["tokens"] for one in text["prompts"]] == [64, 4096]
    assert all(one["mean_divergence"] < one["limit"] for one in text["prompts"])
    (left_out,) = text["left_out"]
    assert left_out["tokens"] == 16384


def test_long_prompts_are_left_out_by_name_and_beyond_the_models_context(run, cluster):
    text = run(plan_for(cluster, sanity="short"))["sanity"]["text"]
    assert {one["reason"] for one in text["left_out"]} == {"the sweep has sanity: short"}
    text = run(plan_for(cluster))["sanity"]["text"]
    assert [one["tokens"] for one in text["prompts"]] == [64]


@pytest.fixture
def run_misled(run, nodes, cluster):
    """A run on a cluster file that says something else of each node's place on the fabric."""

    def one(changes_of):
        moved = tuple(
            dataclasses.replace(
                node,
                fabrics={
                    **node.fabrics,
                    "gbe5": dataclasses.replace(node.fabrics["gbe5"], **changes_of(node)),
                },
            )
            for node in cluster.nodes
        )
        before = nodes.nodes
        nodes.nodes = {
            node.name: dataclasses.replace(before[node.name], node=node) for node in moved
        }
        try:
            return run(plan_for(dataclasses.replace(cluster, nodes=moved)))
        finally:
            nodes.nodes = before

    return one


def test_an_engine_that_crosses_another_fabric_is_a_fallback(run_misled):
    record = run_misled(lambda node: {"interface": node.fabrics["gbe2g5"].interface})
    assert record["outcome"] == "fallback"
    assert "crossed another network, or none." in record["failure"]["reason"]
    assert not record["sanity"]["transport"]["proved"]


def test_an_engine_that_crosses_the_management_network_is_a_fallback(run_misled, cluster):
    addresses = management_addresses(cluster, management_subnet(cluster))
    record = run_misled(lambda node: {"address": addresses[node.name]})
    assert record["outcome"] == "fallback"
    assert (
        f"the management interface {MANAGEMENT_INTERFACE!r} carried"
        in (record["failure"]["reason"])
    )
    assert record["sanity"]["transport"]["counters"]["n1"]["fabric"]["bytes"] < 10_000


def test_a_model_that_does_not_fit_is_skipped_before_anything_starts(run, cluster):
    record = run(plan_for(cluster, parameters={"depth": [1_000_000_000]}))
    assert record["outcome"] == "skipped"
    assert record["commands"] == []
    assert "The model needs " in record["failure"]["reason"]
    assert "GiB too little; use more nodes" in record["failure"]["reason"]


@pytest.mark.parametrize(
    ("parallelism", "reference"),
    [("pipeline", "the same nodes, twice"), ("tensor", "2 nodes, pipeline")],
)
def test_text_of_a_model_that_fits_no_single_node_has_another_reference(
    run, cluster, monkeypatch, parallelism, reference
):
    # The weights alone are 40 MB; half of them and the rest are less.
    monkeypatch.setattr(memory, "capacity", lambda case, node, facts: 40_000_000)
    record = run(plan_for(cluster, matrix={"parallelism": [parallelism]}))
    assert record["outcome"] == "ok", record["failure"]
    assert record["sanity"]["text"]["reference"] == reference


@pytest.mark.parametrize("outcome", ["failed", "unsupported"])
def test_a_reference_that_the_engine_cannot_give_is_the_same_nodes_twice(
    run, cluster, monkeypatch, outcome
):
    asked = LlamaCpp.completer

    def no_pipeline(engine, run, context):
        if run.case.parallelism == "pipeline":
            raise RunFailure("This model has no pipeline.", outcome)
        return asked(engine, run, context)

    monkeypatch.setattr(LlamaCpp, "completer", no_pipeline)
    monkeypatch.setattr(memory, "capacity", lambda case, node, facts: 40_000_000)
    record = run(plan_for(cluster, matrix={"parallelism": ["tensor"]}))
    assert record["sanity"]["text"]["reference"] == "the same nodes, twice"


def test_options_of_llama_cpp_reach_the_programs(run, cluster):
    options = {"backend": ["cpu"], "load": ["none"], "flash_attn": ["on"], "n_ubatch": [64]}
    record = run(plan_for(cluster, parameters=options))
    assert record["outcome"] == "ok", record["failure"]
    bench = next(c["argv"] for c in record["commands"] if c["argv"][0].endswith("llama-bench"))
    for words in (["-dev", "RPC0/RPC1"], ["-fa", "on"], ["-ub", "64"], ["-lm", "none"]):
        assert words == bench[(place := bench.index(words[0])) : place + 2]
    assert {metric["conditions"]["n_ubatch"] for metric in record["metrics"]} == {64}


def test_a_gpu_that_no_node_has_is_skipped(run, cluster):
    record = run(plan_for(cluster, parameters={"backend": ["vulkan"]}))
    assert record["outcome"] == "skipped"
    assert record["failure"]["phase"] == "launch"
    assert "Node 'n1' has no device of vulkan for llama.cpp" in record["failure"]["reason"]


def test_after_all_that_the_next_run_is_ok(run, cluster):
    assert run(plan_for(cluster))["outcome"] == "ok"


def test_an_answer_that_nobody_foresaw_is_a_record_with_its_place_kept(
    run, cluster, tmp_path, monkeypatch
):
    def unforeseen(engine, run, context):
        raise TypeError("'NoneType' object is not iterable")

    monkeypatch.setattr(LlamaCpp, "completer", unforeseen)
    record = run(plan_for(cluster))
    assert record["outcome"] == "failed"
    assert record["failure"]["phase"] == "sanity"
    assert "(TypeError: 'NoneType' object is not iterable)" in record["failure"]["reason"]
    (trace,) = tmp_path.glob("raw/*/driver.traceback")
    assert "in unforeseen" in trace.read_text()


def test_a_secret_of_a_runs_programs_is_on_no_command_line_and_in_no_file(
    run, nodes, cluster, tmp_path, monkeypatch
):
    secret = "7c1e9a40d25b48f3b6607781cf0a9e12"  # noqa: S105 - of no machine
    own, seen = LlamaCpp.environment, []
    monkeypatch.setattr(
        LlamaCpp, "environment", lambda *given: {**own(*given), "RAY_AUTH_TOKEN": secret}
    )

    def on_phase(phase):
        if phase == "measure":  # the servers have it by then
            seen.extend(
                nodes.nodes[name].script(
                    "cat /proc/[0-9]*/cmdline; grep -ls RAY_AUTH_TOKEN /proc/[0-9]*/environ"
                )
                for name in ("n1", "n2")
            )

    record = run(plan_for(cluster), on_phase)
    assert record["outcome"] == "ok", record["failure"]
    assert all("rpc-server" in text and "/environ" in text for text in seen)
    assert len(seen) == 2
    assert not any(secret in text for text in seen)
    given = [command["environment"].get("RAY_AUTH_TOKEN") for command in record["commands"]]
    assert "[key]" in given
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not any(secret in text for text in files)
