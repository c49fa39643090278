"""What exo is asked, and what its answers mean, as two releases of it print them.

tests/fixtures/exo is made by tools/fixtures/exo.py, which runs exo's own API.
"""

import json
from pathlib import Path

import pytest

from nixwulf.plugins.engines import exo as exo_api
from nixwulf.plugins.engines.exo import ExoRequest, Instance
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.run import RunFailure

ID = "mlx-community/Llama-3.3-70B-Instruct-4bit"
FIXTURES = Path("tests/fixtures/exo")
RELEASES = ("v1.0.71", "b5375f8")
PLACED = Instance(
    "00000000-0000-0000-0000-000000000003",
    ID,
    {
        "node-b": "00000000-0000-0000-0000-000000000001",
        "node-a": "00000000-0000-0000-0000-000000000002",
    },
)


@pytest.fixture(params=RELEASES)
def answer(request):
    """Reads an answer of a release."""
    return lambda name: json.loads((FIXTURES / request.param / f"{name}.json").read_text())


def case(parallelism="tensor", transport="rdma", nodes=2):
    return Case(
        engine="exo",
        benchmark="serve",
        model="m",
        nodes=nodes,
        fabric="cable",
        transport=transport,
        parallelism=parallelism,
        parameters={},
        seed=1,
        samples=1,
        warm_up=False,
        model_digest=None,
    )


def test_the_requests_of_a_run_in_their_order():
    wanted = {"model_id": ID, "sharding": "Tensor", "instance_meta": "MlxJaccl", "min_nodes": 2}
    requests = [
        exo_api.NODES,
        exo_api.previews(ID),
        exo_api.INSTANCES,
        exo_api.placement(ID, "tensor", "rdma", 2),
        exo_api.DOWNLOADS,
        exo_api.RUNNERS,
        exo_api.greedy(ID, 1, 32),
        exo_api.deletion("i1"),
    ]
    assert requests == [
        ExoRequest("GET", "/state/topology/nodes"),
        ExoRequest("GET", "/instance/previews", query={"model_id": ID}),
        ExoRequest("GET", "/state/instances"),
        ExoRequest("POST", "/place_instance", wanted),
        ExoRequest("GET", "/state/downloads"),
        ExoRequest("GET", "/state/runners"),
        ExoRequest(
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
        ExoRequest("DELETE", "/instance/i1"),
    ]


def test_nodes_that_have_met_are_counted(answer):
    assert len(answer("nodes")) == 2


@pytest.mark.parametrize("parallelism", ["pipeline", "tensor"])
@pytest.mark.parametrize("transport", ["tcp", "rdma"])
def test_what_exo_previews_can_be_placed(answer, parallelism, transport):
    exo_api.require_placement(ID, case(parallelism, transport), answer("previews"))


def test_one_node_is_placed_as_a_ring_of_one(answer):
    exo_api.require_placement(ID, case("single", None, 1), answer("previews"))


def test_what_exo_does_not_preview_is_refused_with_its_reason(answer):
    reason = r"as Tensor, MlxJaccl on 2 nodes: Requested RDMA \(MlxJaccl\) but no RDMA-connected"
    with pytest.raises(RunFailure, match=reason):
        exo_api.require_placement(ID, case(), answer("previews-without-rdma"))
    exo_api.require_placement(ID, case(transport="tcp"), answer("previews-without-rdma"))
    with pytest.raises(RunFailure, match="on 3 nodes: it offers no such placement"):
        exo_api.require_placement(ID, case(nodes=3), answer("previews"))
    with pytest.raises(RunFailure, match="previewed no placements"):
        exo_api.require_placement(ID, case(), answer("no-runner"))


def test_the_placed_model_is_read_from_exos_instances(answer):
    assert exo_api.placed_instance(ID, (), answer("instances")) == PLACED


def test_no_instance_another_models_and_one_of_before_are_not_the_placed_model(answer):
    for model, before, name in [
        (ID, (), "no-instances"),
        ("other", (), "instances"),
        (ID, (PLACED.id,), "instances"),
    ]:
        with pytest.raises(RunFailure, match="did not place it; read the head's log"):
            exo_api.placed_instance(model, before, answer(name))


READY = ("RunnerReady", "RunnerRunning")


def test_a_model_is_ready_when_each_of_its_parts_is(answer):
    runners = answer("runners")  # a runner in each state, by the name of the state
    assert len(runners) == 11
    for state in set(runners) - {"RunnerFailed"}:
        parts = Instance("i", ID, {"node-a": "RunnerReady", "node-b": state})
        assert exo_api.is_ready(parts, runners) == (state in READY), state
    assert not exo_api.is_ready(Instance("i", ID, {"node-a": "not yet known"}), runners)


def test_a_part_that_failed_ends_the_run_with_what_exo_says_of_it(answer):
    parts = Instance("i", ID, {"node-a": "RunnerReady", "node-b": "RunnerFailed"})
    with pytest.raises(RunFailure, match=r"failed on a node of exo: Terminated \(signal=6"):
        exo_api.is_ready(parts, answer("runners"))


def test_a_failed_parts_diagnostics_are_in_the_reason():
    runners = json.loads((FIXTURES / "b5375f8" / "runners.json").read_text())
    with pytest.raises(RunFailure, match="Ring socket receive failed: errno 60"):
        exo_api.is_ready(Instance("i", ID, {"node-a": "RunnerFailed"}), runners)


def test_the_states_of_a_models_parts_leave_out_what_is_over():
    """Of a placement that hung in the lab, after three others."""
    runners = json.loads((FIXTURES.parent / "exo-lab" / "runners-silent.json").read_text())
    parts = Instance("i", ID, dict(enumerate([*runners][-2:])))
    assert exo_api.states(parts, runners) == "RunnerIdle, RunnerIdle"
    assert exo_api.states(Instance("i", ID, {"n1": "not yet known"}), runners) == "unknown"


def test_a_node_without_the_models_files_is_a_reason_with_the_folder_that_exo_looks_for(answer):
    downloads = answer("downloads")
    problem = exo_api.download_problem(PLACED, downloads)
    assert "Model files not found locally in offline mode" in problem
    assert "models/mlx-community--Llama-3.3-70B-Instruct-4bit' there." in problem
    here = Instance(PLACED.id, ID, {"node-a": PLACED.runners["node-a"]})
    assert exo_api.download_problem(here, downloads) is None
    other = Instance(PLACED.id, "other", PLACED.runners)
    assert exo_api.download_problem(other, downloads) is None


def test_tokens_of_a_chat_are_its_texts(answer):
    assert exo_api.tokens(answer("chat")) == ["A", " quick", " fox", "."]
    with pytest.raises(RunFailure, match="answered no tokens"):
        exo_api.tokens(answer("no-runner"))
