"""The memory plan of a run: what each node needs for its part of the model, and what it has.

Compute buffers are estimated. The formula was fitted to what llama.cpp 0c1e570 reserves on CPUs;
other engines and GPUs are only known to need something like it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from nixwulf.core.files import shipped_table
from nixwulf.core.text import GIB
from nixwulf.inventory.cluster import LAB_PLATFORM, Node
from nixwulf.inventory.platforms import load_platform
from nixwulf.llm.model_facts import Sizes
from nixwulf.nodes.facts import Facts
from nixwulf.plugins.runtime import openai
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.run import Run, groups_of, of_one_server, servers_of

_CACHE_BYTES: Mapping[str, float] = shipped_table("cache_bytes")
BY_MEMORY, FASTEST = "auto", "fastest"
SPLITS = (BY_MEMORY, "even", "bandwidth", FASTEST)
"""How layers are shared out: as llama.cpp does, and as `layers` does."""
_CONTEXT_STEP = 256  # llama.cpp rounds contexts up to it, of a server each slot's
_BATCH = 512  # llama.cpp's default of n_ubatch
_FLOAT = 4


@dataclass(frozen=True)
class TokenDemand:
    """What a case asks of a model: tokens kept and tokens computed at once."""

    context: int
    batch: int
    key_bytes: float
    value_bytes: float
    flash_attention: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> TokenDemand:
        """By the parameters of the benchmark and the engine; a key that is absent has a default."""
        if "concurrency" in parameters:
            tokens = openai.context(parameters)
        else:
            tokens = sum(int(parameters.get(key, 0)) for key in ("n_prompt", "n_gen", "depth"))
        each = -(-max(1, tokens) // _CONTEXT_STEP) * _CONTEXT_STEP
        context = each * int(parameters.get("concurrency", 1))
        return cls(
            context,
            min(context, int(parameters.get("n_ubatch", 0)) or _BATCH),
            _CACHE_BYTES[parameters.get("type_k", "f16")],
            _CACHE_BYTES[parameters.get("type_v", "f16")],
            parameters.get("flash_attn") != "off",
        )


@dataclass(frozen=True, order=True)
class Need:
    """Bytes that a node needs."""

    weights: int = 0
    cache: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.compute


def needs(
    sizes: Sizes, work: TokenDemand, parallelism: str, memories: Sequence[int]
) -> tuple[Need, ...]:
    """What each node needs, the head first, when a model is split over nodes.

    A pipeline gives layers, and the output as one more, in proportion to the nodes' memory
    (llama_model::load_tensors); tensors are cut into equal parts. The head keeps the embedding.

    Args:
        sizes: bytes of the model's parts.
        work: tokens kept and computed at once.
        parallelism: "single", "pipeline" or "tensor".
        memories: bytes of each node, the head first, or its layers.
    """
    nodes = len(memories)
    cache = [_cache(sizes, work, layer) for layer in range(len(sizes.layers))]
    # One matrix in the file is two in memory when the nodes that need it are two.
    output = sizes.output + (sizes.tied if nodes > 1 else 0)
    parts = [*zip(sizes.layers, cache, strict=True), (output, 0)]
    if parallelism == "tensor":
        need = Need(
            sum(part[0] for part in parts) // nodes,
            sum(cache) // nodes,
            _compute(sizes, work, layers=1, is_last=True),
        )
        found = [need] * nodes
    else:
        ends = [end / sum(memories) for end in accumulate(memories)]
        owners = [min(nodes - 1, bisect_right(ends, n / len(parts))) for n in range(len(parts))]
        found = []
        for node in range(nodes):
            own = [part for part, owner in zip(parts, owners, strict=True) if owner == node]
            is_last = owners[-1] == node
            buffers = _piped if nodes > 1 else _compute
            compute = buffers(sizes, work, layers=len(own) - is_last, is_last=is_last)
            found.append(Need(sum(part[0] for part in own), sum(part[1] for part in own), compute))
    head = found[0]
    more = 0 if nodes == 1 else _of_head(sizes, work, parallelism)
    found[0] = Need(head.weights + sizes.embedding, head.cache, head.compute + more)
    return tuple(found)


def layers(
    sizes: Sizes, work: TokenDemand, split: str, has: Sequence[int], bandwidths: Sequence[float]
) -> tuple[int, ...]:
    """How many layers of a pipeline each node gets, the output as one more.

    Each has at least one. What lacks room for its part gives layers up to the node of the highest
    bandwidth that has some; where none has, the plan of the memory says what is too little.

    Args:
        sizes: bytes of the model's parts.
        work: tokens kept and computed at once.
        split: "even"; "bandwidth": in proportion to it, so that nodes compute for as long;
            "fastest": all to that of the highest bandwidth, and what it lacks room for to the next.
        has: bytes of each node, the head first; 0 where that is not known, which is enough.
        bandwidths: of their memories, GB/s.
    """
    nodes = len(has)
    order = sorted(range(nodes), key=lambda node: -bandwidths[node])
    parts = {
        "even": [1.0] * nodes,
        "bandwidth": bandwidths,
        FASTEST: [float(node == order[0]) for node in range(nodes)],
    }[split]
    free = max(0, len(sizes.layers) + 1 - nodes)
    ends = [round(free * end / sum(parts)) for end in accumulate(parts)]
    counts = [1 + end - begin for begin, end in zip([0, *ends], ends, strict=False)]

    def lacks(counts: Sequence[int], node: int) -> bool:
        return 0 < has[node] < needs(sizes, work, "pipeline", counts)[node].total

    full: set[int] = set()
    while short := [node for node in order if counts[node] > 1 and lacks(counts, node)]:
        full.add(short[0])
        for other in (node for node in order if node not in full):
            moved = [n + (p == other) - (p == short[0]) for p, n in enumerate(counts)]
            if not lacks(moved, other):
                counts = moved
                break
        else:
            break
    return tuple(counts)


def weights(
    sizes: Sizes, case: Case, nodes: Sequence[Node], facts: Mapping[str, Facts]
) -> tuple[int, ...]:
    """By what a pipeline is cut: its nodes' memory, or the layers by the case's split.

    sizes: bytes of the model's parts. facts: by node.
    """
    split = case.parameters.get("split", BY_MEMORY)
    if split == BY_MEMORY or case.parallelism != "pipeline":
        return tuple(facts[node.name].memory_total for node in nodes)
    has = [capacity(case, node, facts[node.name]) for node in nodes]
    demand = TokenDemand.of(case.parameters)
    return layers(sizes, demand, split, has, [node.bandwidth_gbs for node in nodes])


def _cache(sizes: Sizes, work: TokenDemand, layer: int) -> int:
    """Of one layer; one with a sliding window keeps the tokens of a batch beside it."""
    key, value = sizes.cache_widths[layer]
    window = sizes.windows[layer]
    tokens = min(work.context, window + work.batch) if window else work.context
    return int(tokens * (key * work.key_bytes + value * work.value_bytes))


# Values a token that are in use at once at the widest moment: in a feed-forward block three of its
# vectors, or at the output the scores of the vocabulary; beside them vectors of the stream, the
# mask in one form or several, and without flash attention the scores of all heads.


def _compute(sizes: Sizes, work: TokenDemand, *, layers: int, is_last: bool) -> int:
    """Of a node that computes its part by itself, or a part of each tensor."""
    return _widest(sizes, work, layers, is_last, 4, 0.5, sizes.heads)


def _piped(sizes: Sizes, work: TokenDemand, *, layers: int, is_last: bool) -> int:
    """Of a node in a pipeline: what it receives is kept beside what it computes."""
    return _widest(sizes, work, layers, is_last, 7, 2, sizes.heads + 4)


def _of_head(sizes: Sizes, work: TokenDemand, parallelism: str) -> int:
    """Of the head beside its share: it looks up embeddings and makes the masks for all."""
    vectors, masks = (2, 0.5) if parallelism == "tensor" else (5, 2 if work.flash_attention else 8)
    return int(_FLOAT * work.batch * (vectors * sizes.hidden + masks * work.context))


def _widest(
    sizes: Sizes,
    work: TokenDemand,
    layers: int,
    is_last: bool,
    vectors: int,
    masks: float,
    scores: int,
) -> int:
    block, around = 0, float(vectors * sizes.hidden)
    if layers:
        block = 3 * sizes.feed_forward
        around += (masks + (0 if work.flash_attention else scores)) * work.context
    return int(_FLOAT * work.batch * (max(block, sizes.vocabulary if is_last else 0) + around))


def capacity(case: Case, node: Node, facts: Facts) -> int:
    """Bytes that a case can have on a node; 0 where that is not known.

    A GPU that shares the machine's memory has no more than the kernel lets it map (amdgpu's GTT)
    beside its own; how much a GPU with memory of its own has, only amdgpu reports. Nodes of a lab
    share one machine.
    """
    if node.platform == LAB_PLATFORM:
        return facts.memory_available // case.nodes
    gpus = facts.hardware.gpus
    if case.parameters.get("backend") == "cpu" or not gpus:
        return facts.memory_available
    mapped = max(gpu.gtt_bytes for gpu in gpus)
    if mapped:
        return max(gpu.vram_bytes for gpu in gpus) + min(facts.memory_available, mapped)
    shares = load_platform(node.platform).get("gpu", {}).get("shared_memory")
    return facts.memory_available if shares else 0


def fewest_nodes(run: Run, sizes: Sizes | None) -> int | None:
    """How many nodes give the text that a run's is compared with: the fewest that hold the model.

    None when no fewer nodes than the run's own, split in another way, can hold it.

    sizes: bytes of the model's parts; None: not known, and taken to fit.
    """
    for count in range(1, run.case.nodes + 1):
        first = run.on_first(count)
        if count > 1 and (count, "pipeline") == (run.case.nodes, run.case.parallelism):
            break
        nodes = [node.node for node in first.nodes]
        if sizes is None or problem(sizes, first.case, nodes, run.facts) is None:
            return count
    return None


def problem(
    sizes: Sizes,
    case: Case,
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    draft: tuple[int, bool] = (0, False),
) -> str | None:
    """By how much the model does not fit, in one sentence that names the worst node.

    Args:
        sizes: bytes of the model's parts.
        facts: by node.
        draft: bytes of a model that drafts for it, and whether it is split over all nodes of a
            server; else it is on the head.

    Returns:
        None where it fits, or where a node's capacity is not known.
    """
    names = [node.name for node in nodes]
    has = [capacity(case, node, facts[node.name]) for node in nodes]
    if not all(has):
        return None
    each = of_one_server(case)
    demand, split = TokenDemand.of(each.parameters), each.parallelism or ""
    servers = groups_of(nodes, servers_of(case.document()))
    groups = [weights(sizes, each, group, facts) for group in servers]
    shares = each.nodes if draft[1] else 1
    plan = [
        replace(need, weights=need.weights + (draft[0] // shares if draft[1] or not at else 0))
        for group in groups
        for at, need in enumerate(needs(sizes, demand, split, group))
    ]
    short, name, need, free = max(
        (need.total - free, name, need, free)
        for name, need, free in zip(names, plan, has, strict=True)
    )
    if short <= 0:
        return None
    return (
        f"The model needs {_gib(need.total)} on node {name!r} ({_gib(need.weights)} weights, "
        f"{_gib(need.cache)} KV cache, {_gib(need.compute)} compute), which has {_gib(free)} free: "
        f"{_gib(short)} too little; use more nodes, a smaller model or a shorter context."
    )


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB // 10 else f"{count / 2**20:.1f} MiB"
