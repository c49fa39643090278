"""A paste that ends or begins inside a line gives no number that its program did not print."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.outputs import ParseError, all_tools, documents
from nixwulf.outputs.runs import clipped, plain, read_runs
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import DESCRIBED, NCCL, SGLANG, fixture

# no output: names of tools, each with a text that ends in numbers with decimals
TEXTS = {
    "llama-bench": fixture("llama-bench/two-depths.md").partition("\nbuild")[0],
    "vllm-bench": fixture("posted/vllm-median-without-p95.txt"),
    "sglang-bench": fixture("posted/sglang-cut-off.txt"),
    "llama-timings": fixture("posted/llama-cli-timings.txt"),
    "ollama": DESCRIBED["ollama"]["text"],
    "lm_eval": DESCRIBED["lm_eval"]["text"],
    "stress-ng": fixture("machine-tools/stress-ng.txt"),
    "aiperf": DESCRIBED["aiperf"]["text"].rpartition("└")[0],
}


def values(tool, text):
    """Names and values of the metrics, with what tells them apart."""
    text, _ = clipped(plain(text))
    try:
        found, _ = read_runs(tool, text) if tool.recognises(text) else ([], [])
        metrics = [one for case in found for one in documents(case.metrics)]
    except ParseError:
        return set()
    return {(m["name"], m["value"], *(k for k in m["conditions"])) for m in metrics}


def names(found):
    return {one[:2] for one in found}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_ends_anywhere_has_the_numbers_of_the_whole(name):
    tool, text = all_tools()[name], TEXTS[name].rstrip()
    whole = names(values(tool, text + "\n"))
    begin = len(text) - 240
    for end in range(max(0, begin), len(text)):
        for after in ("", "\n"):
            assert names(values(tool, text[:end] + after)) <= whole, text[begin:end]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_begins_anywhere_has_the_numbers_and_conditions_of_the_whole(name):
    tool, text = all_tools()[name], TEXTS[name].strip() + "\n"
    whole = values(tool, text)
    keys = {key for one in whole for key in one[2:]}
    for begin in range(1, 60):
        found = values(tool, text[begin:])
        assert names(found) <= names(whole), text[begin : begin + 60]
        assert {key for one in found for key in one[2:]} <= keys, text[begin : begin + 60]


def test_the_number_that_is_cut_off_is_named(tmp_path):
    path = tmp_path / "output.txt"
    text = fixture("posted/vllm-median-without-p95.txt")
    path.write_text(text.partition("211.21")[0] + "211")
    reading = reading_of(path, UserMetadata(("dgx-spark",), nodes=1))
    assert reading.unread[0].startswith("line 17 ends in 211, ")


def reading(tmp_path, text, nodes=1):
    path = tmp_path / "output.txt"
    path.write_text(text)
    return reading_of(path, UserMetadata(("dgx-spark",), nodes=nodes))


def test_a_table_of_collectives_without_its_end_has_its_whole_rows_and_says_so(tmp_path):
    cut_in_row = NCCL.partition("26.1")[0] + "2"
    with pytest.raises(InputError):
        reading(tmp_path, cut_in_row, 2)
    one_row, rest = NCCL.partition("# Out")[::2]
    found = reading(tmp_path, f"{one_row}{cut_in_row.splitlines()[-1]}", 2)
    assert len(found.records[0]["metrics"]) == 6
    assert "cut off" in found.records[0]["warnings"][0]
    average = reading(tmp_path, one_row + rest.rstrip()[:-1], 2)
    assert len(average.records[0]["metrics"]) == 6
    assert len(reading(tmp_path, one_row + rest.rstrip(), 2).records[0]["metrics"]) == 7


# hand-made: an answer of llama-server and one of ollama, each cut inside the prompt's label
# (form: tests/fixtures/closing-lines)
LABELS_CUT = {
    "server": """\
eval time =     123.45 ms /    17 tokens (    7.26 ms per token,   137.70 tokens per second)
       eval time =    9876.50 ms /   400 tokens (   24.69 ms per token,    40.50 tokens per second)
""",
    "ollama": """\
eval rate:     137.70 tokens/s
eval count:           400 token(s)
eval rate:            40.50 tokens/s
""",
}


@pytest.mark.parametrize("name", LABELS_CUT)
def test_a_label_of_a_prompt_that_lost_its_beginning_is_none_of_the_answer(tmp_path, name):
    found = reading(tmp_path, LABELS_CUT[name])
    assert [one["value"] for r in found.records for one in r["metrics"]] == [40.5]
    assert found.unread[0].startswith("line 1 begins in the middle, with eval ")


def test_a_number_without_its_beginning_is_no_speed(tmp_path):
    found = reading(tmp_path, ".18 tok/sec • 1165 tokens • 0.36s to first token")
    assert [one["name"] for one in found.records[0]["metrics"]] == ["ttft"]


# hand-made: an answer without its prompt's line, and the next without its end (form: print_timing,
# https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-context.cpp)
TWO_ANSWERS = """\
       eval time =   29440.11 ms /  1263 tokens (   23.31 ms per token,    42.90 tokens per second)
      total time =   37563.52 ms /  6473 tokens
prompt eval time =     812.00 ms /   410 tokens (    1.98 ms per token,   504.93 tokens per second)
       eval time =   10022."""


def test_what_is_left_of_two_answers_is_of_each_alone(tmp_path):
    first, second = reading(tmp_path, TWO_ANSWERS).records
    (decode,), (prompt,) = first["metrics"], second["metrics"]
    assert (decode["value"], decode["conditions"]) == (42.9, {"n_gen": 1263})
    assert (prompt["value"], prompt["conditions"]) == (504.93, {"n_prompt": 410})


# no output: a head of sglang's client without the first line, as its labels are in tool_outputs
def test_a_result_without_both_of_its_ends_says_so(tmp_path):
    lines = SGLANG.splitlines()[3:]
    text = "\n".join(line for line in lines if not line.startswith("===="))
    (record,) = reading(tmp_path, text).records
    assert any("cut off" in one for one in record["warnings"])


def test_a_block_of_averages_that_is_cut_off_behind_its_number_comes_in(tmp_path):
    text = fixture("dllama/one-node.txt")
    text = text[text.rindex("\nEvaluation\n") :]
    text = text[: text.rindex(" ms/tok")]
    (record,) = reading(tmp_path, text).records
    assert {one["name"] for one in record["metrics"]} == {"prompt", "decode"}
    assert any("cut off" in one for one in record["warnings"])


# hand-made: a table whose end is missing (form: the fixture llama-bench/two-depths.md)
CUT_ROW = """\
| model | size | params | backend | ngl | test | t/s |
| ----- | ---: | -----: | ------- | --: | ---: | --: |
| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | Vulkan | 99 | pp512 | 1033.20 ± 3.12 |
| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | Vulkan | 99 | tg128 | """


# no output: what people write below
@pytest.mark.parametrize("after", ["", "\n", "\n```\n", "\nit hung here, any idea?\n"])
@pytest.mark.parametrize(
    ("cell", "speeds"), [("19.2", [1033.2]), ("42", [1033.2]), ("42.61 ± 0.", [1033.2, 42.61])]
)
def test_a_row_without_the_pipe_of_the_row_above_is_cut_whatever_comes_after(
    records, cell, speeds, after
):
    (record,) = records(CUT_ROW + cell + after)
    assert [one["value"] for one in record["metrics"]] == speeds
