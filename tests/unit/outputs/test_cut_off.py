"""A paste that ends or begins inside a line gives no number that its program did not print."""

import pytest

from nixwulf.outputs import ParseError, all_tools, documents
from nixwulf.outputs.runs import read_runs
from nixwulf.outputs.wrapping import cut_number, plain
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import DESCRIBED, fixture

# no output: names of tools, each with a text that ends in numbers with decimals
TEXTS = {
    "llama-bench": fixture("llama-bench/two-depths.md").partition("\nbuild")[0],
    "vllm-bench": fixture("posted/vllm-median-without-p95.txt"),
    "sglang-bench": fixture("posted/sglang-cut-off.txt"),
    "llama-timings": fixture("posted/llama-cli-timings.txt"),
    "ollama": DESCRIBED["ollama"]["text"],
    "lm_eval": DESCRIBED["lm_eval"]["text"],
}


def values(tool, text):
    """Names and values of the metrics, with what tells them apart."""
    text = plain(text).removesuffix(cut_number(plain(text)))
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
        assert names(values(tool, text[:end])) <= whole, text[begin:end]


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
