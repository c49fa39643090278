"""What distributed-llama is started with, what it cannot run, and what its output becomes."""

import dataclasses
import json
from pathlib import Path

import pytest

from launch_plan import facts_with, planned
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import Model, PlacedModel, parse_model
from nixwulf.llm.random_model import RandomModel
from nixwulf.nodes.facts import listeners
from nixwulf.outputs.dllama import metrics, parse
from nixwulf.plugins.benchmarks.dllama import BENCHMARK, window
from nixwulf.plugins.engines import distributed_llama
from nixwulf.plugins.engines.distributed_llama import (
    ENGINE,
    infer,
    infer_argv,
    model_files,
    wait_until_listening,
    worker_argv,
)
from nixwulf.plugins.engines.distributed_llama import devices as distributed_llama_devices
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.results.record import sealed, validate
from nixwulf.sweep.plan import make_plan, parse_sweep
from record_factory import make_record

MODEL = {"path": "/models/llama3.m", "tokenizer": "/models/llama3.t"}
# hand-made: 192.168.1.41 to .44, port 9999, to the state; whole lines are in linux/tcp.txt
# (form: https://docs.kernel.org/networking/proc_net_tcp.html)
LISTENING = "".join(
    f"   0: {n:02X}01A8C0:270F 00000000:0000 0A 00000000:00000000\n" for n in range(41, 45)
)
FIXTURES = Path("tests/fixtures/dllama")
# What the script of distributed_llama_devices prints where a build is without Vulkan.
LINE_BUFFERED = Path("tests/fixtures/linux/stdbuf.txt").read_text()
WITHOUT_VULKAN = "without-vulkan\n" + LINE_BUFFERED
GPU = {"nodes": 2, "cluster": "framework-2"}


def text_of(name):
    return (FIXTURES / f"{name}.txt").read_text()


@pytest.fixture
def plan(tmp_path):
    def make(nodes=4, model=MODEL, answers=None, cluster="pi-cm5-4", **parameters):
        matrix = {
            "engine": ["distributed-llama"],
            "benchmark": ["dllama"],
            "nodes": [nodes],
            "fabric": [next(iter(load_cluster(cluster).fabrics))],
            "parallelism": ["single" if nodes == 1 else "tensor"],
            "parameters": {key: [value] for key, value in parameters.items()},
        }
        programs = {"dllama": "/bin/dllama", "dllama-api": "/bin/dllama-api"}
        answers = {"script": LISTENING} if answers is None else answers
        run = planned(tmp_path, cluster, model, matrix, answers, **programs)
        run.tokenizer = model.get("tokenizer", "")
        facts = dataclasses.replace(facts_with(programs), cpus=4)
        run.facts = {node.node.name: facts for node in run.nodes}
        return run

    return make


def test_a_worker_without_the_program_whose_gate_was_waived_is_named(plan):
    run = plan()
    worker = run.workers[0]
    run.facts = {**run.facts, worker.node.name: facts_with({})}
    with pytest.raises(RunFailure, match=f"Node '{worker.node.name}' lacks 'dllama' on PATH"):
        worker_argv(run, worker)


def test_workers_listen_on_the_fabrics_address_only_and_the_head_has_none(plan):
    run = plan()
    addresses = [run.data_address(node) for node in run.nodes]
    ENGINE.start(run)
    assert [(started.node, " ".join(started.argv)) for started in run.started] == [
        (node.node.name, f"/bin/dllama worker --host {address} --port 9999 --nthreads 4")
        for node, address in list(zip(run.nodes, addresses, strict=True))[1:]
    ]


def test_the_root_has_the_models_two_files_and_every_worker_last(plan):
    run = plan(max_seq_len=4096)
    workers = " ".join(f"{run.data_address(node)}:9999" for node in run.workers)
    argv = infer_argv(run, "a prompt", 40)
    assert argv[argv.index("--prompt") + 1] == "a prompt"
    assert " ".join(argv) == (
        "/bin/dllama inference --prompt a prompt --steps 40 --model /models/llama3.m "
        "--tokenizer /models/llama3.t --buffer-float-type q80 --nthreads 4 --seed 1 "
        f"--temperature 0 --max-seq-len 4096 --workers {workers}"
    )


@pytest.mark.parametrize(
    ("cluster", "backend", "on_gpu"),
    [
        ("framework-2", "any", True),
        ("framework-2", "vulkan", True),
        ("framework-2", "cpu", False),
        ("pi-cm5-4", "any", False),
        ("pi-cm5-4", "vulkan", True),
    ],
)
def test_a_gpu_is_passed_to_root_and_workers_where_it_is_asked_for_or_the_platform_has_one(
    plan, cluster, backend, on_gpu
):
    run = plan(nodes=2, cluster=cluster, backend=backend, gpu_index=0 if backend == "cpu" else 1)
    expected = "--nthreads 1 --gpu-index 1" if on_gpu else "--nthreads 4"
    argvs = [worker_argv(run, run.nodes[1]), infer_argv(run, "x", 9)]
    for argv in map(" ".join, argvs):
        assert expected in argv
        assert ("--gpu-index" in argv) == on_gpu


@pytest.mark.parametrize("backend", ["any", "vulkan"])
def test_a_build_without_vulkan_is_refused_where_a_gpu_is_to_compute(plan, backend):
    run = plan(**GPU, backend=backend, answers={"script": WITHOUT_VULKAN})
    reason = (
        "The case asks for vulkan, and .* is built without Vulkan; install"
        if backend == "vulkan"
        else "is built without Vulkan, and the platform 'framework-desktop' has a GPU; install"
    )
    with pytest.raises(RunFailure, match=reason) as e:
        ENGINE.start(run)
    assert (e.value.outcome, run.started) == ("failed", [])


def test_a_build_without_vulkan_is_fine_for_the_cpu_and_each_line_is_printed_at_once(plan):
    run = plan(nodes=2, answers={"script": WITHOUT_VULKAN + LISTENING})
    ENGINE.start(run)
    assert run.engine_facts["backends"] == "CPU"
    assert run.started[0].environment == {
        "_STDBUF_O": "L",
        "LD_PRELOAD": "/usr/libexec/coreutils/libstdbuf.so",
    }


def ended(run, node, name, text, returncode=0):
    """A process of the run that printed a text of the fixtures and ended."""
    process = run.start(node, name, ["/bin/dllama"], {})
    process.stdout.parent.mkdir(parents=True, exist_ok=True)
    process.stdout.write_text(text)
    process.stderr.write_text("")
    process.returncode = returncode
    return process


@pytest.fixture
def inferring(plan, monkeypatch):
    """A function that infers on two nodes; root and worker have printed texts of the fixtures."""

    def make(root, worker="", returncode=0, **changes):
        run = plan(**{**GPU, **changes})
        monkeypatch.setattr(distributed_llama, "wait_until_listening", lambda run: None)
        for node in run.workers:
            ended(run, node, "dllama-worker", worker and text_of(worker))
        root_text = text_of(root)

        def execute(node, name, argv, environment):
            return ended(run, node, name, root_text, returncode)

        run.execute = execute
        return infer(run, "dllama", "x", 9)

    monkeypatch.setattr(distributed_llama, "_ERRORS_WITHIN_S", 0)
    monkeypatch.setattr(distributed_llama_devices, "_PRINTED_WITHIN_S", 0)
    return make


def test_a_worker_that_refuses_its_gpu_is_the_reason_although_the_root_has_no_word(inferring):
    with pytest.raises(RunFailure) as e:
        inferring("root-of-refusing-worker", "worker-of-cpu-build-with-gpu-index", 128 + 13)
    assert e.value.outcome == "failed"
    assert e.value.reason == (
        "dllama was ended by SIGPIPE. Node 'fw2': Critical error: This build does not support GPU."
    )


@pytest.mark.parametrize(
    ("root", "outcome", "words"),
    [
        ("vulkan-f32-with-q80", "unsupported", "Unsupported shader: MATMUL/Q80_F32_F32"),
        ("too-many-nodes", "unsupported", "does not support more nodes"),
        ("vulkan-no-such-index", "failed", "Invalid GPU index, found 1 GPUs"),
        ("killed-worker", "failed", "Critical error: Execution failed in one of the threads"),
        ("api-killed-worker", "failed", "Inference error: Execution failed in one of the threads"),
        ("api-no-worker", "failed", "Connection error: Cannot connect"),
    ],
)
def test_every_kind_of_error_is_in_the_reason_and_what_it_lacks_is_unsupported(
    inferring, root, outcome, words
):
    with pytest.raises(RunFailure, match=f"Node 'fw1': .*{words}") as e:
        inferring(root, "vulkan-worker", 1)
    assert e.value.outcome == outcome


@pytest.mark.parametrize(
    ("root", "worker", "words"),
    [
        ("two-nodes", "vulkan-worker", "on node 'fw1' does not print the 'Device: ...'"),
        ("vulkan-two-nodes", "", "on node 'fw1' computed on 'llvmpipe .*', which is its CPU"),
    ],
)
def test_a_platforms_gpu_that_did_not_compute_is_a_fallback(inferring, root, worker, words):
    with pytest.raises(RunFailure, match=words) as e:
        inferring(root, worker)
    assert e.value.outcome == "fallback"


def test_in_a_lab_the_device_may_be_software_and_a_worker_must_name_it_too(inferring):
    changes = {"cluster": "lab", "backend": "vulkan"}
    result, _ = inferring("vulkan-two-nodes", "vulkan-worker", **changes)
    assert len(result.tokens) == 16
    with pytest.raises(RunFailure, match="on node 'n2' does not print the 'Device: ...'") as e:
        inferring("vulkan-two-nodes", "", **changes)
    assert e.value.outcome == "fallback"


def test_without_a_gpu_in_the_case_no_device_has_to_be_named(inferring):
    result, _ = inferring("two-nodes", cluster="pi-cm5-4")
    assert len(result.tokens) == 16


def test_one_node_has_no_workers_and_takes_the_threads_it_is_given(plan):
    run = plan(nodes=1, threads=2)
    ENGINE.start(run)
    argv = infer_argv(run, "x", 9)
    assert not run.started
    assert "--workers" not in argv
    assert argv[argv.index("--nthreads") + 1] == "2"


def test_a_random_model_is_a_folder_with_both_files(plan):
    run = plan()
    run.model, run.tokenizer = "/cache/llama-dllama1", ""
    assert model_files(run) == ("/cache/llama-dllama1/model.m", "/cache/llama-dllama1/tokenizer.t")


def test_a_model_without_a_tokenizer_is_one_sentence_with_what_to_write(plan):
    run = plan(model={"path": "/models/llama3.m"})
    with pytest.raises(RunFailure, match="has no tokenizer; write 'tokenizer: /path/to/file.t'"):
        ENGINE.start(run)
    assert not run.started


def test_a_tokenizer_is_part_of_what_a_model_is_and_only_where_there_is_one():
    with_one = parse_model("m", MODEL, "x.yaml")
    assert with_one == Model("m", path=MODEL["path"], tokenizer=MODEL["tokenizer"])
    assert with_one.digest != parse_model("m", {"path": MODEL["path"]}, "x.yaml").digest


def test_a_worker_that_ended_is_reported_with_its_last_lines(plan):
    run = plan(nodes=2, answers={"script": ""})
    worker = run.start(run.nodes[1], "dllama-worker", worker_argv(run, run.nodes[1]), {})
    worker.background, worker.returncode = True, 1
    worker.stdout.parent.mkdir(parents=True)
    worker.stdout.write_text(text_of("port-is-taken"))
    with pytest.raises(
        RunFailure, match="ended with 1: Critical error: Cannot bind port: Address already in use"
    ):
        wait_until_listening(run)


def test_the_answer_prepared_here_is_what_the_kernel_prints():
    assert ("192.168.1.42", 9999) in listeners(LISTENING)


RANDOM = RandomModel(weights="f32", heads=12, kv_heads=4)
# no output: parameters of a case
PARAMETERS = {"buffer_float_type": "f32", "backend": "any", "gpu_index": 0, "threads": 2}


@pytest.mark.parametrize(
    ("change", "model", "reason"),
    [
        ({"nodes": 3}, None, "on 1, 2, 4, 8, ... nodes, not 3"),
        ({"parallelism": "pipeline"}, None, "by tensor only"),
        ({"transport": "rdma"}, None, "tcp only"),
        ({"parameters": {**PARAMETERS, "api": "completions"}}, None, "chat only"),
        ({"parameters": {**PARAMETERS, "backend": "vulkan"}}, None, "threads: [0]"),
        ({"parameters": {**PARAMETERS, "gpu_index": 1, "backend": "cpu"}}, None, "gpu_index goes"),
        ({"nodes": 4}, dataclasses.replace(RANDOM, kv_heads=2), "cannot share 2 key-value heads"),
        ({}, dataclasses.replace(RANDOM, feed_forward=1537), "feed_forward 1537 does not"),
        ({}, dataclasses.replace(RANDOM, weights="f16"), "llama in f32, not llama in f16"),
        (
            {"parameters": {**PARAMETERS, "buffer_float_type": "q80"}},
            RANDOM,
            "take buffer_float_type f32",
        ),
        ({}, None, None),
        ({}, RANDOM, None),
        ({"nodes": 1, "parallelism": "single", "transport": None}, RANDOM, None),
    ],
)
def test_what_distributed_llama_cannot_run_is_left_out_with_the_reason(change, model, reason):
    point = {
        "nodes": 2,
        "parallelism": "tensor",
        "transport": "tcp",
        "parameters": PARAMETERS,
        "random": model,
        **({"shape": model.shape} if model else {}),
        **change,
    }
    told = ENGINE.unsupported(point)
    assert (reason in (told or "")) if reason else told is None


@pytest.mark.parametrize("value", ["q40", "f16"])
def test_no_other_exchanged_type_can_be_asked_for(plan, value):
    with pytest.raises(InputError, match="expected one of q80, f32"):
        plan(buffer_float_type=value)


def test_a_missing_tokenizer_file_is_named_by_the_gate():
    from nixwulf.plugins.gates import GateContext, all_gates

    node = load_cluster("pi-cm5-4").nodes[0]
    model = parse_model("m", MODEL, "x.yaml")
    placed = PlacedModel(model, MODEL["tokenizer"], None, node.name)
    (verdict,) = all_gates()["model"].judge(GateContext((node,), {}, model=placed), node)
    assert f"has no tokenizer {MODEL['tokenizer']!r}; copy it there" in verdict.sentence


def test_samples_and_the_share_of_waiting_come_from_the_runs():
    runs = [parse((FIXTURES / "two-nodes.txt").read_text())] * 2
    windows = [(1.0, 2.0), (5.0, 7.0)]
    found = {metric.name: metric for metric in metrics(runs, 2, windows, "warm")}
    assert list(found) == ["prompt", "decode", "sync_share", "sent", "received"]
    assert found["prompt"].samples == (75.78, 75.78)
    assert found["decode"].conditions == {"n_prompt": 32, "n_gen": 16}
    assert found["decode"].windows == ((1.0, 2.0), (5.0, 7.0))
    assert found["sync_share"].samples[0] == pytest.approx(80.74, abs=0.01)
    assert (found["sent"].samples[0], found["sent"].unit) == (25.0, "KiB/token")
    told = [metric.document() for metric in found.values()]
    validate(sealed({**make_record(), "metrics": told}), "a record with these metrics")
    alone = metrics([parse((FIXTURES / "one-node.txt").read_text())], 1)
    assert [metric.name for metric in alone] == ["prompt", "decode"]


def test_watts_are_taken_of_the_time_between_the_last_batch_and_the_last_token(plan):
    text = (FIXTURES / "two-nodes.txt").read_text()
    process = plan(nodes=1).start(plan(nodes=1).head, "x", ["x"], {})
    process.stdout_times.extend(float(number) for number in range(len(text.split("\n"))))
    begin, end = window(parse(text), process)
    lines = text.split("\n")
    assert lines[int(begin)].endswith("(32 tokens)")
    assert lines[int(end)].endswith(" bogu")


def test_the_sweep_of_the_repository_leaves_out_only_what_cannot_be():
    import yaml

    text = Path("sweeps/distributed-llama.yaml").read_text()
    plan = make_plan(parse_sweep(yaml.safe_load(text), "x.yaml"), load_cluster("lab"))
    assert {case.nodes for case in plan.cases} == {1, 2, 4}
    assert BENCHMARK.engines == ("distributed-llama",)
    assert json.dumps(plan.document())
