"""Conversations with a real llama-server: what it had in its cache, and its clock beside ours."""

import json
import statistics
from functools import partial
from itertools import pairwise

import pytest
from lab_under_test import Silent, recorded

from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

SERVERS_LEFT = "grep -lsE 'rpc-server|llama-server' /proc/[0-9]*/comm || true"
# no output: parameters of a case
ASKED = {"turns": 4, "system": 500, "message": 100, "insertion": 300, "n_gen": 16, "threads": 1}


def plan_for(cluster, **parameters):
    document = {
        "name": "session",
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "benchmark": ["session"],
            "model": ["tiny"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {name: [value] for name, value in (ASKED | parameters).items()},
        },
        "samples": 2,
        "limits": {"wall_s": 120, "progress_s": 40},
    }
    return make_plan(parse_sweep(document, "session.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded, nodes, tmp_path, SERVERS_LEFT)


def answers_of(folder):
    (file,) = folder.glob("raw/*/answers.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def samples_of(record, name):
    assert record["outcome"] == "ok", record.get("failure")
    found = [one for one in record["metrics"] if one["name"] == name]
    return {one["conditions"].get("turn"): one["samples"] for one in found}


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_each_of_two_sessions_finds_its_turn_before_in_the_cache(run, cluster, tmp_path, api):
    record = run(plan_for(cluster, concurrency=2, api=api))
    shares = samples_of(record, "cached_share")
    answers = answers_of(tmp_path)
    assert len(answers) == 2 * 2 * 4
    for turn, found in shares.items():
        of_turn = [one for one in answers if one["turn"] == turn]
        own = [100 * (1 - one["timings"]["prompt_n"] / one["prompt_tokens"]) for one in of_turn]
        assert found == pytest.approx(own, abs=1)
    for before, one in pairwise(answers):
        if one["turn"] > 1:
            # Less the end of a chat's template, which stands behind the answer in the next turn.
            assert one["cached_tokens"] >= before["prompt_tokens"] - 64
    assert max(shares[1]) < 10
    assert not any("less in the cache" in words for words in record.get("warnings", ()))
    server = record["commands"][-1]
    assert server["environment"]["LLAMA_ARG_CACHE_RAM"] == "0"
    assert "LLAMA_ARG_CACHE_PROMPT" not in server["environment"]


def test_without_a_common_beginning_every_turn_is_computed_whole(run, cluster, tmp_path):
    record = run(plan_for(cluster, cache="miss", text="prose"))
    assert max(map(max, samples_of(record, "cached_share").values())) < 5
    first = next(one for one in answers_of(tmp_path) if one["turn"] == 1)
    assert first["prompt_tokens"] == pytest.approx(500 + 100, abs=8)


def test_the_time_to_first_token_of_a_turn_is_that_of_the_server(run, cluster):
    record = run(plan_for(cluster))
    ours, servers = (samples_of(record, name) for name in ("ttft", "server_prompt"))
    pairs = [pair for turn in ours for pair in zip(ours[turn], servers[turn], strict=True)]
    assert statistics.median(one / other for one, other in pairs) == pytest.approx(1, abs=0.15)
