"""What distributed-llama is started with, what it cannot run, and what its output becomes."""

import dataclasses
import json
from pathlib import Path

import pytest

from launch_plan import facts_with, planned
from nixwulf.benchmarks.dllama import BENCHMARK, metrics, window
from nixwulf.cluster import load_cluster
from nixwulf.engines.distributed_llama import (
    ENGINE,
    infer_argv,
    model_files,
    wait_until_listening,
    worker_argv,
)
from nixwulf.errors import InputError
from nixwulf.gates.ports import listeners
from nixwulf.models import Model, PlacedModel, parse_model
from nixwulf.models.random_model import RandomModel
from nixwulf.parsers.dllama import parse
from nixwulf.plan import make_plan
from nixwulf.record import sealed, validate
from nixwulf.run import RunFailure
from nixwulf.sweep import parse_sweep
from record_factory import make_record

MODEL = {"path": "/models/llama3.m", "tokenizer": "/models/llama3.t"}
# 192.168.1.41 to .44, port 9999, as /proc/net/tcp shows them.
LISTENING = "".join(
    f"   0: {n:02X}01A8C0:270F 00000000:0000 0A 00000000:00000000\n" for n in range(41, 45)
)
FIXTURES = Path("tests/fixtures/dllama")


@pytest.fixture
def plan(tmp_path):
    def make(nodes=4, model=MODEL, answers=None, **parameters):
        matrix = {
            "engine": ["distributed-llama"],
            "benchmark": ["dllama"],
            "nodes": [nodes],
            "fabric": ["switch"],
            "parallelism": ["single" if nodes == 1 else "tensor"],
            "parameters": {key: [value] for key, value in parameters.items()},
        }
        programs = {"dllama": "/bin/dllama", "dllama-api": "/bin/dllama-api"}
        answers = {"script": LISTENING} if answers is None else answers
        run = planned(tmp_path, "pi-cm5-4", model, matrix, answers, **programs)
        run.tokenizer = model.get("tokenizer", "")
        facts = dataclasses.replace(facts_with(programs), cpus=4)
        run.facts = {node.node.name: facts for node in run.nodes}
        return run

    return make


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


def test_a_worker_that_ended_is_told_in_its_own_words(plan):
    run = plan(nodes=2, answers={"script": ""})
    worker = run.start(run.nodes[1], "dllama-worker", worker_argv(run, run.nodes[1]), {})
    worker.background, worker.returncode = True, 1
    worker.stdout.parent.mkdir(parents=True)
    worker.stdout.write_text(
        "\N{POLICE CARS REVOLVING LIGHT} Critical error: Cannot bind port: 98\n"
    )
    with pytest.raises(RunFailure, match="ended with 1: Cannot bind port: 98"):
        wait_until_listening(run)


def test_the_answer_prepared_here_is_what_the_kernel_prints():
    assert ("192.168.1.42", 9999) in listeners(LISTENING)


RANDOM = RandomModel(weights="f32", heads=12, kv_heads=4)


@pytest.mark.parametrize(
    ("change", "model", "reason"),
    [
        ({"nodes": 3}, None, "on 1, 2, 4, 8, ... nodes, not 3"),
        ({"parallelism": "pipeline"}, None, "by tensors only"),
        ({"transport": "rdma"}, None, "tcp only"),
        ({"parameters": {"api": "completions"}}, None, "chat only"),
        ({"nodes": 8}, RANDOM, "a key-value head a node: 4 for 8"),
        ({}, dataclasses.replace(RANDOM, feed_forward=1537), "feed_forward 1537 does not"),
        ({}, dataclasses.replace(RANDOM, weights="f16"), "llama in f32, not llama in f16"),
        ({"parameters": {"buffer_float_type": "q80"}}, RANDOM, "take buffer_float_type f32"),
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
        "parameters": {"buffer_float_type": "f32"},
        "random": model,
        **change,
    }
    told = ENGINE.unsupported(point)
    assert (reason in (told or "")) if reason else told is None


@pytest.mark.parametrize("value", ["q40", "f16"])
def test_no_other_exchanged_type_can_be_asked_for(plan, value):
    with pytest.raises(InputError, match="expected one of q80, f32"):
        plan(buffer_float_type=value)


def test_a_missing_tokenizer_file_is_named_by_the_gate():
    from nixwulf.gates import Subject
    from nixwulf.gates.model import GATE

    node = load_cluster("pi-cm5-4").nodes[0]
    model = parse_model("m", MODEL, "x.yaml")
    placed = PlacedModel(model, MODEL["tokenizer"], None, node.name)
    (verdict,) = GATE.judge(Subject((node,), {}, model=placed), node)
    assert f"has no tokenizer {MODEL['tokenizer']!r}; copy it there" in verdict.sentence


def test_samples_and_the_share_of_waiting_come_from_the_runs():
    runs = [parse((FIXTURES / "two-nodes.txt").read_text())] * 2
    found = {metric.name: metric for metric in metrics(runs, 2, [(1.0, 2.0), (5.0, 7.0)])}
    assert list(found) == ["prompt", "decode", "sync_share", "sent", "received"]
    assert found["prompt"].samples == (29.32, 29.32)
    assert found["decode"].conditions == {"n_prompt": 32, "n_gen": 16}
    assert found["decode"].windows == ((1.0, 2.0), (5.0, 7.0))
    assert found["sync_share"].samples[0] == pytest.approx(90.15, abs=0.01)
    assert (found["sent"].samples[0], found["sent"].unit) == (25.0, "KiB/token")
    told = [metric.document() for metric in found.values()]
    validate(sealed({**make_record(), "metrics": told}), "a record with these metrics")
    alone = metrics([parse((FIXTURES / "one-node.txt").read_text())], 1, [])
    assert [metric.name for metric in alone] == ["prompt", "decode"]


def test_watts_are_taken_of_the_time_between_the_last_batch_and_the_last_token(plan):
    text = (FIXTURES / "two-nodes.txt").read_text()
    process = plan(nodes=1).start(plan(nodes=1).head, "x", ["x"], {})
    process.stdout_times.extend(float(number) for number in range(len(text.split("\n"))))
    begin, end = window(parse(text), process)
    lines = text.split("\n")
    assert lines[int(begin)].endswith("(32 tokens)")
    assert lines[int(end)].endswith(" banu")


def test_the_sweep_of_the_repository_leaves_out_only_what_cannot_be():
    import yaml

    text = Path("sweeps/distributed-llama.yaml").read_text()
    plan = make_plan(parse_sweep(yaml.safe_load(text), "x.yaml"), load_cluster("lab"))
    assert {case.nodes for case in plan.cases} == {1, 2, 4}
    assert BENCHMARK.engines == ("distributed-llama",)
    assert json.dumps(plan.document())
