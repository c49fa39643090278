import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.parsers import ParseError
from nixwulf.parsers.nccl import Row, parse, parse_summary
from tool_outputs import reference, truncations

TABLE = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
        1024           256     float     sum      -1    21.30    0.05    0.05       0    20.90    0.05    0.06       0
n1:15718:15718 [0] NCCL INFO comm 0x576eb5d4d740 rank 1 nranks 2 cudaDev 0 busId 2000 - Destroy COMPLETE
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.055
"""  # noqa: E501


def test_a_row_has_both_placements():
    table = parse(TABLE)
    assert table.rows == (Row(1024, 21.3, 0.05, 20.9, 0.06),)
    assert table.average_gbs == 0.055


@pytest.mark.parametrize(
    ("name", "average", "last"),
    [
        (
            "gb10blog-nccl-all_gather_perf-2node.txt",
            22.1205,
            Row(17179869184, 361820.0, 23.74, 354934.0, 24.20),
        ),
        (
            "nccl-allreduce-roce-pod.txt",
            2.61937,
            Row(2147483648, 756857.0, 2.84, 757311.0, 2.84),
        ),
    ],
)
def test_published_outputs_give_their_figures(name, average, last):
    table = parse(reference(name))
    assert (table.average_gbs, len(table.rows), table.rows[-1]) == (average, 6, last)


def test_the_published_summary_of_rccl_has_both_placements():
    lines = parse_summary(reference("hellas-rccl-alltoall-4MiB.txt"))
    assert len(lines) == 6
    assert lines[0].repetitions == ((1333.93, 1296.85), (1285.05, 1286.63))
    with pytest.raises(ParseError, match="in line 2, expected a collective"):
        parse_summary("collective mode rep1\nalltoall device fast")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLE.replace("0.05       0", "0.05       7"), "7 wrong values of 1024 bytes in line 2"),
        (TABLE.replace("0.06       0", "0.06     N/A"), "N/A wrong values"),
        (TABLE.replace(": 0 OK", ": 3 FAILED"), "3 values out of bounds in line 4"),
        (TABLE.replace(": 0.055", ": 0"), "built without MPI"),
        (TABLE.partition("# Avg")[0], "no '# Avg bus bandwidth'"),
        (TABLE.replace("21.30", "a"), "a word for a number in line 2"),
        ("n1: Test NCCL failure common.cu:1005 'unhandled system error'", "failed in line 1"),
    ],
)
def test_what_is_no_result_is_one_sentence(text, words):
    with pytest.raises(ParseError, match=words):
        parse(text)


@pytest.mark.parametrize("name", ["gb10blog-nccl-all_gather_perf-2node.txt", None])
def test_any_truncation_is_a_result_or_the_parsers_own_error(name):
    for text in truncations(reference(name) if name else TABLE):
        try:
            assert parse(text).rows
        except ParseError:
            continue


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    for given_text in (text, TABLE + text, TABLE.replace("21.30", text)):
        try:
            parse(given_text)
        except ParseError:
            continue
