"""What SGLang is started with on each node, by its sources; the project has never run it."""

import pytest

from launch_plan import planned
from nixwulf.plugins.engines import devices
from nixwulf.plugins.engines.sglang import ENGINE, Generate, context_of, environment, positions
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.openai import Position
from nixwulf.plugins.runtime.run import RunFailure

MODEL = {"path": "/models/Qwen3-8B"}
# hand-made: two tokens (form: /generate of SGLang 0.5.10, srt/managers/tokenizer_manager.py)
ANSWER = {
    "text": "ab",
    "output_ids": [5, 7],
    "meta_info": {
        "output_token_logprobs": [[-0.25, 5, None], [-1.5, 7, None]],
        "output_top_logprobs": [[[-0.25, 5, None], [-2.0, 8, None]], None],
    },
}


@pytest.fixture
def plan(tmp_path):
    def make(transport="tcp", model=MODEL, answers=None, cluster="dgx-spark-2", **parameters):
        matrix = {
            "engine": ["sglang"],
            "benchmark": ["serve"],
            "nodes": [parameters.pop("nodes", 2)],
            "fabric": ["qsfp-a"],
            "transport": [transport],
            "parallelism": [parameters.pop("parallelism", "tensor")],
            "parameters": {key: [value] for key, value in parameters.items()},
        }
        return planned(tmp_path, cluster, model, matrix, answers, sglang="/bin/sglang")

    return make


def test_each_node_has_a_rank_and_all_meet_at_the_head_on_the_fabric(plan):
    run = plan()
    ENGINE.start(run)
    ENGINE.launch(run, "sglang-2-tensor")
    common = (
        "/bin/sglang serve --model-path /models/Qwen3-8B --host 127.0.0.1 --port 30000 "
        "--random-seed 1 --mem-fraction-static 0.76 --dtype auto --tp-size 2 --nnodes 2 "
        "--node-rank {} --dist-init-addr 10.100.1.1:20000"
    )
    assert [(one.node, " ".join(one.argv)) for one in run.started] == [
        ("spark2", common.format(1)),
        ("spark1", common.format(0)),
    ]
    assert [process.background for process in run.owned] == [True, False]


def test_every_rank_has_its_nodes_own_variables_of_nccl(plan):
    run = plan(transport="rdma")
    ENGINE.launch(run, "sglang-2-tensor")
    worker, head = run.started
    assert worker.environment == environment(run, run.workers[0])
    assert worker.environment["SGLANG_HOST_IP"] == "10.100.1.2"
    assert head.environment["SGLANG_HOST_IP"] == "10.100.1.1"
    assert worker.environment["NCCL_SOCKET_IFNAME"] == "=enp1s0f0np0"
    assert worker.environment["NCCL_IB_HCA"] == "=mlx5_0"
    assert worker.environment["HF_HUB_OFFLINE"] == "1"


def test_a_pipeline_and_what_a_sweep_asks_for_are_on_the_command_line(plan):
    run = plan(
        parallelism="pipeline",
        max_model_len=4096,
        max_num_seqs=8,
        dtype="bfloat16",
        gpu_memory_percent=50,
        arguments="--disable-cuda-graph",
    )
    ENGINE.launch(run, "sglang-2-pipeline")
    words = " ".join(run.started[0].argv)
    assert "--mem-fraction-static 0.5 --dtype bfloat16 --context-length 4096" in words
    assert "--max-running-requests 8 --pp-size 2 --disable-cuda-graph --nnodes 2" in words


def test_one_node_alone_has_no_ranks_and_no_fabric(plan):
    run = plan(nodes=1, parallelism="single")
    ENGINE.launch(run, "sglang-1-single")
    (server,) = run.started
    assert "--nnodes" not in server.argv
    assert server.environment == {"PYTHONFAULTHANDLER": "1", "HF_HUB_OFFLINE": "1"}


# no output: values of the parameter, and SGLang's names of them
@pytest.mark.parametrize(
    ("draft", "given"),
    [
        ("ngram", "NGRAM --speculative-num-draft-tokens 6"),
        (
            "mtp",
            "NEXTN --speculative-num-draft-tokens 6 --speculative-num-steps 5 "
            "--speculative-eagle-topk 1",
        ),
        (
            "/models/small",
            "STANDALONE --speculative-num-draft-tokens 6 --speculative-num-steps 5 "
            "--speculative-eagle-topk 1 --speculative-draft-model-path /models/small",
        ),
    ],
)
def test_a_draft_is_given_with_its_tokens_and_steps_are_counted(plan, draft, given):
    run = plan(draft=draft, draft_tokens=5)
    run.draft = draft if draft.startswith("/") else ""
    ENGINE.launch(run, "sglang-draft-2-tensor")
    for started in run.started:
        words = " ".join(started.argv)
        assert f"--enable-metrics --speculative-algorithm {given}" in words


@pytest.mark.parametrize(
    ("device", "found"), [("cpu", "computes on the CPU"), ("none", "finds no device")]
)
def test_sglang_beside_the_gpu_of_a_node_is_failed(plan, device, found):
    run = plan(answers={"script": f"{devices.MARK} {device}\n"})
    with pytest.raises(RunFailure, match=f"sglang on node 'spark1' {found}, and the") as failure:
        ENGINE.start(run)
    assert failure.value.outcome == "failed"
    assert run.started == []


def test_channels_over_sockets_contradict_rdma(plan):
    run = plan(transport="rdma")
    ENGINE.launch(run, "sglang-2-tensor")
    # no output: NCCL's line of a channel, as its other tests have it
    line = "spark1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{}/0\n"
    run.raw.mkdir()
    for process in run.owned:
        process.stdout.write_text(line.format("Socket"))
        process.stderr.write_text("")
    assert "NCCL crossed NET/Socket, not NET/IB" in ENGINE.transport_problem(run)
    for process in run.owned:
        process.stdout.write_text(line.format("IB"))
    assert ENGINE.transport_problem(run) is None


@pytest.mark.parametrize("words", ["--tp-size 4", "--tp 4", "--node-rank=1", "--dist-init-addr a"])
def test_what_the_driver_sets_is_refused_among_arguments(words):
    problem = passthrough.problem(
        {"arguments": words}, ENGINE.reserved_arguments, ENGINE.reserved_variables
    )
    assert "itself; use the ax" in problem


class Server:
    """Answers as SGLang's server does, and keeps what it was asked."""

    model = "/models/Qwen3-8B"

    def __init__(self, run):
        self.run, self.asked = run, []

    def post(self, path, request):
        self.asked.append((path, request))
        if path == "/tokenize":
            return {"tokens": list(range(len(request["prompt"]))), "max_model_len": 4096}
        return ANSWER


def test_texts_are_asked_for_by_the_numbers_of_their_tokens(plan):
    server = Server(plan())
    completer = Generate(server, context_of(server))
    assert completer.context == 4096
    assert len(completer.prompt(16)) == 16
    answer = completer.complete([1, 2], [3], 2)
    assert answer == (Position(5, {5: -0.25, 8: -2.0}), Position(7, {}))
    path, request = server.asked[-1]
    assert (path, request["input_ids"]) == ("/generate", [1, 2, 3])
    with pytest.raises(RunFailure, match="asked for 3 tokens and gave 2"):
        completer.complete([1], [], 3)


# no output: answers that are none
@pytest.mark.parametrize("answer", [None, {}, {"meta_info": {}}, {"meta_info": {"output_ids": 1}}])
def test_an_answer_without_tokens_is_failed(answer):
    with pytest.raises(RunFailure, match="The server gave no tokens"):
        positions(answer)


def test_a_draft_over_a_pipeline_and_too_much_memory_are_left_out(plan):
    case = plan().case
    parameters = {**case.parameters, "draft": "ngram"}
    point = {"nodes": 2, "parallelism": "pipeline", "parameters": parameters}
    assert ENGINE.unsupported(point) == "SGLang has no speculative decoding over a pipeline"
    point = {
        "nodes": 2,
        "parallelism": "tensor",
        "parameters": case.parameters | {"gpu_memory_percent": 101},
    }
    assert ENGINE.unsupported(point) == "gpu_memory_percent is above 100"
