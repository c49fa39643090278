"""What MLX has on the nodes of a run: the device of each, and the RDMA devices between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.inventory.cluster import RDMA_KINDS, Cluster, Node
from nixwulf.inventory.platforms import gpu_vendor
from nixwulf.plugins.engines import Engine, devices
from nixwulf.plugins.runtime.run import Run, RunFailure

_KIND = "thunderbolt5-rdma"


_TELL = f"""
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
    "environment of mlx_lm.server"
)
_NO_SEND = (
    "MLX crosses NVIDIA's nodes by NCCL, for which it has no send, so no pipeline; take tensor"
)
_MIXED = "MLX has no backend between nodes of CUDA and others; take nodes of one kind of GPU"


def rdma_problem(point: Mapping[str, Any]) -> str | None:
    """Why a point of a sweep cannot cross its fabric by jaccl, or None.

    MLX has it on macOS only (https://ml-explore.github.io/mlx/build/html/usage/distributed.html).
    """
    kind = point.get("fabric_kind")
    if point.get("transport") != "rdma" or kind in {None, _KIND}:
        return None
    return f"jaccl, MLX's RDMA, crosses {_KIND} between Macs, not {kind}; take tcp"


def group_problem(point: Mapping[str, Any]) -> str | None:
    """Why the nodes of a point of a sweep cannot be a group of MLX's, or None."""
    if point["nodes"] == 1:
        return None
    gpus = point.get("gpus", set())
    if "nvidia" in gpus:
        return _nccl_problem(gpus == {"nvidia"}, point["parallelism"])
    return rdma_problem(point)


def ask(run: Run, engine: Engine, program: str) -> None:
    """Ask MLX on each node what it computes on; raises RunFailure for a GPU that is not used."""
    found = devices.ask(run, program, _TELL)
    devices.require_gpus(run, engine, found, _REMEDY)
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
        raise RunFailure("unsupported", f"{problem}.")
    return "nccl"


def _nccl_problem(everywhere: bool, parallelism: str | None) -> str | None:
    if not everywhere:
        return _MIXED
    return _NO_SEND if parallelism == "pipeline" else None


def _has_cuda(run: Run, node: Node) -> bool:
    (device,) = run.engine_found.get((_FOUND, node.name), ("",))
    return device == "cuda" if device else gpu_vendor(node.platform) == "nvidia"


def device_matrix(cluster: Cluster, nodes: Sequence[Node], fabric: str) -> list[list[str | None]]:
    """For each node a row with the device towards each node, none towards itself.

    A pair's device is that of the case's fabric where both nodes have one on it, else of a fabric
    that carries RDMA between the two: a Thunderbolt cable between two Macs is a fabric of its own.
    Raises RunFailure `unsupported` for a pair without one: jaccl has no hops.
    """
    ordered = sorted(cluster.fabrics, key=lambda name: name != fabric)
    shared = [name for name in ordered if cluster.fabrics[name].kind in RDMA_KINDS]
    return [
        [None if one is other else _device(one, other, shared) for other in nodes] for one in nodes
    ]


def _device(one: Node, other: Node, fabrics: Sequence[str]) -> str:
    for name in fabrics:
        ends = [node.fabrics[name].rdma_device for node in (one, other) if name in node.fabrics]
        if len(ends) > 1 and all(ends):
            return str(ends[0])
    raise RunFailure(
        "unsupported",
        f"Nodes {one.name!r} and {other.name!r} share no fabric on which both have an rdma_device: "
        "jaccl needs a link between each two nodes; cable them, or take fewer nodes.",
    )
