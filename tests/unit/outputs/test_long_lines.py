"""Lines of a kind and length that no tool prints: a parser's time is linear in them."""

import time

import pytest

from nixwulf.outputs import ParseError, all_tools
from nixwulf.outputs.runs import read_runs
from nixwulf.outputs.wrapping import plain

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
