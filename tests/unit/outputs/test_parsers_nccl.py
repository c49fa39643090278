from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.nccl import NcclRow, failure, parse, parse_summary
from tool_outputs import reference, truncations

FIXTURES = Path("tests/fixtures/nccl-tests")
TABLE = (FIXTURES / "decode.txt").read_text()
FIRST = TABLE.splitlines()[4]
# hand-made: RCCL writes it on AMD's GPUs (form: WARN in
# https://github.com/ROCm/rccl/blob/rocm-6.2.2/src/init.cc)
IOMMU = """
n1:15718:15718 [0] /src/init.cc:163 NCCL WARN Missing "iommu=pt" from kernel command line
"""


def test_a_row_has_both_placements():
    table = parse(TABLE)
    assert table.rows[0] == NcclRow(1024, 20.08, 0.05, 20.08, 0.05)
    assert [row.bytes for row in table.rows] == [1 << power for power in range(10, 19)]
    assert table.average_gbs == 1.80688


def test_a_warning_of_the_library_is_no_failure_of_the_test():
    assert parse(IOMMU + TABLE) == parse(TABLE)
    assert failure(IOMMU + TABLE) is None


def test_a_test_that_failed_is_quoted_by_its_first_line():
    text = (FIXTURES / "no-gpu.txt").read_text()
    assert (failure(text) or "").endswith(
        "'CUDA driver version is insufficient for CUDA runtime version'"
    )
    with pytest.raises(ParseError, match="nccl-tests failed in line 6: .*driver version"):
        parse(text)


def test_a_row_that_the_librarys_log_cut_in_two_is_not_left_out():
    with pytest.raises(ParseError, match="no whole row of 1024 bytes in line 5"):
        parse((FIXTURES / "row-cut.txt").read_text())


@pytest.mark.parametrize(
    ("name", "average", "last"),
    [
        (
            "gb10blog-nccl-all_gather_perf-2node.txt",
            22.1205,
            NcclRow(17179869184, 361820.0, 23.74, 354934.0, 24.20),
        ),
        (
            "nccl-allreduce-roce-pod.txt",
            2.61937,
            NcclRow(2147483648, 756857.0, 2.84, 757311.0, 2.84),
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
        # no output: a line in which too little stands
        parse_summary("collective mode rep1\nalltoall device fast")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLE.replace(FIRST, FIRST[:-1] + "7"), "7 wrong values of 1024 bytes in line 5"),
        (TABLE.replace(FIRST, FIRST[:-1] + "N/A"), "N/A wrong values"),
        (TABLE.replace(": 0 OK", ": 3 FAILED"), "3 values out of bounds in line 14"),
        (TABLE.replace(": 1.80688", ": 0"), "built without MPI"),
        (TABLE.partition("# Avg")[0], "no '# Avg bus bandwidth'"),
        (TABLE.replace("20.08", "a"), "a word for a number in line 5"),
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
    for given_text in (text, TABLE + text, TABLE.replace("20.08", text)):
        try:
            parse(given_text)
        except ParseError:
            continue
