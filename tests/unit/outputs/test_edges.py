"""The head and the tail of an output: each number is in the record, or named as left out."""

import json

import pytest

from nixwulf.core.errors import InputError
from nixwulf.outputs import failure
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import NCCL, by_name, fixture

ONE = UserMetadata(("generic-x86_64",), nodes=1)
TWO = UserMetadata(("dgx-spark",), nodes=2)
OPEN = UserMetadata(("dgx-spark",))


def imported(tmp_path, text, said=ONE):
    """The records, and all sentences."""
    path = tmp_path / "output.txt"
    path.write_text(text)
    reading = reading_of(path, said)
    return list(reading.records), "\n".join(reading.sentences(explain=True))


# hand-made: (form: mlx_lm/benchmark.py of https://github.com/ml-explore/mlx-lm before total_time)
TRIALS = """\
Timing with prompt_tokens=2048, generation_tokens=128, batch_size=1.
Trial 1:  prompt_tps=1012.345, generation_tps=88.123, peak_memory=17.321
Trial 2:  prompt_tps=1010.120, generation_tps=88.011, peak_memory=17.322
"""


def test_trials_of_mlx_need_no_total_time(tmp_path):
    (record,), _ = imported(tmp_path, TRIALS)
    found = by_name(record)
    assert found["decode"]["samples"] == [88.123, 88.011]
    assert found["prompt"]["conditions"] == {"n_prompt": 2048, "n_gen": 128, "n_batch": 1}


# hand-made: what programs print above and below a result, with a number of it each (form:
# common_perf_print and llama_memory_breakdown_print of llama.cpp; dllama.cpp of distributed-llama
# v0.11; show_disk_util of fio)
TAILS = {
    "graphs": (fixture("posted/llama-cli-timings.txt").rstrip(), "graphs reused =   126\n", "126"),
    "batched": (
        fixture("llama-cpp-tools/batched-bench.txt"),
        "\nllama_perf_context_print:        load time =    2231.11 ms\n",
        "2231.11",
    ),
    "memory": (
        "[ Prompt: 312.4 t/s | Generation: 68.9 t/s ]\n" + "> and words\n\nmore words\n" * 20,
        "a_b: | memory breakdown [MiB] | total |\na_b: |  - GPU  | 98304 = 85012 + (12310) |\n",
        "98304",
    ),
    "disk": (
        fixture("machine-tools/fio.txt"),
        "\nDisk stats (read/write):\n  nvme0n1: ios=129800/21, merge=0/3, util=99.02%\n",
        "21",
    ),
}


@pytest.mark.parametrize("name", TAILS)
def test_what_a_program_prints_below_its_result_is_named(tmp_path, name):
    above, below, number = TAILS[name]
    _, sentences = imported(tmp_path, "\n".join((above.rstrip(), below)))
    assert number in sentences


def test_each_line_of_a_token_above_the_averages_is_named(tmp_path):
    # hand-made: (form: dllama.cpp of https://github.com/b4rtaz/distributed-llama v0.11.0)
    line = "🔶 G  {} ms I  312 ms T   60 ms S    798 kB R   1040 kB Hello\n"
    tokens = "".join(line.format(300 + number) for number in range(60))
    # hand-made: as above (form: as above)
    end = "Generated tokens:    60\nAvg tokens / second: 2.70\nAvg generation time: 371.00 ms\n"
    _, sentences = imported(tmp_path, tokens + end)
    assert all(str(300 + number) in sentences for number in range(60))


def test_nccl_tests_have_their_ranks_version_and_settings(tmp_path):
    # hand-made: the head of four ranks (form: src/common.cu of https://github.com/NVIDIA/nccl-tests)
    head = "# nccl-tests version 2.17.6 nccl-headers=22803\n# nThread 1 nGpus 2 warmup iters: 5\n"
    # hand-made: as above (form: as above)
    ranks = "".join(
        f"#  Rank  {rank} Group  0 Pid  10{rank} on  host-{rank // 2} device  {rank % 2} [01:00]\n"
        for rank in range(4)
    )
    table = fixture("nccl-tests/decode.txt").replace("float     sum      -1", "half max 0")
    (record,), sentences = imported(tmp_path, head + ranks + table, OPEN)
    assert (record["case"]["nodes"], record["case"]["parameters"]) == (2, {"ranks": 4})
    assert record["source"]["note"] == "nccl-tests 2.17.6"
    unusual = {"type": "half", "redop": "max", "root": "0"}
    assert unusual.items() <= record["metrics"][0]["conditions"].items()
    assert [one for one in ("22803", "nGpus (2)", "(256)") if one not in sentences] == []
    (usual,), _ = imported(tmp_path, NCCL, OPEN)
    assert usual["metrics"][0]["conditions"].keys() == {"bytes", "placement"}


def test_the_head_of_nccl_tests_is_found_above_the_log_of_nccl(tmp_path):
    head, table = NCCL.partition("#")[::2]
    # hand-made: NCCL_DEBUG=INFO (form: the line of NCCL in tests/support/tool_outputs.py)
    log = "n1:15718:15731 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] via NET/IB/0\n" * 40
    # hand-made: its head with another number (form: src/common.cu of nccl-tests)
    text = f"# nThread 1 nGpus 1 warmup iters: 5 iters: 77\n{log}{head}#{table}"
    _, sentences = imported(tmp_path, text, TWO)
    assert "(77)" in sentences


def test_a_line_with_as_many_words_as_a_table_has_columns_is_no_row(tmp_path):
    # hand-made: ten words (form: llama_perf_context_print of https://github.com/ggml-org/llama.cpp)
    more = "\nllama_perf_print: prompt eval time = 1000.00 ms / 640 tokens\n"
    text = fixture("llama-cpp-tools/batched-bench.txt").rstrip() + more
    _, sentences = imported(tmp_path, text)
    assert all(number in sentences for number in ("1000.00", "640"))


def test_iperf_2_has_its_seconds_and_its_window(tmp_path):
    # hand-made: (form: https://sourceforge.net/p/iperf2/code/ci/master/tree/doc/)
    text = (
        "Client connecting to 10.77.1.12, TCP port 5001\nTCP window size: 85.0 KByte (default)\n"
        "[ ID] Interval       Transfer     Bandwidth\n"
        "[  1] 0.0000-10.0123 sec  10.9 GBytes  9.38 Gbits/sec\n"
    )
    (record,), _ = imported(tmp_path, text, TWO)
    seen = by_name(record)["bandwidth"]["observed"]
    assert (seen["seconds"], seen["window"]) == (10.0123, "85.0 KByte")
    assert record["case"]["parameters"]["seconds"] == 10


def test_summaries_say_how_many_samples_are_behind_them(tmp_path):
    # hand-made: the end of a ping of macOS (form: ping.c of https://github.com/apple-oss-distributions/network_cmds)
    text = "3 packets transmitted, 3 packets received, 0.0% packet loss\n"
    # hand-made: as above (form: as above)
    text += "round-trip min/avg/max/stddev = 0.211/0.402/0.688/0.101 ms\n"
    (record,), _ = imported(tmp_path, text, TWO)
    assert record["metrics"][0]["observed"]["round_trips"] == 3
    # hand-made: the first line of a ping of Linux (form: the fixture ping/replies.txt)
    (record,), _ = imported(
        tmp_path, f"PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n\n{text}", TWO
    )
    assert record["metrics"][0]["conditions"] == {"bytes": 64}
    (record,), sentences = imported(tmp_path, fixture("sockperf/summary.txt"), TWO)
    (metric,) = record["metrics"]
    assert (metric["stddev"], metric["observed"]["seconds"]) == (1548.298, 0.543)
    assert "SentMessages (401" in sentences


# hand-made: (form: tensorrt_llm/bench/dataclasses/reporting.py of https://github.com/NVIDIA/TensorRT-LLM)
BENCH = """\
= PYTORCH BACKEND
Model:\t\t\torg/Model
Dtype:\t\t\tbfloat16
KV Cache Dtype:\t\tFP8

= WORLD + RUNTIME INFORMATION
TP Size:                {tensor}
PP Size:                {pipeline}
EP Size:                None
Max Runtime Batch Size: 256
KV Memory Percentage:   90.00%

= PERFORMANCE OVERVIEW
Total Output Throughput (tokens/sec):             1579.6736
"""


def test_a_report_of_trtllm_has_its_settings_without_one_of_its_sections(tmp_path):
    said = UserMetadata(("dgx-spark",), nodes=2, fabric="qsfp")
    (record,), sentences = imported(tmp_path, BENCH.format(tensor=2, pipeline=1), said)
    told = record["metrics"][0]["conditions"]
    wanted = {"tensor_parallel": 2, "max_batch": 256, "kv_cache_dtype": "FP8", "dtype": "bfloat16"}
    assert wanted.items() <= told.items()
    assert (record["case"]["parallelism"], "nothing left out" in sentences) == ("tensor", True)
    (record,), _ = imported(tmp_path, BENCH.format(tensor=1, pipeline=2), said)
    assert record["case"]["parallelism"] == "pipeline"
    with pytest.raises(InputError, match="--nodes 2 contradicts .* tensor parallelism 1"):
        imported(tmp_path, BENCH.format(tensor=1, pipeline=1), said)
    assert imported(tmp_path, BENCH.format(tensor=1, pipeline=1), OPEN)[0][0]["case"]["nodes"] == 1


def test_the_reason_of_a_failure_is_the_last_line_with_a_cause():
    # hand-made: (form: vllm/v1/engine/core.py of https://github.com/vllm-project/vllm)
    lines = [
        "ERROR 11-02 [core.py:700] EngineCore failed to start.",
        "ERROR 11-02 [core.py:700] torch.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    assert failure(lines, 1) == (2, f'; line 2 says "{lines[1]}".')
    assert failure(lines[::2], 1)[0] == 1


def test_the_fingerprint_of_an_answer_is_the_build_of_its_server(tmp_path):
    # hand-made: (form: tools/server/README.md of https://github.com/ggml-org/llama.cpp, timings)
    timings = '"timings":{"predicted_n":120,"predicted_ms":1800.2,"predicted_per_second":66.66}'
    # hand-made: as above (form: as above)
    text = f'{{"model":"m","system_fingerprint":"b7310-abcdef",{timings}}}\n'
    (record,), _ = imported(tmp_path, text)
    assert record["engine"]["version"] == "b7310-abcdef"
    (pretty,), _ = imported(tmp_path, json.dumps(json.loads(text), indent=2) + "\n")
    assert pretty["engine"] == record["engine"]
    assert pretty["metrics"][0]["value"] == 66.66


def test_what_is_in_the_record_is_not_left_out_where_it_is_said_again(tmp_path):
    _, sentences = imported(tmp_path, fixture("llama-bench/two-depths.json"))
    assert "build_number" not in sentences.partition("\n")[0]


def test_versions_of_fio_and_hpl_are_kept(tmp_path):
    (record,), _ = imported(tmp_path, fixture("machine-tools/fio.txt"))
    assert record["source"]["note"].startswith("fio ")
    (record,), _ = imported(tmp_path, fixture("hpl/two-problems.txt"), TWO)
    assert record["source"]["note"].startswith("HPL 2.")
