"""Whether an engine can split a model over some nodes: what sweeps, predict and tune ask.

Experts decide nothing: no engine is started with expert parallelism, so each node has all experts
of a layer in a pipeline, and a part of each expert where tensors are split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nixwulf.llm.model_facts import ModelShape


def any_kv_heads(kv_heads: int, nodes: int) -> bool:
    """No rule about key-value heads."""
    return True


def equal_kv_heads(kv_heads: int, nodes: int) -> bool:
    """As many on each node."""
    return kv_heads % nodes == 0


def equal_or_latent_kv_heads(kv_heads: int, nodes: int) -> bool:
    """As many on each node; a single one may be latent attention, which is not cut."""
    return kv_heads == 1 or kv_heads % nodes == 0


def equal_or_repeated_kv_heads(kv_heads: int, nodes: int) -> bool:
    """As many on each node, or each on as many nodes."""
    return kv_heads % nodes == 0 or nodes % kv_heads == 0


@dataclass(frozen=True)
class Splits:
    """How an engine splits a model over several nodes.

    even_heads: whether by tensors each node has to get as many attention heads. kv_heads: whether a
    count of key-value heads goes with a number of nodes. powers_of_two: of nodes. most: nodes by
    parallelism, where the engine has a limit of its own.
    """

    even_heads: bool = False
    kv_heads: Callable[[int, int], bool] = any_kv_heads
    powers_of_two: bool = False
    most: Mapping[str, int] = field(default_factory=dict)


def problem(
    engine: str, splits: Splits, shape: ModelShape, nodes: int, parallelism: str
) -> str | None:
    """Why an engine cannot split a model so, as a clause, or None; the unknown is no reason."""
    if nodes == 1:
        return None
    if splits.powers_of_two and nodes & (nodes - 1):
        return f"{engine} runs on 1, 2, 4, 8, ... nodes, not {nodes}"
    most = splits.most.get(parallelism, nodes)
    if nodes > most:
        return f"{engine} splits a model by {parallelism} over {most} devices at most"
    if parallelism == "pipeline" and 0 < shape.layers < nodes:
        return f"{shape.layers} layers are too few for {nodes} nodes"
    if parallelism != "tensor":
        return None
    if splits.even_heads and shape.heads % nodes:
        return f"{engine} gives each node as many heads, and {nodes} do not divide {shape.heads}"
    if shape.kv_heads and not splits.kv_heads(shape.kv_heads, nodes):
        return f"{engine} cannot share {shape.kv_heads} key-value heads out to {nodes} nodes"
    return None
