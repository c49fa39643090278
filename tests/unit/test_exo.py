"""What exo is started with and asked, and what its answers mean; not yet run on hardware."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch_plan import planned
from nixwulf.engines import exo_api
from nixwulf.engines.exo import ENGINE, ENVIRONMENT, argv
from nixwulf.engines.exo_api import Instance, Request
from nixwulf.parsers import ParseError
from nixwulf.parsers.exo import parse, recognises
from nixwulf.run import RunFailure

ID = "mlx-community/Llama-3.3-70B-Instruct-4bit"


@pytest.fixture
def plan(tmp_path):
    def make(transport="rdma", parallelism="tensor", nodes=2, fabric="cable-ab"):
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


def test_every_node_is_alone_with_the_run_in_its_namespace_and_only_the_head_answers(plan):
    run = plan()
    common = "--namespace nixwulf-run --zenoh-port 52414 --discovery-port 52413"
    assert [" ".join(argv(run, node)) for node in run.nodes] == [
        f"/bin/exo --force-master {common}",
        f"/bin/exo --no-api {common}",
    ]
    assert ENVIRONMENT["EXO_OFFLINE"] == "true"
    assert "EXO_LIBP2P_NAMESPACE" not in ENVIRONMENT


@pytest.mark.parametrize(
    ("transport", "parallelism", "meta", "sharding"),
    [("tcp", "pipeline", "MlxRing", "Pipeline"), ("rdma", "tensor", "MlxJaccl", "Tensor")],
)
def test_the_requests_of_a_run_in_their_order(plan, transport, parallelism, meta, sharding):
    run = plan(transport, parallelism)
    wanted = {"model_id": ID, "sharding": sharding, "instance_meta": meta, "min_nodes": 2}
    requests = [
        exo_api.NODES,
        exo_api.previews(ID),
        exo_api.placement(ID, run.case),
        exo_api.awaiting(ID),
        exo_api.runner_state("r1"),
        exo_api.greedy(ID, 1, 32),
        exo_api.deletion("i1"),
        exo_api.INSTANCES,
    ]
    assert requests == [
        Request("GET", "/state/topology/nodes"),
        Request("GET", "/instance/previews", query={"model_id": ID}),
        Request("POST", "/place_instance", wanted),
        Request("GET", "/instance/await", query={"model_id": ID, "timeout_seconds": "300"}),
        Request("GET", "/state/runners/r1"),
        Request(
            "POST",
            "/v1/chat/completions",
            {
                "model": ID,
                "messages": [
                    {"role": "user", "content": "The quick brown fox jumps over the lazy dog."}
                ],
                "max_tokens": 32,
                "temperature": 0,
                "seed": 1,
                "logprobs": True,
                "stream": False,
            },
        ),
        Request("DELETE", "/instance/i1"),
        Request("GET", "/state/instances"),
    ]


def instance(nodes):
    runners = {f"node{n}": f"r{n}" for n in range(nodes)}
    shards = {"nodeToRunner": runners, "runnerToShard": {runner: {} for runner in runners.values()}}
    return {"MlxJacclInstance": {"instanceId": "i1", "shardAssignments": shards}}


def preview(nodes=2, sharding="Tensor", error=None):
    found = {"sharding": sharding, "instance_meta": "MlxJaccl", "error": error}
    return {**found, "instance": None if error else instance(nodes)}


@pytest.mark.parametrize(
    ("previews", "problem"),
    [
        ([preview()], None),
        ([preview(1), preview(2)], None),
        ([preview(1)], "on 2 nodes: it offers no such placement"),
        ([preview(2, "Pipeline")], "it offers no such placement"),
        ([preview(error="no RDMA link between node0 and node1")], "no RDMA link between"),
        ([], "it offers no such placement"),
        ([{"sharding": "Tensor"}], "previewed no placements"),
    ],
)
def test_a_placement_that_exo_does_not_preview_is_told_with_its_reason(plan, previews, problem):
    told = exo_api.placement_problem(ID, plan().case, {"previews": previews})
    assert problem in told if problem else told is None


def test_the_placed_model_is_read_from_the_stream_between_comments():
    event = json.dumps({"type": "ready", "instance": instance(2)})
    found = exo_api.ready_instance(f": keep-alive\n\ndata: {event}\n\n")
    assert found == Instance("i1", ("r0", "r1"))
    with pytest.raises(RunFailure, match=r"No instance found for model x"):
        exo_api.ready_instance(
            'data: {"type": "timeout", "message": "No instance found for model x"}'
        )
    with pytest.raises(RunFailure, match="no event came"):
        exo_api.ready_instance("")


def test_a_part_is_ready_loading_or_failed():
    assert exo_api.runner_is_ready({"RunnerReady": {}})
    assert not exo_api.runner_is_ready({"RunnerLoading": {"layersLoaded": 3}})
    assert not exo_api.runner_is_ready([])
    with pytest.raises(RunFailure, match="errno 22"):
        exo_api.runner_is_ready({"RunnerFailed": {"errorMessage": "RTR failed with errno 22"}})


def test_tokens_of_a_chat_are_its_texts():
    content = [{"token": " a"}, {"token": " b"}]
    answer = {"choices": [{"logprobs": {"content": content}}]}
    assert exo_api.tokens(answer) == [" a", " b"]
    with pytest.raises(RunFailure, match="answered no tokens"):
        exo_api.tokens({"choices": []})


def test_what_exo_cannot_run_is_left_out_with_the_reason(plan):
    point = {"benchmark": "serve", "parameters": {"api": "completions"}, "random": None}
    assert "chat only" in ENGINE.unsupported(point)
    assert "not random weights" in ENGINE.unsupported({**point, "random": object()})
    run = plan()
    run.model = "/models/folder"
    with pytest.raises(RunFailure, match="give the model an id"):
        ENGINE.start(run)
    assert not run.started


ROW = {
    "elapsed_s": 2.5,
    "model_id": ID,
    "placement_sharding": "Tensor",
    "placement_instance_meta": "MlxJaccl",
    "placement_nodes": 2,
    "concurrency": 1,
    "stats": {
        "prompt_tokens": 512,
        "generation_tokens": 128,
        "prompt_tps": 700.5,
        "generation_tps": 14.25,
        "peak_memory_usage": {"inBytes": 40_000_000_000},
    },
}


def test_rows_of_exos_own_benchmark_are_read():
    (row,) = parse(json.dumps({"runs": [ROW], "cluster": {}}))
    assert (row.prompt_tps, row.generation_tps, row.nodes) == (700.5, 14.25, 2)
    assert (row.prompt_tokens, row.generation_tokens, row.peak_memory_bytes) == (
        512,
        128,
        4 * 10**10,
    )
    assert recognises(json.dumps({"runs": [ROW]}))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, "at least one of 'runs'"),
        ({"runs": []}, "at least one of 'runs'"),
        ({"runs": [{**ROW, "stats": None}]}, "figures of a whole answer"),
        ({"runs": [ROW, {**ROW, "placement_nodes": 0}]}, "figures of a whole answer"),
        ({"runs": [{**ROW, "elapsed_s": -1}]}, "figures of a whole answer"),
        ({"runs": [{**ROW, "stats": {}}]}, "the key 'prompt_tokens'"),
    ],
)
def test_a_row_without_figures_is_refused_with_its_number(document, expected):
    with pytest.raises(ParseError, match=rf"^exo_bench: run \d: expected {expected}"):
        parse(json.dumps(document))


def test_a_text_cut_short_anywhere_gives_the_parsers_own_error():
    text = json.dumps({"runs": [ROW]}, indent=1)
    for end in range(len(text)):
        with pytest.raises(ParseError):
            parse(text[:end])


@given(st.recursive(st.none() | st.floats() | st.text(), st.lists))
def test_any_json_gives_rows_or_the_parsers_own_error(value):
    for text in (json.dumps(value), json.dumps({"runs": value}), json.dumps({"runs": [value]})):
        with suppress(ParseError):
            parse(text)
