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
