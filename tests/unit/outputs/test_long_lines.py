"""Lines of a kind, length and number that no tool prints: a parser's time is linear in them."""

import sys
import time

import pytest

from nixwulf.outputs import ParseError, all_tools
from nixwulf.outputs.runs import plain, read_runs
from nixwulf.results.importing import UserMetadata, reading_of
from tool_outputs import FIXTURES

HEADS = (
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec",
    "[  5]   0.00-1.00   sec  1.00 GBytes  8.5",
    # no output: the head of a table, for a line that no program ends like this
    "| model | size | params | backend | threads | test | t/s |\n|---|",
    "\nmain: n_kv_max = ",
)


@pytest.mark.parametrize("one", ["c", "a_", " ", "1 ", "1.", "| ", "a[", "-", ": ", "[", "{", "("])
@pytest.mark.parametrize("head", HEADS, ids=["perftest", "iperf3", "llama-bench", "batched"])
def test_a_line_of_100_000_characters_is_read_at_once(head, one):
    text = head + one * (100_000 // len(one))
    for tool in all_tools().values():
        began = time.process_time()
        try:
            tool.recognises(text)
            read_runs(tool, plain(text))
        except ParseError:
            pass
        assert time.process_time() - began < 2, tool.name


def calls(path):
    """How many functions of Python an import calls, the first of which loads tools and schemas."""
    counts = []
    for _ in range(2):
        counts.append(0)

        def count(frame, event, argument):
            counts[-1] += event == "call"

        sys.setprofile(count)
        try:
            reading_of(path, UserMetadata(("lab",), nodes=1))
        finally:
            sys.setprofile(None)
    return counts[-1]


@pytest.mark.parametrize(("form", "most"), [("md", 75), ("csv", 100)])
def test_a_row_more_is_some_calls_more_however_many_there_are(tmp_path, form, most):
    """20,000 rows are to come in within 5 s: a second pass over them would show here."""
    text = (FIXTURES / f"llama-bench/two-depths.{form}").read_text()
    lines = text.splitlines(keepends=True)
    heads = 2 if form == "md" else 1
    numbers = []
    for rows in (400, 800, 1600):
        path = tmp_path / f"{rows}.{form}"
        path.write_text("".join([*lines[:heads], *lines[heads : heads + 1] * rows]))
        numbers.append(calls(path))
    first, second = (numbers[1] - numbers[0]) / 400, (numbers[2] - numbers[1]) / 800
    assert second == pytest.approx(first, rel=0.02)
    assert first < most, first
