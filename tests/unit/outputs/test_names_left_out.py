"""What an import leaves out goes by the label or the key that the number stands at."""

from nixwulf.results.importing import UserMetadata, reading_of

ONE = UserMetadata(("generic-x86_64",), nodes=1)
# hand-made: -o sql of a build of a Mac (form: printer sql of
# https://github.com/ggml-org/llama.cpp/tree/master/tools/llama-bench)
SQL = """\
INSERT INTO llama_bench (build_commit, backends, model_type, n_prompt, n_gen, avg_ns, avg_ts, stddev_ts) VALUES ('a1b2c3d', 'Metal,BLAS', 'gemma3 27B Q4_0', '512', '0', '2048000000', '250.0', '1.5');
"""  # noqa: E501
# hand-made: a command with lists, and a table (form: the same folder, README.md)
LISTS = """\
$ llama-bench -m x.gguf -p 256,512 -n 96 --batch-size 512,1024 -ngl 99 -r 7
| model | size | params | backend | ngl | test | t/s |
| ----- | ---: | -----: | ------- | --: | ---: | --: |
| qwen3 8B Q4_K - Medium | 4.68 GiB | 8.19 B | CUDA | 99 | pp512 | 121.44 ± 0.55 |
"""
# hand-made: two lines of its log (form:
# https://github.com/vllm-project/vllm/blob/main/vllm/v1/metrics/loggers.py)
VLLM = """\
Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 41.0 tokens/s, Running: 2 reqs, Waiting: 3 reqs
Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs
"""  # noqa: E501
# hand-made: a batch of each kind (form:
# https://github.com/sgl-project/sglang/tree/main/python/sglang/srt/managers)
SGLANG = """\
Prefill batch. #new-seq: 1, #new-token: 2048, #cached-token: 0, token usage: 0.01, #queue-req: 0,
Decode batch. #running-req: 1, #token: 2100, token usage: 0.01, gen throughput (token/s): 48.55, #queue-req: 0,
"""  # noqa: E501
# hand-made: a report (form: https://github.com/SeraphimSerapis/tool-eval-bench)
REPORT = """\
# Tool-Call Benchmark — acme/Some-35B
- **Final Score**: **85** / 100
- **Total Points**: 149 / 176

- **Tool Definition Overhead**: ~4,742 tokens (52 tools, 18,970 chars)

> **1 safety-critical failure(s) detected:**

| Parameter | Value |
|---|---|
| Backend | vllm |
| Max Model Len | 131072 |

| Category | Score | Earned | Max |
|---|---|---|---|
| A Tool Selection | 83% | 5 | 6 |
"""
# hand-made: a table (form: src/common.cu of https://github.com/NVIDIA/nccl-tests)
NCCL = """\
# Collective test starting: all_gather_perf
#       size         count      type   redop    root     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
        8192          1024     float    none      -1    25.00    0.33    0.16       0
# Avg bus bandwidth    : 0.16
"""


def said(tmp_path, text, metadata=ONE):
    path = tmp_path / "posted.txt"
    path.write_text(text)
    first, *rest = reading_of(path, metadata).sentences(explain=True)
    return first, "\n".join(rest)


def test_a_value_of_sql_goes_by_its_column(tmp_path):
    first, rest = said(tmp_path, SQL)
    assert "left out: line 1: avg_ns (2048000000)." in first
    assert "n_prompt (512) -> prompt" in rest
    assert "avg_ts (250.0) -> prompt" in rest


def test_a_column_of_numbers_goes_by_the_head_above_it(tmp_path):
    assert "line 4: count (1024)" in said(tmp_path, NCCL)[0]


def test_the_lists_of_options_are_named_whole_and_stay_lists(tmp_path):
    first, _ = said(tmp_path, LISTS)
    assert "line 1: p (256 and 1 more)" in first
    assert "line 1: batch-size (512 and 1 more)" in first
    assert "line 1: n (96)" in first
    assert "ngl" not in first


def test_zeros_of_a_log_are_beside_its_speed_or_left_out(tmp_path):
    first, rest = said(tmp_path, VLLM)
    assert "line 1: Avg prompt throughput (0.0) -> throughput of run 1" in rest
    assert "line 2: Avg prompt throughput (0.0) -> left out" in rest
    assert "line 2: Avg generation throughput (0.0) -> left out" in rest
    assert "1 value" in first


def test_a_number_of_another_line_is_not_kept_because_it_is_equal(tmp_path):
    first, _ = said(tmp_path, SGLANG)
    assert "line 1: token usage (0.01)" in first
    assert "line 1: #queue-req (0)" in first


def test_the_body_of_a_report_is_kept_or_named(tmp_path):
    first, rest = said(tmp_path, REPORT)
    for one in ("Tool Definition Overhead (4,742)", "tools (52)", "chars (18970)"):
        assert one in first
    assert "Max Model Len (131072)" in first
    assert "safety-critical failure" in rest
    assert "Score (85) -> score of run 1" in rest


# hand-made: the end of a run of llama-perplexity (form: tools/perplexity/perplexity.cpp)
PERPLEXITY = """\
perplexity: tokenization took 410.11 ms
perplexity: 1.91 seconds per pass - ETA 4.48 minutes
[1]4.1210,[2]4.6012
Final estimate: PPL = 6.3910 +/- 0.03921

llama_perf_context_print:        load time =    2210.91 ms
llama_perf_context_print: prompt eval time =  251020.10 ms / 288768 tokens (    0.87 ms per token,  1150.38 tokens per second)
llama_perf_context_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)
llama_perf_context_print:       total time =  254100.30 ms / 288769 tokens
"""  # noqa: E501


def test_the_estimate_of_a_perplexity_is_named_beside_its_timings(tmp_path):
    _, rest = said(tmp_path, PERPLEXITY)
    for one in ("6.3910", "0.03921", "410.11", "1.91"):
        assert one in rest


# hand-made: four streams, all intervals of the first second (form: iperf_api.c of iperf 3)
STREAMS = "\n".join(
    [
        "[ ID] Interval           Transfer     Bitrate         Retr  Cwnd",
        *(
            f"[{n:3}]   0.00-1.00   sec  3.1{n} GBytes  26.{n} Gbits/sec    0   3.0{n} MBytes"
            for n in (5, 7, 9, 6)
        ),
        "[SUM]   0.00-1.00   sec  12.4 GBytes   106 Gbits/sec    0",
        "- - - - - - - - - - - -",
        "[SUM]   0.00-1.00   sec  12.4 GBytes   106 Gbits/sec    0             sender",
        "[SUM]   0.00-1.00   sec  12.4 GBytes   106 Gbits/sec                  receiver",
    ]
)  # fmt: skip


def test_each_stream_of_iperf_is_named(tmp_path):
    path = tmp_path / "posted.txt"
    path.write_text(STREAMS)
    two = UserMetadata(("generic-x86_64",), nodes=2)
    said_ = "\n".join(reading_of(path, two).sentences(explain=True))
    assert all(f"3.0{n}" in said_ for n in (5, 7, 9, 6))


# hand-made: what Vulkan's back end says of a device (form: ggml/src/ggml-vulkan/ggml-vulkan.cpp)
DEVICE = """ggml_vulkan: 0 = AMD Radeon Graphics (RADV GFX1151) (radv) | uma: 1 | fp16: 1 | warp size: 64 | shared memory: 65536
| model | size | params | backend | ngl | test | t/s |
| ----- | ---: | -----: | ------- | --: | ---: | --: |
| qwen3 8B Q4_K - Medium | 4.68 GiB | 8.19 B | Vulkan | 99 | pp512 | 121.44 ± 0.55 |
"""  # noqa: E501


def test_the_line_of_a_device_is_no_chat_before_a_table(tmp_path):
    first, rest = said(tmp_path, DEVICE)
    assert "warp size (64)" in first + rest


def test_json_below_a_command_has_the_servers_that_it_names(records):
    # hand-made: a row of -o json with its command (form: tools/llama-bench/README.md)
    text = (
        "$ llama-bench -m q.gguf --rpc 192.168.100.2:50052 -o json\n"
        '[{"backends": "Vulkan,RPC", "model_type": "qwen3 32B Q8_0", "n_prompt": 512, "n_gen": 0,'
        ' "avg_ts": 204.1, "stddev_ts": 0.2}]\n'
    )
    (record,) = records(text, UserMetadata(("generic-x86_64",)))
    assert record["case"]["nodes"] == 2


# hand-made: what somebody measured beside a result (form: the fixture llama-bench/two-depths.md)
BESIDE = """\
| model | size | params | backend | ngl | test | t/s |
| ----- | ---: | -----: | ------- | --: | ---: | --: |
| qwen3 8B Q4_K - Medium | 4.68 GiB | 8.19 B | CUDA | 99 | tg128 | 41.20 ± 0.31 |

Power draw: 118W idle 12.5W, efficiency 0.35 tok/s/W, 61°C, fan 2100rpm, energy 340J, 2.9GHz
"""


def test_a_number_with_its_unit_behind_it_is_named(tmp_path):
    first, rest = said(tmp_path, BESIDE)
    for number in ("118", "12.5", "0.35", "61", "2100", "340", "2.9"):
        assert f"({number})" in first + rest


# hand-made: a test below a sentence with commas (form: tests/fixtures/iperf3/text.txt)
BELOW = """\
USB4 cable between two boxes, thunderbolt-net, MTU 62000:

$ iperf3 -c 10.99.0.2 -P 2 -t 1
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec   566 MBytes  4.74 Gbits/sec    0   1.10 MBytes
[SUM]   0.00-1.00   sec  1.10 GBytes  9.45 Gbits/sec    0
[SUM]   0.00-1.00   sec  1.10 GBytes  9.45 Gbits/sec    0             sender
[SUM]   0.00-1.00   sec  1.10 GBytes  9.44 Gbits/sec                  receiver
"""


def test_a_sentence_above_a_table_is_no_head_of_it(tmp_path):
    first, rest = said(tmp_path, BELOW, UserMetadata(("generic-x86_64",)))
    assert "Transfer (1.10)" in rest
    for word in ("two", "62000", "cable", "thunderbolt"):
        assert f"{word} (" not in first + rest


# hand-made: values of an option and a percentile (form: argparse; vllm's benchmarks/serve.py)
SEVERAL = """\
$ vllm bench serve --random-input-len 512 --metric-percentiles 99.9 --latency 3 5 7
============ Serving Benchmark Result ============
Successful requests:                     20
Benchmark duration (s):                  44.10
Total input tokens:                      20480
Total generated tokens:                  2560
Request throughput (req/min):            27.21
Output token throughput (tok/s):         58.05
P99.9 TTFT (s):                          1.99
==================================================
"""


def test_values_of_one_option_are_its_own_and_a_percentile_keeps_its_name(tmp_path):
    first, rest = said(tmp_path, SEVERAL)
    assert "latency (3, 5, 7)" in rest
    assert "P99.9 TTFT (s) (1.99)" in rest
    assert "cut off" not in first + rest


def test_a_number_that_ends_a_word_of_a_sentence_is_not_cut(tmp_path):
    # no output: a sentence
    _, rest = said(tmp_path, BESIDE + "Measured on spark-2.\n")
    assert "cut off" not in rest
