"""Replicas among the strategies: predicted as one node each, ranked under a load, and served."""

import re
import shlex

import pytest

from nixwulf.core.text import Band
from nixwulf.inventory.cluster import load_cluster
from nixwulf.perf.scenarios.candidates import Candidate, Question, candidates
from nixwulf.perf.scenarios.facts import read_model
from nixwulf.perf.scenarios.forecast import EVEN, forecast
from nixwulf.results.identity import REPLICAS
from nixwulf.tune.options import GOALS, Request, measurement_of, predicted_time, read_subject
from nixwulf.tune.render import not_tried, serve_commands, serving
from nixwulf.tune.search import begin

MODEL = "gpt-oss-20b"


def question(cluster="ms-s1-max-4", **others):
    return Question(load_cluster(cluster), read_model(MODEL), **others)


def request(goal, cluster="ms-s1-max-4", concurrency=8):
    subject = read_subject(f"/models/{MODEL}.gguf")
    return Request(
        load_cluster(cluster), subject, GOALS[goal], ("llama.cpp",), 512, 128, concurrency, 3
    )


def of_nodes(asked, count, parallelism=REPLICAS):
    nodes = asked.cluster.nodes[:count]
    return forecast(asked, Candidate(nodes, parallelism))


def test_replicas_are_predicted_as_the_sum_of_single_nodes_with_their_part_of_the_requests():
    alone = of_nodes(question(batch=2), 1, "single")
    four = of_nodes(question(batch=8), 4)
    assert four.decode.value == pytest.approx(4 * alone.decode.value)
    assert four.prompt.value == pytest.approx(4 * alone.prompt.value)
    assert four.decode.low == pytest.approx(4 * alone.decode.low)
    assert sum(four.decode.parts.values()) == pytest.approx(1 / four.decode.value)
    assert EVEN in four.assumptions
    assert four.room.needs_gib == pytest.approx(alone.room.needs_gib)


def test_one_sequence_is_decoded_by_one_node_and_the_others_are_idle():
    alone = of_nodes(question(), 1, "single")
    three = of_nodes(question(), 3)
    assert three.decode.value == pytest.approx(alone.decode.value)
    assert "1 at once leave 2 replicas of 3 idle" in three.assumptions


def test_replicas_are_candidates_where_there_is_a_request_for_each():
    found, out = candidates(question(batch=3))
    assert [len(one.nodes) for one in found if one.parallelism == REPLICAS] == [2, 3]
    (reason,) = {one.reason for one in out if one.what.parallelism == REPLICAS}
    assert reason == "3 requests at once leave 1 node of 4 without one"
    assert not [one for one in candidates(question())[0] if one.parallelism == REPLICAS]


def test_idle_replicas_that_are_asked_for_are_predicted():
    found, _ = candidates(question(batch=2, nodes=(4,), parallelisms=(REPLICAS,)))
    assert [len(one.nodes) for one in found] == [4]


@pytest.mark.parametrize("goal", ["throughput", "ttft"])
def test_under_a_load_replicas_of_all_nodes_are_ranked_before_one_node(goal):
    state = begin(request(goal))
    value = {
        option.words: one.value for option, one in zip(state.options, state.first, strict=True)
    }
    assert value["4 nodes, replicas"] > value["2 nodes, replicas"]
    assert value["2 nodes, replicas"] > value["1 node, minisforum-ms-s1-max"]
    case = next(one.case for one in state.options if one.words == "4 nodes, replicas")
    assert (case.benchmark, case.fabric, case.parameters["concurrency"]) == ("serve", None, 8)


def test_one_request_at_a_time_has_no_replicas_and_the_search_says_why():
    asked = request("decode")
    assert not [one for one in begin(asked).options if one.candidate.parallelism == REPLICAS]
    assert "replicas: one request at a time is served by one node, which is ranked" in (
        not_tried(asked)
    )


def test_what_is_not_tried_is_named_with_the_reason():
    sentences = not_tried(request("throughput"))
    assert "vllm: it reads a folder of Hugging Face's form, not this model" in sentences
    assert "mesh-llm: --engine names others" in sentences
    assert any(one.startswith("prompts on some nodes and answers on others") for one in sentences)
    assert not any(one.startswith("llama.cpp") for one in sentences)


def test_the_first_token_waits_for_the_prompts_before_it_at_its_server():
    goal, asked = GOALS["ttft"], question(batch=8)

    def seconds(count, slots, parallelism):
        found = predicted_time(goal, of_nodes(asked, count, parallelism), 512, 128, slots)
        return sum(found.parts.values())

    one_prompt = 512 / of_nodes(question(batch=1), 1, "single").prompt.value
    assert seconds(4, (2, 2, 2, 2), REPLICAS) == pytest.approx(1.5 * one_prompt, rel=0.01)
    assert seconds(1, (8,), "single") == pytest.approx(4.5 * one_prompt, rel=0.01)


def test_a_time_is_ranked_by_its_reciprocal_and_shown_as_the_time():
    metric = {"name": "ttft", "unit": "ms", "value": 250.0, "samples": [250.0], "stddev": 0.0}
    record = {"metrics": [metric], "power": {}, "cluster": {}, "case": {"nodes": 1}}
    assert measurement_of(GOALS["ttft"], record).speed == pytest.approx(4.0)
    state = begin(request("ttft"))
    assert state.shown(Band(4.0, 2.0, 8.0)) == Band(250.0, 125.0, 500.0)
    assert state.unit == "ms"


def served():
    """The lines of two replicas of a measured run."""
    cluster = load_cluster("framework-2")
    names = [node.name for node in cluster.nodes]

    def ran(node, *argv):
        return {"node": node, "argv": list(argv), "environment": {}, "seconds": 1.0}

    arguments = ("-m", "/m.gguf", "--host", "/tmp/x.sock", "-np", "2", "-c", "1024")
    record = {
        "case": {
            "engine": "llama.cpp",
            "nodes": 2,
            "parallelism": REPLICAS,
            "parameters": {"n_prompt": 512, "n_gen": 128},
        },
        "commands": [ran(name, "/bin/llama-server", *arguments) for name in names],
    }
    return serving(record, cluster, 8), cluster


def test_each_replica_is_served_by_its_own_line_on_a_port_of_its_own():
    way, cluster = served()
    first, second = map(shlex.split, serve_commands(way, cluster, "framework-2").servers)
    assert [line[line.index("-L") + 1] for line in (first, second)] == [
        "8080:127.0.0.1:8080",
        "8081:127.0.0.1:8080",
    ]
    targets = [node.ssh for node in cluster.nodes]
    assert [line[-2] for line in (first, second)] == targets
    assert all("-np 4" in line[-1] for line in (first, second))


def test_each_replica_is_asked_on_its_own_port():
    way, cluster = served()
    lines = serve_commands(way, cluster, "framework-2")
    assert [re.search(r"127\.0\.0\.1:(\d+)/v1/", line)[1] for line in lines.then] == [
        "8080",
        "8081",
    ]
    assert not lines.first


def test_exo_places_the_model_on_each_replica_before_it_is_asked():
    cluster = load_cluster("mac-studio-4")
    names = [node.name for node in cluster.nodes[:2]]

    def ran(node):
        argv = ["/bin/exo", "--force-master", "--namespace", f"nixwulf-{node}"]
        return {"node": node, "argv": argv, "environment": {}, "seconds": 1.0}

    record = {
        "case": {"engine": "exo", "nodes": 2, "parallelism": REPLICAS, "parameters": {}},
        "model": {"name": "m", "hub": "org/m"},
        "commands": [ran(name) for name in names],
    }
    lines = serve_commands(serving(record, cluster, 2), cluster, "mac-studio-4")
    ports = [re.search(r"127\.0\.0\.1:(\d+)/", line)[1] for line in lines.then]
    assert ports == ["52415", "52415", "52416", "52416"]
    assert ["place_instance" in line for line in lines.then] == [True, False, True, False]
