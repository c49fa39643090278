"""One program of MLX on every node of a run: what it has there, and its ranks.

Rank 0 is on the head, the others beside it.

MLX has a launcher, mlx.launch. It exits with 0 when a rank has died or a node cannot be reached,
and in the lab it was three to four times slower, so ranks are owned processes like any other.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nixwulf.inventory.cluster import Node
from nixwulf.inventory.fabrics import MAC_RDMA_KINDS, TCP
from nixwulf.inventory.platforms import gpu_vendor
from nixwulf.nodes.process import SHELL, OwnedProcess
from nixwulf.nodes.ssh import Connection, Unreachable, run_all
from nixwulf.plugins.engines import Engine, devices
from nixwulf.plugins.runtime import nccl
from nixwulf.plugins.runtime.case import cables_problem
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure, failure_of

PORT = TCP["mlx"]
# Unbuffered, or lines that a program printed before it was ended are lost. Offline: a model by its
# name on Hugging Face is taken from the nodes' caches, and nothing is downloaded inside a run.
# MLX_METAL_FAST_SYNCH stays unset: with it GPUs have deadlocked (https://github.com/ml-explore/mlx/issues/3142).
ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
_LAST_WORDS_S = 5.0
_POLL_S = 0.02
_NO_PIPELINE = "does not support pipelining"
_LISTENS = "Starting httpd"
_PEER_LOST = "connection to a peer was lost"
# The last line of a Python traceback, or the server's summary of one.
_ERROR = re.compile(r"^(?:\w+(?:Error|Exception)|.*generation thread died): (.+)", re.MULTILINE)

# $1 is the name of the file and $2 its text; the folder is that of the owned processes.
_WRITE = f"""{SHELL}
private && umask 077 && printf %s "$2" >"$state/$1" && echo "$state/$1"
"""
_REMOVE = SHELL + 'private && rm -f "$state/$1"'

_PRINT_DEVICE = f"""
import mlx.core as mx
if "gpu" not in str(mx.default_device()):
    device = "cpu"
elif hasattr(mx, "cuda") and mx.cuda.is_available():
    device = "cuda"
else:
    device = "metal"
print("{devices.MARK}", device)
"""
_FOUND = "mlx device"
_REMEDY = (
    "install MLX for it there, as 'pip install \"mlx[cuda13]\"' does for NVIDIA's, in the "
    "environment of "
)
_NO_SEND = "MLX crosses NVIDIA's nodes by NCCL, without send and so no pipeline; take tensor"
_MIXED = "MLX has no backend between nodes of CUDA and others; take nodes of one kind of GPU"


def rdma_problem(point: Mapping[str, object]) -> str | None:
    """Why a point of a sweep cannot cross its fabric by jaccl, or None.

    MLX has it on macOS only (https://ml-explore.github.io/mlx/build/html/usage/distributed.html).
    """
    kind = point.get("fabric_kind")
    if point.get("transport") != "rdma" or kind in {None, *MAC_RDMA_KINDS}:
        return None
    own = " and ".join(MAC_RDMA_KINDS)
    return f"jaccl, MLX's RDMA, crosses {own} between Macs, not {kind}; take tcp"


def group_problem(point: Mapping[str, Any]) -> str | None:
    """Why the nodes of a point of a sweep cannot be a group of MLX's, or None."""
    if point["nodes"] == 1:
        return None
    gpus = point.get("gpus", set())
    if "nvidia" in gpus:
        problem = _nccl_problem(gpus == {"nvidia"}, point["parallelism"])
        return problem or cables_problem("MLX over NCCL", nccl.OVER_CABLES, point)
    return rdma_problem(point)


def ask(run: Run, engine: Engine, program: str) -> None:
    """Ask MLX on each node what it computes on, and keep it for `backend`.

    Raises RunFailure: a node's GPU would not be used.
    """
    found = devices.ask(run, program, _PRINT_DEVICE)
    devices.require_gpus(run, engine, found, _REMEDY + program)
    for name, device in found.items():
        run.engine_found[_FOUND, name] = (device,)


def backend(run: Run) -> str:
    """What MLX of the run's nodes crosses a fabric by: nccl, ring or jaccl; raises RunFailure.

    The choice of its own launcher, mlx.launch: NCCL where there is CUDA.
    """
    cuda = {_has_cuda(run, node.node) for node in run.nodes}
    if True not in cuda:
        return {"tcp": "ring", "rdma": "jaccl"}[run.case.transport or ""]
    problem = _nccl_problem(cuda == {True}, run.case.parallelism)
    if problem:
        raise RunFailure(f"{problem}.", "unsupported")
    return "nccl"


def _nccl_problem(everywhere: bool, parallelism: str | None) -> str | None:
    if not everywhere:
        return _MIXED
    return _NO_SEND if parallelism == "pipeline" else None


def _has_cuda(run: Run, node: Node) -> bool:
    (device,) = run.engine_found.get((_FOUND, node.name), ("",))
    return device == "cuda" if device else gpu_vendor(node.platform) == "nvidia"


def device_matrix(nodes: Sequence[Node], fabric: str) -> list[list[str | None]]:
    """For each of n nodes a row with its n devices, one towards each; None towards itself.

    nodes: in the order of the ranks.

    Raises RunFailure: `unsupported` for a pair without a device: jaccl has no hops.
    """
    return [
        [None if one is other else _device(one, other, fabric) for other in nodes] for one in nodes
    ]


def _device(one: Node, other: Node, fabric: str) -> str:
    ends = one.end_to(fabric, other.name), other.end_to(fabric, one.name)
    found = [end.rdma_device for end in ends if end is not None and end.rdma_device]
    if len(found) == len(ends):
        return found[0]
    raise RunFailure(
        f"Nodes {one.name!r} and {other.name!r} have no rdma_device towards each other on "
        f"{fabric!r}: jaccl needs a link between each two nodes; cable them, or take fewer nodes.",
        "unsupported",
    )


@dataclass(frozen=True)
class Ranks:
    """The processes of one program in the order of their ranks; rank 0 prints and answers."""

    processes: tuple[OwnedProcess, ...]

    @property
    def head(self) -> OwnedProcess:
        """Rank 0."""
        return self.processes[0]

    def check(self) -> None:
        """Raise RunFailure when another rank failed: rank 0 may wait for it without end.

        A lost connection lets rank 0 end by itself, in its own words, so it gets a while to.
        """
        for process in self.processes[1:]:
            failed = not process.running and process.returncode != 0
            if failed and time.monotonic() - (process.ended or 0) > _LAST_WORDS_S:
                raise _end_of(process)

    def finish(self, run: Run) -> None:
        """Wait until rank 0 has ended well; raises RunFailure."""
        clocks = Clocks(run, self.head)
        while self.head.running:
            time.sleep(_POLL_S)
            self.check()
            clocks.check()
        if self.head.returncode != 0:
            raise _end_of(self.head)


@contextmanager
def started(
    run: Run, label: str, program: str, of_rank: Callable[[int], Sequence[str]]
) -> Iterator[Ranks]:
    """A program on every node, stopped when the block ends.

    Raises RunFailure: a rank failed; `unsupported` where the program cannot split the model so.
    """
    label = f"{label}-{len(run.owned)}"
    processes: list[OwnedProcess] = []
    with _group(run, label) as environments:
        try:
            # Rank 0 comes last: its first output then shows that all others are there.
            for rank in reversed(range(len(run.nodes))):
                node = run.nodes[rank]
                argv = [run.program(program, node), *of_rank(rank)]
                environment = ENVIRONMENT | environments[rank]
                process = run.start(node, label, argv, environment, background=rank > 0)
                processes.insert(0, process)
            yield Ranks(tuple(processes))
        except RunFailure as failure:
            raise _with_cause(failure, processes) from None
        finally:
            for process in reversed(processes):  # a rank that is left alone ends by itself
                process.stop()


def group_text(run: Run) -> str:
    """What the ranks of a run read of their group; raises RunFailure."""
    nodes = [connection.node for connection in run.nodes]
    return group(nodes, run.case.fabric or "", run.case.transport)


def group(nodes: Sequence[Node], fabric: str, transport: str | None) -> str:
    """The text of a group: addresses for ring, RDMA devices for jaccl.

    A node's address is that by which the one before it in the ring connects.

    nodes: in the order of the ranks. transport: "tcp" (ring) or "rdma" (jaccl).

    Raises RunFailure: no cable joins two nodes, or one without RDMA devices.
    """
    if transport == "rdma":
        return json.dumps(device_matrix(nodes, fabric))
    ends = [node.end_to(fabric, nodes[rank - 1].name) for rank, node in enumerate(nodes)]
    if None in ends:
        raise RunFailure(f"The nodes are in no ring on the fabric {fabric!r}.", "unsupported")
    return json.dumps([[f"{end.address}:{PORT}"] for end in ends if end])


def nccl_environment(run: Run, rank: int) -> dict[str, str]:
    """The variables by which a rank finds its group over NCCL, and NCCL its fabric.

    They are those of mlx.launch, which like this gives a node's first GPU to a node's only rank.
    """
    variables = {
        "NCCL_HOST_IP": run.meeting_address(run.head),
        "NCCL_PORT": str(PORT),
        "MLX_RANK": str(rank),
        "MLX_WORLD_SIZE": str(len(run.nodes)),
        "CUDA_VISIBLE_DEVICES": "0",
        **nccl.log_environment(run),
    }
    return variables | nccl.environment(run, run.nodes[rank])


def group_environment(run: Run, rank: int, path: str) -> dict[str, str]:
    """The variables by which a rank finds its group without NCCL.

    rank: from 0, the head's. path: file with the group's text on the rank's node.
    """
    variables = {"MLX_RANK": str(rank)}
    if run.case.transport != "rdma":
        return {"MLX_HOSTFILE": path, **variables}
    coordinator = f"{run.meeting_address(run.head)}:{PORT}"
    return {"MLX_IBV_DEVICES": path, "MLX_JACCL_COORDINATOR": coordinator, **variables}


@contextmanager
def _group(run: Run, label: str) -> Iterator[list[dict[str, str]]]:
    """The environment of each rank; the file that it names is removed when the block ends."""
    if run.case.nodes == 1:
        yield [{}]
        return
    if backend(run) == "nccl":
        try:
            yield [nccl_environment(run, rank) for rank in range(len(run.nodes))]
        finally:
            nccl.collect_logs(run, label)
        return
    name = f"nixwulf-{run.name}-{label}.json"
    command = ["sh", "-c", _WRITE, "sh", name, group_text(run)]
    paths = [_path(*each) for each in zip(run.nodes, run_all(run.nodes, command), strict=True)]
    try:
        yield [group_environment(run, rank, path) for rank, path in enumerate(paths)]
    finally:
        run_all(run.nodes, ["sh", "-c", _REMOVE, "sh", name])


def alone(processes: Sequence[OwnedProcess]) -> str | None:
    """A rank of mlx_lm.server but 0 that listens, in a sentence: it found no group."""
    for process in processes:
        served = process.background and process.argv[0].endswith("mlx_lm.server")
        if served and _LISTENS in process.errors:
            return (
                f"mlx_lm.server on node {process.node!r} listens, which only rank 0 does: it "
                "found no group, and each rank ran the whole model alone."
            )
    return None


def _path(node: Connection, answer: object) -> str:
    if isinstance(answer, Unreachable):
        raise answer
    path = str(getattr(answer, "stdout", "")).strip()
    if not path:
        words = " ".join(str(getattr(answer, "stderr", "")).split())
        raise RunFailure(f"Node {node.node.name!r} keeps no file for MLX: {words}.")
    return path


def _with_cause(failure: RunFailure, processes: Sequence[OwnedProcess]) -> RunFailure:
    """The same failure with the error of the rank that caused it, where one printed an error."""
    for process in reversed(processes):
        text = process.errors
        if _NO_PIPELINE in text:
            reason = "mlx-lm splits a model of this architecture by tensors only."
            return RunFailure(reason, "unsupported")
        reported = next((m[1] for m in _ERROR.finditer(text) if _PEER_LOST not in m[1]), None)
        if reported and failure.outcome == "failed":
            program = process.argv[0].rpartition("/")[2]
            return RunFailure(f"{program} on node {process.node!r} says: {reported}")
    return failure


def _end_of(process: OwnedProcess) -> RunFailure:
    program = process.argv[0].rpartition("/")[2]
    return failure_of(process, f"{program} on node {process.node!r}")
