"""hpl: Gflop/s of a dense system of linear equations over all nodes, by xhpl or Debian's hpcc."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import ClassVar

from nixwulf.core.files import shipped_text
from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.inventory.cluster import LAB_PLATFORM
from nixwulf.nodes.transfer import put
from nixwulf.outputs import hpl as parser
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime import mpi
from nixwulf.plugins.runtime.run import Run, RunFailure, failure_of

_DOUBLE = 8
_ROUNDED_S = 0.005  # HPL prints hundredths of a second
# Of the order that the share of the memory gives, for the rest of the system; the formula is that
# of lib/hpl.nix and https://github.com/geerlingguy/top500-benchmark: 61 % of all memory by default.
_MARGIN = 0.9
_INPUT = {"xhpl": "HPL.dat", "hpcc": "hpccinf.txt"}
# hpcc writes there, xhpl to its standard output: hpcc's is made to go there as well, whose lines
# the driver sees when they are written.
_HPCC_OUTPUT = "hpccoutf.txt"


class Hpl(Benchmark):
    """High-Performance Linpack; one without a residual check that PASSED is void.

    `gflops` (Gflop/s) and `time` (s), a sample a solution, by `xhpl`, else Debian's `hpcc`. mpirun
    runs on the head, and the driver starts its daemons over its own ssh connections: nodes need no
    keys to each other. They need the same Open MPI, 4 or 5, and its ephemeral ports open on the
    fabric. Ranks are not bound. On Linux only.

    A low number is the BLAS first. On Zen 5 (Strix Halo) OpenBLAS up to 0.3.33 does not know the
    processor (https://github.com/OpenMathLib/OpenBLAS/issues/6029), and nixpkgs builds it without
    AVX-512, which halves the multiply-adds of a cycle: take AMD's BLIS with nb 456, as nodes of
    the flake do.
    """

    name = "hpl"
    parameters: ClassVar = parameters_of("hpl")
    engines = ()
    programs = ("mpirun", *_INPUT)
    required: ClassVar = {"mpirun": mpi.INSTALL}
    transports = ("tcp",)
    linux_only = True

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """Open MPI, and one of the two programs."""
        lacking = super().missing(programs)
        if lacking is None and _program(programs) is None:
            return "'xhpl' on PATH; set nixwulf.hpl.enable, or install Debian's hpcc"
        return lacking

    def measure(self, run: Run) -> list[Metric]:
        """Solve one problem as often as samples are asked for; raises RunFailure."""
        values = run.case.parameters
        program = _program(run.facts[run.head.node.name].programs) or "xhpl"
        ranks = values["ranks_per_node"]
        problem = parser.Problem(_order(run), values["nb"], *grid_of(ranks * len(run.nodes)))
        folder = run.folder(run.head)
        text = input_text(problem, run.case.samples)
        run.raw.mkdir(parents=True, exist_ok=True)
        (run.raw / _INPUT[program]).write_text(text, "utf-8")
        job = mpi.Job(
            program,
            (program,),
            ranks,
            folder,
            {node.node.name: _threads(run, node.node.name) for node in run.nodes},
            yields=mpi.shares_cores(run, ranks),
        )
        put(run.head, run.raw / _INPUT[program], f"{folder}/{_INPUT[program]}")
        if program == "hpcc":
            run.head.script('ln -s /dev/stdout "$1"', f"{folder}/{_HPCC_OUTPUT}")
        process = mpi.execute(run, job)
        if process.returncode != 0:
            raise failure_of(process, program)
        solved = parser.parse(process.output)
        if len(solved) != run.case.samples:
            raise RunFailure(f"{program} gave {len(solved)} results, expected {run.case.samples}.")
        if other := another_problem(solved, problem):
            raise RunFailure(f"{program} {other}")
        speed, time = parser.metrics(solved, {"program": program}, "warm")
        return [replace(speed, windows=windows(solved, process.stdout_times)), time]


BENCHMARK = Hpl()


def another_problem(solved: Sequence[parser.Solution], asked: parser.Problem) -> str | None:
    """What was solved instead of the problem that was asked for, or None.

    hpcc 1.5.0 takes another problem, and passes, where MPI gave it fewer ranks than the grid.
    """
    other = next((one.problem for one in solved if one.problem != asked), None)
    if other is None:
        return None
    return (
        f"solved {other}, and was asked for {asked}; it takes another problem when it has fewer "
        "ranks, so see 'mpirun -np 2 hostname' there."
    )


def windows(
    solved: Sequence[parser.Solution], came: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """When each problem was being solved; came: the moment of each line, in seconds.

    HPL prints a result as soon as the problem is solved, before it checks it, and flushes each line
    (https://github.com/icl-utk-edu/hpl/blob/main/src/auxil/HPL_fprintf.c). None where a build
    kept its lines back: then a problem would have begun before the one before it was checked.
    """
    found = [(came[one.line] - one.seconds, came[one.line]) for one in solved]
    checked = [came[one.last_line] for one in solved]
    held_back = any(
        begin < before - _ROUNDED_S for (begin, _), before in zip(found[1:], checked, strict=False)
    )
    return () if held_back else tuple(found)


def grid_of(ranks: int) -> tuple[int, int]:
    """P and Q with P * Q = ranks and P <= Q, as near as they can be: HPL sends least so."""
    p = next(p for p in range(math.isqrt(ranks), 0, -1) if ranks % p == 0)
    return p, ranks // p


def order_of(memory: int, nodes: int, percent: int, nb: int) -> int:
    """The order of the matrix of doubles, a multiple of nb.

    memory: bytes of each node. percent: share of the memory.
    """
    n = math.isqrt(int(memory * nodes * percent / 100 / _DOUBLE * _MARGIN**2))
    return n - n % nb


def input_text(problem: parser.Problem, samples: int) -> str:
    """HPL's input file, read by position: the problem as often as samples are asked for."""
    rows = {**asdict(problem), "n": " ".join([str(problem.n)] * samples)}
    return shipped_text("data/HPL.dat").format(problems=samples, **rows)


def _program(programs: Mapping[str, str]) -> str | None:
    return next((name for name in _INPUT if name in programs), None)


def _order(run: Run) -> int:
    """N as given or from the smallest node's memory; raises RunFailure where it does not fit."""
    values, nodes = run.case.parameters, len(run.nodes)
    smallest = min(run.nodes, key=lambda node: run.facts[node.node.name].memory_total)
    facts = run.facts[smallest.node.name]
    # The nodes of a lab have one machine's memory together.
    shared = nodes if run.head.node.platform == LAB_PLATFORM else 1
    n = values["n"] or order_of(
        facts.memory_total // shared, nodes, values["memory_percent"], values["nb"]
    )
    blocks = n // values["nb"]
    p, q = grid_of(values["ranks_per_node"] * nodes)
    if blocks < q:
        raise RunFailure(
            f"A matrix of order {n} has {blocks} whole blocks of {values['nb']}, too few for the "
            f"grid {p} x {q}; use a larger n, a smaller nb or fewer ranks_per_node.",
            "skipped",
        )
    share = n * n * _DOUBLE // nodes
    available = facts.memory_available // shared
    if share > available:
        raise RunFailure(
            f"A matrix of order {n} takes {share / 2**30:.1f} GiB of each node, and "
            f"{smallest.node.name!r} has {available / 2**30:.1f} GiB free; use a smaller n or "
            "memory_percent, or more nodes.",
            "skipped",
        )
    return int(n)


def _threads(run: Run, node: str) -> dict[str, str]:
    """OpenBLAS and BLIS both heed it; BLIS takes one thread by default."""
    values = run.case.parameters
    threads = values["threads"] or max(1, run.facts[node].cpus // values["ranks_per_node"])
    return {"OMP_NUM_THREADS": str(threads)}
