"""Gate: a GPU that shares the machine's memory may have more of it than the kernel's default."""

from __future__ import annotations

from collections.abc import Iterator

from nixwulf.inventory.cluster import Node
from nixwulf.nodes.hardware import AMD
from nixwulf.plugins.gates import Gate, GateContext, Verdict, refused, unknown

# The kernel gives ttm half of the memory, and people who raise it take 62 % or more.
_LEAST_SHARE = 0.55


def _concerns(subject: GateContext, node: Node) -> bool:
    gpu = subject.platform(node).get("gpu", {})
    return subject.uses_gpu and gpu.get("vendor") == "amd" and bool(gpu.get("shared_memory"))


def _judge(subject: GateContext, node: Node) -> Iterator[Verdict]:
    facts = subject.facts[node.name]
    gpus = [gpu for gpu in facts.hardware.gpus if gpu.vendor == AMD and gpu.gtt_bytes]
    if not gpus or not facts.memory_total:
        yield unknown(f"Node {node.name!r} does not tell how much memory its GPU may have.")
        return
    gpu = max(gpus, key=lambda gpu: gpu.gtt_bytes)
    whole = facts.memory_total + gpu.vram_bytes
    if gpu.gtt_bytes + gpu.vram_bytes < _LEAST_SHARE * whole:
        yield refused(
            f"The GPU of node {node.name!r} may have {_gib(gpu.gtt_bytes)} GiB (and "
            f"{_gib(gpu.vram_bytes)} of its own) of {_gib(whole)}, the kernel's default; deploy "
            "it, or boot it with 'ttm.pages_limit=31457280' for 120 GiB."
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f}"


GATE = Gate(
    name="gtt",
    holds=f"the GPU may have more than {_LEAST_SHARE:.0%} of the memory that it shares",
    reads="`mem_info_gtt_total` and `mem_info_vram_total` of `/sys/class/drm`, `MemTotal`",
    fix="`nixwulf.strix-halo.gpuMemoryGiB`, or the kernel parameter `ttm.pages_limit`",
    concerns=_concerns,
    judge=_judge,
)
