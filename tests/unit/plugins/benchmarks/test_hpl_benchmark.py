"""How large a problem HPL gets, on which grid, and with which input file."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine_runs import run_of
from nixwulf.outputs.hpl import Problem, parse
from nixwulf.plugins.benchmarks.hpl import (
    BENCHMARK,
    another_problem,
    grid_of,
    input_text,
    order_of,
    windows,
)
from nixwulf.plugins.runtime.run import RunFailure
from tool_outputs import fixture

GIB = 2**30


@given(st.integers(1, 4096))
def test_the_grid_has_every_rank_and_is_as_square_as_can_be(ranks):
    p, q = grid_of(ranks)
    assert p * q == ranks
    assert p <= q
    assert not [other for other in range(p + 1, q) if ranks % other == 0 and other <= ranks / other]


@given(st.integers(1, 512), st.integers(1, 16), st.integers(5, 100), st.integers(1, 512))
def test_the_matrix_fits_its_share_of_the_memory(gib, nodes, percent, nb):
    n = order_of(gib * GIB, nodes, percent, nb)
    assert n % nb == 0
    assert 8 * n**2 <= gib * GIB * nodes * percent / 100


def test_four_nodes_of_128_gib_get_the_order_that_nix_gives_them():
    # As tests/nix/asserts/hpl.nix has it.
    assert order_of(128 * GIB, 4, 75, 256) == 204288


def test_the_input_file_has_each_value_where_hpl_reads_it_and_a_problem_for_each_sample():
    lines = input_text(Problem(1000, 80, 1, 2), 2).splitlines()
    assert len(lines) == 31
    numbered = {number: row.removesuffix("Ns").split(" ") for number, row in enumerate(lines, 1)}
    assert numbered[5][0] == "2"
    assert numbered[6][:2] == ["1000", "1000"]
    assert [numbered[line][0] for line in (7, 8, 10, 11, 12)] == ["1", "80", "1", "1", "2"]


LINES = fixture("hpl/two-problems.txt").splitlines()
# Two problems that take as long as the windows below expect.
TWO_PROBLEMS = [
    replace(problem, seconds=seconds)
    for problem, seconds in zip(parse("\n".join(LINES)), (40.0, 38.0), strict=True)
]


def came(*moments):
    """When each line came: the rows and the residuals of the two problems at these moments."""
    times, now, rest = [], 100.0, list(moments)
    for line in LINES:
        now = rest.pop(0) if line.startswith(("WR", "||Ax-b||_oo/(eps")) else now
        times.append(now)
    assert not rest
    return times


def test_a_problem_was_being_solved_until_its_result_came():
    assert windows(TWO_PROBLEMS, came(150.0, 153.0, 194.0, 197.0)) == (
        (110.0, 150.0),
        (156.0, 194.0),
    )


def test_lines_that_came_together_do_not_tell_when_a_problem_was_solved():
    assert windows(TWO_PROBLEMS, came(197.0, 197.0, 197.0, 197.0)) == ()


def test_hpcc_with_too_few_ranks_solves_another_problem_and_that_is_no_result():
    solved = parse(fixture("hpl/another-problem.txt"))
    assert another_problem(solved, Problem(1000, 80, 1, 4)).startswith(
        f"solved {solved[0].problem}"
    )
    assert another_problem(parse(fixture("hpl/one-problem.txt")), Problem(1000, 80, 1, 2)) is None


def sentence(run):
    with pytest.raises(RunFailure) as raised:
        BENCHMARK.measure(run)
    assert raised.value.outcome == "skipped"
    return raised.value.reason


def test_a_grid_with_more_columns_than_blocks_is_refused(tmp_path):
    run = run_of(tmp_path, "hpl", n=500, nb=256, ranks_per_node=2)
    assert sentence(run) == (
        "A matrix of order 500 has 1 whole blocks of 256, too few for the grid 2 x 2; use a larger "
        "n, a smaller nb or fewer ranks_per_node."
    )


def test_a_matrix_larger_than_the_free_memory_is_refused(tmp_path):
    facts = {"memory_total": 8 * GIB, "memory_available": GIB, "cpus": 4}
    run = run_of(tmp_path, "hpl", "mini-3", n=20000, facts=facts)
    assert sentence(run) == (
        "A matrix of order 20000 takes 1.5 GiB of each node, and 'mini1' has 1.0 GiB free; use a "
        "smaller n or memory_percent, or more nodes."
    )


def test_rdma_is_no_case():
    assert "runs over tcp only" in BENCHMARK.unsupported({"nodes": 2, "transport": "rdma"})


def test_what_a_node_lacks_is_named_with_how_to_get_it():
    assert BENCHMARK.missing({}) == "'mpirun' on PATH; install Open MPI, the same on all nodes"
    assert "nixwulf.hpl.enable" in BENCHMARK.missing({"mpirun": "/usr/bin/mpirun"})
    assert BENCHMARK.missing({"mpirun": "/usr/bin/mpirun", "hpcc": "/usr/bin/hpcc"}) is None
