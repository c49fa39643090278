"""What vLLM is started with on each node; not yet run on such hardware by this project."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from launch_plan import Answering, planned
from nixwulf.inventory.fabrics import Attachment
from nixwulf.outputs import vllm
from nixwulf.outputs.vllm import parse_serve
from nixwulf.plugins.benchmarks import vllm_bench
from nixwulf.plugins.engines import devices
from nixwulf.plugins.engines.vllm import ENGINE, environment
from nixwulf.plugins.engines.vllm import ray as vllm_ray
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.results.record import sealed, validate
from record_factory import make_record

MODEL = {"path": "/models/Qwen3-8B"}
RAY = Path("tests/fixtures/ray")
TWO_NODES = (RAY / "status-2-nodes.txt").read_text()
# no output: the lines of two nodes, twice
THREE_NODES = TWO_NODES + TWO_NODES


@pytest.fixture
def plan(tmp_path):
    def make(transport="tcp", model=MODEL, cluster="dgx-spark-2", answers=None, **parameters):
        matrix = {
            "engine": ["vllm"],
            "benchmark": ["vllm-bench"],
            "nodes": [parameters.pop("nodes", 2)],
            "fabric": [parameters.pop("fabric", "qsfp-a")],
            "transport": [transport],
            "parallelism": [parameters.pop("parallelism", "tensor")],
            "parameters": {key: [value] for key, value in parameters.items()},
        }
        answers = {"status": TWO_NODES, **(answers or {})}
        programs = {"vllm": "/bin/vllm", "ray": "/bin/ray"}
        return planned(tmp_path, cluster, model, matrix, answers, **programs)

    return make


def test_ray_is_started_on_the_head_then_on_the_others_and_stopped_after_each(plan):
    run = plan()
    ENGINE.start(run)
    common = "--num-gpus=1 --disable-usage-stats --block"
    head = "start --head --port=6379 --include-dashboard=false --node-ip-address=10.100.1.1"
    worker = "start --address=10.100.1.1:6379 --node-ip-address=10.100.1.2"
    assert [(started.node, " ".join(started.argv)) for started in run.started] == [
        ("spark1", f"/bin/ray {head} {common}"),
        ("spark2", f"/bin/ray {worker} {common}"),
    ]
    assert all(started.after == ["/bin/ray", "stop", "--force"] for started in run.started)


def test_rays_token_is_on_no_command_line(plan, monkeypatch):
    commands, run = [], plan()
    answer = Answering.run

    def asked(node, command, **options):
        commands.append((" ".join(command), options.get("stdin") or ""))
        return answer(node, command, **options)

    monkeypatch.setattr(Answering, "run", asked)
    ENGINE.start(run)
    secrets = {started.environment["RAY_AUTH_TOKEN"] for started in run.started}
    (secret,) = secrets
    assert any("status" in words for words, _ in commands)
    assert not any(secret in words for words, _ in commands)
    assert any(secret in given for _, given in commands)
    assert not any(secret in " ".join(started.argv) for started in run.started)


def test_the_server_asks_ray_for_its_workers(plan):
    run = plan()
    ENGINE.launch(run, "vllm-2-tensor")
    (server,) = run.started
    assert server.node == "spark1"
    assert " ".join(server.argv) == (
        "/bin/vllm serve /models/Qwen3-8B --seed 1 --tensor-parallel-size 2 "
        "--gpu-memory-utilization 0.76 --dtype auto --enforce-eager --host 127.0.0.1 --port 8000 "
        "--distributed-executor-backend ray"
    )
    assert server.environment["RAY_ADDRESS"] == "10.100.1.1:6379"
    assert server.environment["RAY_DEDUP_LOGS"] == "0"


def test_without_ray_each_node_has_a_rank_and_only_the_head_serves(plan):
    run = plan(executor="mp", parallelism="pipeline")
    ENGINE.start(run)
    ENGINE.launch(run, "vllm-2-tensor")
    worker, head = run.started
    meeting = "--master-addr 10.100.1.1 --master-port 29501"
    assert worker.node == "spark2"
    assert " ".join(worker.argv).endswith(f"--nnodes 2 --node-rank 1 {meeting} --headless")
    assert "--host" not in worker.argv
    assert "--pipeline-parallel-size 2" in " ".join(worker.argv)
    assert head.node == "spark1"
    assert " ".join(head.argv).endswith(f"--nnodes 2 --node-rank 0 {meeting}")


def test_three_sparks_on_cables_meet_on_their_network_and_cross_every_port(plan):
    on_ring = {"cluster": "dgx-spark-3", "nodes": 3, "fabric": "ring", "parallelism": "pipeline"}
    run = plan(transport="rdma", executor="mp", **on_ring)
    ENGINE.launch(run, "vllm-3-pipeline")
    assert [started.node for started in run.started] == ["spark2", "spark3", "spark1"]
    for started in run.started:
        assert "--master-addr 10.20.0.1 --master-port 29501" in " ".join(started.argv)
        assert started.environment["VLLM_HOST_IP"] == f"10.20.0.{started.node[-1]}"
        assert started.environment["NCCL_IB_HCA"].count(",") == 3
    by_ray = plan(transport="rdma", executor="ray", **on_ring, answers={"status": THREE_NODES})
    ENGINE.start(by_ray)
    assert "--address=10.20.0.1:6379" in by_ray.started[1].argv


def test_every_daemon_rank_and_client_of_a_node_has_the_same_environment(plan):
    run = plan(transport="rdma")
    ENGINE.start(run)
    ENGINE.launch(run, "vllm-2-tensor")
    for started in run.started:
        node = next(node for node in run.nodes if node.node.name == started.node)
        assert environment(run, node).items() <= started.environment.items()
    variables = environment(run, run.workers[0])
    assert len(variables.pop("RAY_AUTH_TOKEN")) == 64
    assert variables == {
        "PYTHONFAULTHANDLER": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_HOST_IP": "10.100.1.2",
        "NCCL_SOCKET_IFNAME": "=enp1s0f0np0",
        "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_NET_GDR_LEVEL": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=mlx5_0",
        "NCCL_IB_TIMEOUT": "23",
        "NCCL_IB_RETRY_CNT": "7",
        "NCCL_IB_GID_INDEX": "3",
        "RAY_AUTH_MODE": "token",
        "RAY_memory_monitor_refresh_ms": "0",
    }


@pytest.mark.parametrize(
    ("device", "found"), [("cpu", "computes on the CPU"), ("none", "finds no device")]
)
def test_vllm_beside_the_gpu_of_a_node_is_failed(plan, device, found):
    # no output: a log's line before the driver's own, with a word of its
    log = "INFO 01-02 03:04:05 [__init__.py:1] nixwulf-device is no answer\n"
    run = plan(answers={"script": f"{log}{devices.MARK} {device}\n"})
    with pytest.raises(RunFailure, match=f"vllm on node 'spark1' {found}, and the") as failure:
        ENGINE.start(run)
    assert failure.value.outcome == "failed"
    facts = f"spark1: {device}, spark2: {device}"
    assert (run.started, run.engine_facts["devices"]) == ([], facts)


def test_vllm_notes_the_gpu_that_it_computes_on(plan):
    run = plan(executor="mp", answers={"script": f"{devices.MARK} cuda\n"})
    ENGINE.start(run)
    facts = (run.engine_facts["devices"], run.warnings)
    assert facts == ("spark1: cuda, spark2: cuda", [])


def test_a_model_by_its_name_may_be_fetched(plan):
    run = plan(model={"id": "Qwen/Qwen3-8B"})
    assert "HF_HUB_OFFLINE" not in environment(run, run.head)


@pytest.mark.parametrize(
    ("cluster", "fabric", "wanted", "given"),
    [
        ("dgx-spark-2", "qsfp-a", 0, "0.76"),
        ("dgx-spark-2", "qsfp-a", 90, "0.76"),
        ("dgx-spark-2", "qsfp-a", 50, "0.5"),
        ("framework-2", "cable", 95, "0.9"),
    ],
)
def test_no_more_of_the_memory_is_taken_than_the_platform_can_spare(
    plan, cluster, fabric, wanted, given
):
    run = plan(cluster=cluster, fabric=fabric, gpu_memory_percent=wanted)
    ENGINE.launch(run, "vllm-2-tensor")
    argv = run.started[0].argv
    assert argv[argv.index("--gpu-memory-utilization") + 1] == given


def test_one_node_alone_has_neither_ray_nor_ranks_nor_a_fabric(plan):
    run = plan(nodes=1, parallelism="single", max_model_len=4096, eager=False)
    ENGINE.start(run)
    ENGINE.launch(run, "vllm-1-single")
    (server,) = run.started
    assert " ".join(server.argv[3:]) == (
        "--seed 1 --gpu-memory-utilization 0.76 --dtype auto --max-model-len 4096 "
        "--host 127.0.0.1 --port 8000"
    )
    assert not [key for key in server.environment if key.startswith(("NCCL_", "RAY_"))]


def test_a_ray_of_somebody_else_is_left_alone(plan):
    run = plan(answers={"script": "/proc/7/comm\n"})
    with pytest.raises(RunFailure, match="Ray already runs on node 'spark1'; run 'ray stop"):
        ENGINE.start(run)
    assert run.started == []


def test_nodes_that_ray_cannot_tell_apart_are_refused(plan):
    run = plan()
    other = Attachment("enp9s0", "10.100.1.2", ("mlx5_3",), 3)
    node = replace(run.nodes[1].node, fabrics={"qsfp-a": other})
    run.nodes = (run.nodes[0], replace(run.nodes[1], node=node))
    with pytest.raises(RunFailure, match="name interface, rdma_device and gid_index alike"):
        ENGINE.start(run)


@pytest.mark.parametrize(
    ("transport", "said", "problem"),
    [
        ("rdma", "NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0", None),
        (
            "rdma",
            # hand-made: NCCL writes it with GPUs in two nodes (form: INFO in
            # https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/transport/net.cc and net_ib.cc)
            "NCCL INFO NET/IB : No device found.\nNCCL INFO Channel 00/0 via NET/Socket/0",
            "On node 'spark2' NCCL crossed NET/Socket, not NET/IB.",
        ),
        ("tcp", "", None),
    ],
)
def test_each_nodes_own_log_proves_the_transport(plan, transport, said, problem):
    run = plan(transport=transport, executor="mp")
    ENGINE.launch(run, "vllm-2-tensor")
    run.raw.mkdir()
    for process in run.owned:
        good = "via NET/IB/0" if transport == "rdma" else ""
        process.stdout.write_text(said if process.node == "spark2" else good)
        process.stderr.write_text("")
    assert ENGINE.transport_problem(run) == problem


def test_lines_that_ray_brings_are_assigned_by_their_address():
    lines = (RAY / "workers.txt").read_text().splitlines(keepends=True)
    log = "".join(f"(EngineCore pid=1) {line}" for line in lines)
    assert "NET/IB" in vllm_ray.lines_of(log, None)
    assert "NET/Socket" not in vllm_ray.lines_of(log, None)
    assert vllm_ray.lines_of(log, "10.77.1.12").count("NET/Socket") == 1


def test_the_client_uses_random_prompts_of_another_seed_in_each_pass(plan):
    run = plan(concurrency=2, requests=4, n_prompt=32, n_gen=16)
    argv = vllm_bench.arguments(run, 2, 4, "/tmp/r/1.json")
    assert " ".join(argv) == (
        "/bin/vllm bench serve --backend vllm --base-url http://127.0.0.1:8000 "
        "--model /models/Qwen3-8B --dataset-name random --random-input-len 32 "
        "--random-output-len 16 --random-range-ratio 0 --num-prompts 4 "
        "--ready-check-timeout-sec 0 --max-concurrency 2 --ignore-eos --temperature 0 --seed 2 "
        "--save-result --save-detailed --result-dir /tmp/r --result-filename 1.json"
    )


FIXTURES = Path("tests/fixtures/vllm")
RESULT = (FIXTURES / "bench-serve-0.33.0.json").read_text()
# no output: parameters of a case; what vLLM counts in its result, see tools/fixtures/vllm.sh
SIZES = {"concurrency": 4, "requests": 4, "n_prompt": 96, "n_gen": 113}


@pytest.mark.parametrize("warm_up", [True, False])
def test_the_warm_up_is_a_pass_of_other_prompts_than_those_that_are_measured(
    plan, monkeypatch, warm_up
):
    run = plan(nodes=1, parallelism="single", answers={"script": RESULT}, **SIZES)
    run.case = replace(run.case, samples=3, warm_up=warm_up)
    passes = []

    def execute(node, name, argv, environment):
        assert "--num-warmups" not in argv
        passes.append((name, *(argv[argv.index(key) + 1] for key in ("--seed", "--num-prompts"))))
        process = run.start(node, name, argv, environment)
        process.returncode = 0
        process.stdout.parent.mkdir(exist_ok=True)
        return process

    monkeypatch.setattr(run, "execute", execute)
    monkeypatch.setattr(ENGINE, "endpoint", lambda run: nullcontext())
    metrics = vllm_bench.BENCHMARK.measure(run)
    warming = [("vllm-bench-warm-up", "4", "4")] if warm_up else []
    assert passes == [*warming, *((f"vllm-bench-{n}", str(1 + n), "4") for n in range(3))]
    assert {metric.name: len(metric.samples) for metric in metrics} == {
        "itl": 3 * sum(map(len, json.loads(RESULT)["itls"])),
        "ttft": 3 * 4,
        **dict.fromkeys(("decode", "throughput", "tpot", "request_throughput"), 3),
    }
    state = "warm" if warm_up else "cold"
    assert {metric.state for metric in metrics} == {state}
    (imported,) = vllm.read(RESULT)
    assert {metric.name for metric in metrics} <= {metric.name for metric in imported.metrics}
    told = [metric.document() for metric in metrics]
    validate(sealed({**make_record(), "metrics": told}), "a record with these metrics")
    assert run.warnings == []


def test_prompts_of_another_length_than_asked_for_are_a_warning(plan):
    found = parse_serve(RESULT)
    assert vllm_bench.warnings(plan(**SIZES), [found, found]) == []
    assert vllm_bench.warnings(plan(**SIZES | {"n_prompt": 32}), [found]) == [
        "Of 1 passes 1 had prompts of another length than n_prompt by vLLM's count, the first 384 "
        "tokens in 4 requests instead of 128."
    ]


OUTPUT = (FIXTURES / "bench-serve-0.33.0.txt").read_text()
BEFORE = 4
AFTER = OUTPUT.count("\n") - BEFORE


def test_the_requests_were_between_two_lines_of_the_client():
    came = [1.0] * BEFORE + [31.2] * AFTER
    assert vllm_bench.window(OUTPUT, came, 30.0) == (31.2 - 30.0, 31.2)


@pytest.mark.parametrize(
    ("text", "came"),
    [
        (OUTPUT, [31.2] * (BEFORE + AFTER)),
        (OUTPUT, [1.0] * BEFORE + [41.2] * AFTER),
        (OUTPUT.partition("tip:")[0], [1.0] * BEFORE),
        ("", []),
    ],
    ids=["lines held back", "much else between", "nothing after", "nothing"],
)
def test_lines_that_do_not_enclose_the_requests_do_not_tell_when_they_were(text, came):
    assert vllm_bench.window(text, came, 30.0) is None
