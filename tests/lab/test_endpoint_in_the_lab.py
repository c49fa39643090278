"""A llama-server that somebody else has started on a node of the lab, measured as it is."""

import json
import re
import statistics
import threading
import time
from functools import partial

import pytest
from lab_under_test import Silent, llama_server, model_of_server, recorded

from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

PORT, LOCKED = 18080, 18081
URL = f"http://127.0.0.1:{PORT}"
KEY = "s3cr3t-of-the-endpoint"
# The servers of these tests go on; no run starts another one.
LEFT = "grep -ls rpc-server /proc/[0-9]*/comm || true"
# By its port on the command line, for the lab has several.
SIGNAL = """
for one in /proc/[0-9]*; do
  case "$(tr "\\0" " " <"$one/cmdline")" in
    *llama-server*" --port $1 "*) kill -s "$2" "${one#/proc/}" ;;
  esac
done 2>/dev/null
"""
# The same weights, by a server that the driver starts.
OURS = {
    "engine": ["llama.cpp"],
    "model": {"random": {"layers": 4}},
    "url": None,
    "threads": 1,
}
LOAD = {"n_prompt": 64, "n_gen": 32, "requests": 4}
TALK = {"turns": 2, "system": 64, "message": 16, "insertion": 0, "n_gen": 8}


def plan_for(cluster, benchmark="serve", nodes=1, samples=1, progress_s=60, **given):
    model = given.pop("model", {"served": "mine"})
    matrix = {
        "engine": given.pop("engine", ["endpoint"]),
        "benchmark": [benchmark],
        "model": ["it"],
        "nodes": [nodes],
        "fabric": ["rdma-like"],
        "parallelism": ["single" if nodes == 1 else "pipeline"],
    }
    load = {"serve": LOAD, "session": TALK}.get(benchmark, {})
    parameters = {"url": URL, **load, **given}
    matrix["parameters"] = {key: [value] for key, value in parameters.items() if value is not None}
    document = {
        "name": "endpoint",
        "models": {"it": model},
        "matrix": matrix,
        "samples": samples,
        "limits": {"wall_s": 120, "progress_s": progress_s},
    }
    return make_plan(parse_sweep(document, "endpoint.yaml"), cluster)


def endless(cluster, progress_s=4, **given):
    """Many short passes: whatever happens after the first one happens in a stream."""
    return plan_for(cluster, samples=500, progress_s=progress_s, requests=2, **given)


def during_passes(run, nodes, folder, signal, plan, port=PORT):
    """The record of a run whose server gets a signal once a pass has ended."""

    def watch():
        deadline = time.monotonic() + 60
        while not list(folder.glob("raw/*/answers.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.02)
        nodes.nodes["n1"].script(SIGNAL, str(port), signal)

    def on_phase(phase):
        if phase == "measure":
            threading.Thread(target=watch, daemon=True).start()

    return run(plan, on_phase)


def median(metric):
    return statistics.median(metric["samples"])


@pytest.fixture(scope="module")
def nodes(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    with session.session(plan_for(cluster, **OURS), Silent()) as connected:
        head = connected.nodes["n1"]
        open_one = llama_server(head, folder, PORT, "-a", "mine", "-np", "1", "-c", "2048")
        locked = llama_server(head, folder, LOCKED, "-a", "mine", "--api-key", KEY)
        with open_one, locked:
            yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, LEFT)


def metrics_of(record):
    assert record["outcome"] == "ok", record.get("failure")
    return {metric["name"]: metric for metric in record["metrics"]}


def test_what_runs_is_measured_as_it_is_and_says_what_it_is(run, cluster, tmp_path):
    record = run(plan_for(cluster))
    assert {"ttft", "throughput", "server_decode"} <= metrics_of(record).keys()
    assert record["engine"]["program"] == "llama-server"
    assert re.fullmatch(r"llama-server b\d+-\w+", record["engine"]["version"])
    assert record["model"] == {"name": "it", "served": "mine"}
    assert record["commands"] == []
    text = record["sanity"]["text"]
    assert text["agrees"]
    assert text["judged_by"] == "log-probabilities"
    assert text["reference"] == "not compared: the endpoint itself, asked twice"
    assert text["cpu"].keys() == {"left_out"}
    assert "warnings" not in record or "not proved" not in repr(record["warnings"])
    answers = [json.loads(line) for line in next(tmp_path.glob("raw/*/answers.jsonl")).open()]
    assert {answer["model"] for answer in answers} == {"mine"}
    assert {answer["tokens"] for answer in answers} == {32}


def test_decode_is_that_of_the_same_server_when_the_driver_starts_it(run, cluster):
    theirs = metrics_of(run(plan_for(cluster)))
    ours = metrics_of(run(plan_for(cluster, **OURS)))
    assert 1 / 3 < median(theirs["server_decode"]) / median(ours["server_decode"]) < 3


def test_quality_is_what_llama_cpp_gives_for_the_same_weights(run, cluster):
    asked = {"benchmark": "quality", "positions": 48, "n_prompt": 256, "needles": 2}
    theirs = metrics_of(run(plan_for(cluster, **asked)))
    ours = metrics_of(run(plan_for(cluster, **OURS, **asked)))
    assert theirs["perplexity"]["value"] == pytest.approx(ours["perplexity"]["value"], rel=1e-3)
    assert theirs["divergence"]["value"] < 1e-6
    assert theirs["needle_recall"]["value"] == ours["needle_recall"]["value"]
    assert "type_k" not in theirs["perplexity"]["conditions"]


def test_two_nodes_are_counted_and_prove_nothing_of_a_server_that_was_there(run, cluster):
    record = run(plan_for(cluster, nodes=2))
    assert metrics_of(record)
    transport = record["sanity"]["transport"]
    assert not transport["proved"]
    assert transport["counters"].keys() == {"n1", "n2"}
    (warning,) = (one for one in record["warnings"] if "transport" in one)
    assert warning.startswith("The transport is not proved: the driver did not start the server")
    assert record["power"]["nodes"].keys() == {"n1", "n2"}
    assert record["fabric"]["links"][0]["rtt_after"]


def test_a_run_again_has_other_prompts_than_those_in_the_servers_cache(run, cluster, tmp_path):
    for _ in range(2):
        record = run(plan_for(cluster, n_prompt=256))
        assert not [one for one in record.get("warnings", ()) if "from its cache" in one]
        answers = [json.loads(line) for line in next(tmp_path.glob("raw/*/answers.jsonl")).open()]
        assert max(answer["cached_tokens"] for answer in answers) < 0.1 * 256


@pytest.mark.parametrize("url", [f"{URL}/v1", f"{URL}/v1/chat/completions", f"{URL}/"])
def test_an_address_is_taken_as_it_is_pasted(run, cluster, url):
    assert metrics_of(run(plan_for(cluster, url=url, requests=1, api="chat")))


def failure_of(record):
    assert record["outcome"] == "failed"
    assert "metrics" not in record or not record["metrics"]
    return record["failure"]["reason"]


def test_a_model_that_the_server_does_not_have_is_failed_with_those_it_has(run, cluster):
    reason = failure_of(run(plan_for(cluster, model={"served": "other:3b"})))
    assert reason == (
        f"'{URL}' does not list the model 'other:3b'; it has 'mine': write one of them as served "
        "in the sweep."
    )


def test_an_address_where_nothing_listens_is_a_sentence_with_what_to_try(run, cluster):
    reason = failure_of(run(plan_for(cluster, url="http://127.0.0.1:18099")))
    assert reason.startswith("Node 'n1' gets no answer from 'http://127.0.0.1:18099' (")
    assert "; a node of the lab sees no server of this machine, give --cluster); start" in reason
    assert reason.endswith("'curl http://127.0.0.1:18099/v1/models' there has to list its models.")


def test_a_key_is_taken_from_the_drivers_environment_and_is_in_nothing_that_is_kept(
    run, cluster, tmp_path, monkeypatch
):
    locked = {"url": f"http://127.0.0.1:{LOCKED}", "environment": {"OPENAI_API_KEY": None}}
    without = failure_of(run(plan_for(cluster, url=locked["url"])))
    assert "answered 401: it wants a key; write environment: [{OPENAI_API_KEY: null}]" in without
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "run 'export OPENAI_API_KEY=...'" in failure_of(run(plan_for(cluster, **locked)))
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}-of-another")
    wrong = failure_of(run(plan_for(cluster, **locked)))
    assert wrong.endswith("it does not take the key in OPENAI_API_KEY; export the right one.")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    record = run(plan_for(cluster, **locked))
    assert metrics_of(record)
    assert record["case"]["parameters"]["environment"] == "OPENAI_API_KEY"
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) > 2
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert "clear" not in str(record.get("warnings"))
    far = f"http://{next(iter(cluster.nodes[0].all_ends)).address}:{LOCKED}"
    assert f"{far!r} crosses the network in clear" in str(
        run(plan_for(cluster, **locked | {"url": far}))["warnings"]
    )


def test_a_server_that_stands_still_in_a_stream_is_a_hang_and_goes_on_afterwards(
    run, nodes, cluster, tmp_path
):
    record = during_passes(run, nodes, tmp_path, "STOP", endless(cluster))
    nodes.nodes["n1"].script(SIGNAL, str(PORT), "CONT")
    assert record["outcome"] == "hang"
    assert record["failure"]["reason"].startswith("The endpoint was silent for 4 s")
    assert metrics_of(run(plan_for(cluster, requests=1)))


def test_a_server_that_is_ended_in_a_stream_is_failed_at_once(run, nodes, cluster, tmp_path):
    port = PORT + 2
    with llama_server(nodes.nodes["n1"], tmp_path, port, "-a", "mine"):
        plan = endless(cluster, url=f"http://127.0.0.1:{port}", progress_s=60)
        record = during_passes(run, nodes, tmp_path, "KILL", plan, port)
    assert "The connection to the endpoint broke after" in failure_of(record)


def test_a_session_has_what_the_server_kept_of_the_turn_before(run, cluster):
    record = run(plan_for(cluster, "session"))
    assert record["outcome"] == "ok", record.get("failure")
    shares = {
        metric["conditions"]["turn"]: metric["samples"]
        for metric in record["metrics"]
        if metric["name"] == "cached_share"
    }
    # All conversations begin with the template's words, and with the same word by chance.
    assert max(shares[1]) < 25 < min(shares[2])


def test_a_server_that_drafts_is_shown_with_what_it_accepted(run, nodes, cluster, tmp_path):
    port, model = PORT + 3, model_of_server()
    drafts = ["-md", model, "--spec-type", "draft-simple", "-ngld", "0"]
    with llama_server(nodes.nodes["n1"], tmp_path, port, "-a", "mine", "-np", "1", *drafts):
        record = run(plan_for(cluster, url=f"http://127.0.0.1:{port}"))
    metrics = metrics_of(record)
    assert min(metrics["acceptance"]["samples"]) == 100, "a model agrees with itself"
    # Drafts that were all kept come in bursts: read at once by a busy machine they have no decode.
    bulk = any("came in bulk" in one for one in record.get("warnings", ()))
    assert bulk or metrics["decode"]["observed"]["acceptance"] == "100.0 %"
    assert min(metrics["tokens_per_step"]["samples"]) > 1
    assert "itl" not in metrics
