"""One rule: another number, another answer, or it is named as left out."""

import re

import pytest

from nixwulf.outputs import ParseError, all_tools
from nixwulf.outputs.accounting import account
from nixwulf.outputs.runs import plain
from nixwulf.results.importing import _answer, _read, _tools_of
from tool_outputs import DESCRIBED, FIXTURES, NCCL, PERFTEST, SGLANG, fixture

LONGEST = 16_000
# no output: names of tools, each with a small fixture; what is asked is asked of each number of it
SMALL = {
    "hpl": fixture("hpl/two-problems.txt"),
    "iperf3": fixture("iperf3/client.txt"),
    "llama-bench": fixture("llama-bench/two-servers.md"),
    "llama-batched-bench": fixture("llama-cpp-tools/batched-bench.txt"),
    "mlx_lm.benchmark": fixture("mlx/mlx.single.llama.txt"),
    "nccl-tests": NCCL,
    "perftest": PERFTEST,
    "ping": fixture("ping/replies.txt"),
    "sglang-bench": SGLANG,
    "vllm-bench": fixture("posted/vllm-median-without-p95.txt"),
    "fio": fixture("machine-tools/fio.txt"),
    "sysbench": fixture("machine-tools/sysbench-memory.txt"),
    "mbw": fixture("machine-tools/mbw.txt"),
    **{name: one["text"] for name, one in DESCRIBED.items()},
}
NUMBER = re.compile(r"(?<![\w.:/@+#-])\d+(?:\.\d+)?(?= |\t|$|\)|%|,|/|;)")
# no output: names of fixtures, with the lines around a result whose numbers no program measured
NOTHING_OF_IT: dict[str, set[int]] = {}


def tools_of(text):
    """The tools that have a result in a text, or none."""
    try:
        _, found, _ = _read(_tools_of(text), text)
    except ParseError:
        return ()
    return [tool for tool, cases in found if any(case.metrics for case in cases)]


def fixtures():
    """Every fixture that an import reads."""
    for path in sorted(FIXTURES.rglob("*.*")):
        short = path.is_file() and path.stat().st_size < LONGEST
        text = plain(path.read_text(errors="replace")) if short else ""
        if text and tools_of(text):
            yield str(path.relative_to(FIXTURES))


def require_named(tools, text, lines, also=()):
    """Another number in these lines, or in the block, is another answer, or it is named."""

    def read(changed):
        return _answer(tools, changed)

    whole, found = read(text), account(read, text)
    assert found.whole
    named = {(line, number) for line, _, number in found.left_out}
    used = {line for line, *_ in found.used}
    for place in NUMBER.finditer(text):
        line = text.count("\n", 0, place.start()) + 1
        if line in also or line not in lines(min(used), max(used)) or (line, place[0]) in named:
            continue
        other = str(float(place[0]) * 3 + 1) if "." in place[0] else str(int(place[0]) * 3 + 1)
        changed = text[: place.start()] + other + text[place.end() :]
        try:
            same = read(changed) == whole
        except ParseError:
            continue
        assert not same or account(read, changed).left_out != found.left_out, (line, place[0])


@pytest.mark.parametrize("name", SMALL)
def test_another_number_is_another_record_or_is_named(name):
    require_named(
        [all_tools()[name]], plain(SMALL[name]), lambda first, last: range(first, last + 1)
    )


@pytest.mark.parametrize("name", list(fixtures()))
def test_so_is_another_number_right_before_and_after_what_is_read(name):
    text = plain(fixture(name))
    require_named(
        tools_of(text),
        text,
        lambda first, last: {*range(first - 3, first), *range(last + 1, last + 7)},
        NOTHING_OF_IT.get(name, ()),
    )


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("vllm-bench", "Median ITL (ms)"),
        ("sglang-bench", "Concurrency:"),
        ("sysbench", "total number of events"),
    ],
)
def test_a_label_that_is_not_known_is_a_sentence(name, label):
    text = SMALL[name].replace(label, label.replace(label.split()[0], "Unheard of"))
    found = account(lambda one: _answer([all_tools()[name]], one), plain(text))
    assert any("Unheard of" in words for _, words, _ in found.left_out), found.left_out


def test_labels_that_go_on_below_a_result_are_named():
    # hand-made: a block of speculation (form: https://github.com/vllm-project/vllm serve.py)
    more = "Acceptance rate (%):  61.2\nBy position (%):\n  Position 0:   78.10\n"
    text = plain(SMALL["vllm-bench"]).rstrip().rstrip("=") + more
    found = account(lambda one: _answer([all_tools()["vllm-bench"]], one), text)
    assert "78.10" in {number for *_, number in found.left_out}


def test_numbers_of_json_without_blanks_are_named():
    # hand-made: (form: https://github.com/ollama/ollama/blob/main/docs/api.md)
    text = '{"load_duration":7,"eval_count":120,"eval_duration":8000000000}\n'
    found = account(lambda one: _answer([all_tools()["ollama"]], one), text)
    assert {number for *_, number in found.left_out} == {"7"}


def test_it_says_where_a_text_is_too_long_to_look_at_each_number():
    text = "\n".join(["eval rate: 5.00 tokens/s"] * 9000)
    found = account(lambda one: {"n": str(len(one))}, text)
    assert not found.whole
