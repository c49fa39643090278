"""collectives: all-reduce between the GPUs of all nodes, by nccl-tests or rccl-tests over MPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nixwulf import mpi
from nixwulf.benchmarks import Benchmark, Metric
from nixwulf.parameter import Parameter
from nixwulf.parsers import nccl as parser
from nixwulf.run import Run, RunFailure
from nixwulf.ssh import Connection, run_all

_PROGRAM = "all_reduce_perf"
# From and to; decode's all-reduces have 1 to 256 KiB, and there the time counts.
_RANGES = {"decode": ("1K", "256K"), "large": ("1M", "256M")}


class Collectives(Benchmark):
    """all_reduce_perf, one rank and one GPU a node; a result that was not checked is none."""

    name = "collectives"
    parameters: ClassVar = {
        "sizes": Parameter(default="decode", choices=tuple(_RANGES)),
        "iterations": Parameter(default=20, minimum=1),
    }
    engines = ()
    programs = ("mpirun", _PROGRAM)

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """It needs more than one node."""
        return (
            "collectives measures a fabric, and one node has none" if point["nodes"] == 1 else None
        )

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """Open MPI and the program, built with MPI."""
        if "mpirun" not in programs:
            return "'mpirun' on PATH; install Open MPI, the same on all nodes"
        if _PROGRAM not in programs:
            return f"{_PROGRAM!r} on PATH; build nccl-tests or rccl-tests with MPI=1"
        return None

    def measure(self, run: Run) -> list[Metric]:
        """Time and bus bandwidth of each size; the samples are as many runs as are asked for."""
        run_all(run.nodes, ["mkdir", "-p", _folder(run)])
        try:
            tables = [_once(run, number) for number in range(run.case.samples)]
        finally:
            run_all(run.nodes, ["rm", "-rf", _folder(run)])
        metrics = []
        for rows in zip(*(table.rows for table in tables), strict=True):
            conditions = {"bytes": rows[0].bytes, "placement": "out-of-place"}
            times = tuple(row.out_of_place_us for row in rows)
            rates = tuple(row.out_of_place_gbs * 8 for row in rows)
            metrics.append(Metric("all_reduce_time", "us", times, "warm", conditions))
            metrics.append(Metric("all_reduce_bandwidth", "Gbit/s", rates, "warm", conditions))
        return metrics


BENCHMARK = Collectives()


def job_of(run: Run, number: int) -> mpi.Job:
    """The job of one run of the test: one rank a node, each with its own node's devices."""
    values = run.case.parameters
    smallest, largest = _RANGES[values["sizes"]]
    argv = [_PROGRAM, "-b", smallest, "-e", largest, "-f", "2", "-g", "1", "-c", "1"]
    argv += ["-n", str(values["iterations"]), "-w", "5" if run.case.warm_up else "0"]
    environment = {node.node.name: environment_of(run, node) for node in run.nodes}
    return mpi.Job(f"{_PROGRAM}-{number}", tuple(argv), 1, _folder(run), environment)


def environment_of(run: Run, node: Connection) -> dict[str, str]:
    """NCCL's and RCCL's variables for a node's place on the fabric, as in lib/nccl.nix.

    Raises RunFailure skipped where the cluster file names no RDMA device.
    """
    place = node.node.fabrics[run.case.fabric or ""]
    variables = {
        # A bare name is a prefix; '=' makes it the name.
        "NCCL_SOCKET_IFNAME": f"={place.interface}",
        "NCCL_NET_GDR_LEVEL": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
    }
    if run.case.transport != "rdma":
        return {**variables, "NCCL_IB_DISABLE": "1"}
    if place.rdma_device is None:
        raise RunFailure(
            "skipped",
            f"Node {node.node.name!r} has no rdma_device on the fabric {run.case.fabric!r}; add it "
            "to the cluster file ('rdma link' lists them).",
        )
    variables |= {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": f"={place.rdma_device}"}
    variables |= {"NCCL_IB_TIMEOUT": "23", "NCCL_IB_RETRY_CNT": "7"}
    if place.gid_index is not None:
        variables["NCCL_IB_GID_INDEX"] = str(place.gid_index)
    if run.fabric is not None and run.fabric.kind == "infiniband":
        variables |= {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}
    return variables


def check_transport(text: str, transport: str | None) -> None:
    """NCCL's own words on what it crossed; raises RunFailure fallback for sockets under rdma."""
    if transport == "rdma" and "NET/Socket" in text and "NET/IB" not in text:
        raise RunFailure("fallback", "NCCL says NET/Socket, and the case asks for rdma (NET/IB).")


def _once(run: Run, number: int) -> parser.Table:
    process = mpi.execute(run, job_of(run, number))
    output = process.output
    if process.returncode != 0:
        raise RunFailure("failed", f"{_PROGRAM} {process.ending()}: {process.last_line()}")
    check_transport(output + process.errors, run.case.transport)
    return parser.parse(output)


def _folder(run: Run) -> str:
    return f"/tmp/nixwulf-{run.name}"  # noqa: S108 - on the nodes
