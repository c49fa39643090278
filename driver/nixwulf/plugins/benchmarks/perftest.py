"""perftest: latency and bandwidth of RDMA verbs between the head and each worker."""

from __future__ import annotations

import time
from typing import ClassVar

from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.outputs import ParseError
from nixwulf.outputs import perftest as parser
from nixwulf.outputs.perftest import BandwidthRow, LatencyRow
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.run import Run, RunFailure, failure_of

_OPERATIONS = ("write", "read", "send")
_TOOLS = {"latency": "lat", "bandwidth": "bw"}
# One process a size: -a knows no pause between sizes, and its JSON keeps the last one alone.
SIZES = (64, 4096, 65536, 1048576)
# Apple's devices have unreliable connections and 1024 bytes of MTU only.
_APPLE = "rdma_en"
_CONNECT_LIMIT_S = 15.0
_PAUSE_S = 0.2


class Perftest(Benchmark):
    """One of ib_{write,read,send}_{lat,bw}, size by size, from the head to each worker in turn.

    `rdma_latency` (us): the typical time, half a round trip of write and send, a whole one of read;
    the worst run's 99th percentile is in `observed`. `rdma_bandwidth` (Gbit/s): the average. 64 B,
    4 KiB, 64 KiB and 1 MiB, a process each. On Apple's `rdma_en*` devices connections are
    unreliable (`-c UC -m 1024`), and read is refused.
    """

    name = "perftest"
    parameters: ClassVar = parameters_of("perftest", operation=_OPERATIONS, kind=_TOOLS)
    engines = ()
    programs = tuple(f"ib_{verb}_{tool}" for verb in _OPERATIONS for tool in _TOOLS.values())
    required: ClassVar = dict.fromkeys(programs, "install perftest")
    measures_fabric = True
    transports = ("rdma",)
    over_cables: ClassVar = {"rdma": OverCables(pairs=False)}
    rdma_known_by = "perftest moves data by RDMA alone"

    def measure(self, run: Run) -> list[Metric]:
        """A metric for each link and size; its samples are perftest's result of each run."""
        return [_measure(run, *joined, size) for joined in run.links for size in SIZES]


BENCHMARK = Perftest()


def arguments(run: Run, node: Connection, other: Connection, size: int) -> list[str]:
    """The server's command line on a node; the client's has the server's address after it.

    size: bytes of a message.

    Raises RunFailure: the node has no RDMA device on the fabric, or one that cannot read.
    """
    run.require_rdma(node)
    values, place = run.case.parameters, run.end(node, other)
    device = place.rdma_device or ""
    argv = [f"ib_{values['operation']}_{_TOOLS[values['kind']]}", "-d", device]
    argv += [] if place.gid_index is None else ["-x", str(place.gid_index)]
    argv += ["-F", "-s", str(size), "-n", str(values["iterations"])]
    if values["kind"] == "bandwidth":
        argv.append("--report_gbits")
    if device.startswith(_APPLE):
        if values["operation"] == "read":
            raise RunFailure(
                f"{device!r} of node {node.node.name!r} has unreliable connections "
                "only, which cannot read; use operation write or send.",
                "skipped",
            )
        argv += ["-c", "UC", "-m", "1024"]
    return argv


def _measure(run: Run, source: Connection, worker: Connection, size: int) -> Metric:
    rows = [_once(run, source, worker, size) for _ in range(run.case.samples)]
    conditions = {
        **run.link_conditions(source, worker),
        "operation": run.case.parameters["operation"],
        "bytes": size,
    }
    return parser.metric(rows, conditions, "warm")


def _once(run: Run, source: Connection, worker: Connection, size: int) -> LatencyRow | BandwidthRow:
    listen = arguments(run, worker, source, size)
    connect = [*arguments(run, source, worker, size), run.data_address(worker, source)]
    server = run.start(worker, f"perftest-server-{size}", listen, {}, background=True)
    try:
        name = f"perftest-{size}-{worker.node.name}"
        client = _connected(run, server, source, name, connect)
    finally:
        server.stop()
    output = client.output + client.errors
    rows = parser.parse(output)
    if client.returncode != 0:
        raise failure_of(client, listen[0])
    if len(rows) != 1 or rows[0].bytes != size:
        raise ParseError(f"{listen[0]} gave {len(rows)} rows, expected one of {size} bytes.")
    return rows[0]


def _connected(
    run: Run, server: OwnedProcess, source: Connection, name: str, argv: list[str]
) -> OwnedProcess:
    """The client that ran to its end; a server does not say when it listens, so it tries again."""
    until = time.monotonic() + _CONNECT_LIMIT_S
    while True:
        client = run.execute(source, name, argv, {})
        refused = "Couldn't connect" in client.output + client.errors
        if not refused or not server.running or time.monotonic() > until:
            return client
        time.sleep(_PAUSE_S)
