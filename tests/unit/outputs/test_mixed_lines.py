"""Lines of several processes, requests and placements in one log: each number in its own run."""

import json

import pytest

from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import by_name, fixture, records_of

ONE = UserMetadata(("generic-x86_64",), nodes=1)
OPEN = UserMetadata(("generic-x86_64",))
EVAL = "eval time = {} ms / {} tokens ({} ms per token, {} tokens per second)"


def values(path, text, metadata=ONE):
    path.write_text(text)
    return [
        {name: one["value"] for name, one in by_name(record).items()}
        for record in records_of(path, metadata)
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # hand-made: a server's slots (form: tools/server/server-context.cpp of llama.cpp)
        ("slot print_timing: id  0 | task 7 | ", "slot print_timing: id  1 | task 8 | "),
        # hand-made: a router's children (form: tools/server/server-models.cpp of llama.cpp)
        ("[53409] ", "[53410] "),
    ],
)
def test_requests_that_end_beside_each_other_keep_their_numbers(tmp_path, one, other):
    lines = [
        one + "prompt " + EVAL.format(900.0, 30, 30.0, 33.33),
        other + "prompt " + EVAL.format(500.0, 500, 1.0, 1000.0),
        one + "       " + EVAL.format(14000.0, 200, 70.0, 14.29),
        other + "       " + EVAL.format(2000.0, 160, 12.5, 80.0),
    ]
    found = values(tmp_path / "log", "\n".join(lines) + "\n")
    assert found == [{"prompt": 33.33, "decode": 14.29}, {"prompt": 1000.0, "decode": 80.0}]


# hand-made: two placements of exo's benchmark (form: bench/exo_bench.py of exo)
EXO = """4 placements. Model: mlx-community/Kimi-K2
PLACEMENT: Tensor / MlxJaccl / nodes=2
prompt_tps=238.41 gen_tps=27.93    prompt_tokens=4096    gen_tokens=128    peak_memory=312.40GB
PLACEMENT: Pipeline / MlxRing / nodes=4
prompt_tps=402.18 gen_tps=36.70    prompt_tokens=4096    gen_tokens=128    peak_memory=158.11GB
"""


def test_each_placement_of_exo_is_a_case_with_its_nodes(tmp_path):
    path = tmp_path / "exo.log"
    path.write_text(EXO)
    found = records_of(path, OPEN)
    cases = [one["case"] for one in found]
    assert [(one["nodes"], one["parallelism"], one["transport"]) for one in cases] == [
        (2, "tensor", "rdma"),
        (4, "pipeline", "tcp"),
    ]
    assert {one["model"] for one in cases} == {"mlx-community/Kimi-K2"}
    assert [by_name(one)["prompt"]["value"] for one in found] == [238.41, 402.18]


def test_what_another_tool_of_the_paste_has_is_not_left_out(tmp_path):
    path = tmp_path / "both.txt"
    # hand-made: two of vLLM's benchmarks (form: vllm/benchmarks of vLLM)
    path.write_text(
        "Throughput: 2.31 requests/s, 1478.40 total tokens/s, 295.68 output tokens/s\n"
        "Avg latency: 9.1023 seconds\n50% percentile latency: 9.1001 seconds\n"
    )
    first, *_ = reading_of(path, ONE).sentences()
    assert first.endswith("nothing left out.")


@pytest.mark.parametrize(
    ("key", "value"),
    [("use_mmap", False), ("n_cpu_moe", 30), ("no_kv_offload", True), ("poll", 0), ("new", 3)],
)
def test_a_setting_of_json_that_is_not_the_default_is_a_condition(tmp_path, key, value):
    rows = fixture("llama.cpp/0.7.0-build-11669-commit-Debian/llama-bench.cpu.jsonl").splitlines()
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps({**json.loads(row), key: value})}\n" for row in rows))
    (record,) = records_of(path, ONE)
    assert all(one["conditions"][key] == int(value) for one in record["metrics"])


def test_a_model_of_a_command_above_is_that_of_mlx(tmp_path):
    path = tmp_path / "mlx.txt"
    printed = fixture("mlx/mlx.launch.ring2.txt")
    trials = printed[printed.index("Timing with") :]
    # no output: a command
    path.write_text(f"$ mlx_lm.benchmark --model org/some-4bit -p 64\n{trials}")
    (record,) = records_of(path, OPEN)
    assert record["case"]["model"] == "org/some-4bit"


def test_numbers_in_lines_below_a_result_are_named_as_left_out(tmp_path):
    path = tmp_path / "fio.txt"
    # hand-made: percentiles below a result (form: https://fio.readthedocs.io/en/latest/fio_doc.html)
    path.write_text(
        "  read: IOPS=1200, BW=1201MiB/s (1259MB/s)(35.2GiB/30001msec)\n"
        "    clat percentiles (usec):\n"
        "     |  1.00th=[ 8455], 99.00th=[41157]\n"
        "  cpu          : usr=1.20%, sys=9.87%\n"
    )
    first, *_ = reading_of(path, ONE).sentences(explain=True)
    assert all(number in first for number in ("8455", "1.20"))


def test_user_throughput_of_trtllm_is_no_second_decode(tmp_path):
    # hand-made: a report of trtllm-bench (form: tensorrt_llm/bench/dataclasses/reporting.py)
    text = (
        "= PYTORCH BACKEND\nModel:\t\t\torg/Model-NVFP4\nTensorRT LLM Version:\t1.3.0\n"
        "Total Output Throughput (tokens/sec):             53.86\n"
        "Per User Output Throughput [w/ ctx] (tps/user):   6.83\n"
        "Per User Output Speed (tps/user):                 7.23\n"
    )
    assert values(tmp_path / "t", text) == [
        {"throughput": 53.86, "user_throughput": 6.83, "decode": 7.23}
    ]


def test_a_cell_that_is_bold_as_a_whole_is_a_number(tmp_path):
    table = fixture("llama-bench/two-depths.md")
    first = next(line for line in table.splitlines() if "±" in line)
    speed = first.split("|")[-2].strip()
    path = tmp_path / "t.md"
    loose = table.replace(f"{speed} |", f"**{speed}**")
    assert values(path, loose) == values(path, table)


# hand-made: blocks of averages alone, as people paste them (form: src/app.cpp of distributed-llama)
AVERAGES = """\
Evaluation
    nTokens: 19
   tokens/s: {} (70.92 ms/tok)
Prediction
    nTokens: 109
   tokens/s: {} (238.10 ms/tok)
"""


@pytest.mark.parametrize(
    "between",
    [
        "",
        "\n",
        "4 nodes:\n\n",
        # no output: a command
        "$ ./dllama inference --steps 128\n",
    ],
)
def test_averages_of_two_inferences_are_two_runs(tmp_path, between):
    text = AVERAGES.format("14.10", "4.20") + between + AVERAGES.format("39.90", "10.90")
    found = values(tmp_path / "posted", text)
    assert found == [{"prompt": 14.1, "decode": 4.2}, {"prompt": 39.9, "decode": 10.9}]


def test_a_command_of_dllama_says_how_many_nodes_there_were(tmp_path):
    # no output: a command
    command = "./dllama inference --model m.m --workers 10.0.0.2:9999 10.0.0.3:9999 10.0.0.4:9999\n"
    path = tmp_path / "posted"
    path.write_text(command + AVERAGES.format("39.90", "10.90"))
    (record,) = records_of(path, OPEN)
    assert record["case"]["nodes"] == 4


# hand-made: the sums of a test (form: tests/fixtures/iperf3/text.txt)
SUMS = """\
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  10.9 GBytes  {} Gbits/sec    3             sender
[  5]   0.00-10.00  sec  10.9 GBytes  {} Gbits/sec                  receiver
"""


@pytest.mark.parametrize(
    "between",
    [
        # hand-made: a line of it (form: src/iperf_client_api.c of https://github.com/esnet/iperf)
        "Reverse mode, remote host 10.0.0.2 is sending\n",
        # no output: a command
        "iperf3 -c 10.0.0.2 -t 10 -R\n",
        # no output: a command
        "$ iperf3 --client 10.0.0.2 --reverse\n",
    ],
)
def test_a_second_test_goes_the_way_that_its_line_says(tmp_path, between):
    path = tmp_path / "posted"
    path.write_text(SUMS.format("9.38", "9.37") + "\n" + between + SUMS.format("7.05", "7.04"))
    found = [one["metrics"][0] for one in records_of(path, OPEN)]
    assert [(one["conditions"]["direction"], one["value"]) for one in found] == [
        ("forward", 9.37),
        ("reverse", 7.04),
    ]


# hand-made: a table (form: src/common.cu of https://github.com/NVIDIA/nccl-tests before 2.14)
COLLECTIVE = """\
mpirun -np 2 ./build/{} -b 1G -e 1G -g 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1    49820   21.55   21.55      0    49790   21.57   21.57      0
# Avg bus bandwidth    : 21.5600
"""  # noqa: E501


def test_a_collective_is_named_by_its_program_where_no_line_of_its_own_names_it(tmp_path):
    path = tmp_path / "posted"
    path.write_text(COLLECTIVE.format("all_reduce_perf") + COLLECTIVE.format("sendrecv_perf"))
    names = [{one["name"] for one in each["metrics"]} for each in records_of(path, ONE)]
    assert [sorted(one)[-1] for one in names] == ["all_reduce_time", "send_receive_time"]


# hand-made: two commands, each with its output (form: mlx_lm/benchmark.py of mlx-lm)
TRIALS = """\
mlx_lm.benchmark --model org/model-4bit -p {0} -g 128
Running warmup..
Timing with prompt_tokens={0}, generation_tokens=128, batch_size=1.
Trial 1:  prompt_tps=1900.112, generation_tps=120.904, peak_memory=2.610
Averages: prompt_tps=1900.112, generation_tps=120.904, peak_memory=2.610
"""


def test_a_command_belongs_to_the_output_below_it(tmp_path):
    path = tmp_path / "posted"
    path.write_text(TRIALS.format(128) + TRIALS.format(4096))
    found = records_of(path, ONE)
    assert [one["model"]["name"] for one in found] == ["org/model-4bit"] * 2
    assert [one["case"]["parameters"]["n_prompt"] for one in found] == [128, 4096]


# hand-made: requests one by one and at once (form: bench/exo_bench.py of exo)
AT_ONCE = """\
11:05:44.010 | INFO     | __main__:main:470 - PLACEMENT: Tensor / MlxJaccl / nodes=4 / instance_id=6f
11:05:44.010 | INFO     | __main__:main:470 - --- pp=4096 tg=128 concurrency=1 ---
11:06:01.220 | INFO     | __main__:main:510 -   repeat 1/2: prompt_tps=402.11 gen_tps=27.90
11:06:20.420 | INFO     | __main__:main:510 -   repeat 2/2: prompt_tps=404.55 gen_tps=27.72
11:06:20.421 | INFO     | __main__:main:588 - prompt_tps=403.33 gen_tps=27.90    prompt_tokens=4096 gen_tokens=128    peak_memory=151.20GB    energy=5120.4J (610.2W avg over 8.4s inference)
11:06:22.501 | INFO     | __main__:main:470 - --- pp=4096 tg=128 concurrency=4 ---
11:06:59.900 | INFO     | __main__:main:560 - [concurrent 4x]  agg_gen_tps=71.20  per_req_tps=17.80  wall_s=48.12  errors=0
11:07:00.001 | INFO     | __main__:main:588 - prompt_tps=120.40 gen_tps=71.20    prompt_tokens=4096 gen_tokens=128    peak_memory=160.00GB
"""  # noqa: E501


def test_what_exo_counts_over_requests_at_once_is_no_speed_of_one(tmp_path):
    path = tmp_path / "posted"
    path.write_text(AT_ONCE)
    (record,) = records_of(path, OPEN)
    speeds = {
        (one["name"], one["conditions"]["concurrency"]): one["value"] for one in record["metrics"]
    }
    assert speeds == {
        ("prompt", 1): 403.33,
        ("decode", 1): 27.9,
        ("peak_memory", 1): 151.2,
        ("prompt", 4): 120.4,
        ("decode", 4): 17.8,
        ("throughput", 4): 71.2,
        ("peak_memory", 4): 160,
    }
    assert record["metrics"][0]["observed"]["energy_j"] == 5120.4


# hand-made: two batches of one command (form: python/sglang/bench_one_batch.py of sglang)
BATCHES = """\
python3 -m sglang.bench_one_batch --model-path org/model --batch 1 8 --input-len {} --output-len 64
Prefill. latency: 0.24410 s, throughput:   4195.00 token/s
Decode 0. Batch size: 1, latency: 0.02603 s, throughput:     38.42 token/s
Decode.  median latency: 0.02598 s, median throughput:     38.49 token/s
Total. latency:  1.881 s, throughput:    578.42 token/s
Prefill. latency: 1.75121 s, throughput:   4677.91 token/s
Decode 0. Batch size: 8, latency: 0.03112 s, throughput:    257.07 token/s
Decode.  median latency: 0.03091 s, median throughput:    258.82 token/s
Total. latency:  3.701 s, throughput:   2351.80 token/s
"""


def test_lengths_of_a_command_are_those_of_each_of_its_batches(tmp_path):
    path = tmp_path / "posted"
    path.write_text(BATCHES.format(1024) + BATCHES.format(2048))
    conditions = [one["metrics"][0]["conditions"] for one in records_of(path, ONE)]
    assert [(one["n_prompt"], one["concurrency"]) for one in conditions] == [
        (1024, 1),
        (1024, 8),
        (2048, 1),
        (2048, 8),
    ]
