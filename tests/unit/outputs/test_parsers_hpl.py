import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.outputs import ParseError
from nixwulf.outputs.hpl import parse
from tool_outputs import fixture, reference, truncations

ONE = fixture("hpl/one-problem.txt")
(ROW,) = (line for line in ONE.splitlines(keepends=True) if line.startswith("WR"))
(PASSED,) = (line for line in ONE.splitlines(keepends=True) if line.endswith("PASSED\n"))
SECONDS, GFLOPS = ROW.split()[5:]


def test_the_hpl_part_of_hpcc_has_what_xhpl_prints():
    (solution,) = parse(ONE)
    assert (solution.n, solution.nb, solution.p, solution.q) == (1000, 80, 1, 2)
    assert (solution.seconds, solution.gflops) == (float(SECONDS), float(GFLOPS))
    flops = 2 / 3 * 1000**3 + 3 / 2 * 1000**2
    assert solution.gflops == pytest.approx(flops / solution.seconds / 1e9, rel=0.05)


def test_each_problem_is_a_solution():
    found = parse(fixture("hpl/two-problems.txt"))
    assert [(each.n, each.residual < 16) for each in found] == [(1000, True), (1200, True)]


@pytest.mark.parametrize(
    ("name", "n", "nb", "grid", "seconds", "gflops"),
    [
        ("justaddrobots-xhpl-x86.txt", 2688, 336, (1, 4), 0.19, 68.2),
        ("hpl-raspberrypi3.txt", 8640, 144, (1, 4), 203.33, 2.115),
        ("hpl-mntreform-a53x4.txt", 19000, 192, (2, 2), 1073.27, 4.261),
    ],
)
def test_published_outputs_give_their_figures(name, n, nb, grid, seconds, gflops):
    (solution,) = parse(reference(name))
    assert (solution.n, solution.nb, (solution.p, solution.q)) == (n, nb, grid)
    assert (solution.seconds, solution.gflops) == (seconds, gflops)


def test_a_published_result_without_its_residual_check_is_none():
    with pytest.raises(ParseError, match="no residual check that PASSED"):
        parse(reference("hpl-fragment-2025-1x4.txt"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (fixture("hpl/residual-failed.txt"), r"residual check FAILED in line \d+ with 0\.0072"),
        (ROW + ROW + PASSED, "result in line 1 has no residual check"),
        (PASSED, "no result before it"),
        # hand-made: hpcc takes another grid where xhpl refuses, and xhpl is not in Debian
        # (form: HPL_pdinfo.c in https://www.netlib.org/benchmark/hpl/hpl-2.3.tar.gz)
        (">>> Need at least 4 processes for these tests <<<\n", "Need at least 4 processes"),
        (fixture("hpl/no-mpirun.txt"), "no result by line 1"),
        (ROW.replace(SECONDS, "0.1.5") + PASSED, "numbers before line 2 are none"),
    ],
)
def test_what_is_no_result_is_one_sentence(text, words):
    with pytest.raises(ParseError, match=words):
        parse(text)


PUBLISHED = [
    "justaddrobots-xhpl-x86.txt",
    "hpl-raspberrypi3.txt",
    "hpl-mntreform-a53x4.txt",
    "hpl-fragment-2025-1x4.txt",
]


@pytest.mark.parametrize("name", ["hpl/one-problem.txt", *PUBLISHED])
def test_any_truncation_is_a_result_or_the_parsers_own_error(name):
    for text in truncations(reference(name) if name in PUBLISHED else fixture(name)):
        try:
            assert all(solution.gflops > 0 for solution in parse(text))
        except ParseError:
            continue


@given(st.text())
def test_any_text_is_a_result_or_the_parsers_own_error(text):
    for given_text in (text, ROW + text, ROW.replace(SECONDS, text) + PASSED, ROW + PASSED + text):
        try:
            parse(given_text)
        except ParseError:
            continue
