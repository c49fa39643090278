"""collectives: all-reduce between the GPUs of all nodes, by nccl-tests or rccl-tests over MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.nodes.ssh import Connection
from nixwulf.outputs import nccl as parser
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime import mpi, nccl
from nixwulf.plugins.runtime.run import Run, RunFailure

_PROGRAM = "all_reduce_perf"
# From and to, in bytes; decode's all-reduces have 1 to 256 KiB, and there the time counts.
_RANGES = {"decode": (1 << 10, 1 << 18), "large": (1 << 20, 1 << 28)}


class Collectives(Benchmark):
    """all_reduce_perf, one rank and one GPU a node; a result that was not checked is void.

    `all_reduce_time` (us) and `all_reduce_bandwidth` (Gbit/s of the bus), out of place. Wants
    nccl-tests or rccl-tests built with MPI. `failed`: another status than 0, a `#wrong` that is not
    0, a size that is missing, bandwidth 0. `fallback`: the log of a node has other channels than
    the transport's. `NCCL WARN` alone is no failure: RCCL warns of `iommu=pt` at each start and
    goes on.
    """

    name = "collectives"
    parameters: ClassVar = parameters_of("collectives", sizes=_RANGES)
    engines = ()
    programs = ("mpirun", _PROGRAM)
    required: ClassVar = {
        "mpirun": mpi.INSTALL,
        _PROGRAM: "build nccl-tests or rccl-tests with MPI=1",
    }
    measures_fabric = True
    over_cables = nccl.OVER_CABLES

    def measure(self, run: Run) -> list[Metric]:
        """Time and bus bandwidth of each size; the samples are as many runs as are asked for."""
        tables = [_once(run, number) for number in range(run.case.samples)]
        found = parser.metrics(tables, "all_reduce", "warm")
        return [one for one in found if one.conditions.get("placement") == "out-of-place"]


BENCHMARK = Collectives()


def sizes(run: Run) -> list[int]:
    """The bytes of each row of a table, from the smallest on."""
    smallest, largest = _RANGES[run.case.parameters["sizes"]]
    return [smallest << step for step in range((largest // smallest).bit_length())]


def job_of(run: Run, number: int) -> mpi.Job:
    """The job of one run of the test: one rank a node, each with its own node's devices."""
    values, wanted = run.case.parameters, sizes(run)
    argv = [_PROGRAM, "-b", str(wanted[0]), "-e", str(wanted[-1]), "-f", "2", "-g", "1", "-c", "1"]
    argv += ["-n", str(values["iterations"]), "-w", "5" if run.case.warm_up else "0"]
    environment = {node.node.name: environment_of(run, node) for node in run.nodes}
    return mpi.Job(f"{_PROGRAM}-{number}", tuple(argv), 1, run.scratch, environment)


def environment_of(run: Run, node: Connection) -> dict[str, str]:
    """NCCL's and RCCL's variables for a node's place on the fabric.

    Raises RunFailure skipped where the cluster file names no RDMA device.
    """
    if run.fabric is None:
        return {}
    if run.case.transport == "rdma":
        run.require_rdma(node)
    return {**nccl.environment(run, node), **nccl.log_environment(run)}


def check_sizes(table: parser.NcclTable, wanted: Sequence[int]) -> None:
    """Raise RunFailure when a size is missing, or one is there that was not asked for."""
    found = [row.bytes for row in table.rows]
    if found != list(wanted):
        raise RunFailure(
            f"{_PROGRAM} measured {', '.join(map(str, found))} bytes, expected each power of two "
            f"from {wanted[0]} to {wanted[-1]}."
        )


def failure_of(ending: str, output: str, last: str, logs: Mapping[str, str]) -> RunFailure:
    """A failure by the error that the test printed, and the last warning of each node's log.

    last: its last line, where the output has no error. logs: NCCL's, by node.
    """
    warnings = [
        f" NCCL on node {node!r} warned: {warning}."
        for node, log in logs.items()
        if (warning := nccl.last_warning(log))
    ]
    words = parser.failure(output) or last
    return RunFailure(f"{_PROGRAM} {ending}: {words}{''.join(warnings)}")


def _once(run: Run, number: int) -> parser.NcclTable:
    try:
        process = mpi.execute(run, job_of(run, number))
    finally:
        nccl.collect_logs(run, f"{_PROGRAM}-{number}")
    if process.returncode != 0:
        raise failure_of(process.ending(), process.output, process.last_line(), nccl.logs(run))
    if problem := nccl.transport_problem(run.case.transport, nccl.logs(run)):
        raise RunFailure(problem, "fallback")
    table = parser.parse(process.output)
    check_sizes(table, sizes(run))
    return table
