"""Benchmarks of engines other than llama.cpp: what is parsed, and what an import calls it."""

import contextlib
import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.outputs import ParseError, ToolFailed, all_tools, dllama, mlx, vllm
from nixwulf.outputs.dllama import Speed, Step
from nixwulf.outputs.mlx import Trial
from nixwulf.results.importing import UserMetadata
from tool_outputs import EXO_ROW, FIXTURES, VLLM, by_name, fixture


def test_speeds_and_every_token_with_its_sync_and_traffic_are_read():
    result = dllama.parse(fixture("dllama/two-nodes.txt"))
    assert result.evaluation == Speed(tokens=32, tokens_s=75.78)
    assert result.prediction == Speed(tokens=16, tokens_s=32.22)
    assert result.batches == (Step(15, 406, 816, 832, "(32 tokens)"),)
    assert len(result.tokens) == 16
    assert result.tokens[-1] == Step(1, 68, 25, 26, " bogu")


def test_one_node_sends_nothing_and_four_nodes_are_read_too():
    alone = dllama.parse(fixture("dllama/one-node.txt"))
    assert {(s.sync_ms, s.sent_kib, s.received_kib) for s in alone.tokens} == {(0, 0, 0)}
    assert dllama.parse(fixture("dllama/four-nodes.txt")).tokens[0].received_kib == 75


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("killed-worker", "Execution failed in one of the threads"),
        ("too-many-nodes", "does not support more nodes than the number of KV heads"),
        ("f32-with-q80", "Unsupported CPU op code: MATMUL"),
        ("no-tokenizer", "Failed to open tokenizer file"),
        ("no-worker", "Cannot connect"),
        ("cpu-build-with-gpu-index", "This build does not support GPU"),
        ("vulkan-no-such-index", "Invalid GPU index, found 1 GPUs"),
        ("vulkan-two-threads", "This configuration supports max 1 threads"),
        ("vulkan-f32-with-q80", "Unsupported shader: MATMUL/Q80_F32_F32"),
    ],
)
def test_an_error_is_a_failure_with_its_line_and_dllamas_own_words(name, words):
    with pytest.raises(ToolFailed, match=rf"^dllama failed in line \d+: .*{words}"):
        dllama.parse(fixture(f"dllama/{name}.txt"))


@pytest.mark.parametrize("name", ["two-nodes", "four-nodes", "vulkan-one-node", "vulkan-two-nodes"])
def test_nodes_and_devices_change_the_times_and_not_the_tokens(name):
    alone, other = (
        [step.text for step in dllama.parse(fixture(f"dllama/{n}.txt")).tokens]
        for n in ("one-node", name)
    )
    assert len(set(alone)) == 16
    assert other == alone


def test_tokens_before_a_crash_can_still_be_read():
    kept = dllama.steps(fixture("dllama/killed-worker.txt"), "Pred")
    assert kept[-1] == Step(2, 0, 25, 26, " bize")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tokens/s: 32.22", "tokens/s: inf", r"tokens/s: NUMBER"),
        ("tokens/s: 32.22", "tokens/s: -nan", r"tokens/s: NUMBER"),
        ("    nTokens: 16", "    nTokens: 17", "17 lines of tokens, not 16"),
        ("Prediction\n", "", "a line 'Prediction'"),
    ],
)
def test_what_is_no_result_is_refused_with_what_was_expected(old, new, expected):
    text = fixture("dllama/two-nodes.txt")
    assert old in text
    with pytest.raises(ParseError, match=rf"^dllama: line \d+: expected {expected}"):
        dllama.parse(text.replace(old, new))


def test_pieces_of_text_that_end_lines_and_a_prompt_that_looks_like_a_result_do_no_harm():
    text = fixture("dllama/two-nodes.txt").replace(" bogu\n", "\n\n")
    # no output: a prompt that looks like a result
    text = text.replace(" for the but", "Evaluation\nPrediction\n for the but")
    assert dllama.parse(text).tokens[-1].text == ""
    assert dllama.parse(text).prediction.tokens_s == 32.22


@pytest.mark.parametrize(("file", "nodes"), [("one-node", 1), ("two-nodes", 2), ("four-nodes", 4)])
def test_distributed_llama_prints_its_nodes(records, file, nodes):
    (record,) = records(f"dllama/{file}.txt")
    case = record["case"]
    assert (case["engine"], case["benchmark"], case["nodes"]) == (
        "distributed-llama",
        "dllama",
        nodes,
    )
    assert case["parallelism"] == ("tensor" if nodes > 1 else "single")
    assert case["parameters"].keys() == {"n_prompt", "n_gen"}
    assert {"prompt", "decode"} <= by_name(record).keys()
    assert ("sync_share" in by_name(record)) == (nodes > 1)


def test_trials_are_read_with_their_sizes_and_units():
    text = fixture("mlx/mlx.single.llama.txt")
    found = mlx.parse(text)
    assert (found.prompt_tokens, found.generation_tokens, found.batch_size) == (128, 32, 1)
    rows = [re.findall(r"=([\d.]+)", line) for line in text.splitlines() if line[:5] == "Trial"]
    assert found.trials == tuple(
        Trial(
            float(prompt), float(decode), peak_memory_gb=float(memory), seconds=float(time), line=at
        )
        for at, (prompt, decode, memory, time) in enumerate(rows, 2)
    )
    assert len(rows) == 2
    for trial in found.trials:
        took = 128 / trial.prompt_tps + 32 / trial.generation_tps
        assert took == pytest.approx(trial.seconds, rel=0.1)


def test_noise_of_the_ring_after_the_averages_and_of_the_launcher_before_them_is_passed_over():
    noise = [
        line
        for line in fixture("mlx/mlx.fail.kill1.r0.txt").splitlines()
        if line.startswith("[ring]")
    ]
    assert noise
    quiet = fixture("mlx/mlx.single.llama.txt")
    assert mlx.parse(quiet + "\n".join(noise)) == mlx.parse(quiet)
    assert len(mlx.parse(fixture("mlx/mlx.launch.ring2.txt")).trials) == 2


def test_a_trial_that_was_printed_before_a_crash_is_kept():
    assert len(mlx.parse(fixture("mlx/mlx.ring2.killed.r0.txt")).trials) == 1


def test_a_run_without_a_trial_is_a_failure_by_its_own_words_or_says_what_was_expected():
    with pytest.raises(ToolFailed, match=r"line 28 says .*a peer was lost"):
        mlx.parse(fixture("mlx/mlx.fail.kill1.r0.txt"))
    with pytest.raises(ParseError, match=r"expected a line 'Timing with"):
        mlx.parse(fixture("mlx/mlx.launch.badhost.txt"))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (("prompt_tps=[0-9.]+", "prompt_tps=fast"), "prompt_tps=NUMBER"),
        (("prompt_tps=[0-9.]+", "prompt_tps=nan"), "prompt_tps=NUMBER"),
        # no output: a pattern
        (("total_time=([0-9.]+)[0-9]{2}\n", r"total_time=\1\n"), "total_time=NUMBER"),
        (("peak_memory=[0-9.]+, ", ""), "peak_memory=NUMBER"),
        (("Trial 1:", "Trial 7:"), "trial 1"),
        (("Timing with", "Timed with"), "Timing with prompt_tokens"),
    ],
)
def test_a_damaged_line_is_named(damage, expected):
    text = fixture("mlx/mlx.single.llama.txt")
    damaged = re.sub(*damage, text, count=1)
    assert damaged != text
    with pytest.raises(ParseError, match=expected):
        mlx.parse(damaged)


def test_its_outputs_are_recognised_also_when_cut_short():
    assert mlx.recognises(fixture("mlx/mlx.fail.stop1.r0.txt"))
    assert not mlx.recognises(fixture("mlx/mlx.launch.badhost.txt"))


def test_mlx_launch_prints_nodes_transport_parallelism_and_model(records):
    (record,) = records("mlx/mlx.launch.ring2.txt")
    case = record["case"]
    assert (case["nodes"], case["transport"], case["parallelism"]) == (2, "tcp", "tensor")
    assert case["model"] == "m/llama"
    assert case["parameters"] == {"n_prompt": 32, "n_gen": 32}
    printed = re.findall(r"Trial .*generation_tps=([\d.]+)", fixture("mlx/mlx.launch.ring2.txt"))
    assert by_name(record)["decode"]["samples"] == list(map(float, printed))
    assert by_name(record)["peak_memory"]["unit"] == "GB"


def test_mlx_of_one_rank_says_nothing_of_nodes(records):
    with pytest.raises(InputError, match="does not state the number of nodes; add --nodes N"):
        records("mlx/mlx.single.llama.txt")


RESULT = json.loads(fixture("vllm/bench-serve-0.33.0.json"))


@pytest.mark.parametrize("version", ["0.16.0", "0.33.0"])
def test_what_vllm_wrote_and_what_it_printed_agree(version):
    found = vllm.parse_serve(fixture(f"vllm/bench-serve-{version}.json"))
    assert (found.completed, found.failed, found.concurrency) == (4, 0, 2)
    assert (found.input_tokens, found.output_tokens) == (384, 452)
    assert (found.model, found.backend) == ("model", "vllm")
    assert sum(found.each_ms["ttft"]) / 4 == pytest.approx(found.times_ms["ttft"]["mean"])
    printed = vllm.parse_serve(fixture(f"vllm/bench-serve-{version}.txt"))
    assert printed.input_tokens == 384
    assert printed.output_throughput == round(found.output_throughput, 2)
    for name, which in (("ttft", "mean"), ("tpot", "mean"), ("tpot", "p99")):
        assert printed.times_ms[name][which] == round(found.times_ms[name][which], 2)


def test_the_times_of_single_requests_are_read_in_milliseconds():
    found = vllm.parse_serve(json.dumps(RESULT))
    assert found.each_ms["ttft"][0] == pytest.approx(5.56119)
    assert found.each_ms["itl"][:2] == pytest.approx((0.381038, 0.357933))


def test_what_is_missing_or_no_number_is_named():
    without = {key: value for key, value in RESULT.items() if key != "output_throughput"}
    with pytest.raises(ParseError, match="no line has 'Output token throughput"):
        vllm.parse_serve(json.dumps(without))
    with pytest.raises(ParseError, match="'mean_ttft_ms' is 'nan', expected a number"):
        vllm.parse_serve(json.dumps(RESULT | {"mean_ttft_ms": float("nan")}))
    with pytest.raises(ParseError, match="line 1: .* expected a whole JSON object"):
        vllm.parse_serve("{")
    with pytest.raises(ParseError, match="vllm bench serve: no line has a speed"):
        vllm.read("")


def test_vllm_bench_serve_keeps_the_times_of_requests(records):
    (record,) = records(json.dumps(VLLM), UserMetadata(("dgx-spark",), nodes=1))
    found = by_name(record)
    assert record["case"]["model"] == "tiny"
    assert record["engine"] == {"name": "vllm"}
    assert found["ttft"]["samples"] == pytest.approx([40.0, 50.0, 60.0])
    assert found["itl"]["samples"] == pytest.approx([30, 50, 40, 40, 40, 40])
    assert found["decode"]["value"] == 25.0
    assert found["throughput"]["observed"] == {
        "input_tokens": 384,
        "output_tokens": 96,
        "duration_s": 4.0,
    }
    assert found["throughput"]["conditions"] == {"requests": 4, "concurrency": 2}
    assert record["warnings"] == ["Of 4 requests 1 failed."]


def test_vllm_bench_without_the_times_of_requests_has_their_percentiles(records):
    short = {key: value for key, value in VLLM.items() if key not in {"ttfts", "itls"}}
    (record,) = records(json.dumps(short), UserMetadata(("dgx-spark",), nodes=1))
    found = by_name(record)
    assert found["ttft"]["percentiles"] == {"p50": 49.0, "p95": 59.0, "p99": 60.0}
    assert (found["ttft"]["value"], "samples" in found["ttft"]) == (50.0, False)
    assert "percentiles" not in found["tpot"]
    assert found["tpot"]["observed"] == {"p99_ms": 44.0}


def test_of_another_server_vllm_bench_knows_no_engine(records):
    text = json.dumps({**VLLM, "backend": "openai-chat"})
    (record,) = records(text, UserMetadata(("dgx-spark",), nodes=1))
    assert "engine" not in record
    said = UserMetadata(("dgx-spark",), nodes=1, engine="sglang", engine_version="0.5")
    assert records(text, said)[0]["engine"] == {"name": "sglang", "version": "0.5"}


def test_exo_prints_everything(records):
    (record,) = records(json.dumps({"runs": [EXO_ROW, EXO_ROW]}))
    case = record["case"]
    assert (case["engine"], case["nodes"]) == ("exo", EXO_ROW["placement_nodes"])
    assert len(by_name(record)["decode"]["samples"]) == 2
    assert by_name(record)["decode"]["conditions"].keys() == {"n_prompt", "n_gen", "concurrency"}


@pytest.mark.parametrize("form", [{"runs": [EXO_ROW], "cluster": {}}, [EXO_ROW]])
@pytest.mark.parametrize(
    "layout", [{}, {"indent": 2}, {"separators": (",", ":")}, {"sort_keys": True}]
)
def test_a_request_of_exos_own_benchmark_is_a_value_in_either_form(records, form, layout):
    (record,) = records(json.dumps(form, **layout) + "\n")
    found = {name: one["value"] for name, one in by_name(record).items()}
    assert found == {"prompt": 700.5, "decode": 14.25, "peak_memory": 40.0}
    sizes = {"n_prompt": 512, "n_gen": 128, "concurrency": 1}
    assert record["metrics"][0]["conditions"] == sizes
    case = record["case"]
    assert (case["nodes"], case["transport"], case["parallelism"]) == (2, "rdma", "tensor")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"runs": []},
        {"runs": [{**EXO_ROW, "stats": None}]},
        {"runs": [{**EXO_ROW, "stats": {}}]},
        {"runs": [{**EXO_ROW, "stats": {**EXO_ROW["stats"], "prompt_tps": math.nan}}]},
    ],
)
def test_a_row_of_exo_without_figures_is_refused(document):
    with pytest.raises(ParseError, match=r"^exo-bench: no result"):
        all_tools()["exo-bench"].read(json.dumps(document))


@given(st.recursive(st.none() | st.floats() | st.text(), st.lists))
def test_any_json_gives_rows_or_the_parsers_own_error(value):
    for text in (json.dumps(value), json.dumps({"runs": value}), json.dumps({"runs": [value]})):
        with contextlib.suppress(ParseError):
            all_tools()["exo-bench"].read(text)


REFERENCE = Path(os.environ.get("NIXWULF_REFERENCE", "nowhere"), "outputs", "lab")
MLX = sorted([*Path(FIXTURES, "mlx").glob("*.txt"), *REFERENCE.glob("mlx.*.txt")])
NO_TRIAL = ("fail.", "badhost", "launch.kill1", "server", ".r1.", "pipe.llama")


@pytest.mark.parametrize("path", MLX, ids=lambda path: path.name)
def test_every_output_of_mlx_has_its_trials_or_is_refused(path):
    text = path.read_text(errors="replace")
    if any(part in path.name for part in NO_TRIAL):
        with pytest.raises(ParseError):
            mlx.parse(text)
    else:
        trials = mlx.parse(text).trials
        assert len(trials) in {1, 2, 3}
        assert all(trial.prompt_tps > 0 and trial.generation_tps > 0 for trial in trials)


# hand-made: a command above its block (form: tests/fixtures/posted/vllm-median-without-p95.txt)
COMMAND = (
    "vllm bench serve --random-input-len 2048 --random-output-len 256 --random-range-ratio {}\n"
)


@pytest.mark.parametrize(
    ("ratio", "lengths"),
    [("0", {"n_prompt": 2048, "n_gen": 256}), ("0.5", {}), ("abc", {}), ("{}", {})],
)
def test_lengths_in_a_command_of_vllms_client_are_conditions(records, ratio, lengths):
    text = COMMAND.format(ratio) + fixture("posted/vllm-median-without-p95.txt").partition("\n")[2]
    (record,) = records(text, UserMetadata(("dgx-spark",), nodes=1))
    found = record["metrics"][0]["conditions"]
    assert {key: found[key] for key in ("n_prompt", "n_gen") if key in found} == lengths


def test_a_log_of_dllama_that_lost_lines_of_tokens_has_its_two_speeds(records):
    lines = fixture("dllama/two-nodes.txt").splitlines()
    pred = [n for n, line in enumerate(lines) if "Pred" in line and "Sync" in line]
    text = "\n".join(line for n, line in enumerate(lines) if n not in pred[1:-1])
    (record,) = records(text)
    assert [one["name"] for one in record["metrics"]] == ["prompt", "decode"]
    assert record["warnings"]
