"""The work of a step, before any constant.

Decode, prompt and serve are sums of it. Times here are those of perfect hardware, counts are of
what the host has to do. A prediction is their sum, each over or times its constant, so the
constants can be fitted by least squares: by Gauss and Newton, of unknowns of which something is
known before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import ceil, inf, log2
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from nixwulf.inventory.fabrics import MAC_RDMA_KINDS
from nixwulf.llm.model_facts import ModelFacts
from nixwulf.perf.inputs import Constants, FabricFacts, PlatformFacts, Strategy
from nixwulf.plugins.engines import Performance, performance

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

PARTS = ("weights", "cache", "compute", "dispatch", "hops", "sync", "attention")
"""Parts of a time that a constant scales, in the order of inputs.NAMES."""
_BITS = 8
_CACHE_BYTES = 2  # f16 and bf16, the default of every engine
_STATE_BYTES = 8  # read and written in 32 bits (mamba_ssm_dtype of config.json)
_FLOPS = 2  # a multiplication and an addition for each weight
_ACTIVATION = 2  # bytes of a value in a sum over nodes
_VECTORS = 128
_FEW_BITS = 3.2  # at most, a weight: Q2_K, IQ2 and IQ3_XXS
_TILE = 64  # tokens of a tile of a product of matrices where the engine states no other
# How often a layer reads or writes a prompt's activations between its kernels (norms, copies for
# the products, sums), and how often more for each expert: counted by hand along llama.cpp's graphs.
# A block that is no mixture is about as wide as two experts.
_HANDED_ON = 20
_HANDED_ON_BY_EXPERT = 12
_DENSE = 2
# Tokens that one sequence guesses choose the same experts more often than those of others do: two
# to eight of them touch as many as the square root of their number, by what steps with guesses took
# (results/published: GLM-5.3-Flash, Qwen3.8-Flash-Next, Qwen3.6-35B-A3B).
_ALIKE = 0.5
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})")


@dataclass(frozen=True)
class Work:
    """Seconds of perfect hardware (weights to activations, latency, transfer), and counts.

    weights: nothing else is done while they are read. beside: those of a prompt, read while others
    are multiplied: what takes longer gives the time its name. activations: reading and writing what
    a prompt's kernels hand on. launches: layers to start, in layers of a plain dense model;
    hops: exchanges of a pipeline; syncs: how often the host acts for the sums of split tensors.
    """

    weights: float = 0.0
    cache: float = 0.0
    beside: float = 0.0
    compute: float = 0.0
    attention: float = 0.0
    activations: float = 0.0
    launches: float = 0.0
    hops: float = 0.0
    syncs: float = 0.0
    latency: float = 0.0
    transfer: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*map(add, _all(self), _all(other)))

    def times(self, count: float) -> Work:
        """Multiply it."""
        return Work(*(one * count for one in _all(self)))

    def parts(self, constants: Constants) -> dict[str, float]:
        """Seconds by what takes them."""
        compute, read = self.compute / constants.compute, self.beside / constants.weights
        hidden = read <= compute
        return {
            "weights": self.weights / constants.weights + (0.0 if hidden else read),
            "cache": self.cache / constants.cache,
            "compute": compute if hidden else 0.0,
            "attention": self.attention / constants.attention,
            "activations": self.activations / constants.weights,
            "dispatch": self.launches * constants.layer_us / 1e6,
            "hops": self.hops * constants.hop_us / 1e6,
            "sync": self.syncs * constants.sync_us / 1e6,
            "latency": self.latency,
            "transfer": self.transfer,
        }


_all = attrgetter(*(field.name for field in fields(Work)))


class Configuration(NamedTuple):
    """Nodes, the model that they run and how; fabric: the link between them, None on one node."""

    platforms: Sequence[PlatformFacts]
    model: ModelFacts
    strategy: Strategy
    fabric: FabricFacts | None


def forward(
    of: Configuration, *, tokens: float, sequences: int, depth: float, prompt: bool = False
) -> Work:
    """The work of one pass of some tokens through all layers.

    depth: tokens in the cache of each sequence. prompt: whether they are a chunk of one: weights
    are read while others are multiplied.
    """
    platforms, model, strategy, fabric = of
    nodes = len(platforms)
    tensor = strategy.parallelism == "tensor" and nodes > 1
    shares = _shares(platforms, strategy, tensor=tensor)
    # States of linear layers are read and written as weights are read: all, and in order.
    apart = tokens if prompt else sequences * (tokens / sequences) ** _ALIKE
    read = _weight_bytes(model, apart) + _STATE_BYTES * model.state_width * sequences
    cached = _cache_bytes(model, depth) * sequences
    # One token a sequence waits for memory on every machine; its multiplications cost no time.
    engine = performance(strategy.engine)
    tile = engine.tiles.get(platforms[0].kind, _TILE) if prompt or tokens > _VECTORS else 0
    flops = _flops(model, tokens, tile, engine.unpacking) if tokens > 1 else 0.0
    # Decoding waits for the cache; what a prompt's tokens are compared with is used many times.
    looking = _attention_flops(model, tokens, depth) if prompt else 0.0
    handed_on = _handed_on_bytes(model, tokens, engine) if prompt else 0.0
    # A latent cache, or fewer heads of it than nodes, is whole on each of them.
    spread = min(nodes, max(1, model.kv_heads)) if tensor else 1
    each = []
    for share, node in zip(shares, platforms, strict=True):
        rate, speed = node.bandwidth_gbs * 1e9, node.tflops * 1e12 or inf  # unknown: no time
        reading = share * read / rate
        each.append(
            Work(
                weights=0.0 if prompt else reading,
                beside=reading if prompt else 0.0,
                cache=(1 / spread if tensor else share) * cached / rate,
                compute=share * flops / speed,
                attention=share * looking / speed,
                activations=(1 if tensor else share) * handed_on / rate,
            )
        )
    # Tensors are computed side by side, and the slowest node is waited for; a pipeline is a queue.
    columns = zip(*map(_all, each), strict=True)
    work = Work(*map(max if tensor else sum, columns)) + Work(launches=_launches(model))
    if nodes == 1 or fabric is None:
        return work
    return work + _exchanges(of, fabric, tokens, depth)


def _exchanges(of: Configuration, fabric: FabricFacts, tokens: float, depth: float) -> Work:
    """Exchanges of several nodes in a pass: sums of a split of tensors, hops of a pipeline."""
    platforms, model, strategy, _ = of
    nodes, engine = len(platforms), performance(strategy.engine)
    # A head with a GPU computes itself, one without gives its share to an RPC server beside it.
    servers = nodes - (platforms[0].kind != "cpu")
    if strategy.parallelism == "tensor":
        size = _ACTIVATION * model.hidden * tokens
        syncs = 2 * model.layers + 1
        latency, transfer = exchange(strategy, nodes, servers, fabric, size)
        count = syncs * handled(strategy, nodes, servers)
        return Work(syncs=count, latency=syncs * latency, transfer=syncs * transfer)
    latency, transfer = hop(strategy, fabric, _hop_bytes(model, tokens, depth, engine))
    count = hops(strategy, nodes, servers)
    return Work(hops=count, latency=count * latency, transfer=(nodes - 1) * transfer)


def decode_step(of: Configuration) -> Work:
    """Count the work of a batch's step, its cache half full; with drafts, all are checked."""
    _, model, strategy, _ = of
    depth = strategy.depth + strategy.n_prompt + strategy.n_gen / 2
    batch, per_guess = strategy.batch, performance(strategy.engine).verifying
    checked = batch * (1 + strategy.drafts)
    step = forward(of, tokens=checked, sequences=batch, depth=depth)
    if not strategy.drafts:
        return step
    # A draft is one layer and the output matrix (https://arxiv.org/abs/2412.19437, 2.2).
    one = forward(of, tokens=batch, sequences=batch, depth=depth)
    output = model.vocabulary * model.hidden / max(model.active, 1.0)
    draft = one.times(1 / model.layers + per_guess) + Work(weights=output * one.weights)
    return step + draft.times(strategy.drafts)


def prompt_pass(of: Configuration) -> Work:
    """Count the work of a batch's prompts, in chunks as the engine takes them."""
    strategy = of.strategy
    tokens = strategy.n_prompt * strategy.batch
    chunk = strategy.chunk or performance(strategy.engine).prompt_chunk
    count = ceil(tokens / chunk)
    if not count:
        return Work()
    each = tokens / count
    depth = strategy.depth + strategy.n_prompt / 2
    # Only its last token asks for an answer.
    silent = of._replace(model=of.model.silent)
    one = forward(silent, tokens=each, sequences=1, depth=depth, prompt=True)
    return one.times(count)


def tokens_a_step(strategy: Strategy) -> float:
    """Tokens that one step of decoding gives, of all sequences."""
    return strategy.batch * (1 + strategy.drafts * strategy.acceptance)


def _shares(
    platforms: Sequence[PlatformFacts], strategy: Strategy, *, tensor: bool
) -> Sequence[float]:
    """Return shares of the weights: equal; a pipeline's by the strategy, else by memory."""
    count = len(platforms)
    if shares := strategy.shares_of(count):
        return shares
    memories = [platform.memory_gib for platform in platforms]
    if tensor or not all(memories):
        return [1 / count] * count
    return [memory / sum(memories) for memory in memories]


def _weight_bytes(model: ModelFacts, tokens: float) -> float:
    weights = model.weights
    always = model.always * weights.other_bits
    return (always + model.routed * model.share(tokens) * weights.routed_bits) / _BITS


def _handed_on_bytes(model: ModelFacts, tokens: float, engine: Performance) -> float:
    """Count the bytes of activations that the kernels of all layers read and write."""
    experts = model.experts_used if model.routed else _DENSE
    each = engine.activation_bytes * model.hidden * tokens
    return model.layers * each * (_HANDED_ON + _HANDED_ON_BY_EXPERT * experts)


def _hop_bytes(model: ModelFacts, tokens: float, depth: float, engine: Performance) -> float:
    """Count the bytes that go to the next node of a pipeline.

    A client by RPC sends the activations and the mask of the attention to a server and fetches what
    comes out: of 512 tokens of a model 384 wide, llama.cpp's was seen to move 2.1 MB in the lab.
    """
    activations = engine.activation_bytes * model.hidden * tokens
    if engine.collective != "rpc":
        return activations
    return 2 * activations + _CACHE_BYTES * tokens * depth


def _cache_bytes(model: ModelFacts, depth: float) -> float:
    windowed = model.window_width * min(depth, model.window)
    return _CACHE_BYTES * (model.cache_width * depth + windowed)


def _flops(model: ModelFacts, tokens: float, tile: int, unpacking: float) -> float:
    """Multiplications of weights; the last tile of each expert's tokens is half empty.

    Products of tiles take longer with weights of few bits, in multiplications that are more.
    """
    empty = model.routed * model.share(tokens) * min(tokens, tile) / 2
    routed = tokens * model.routed * model.share(1) + empty
    weights = model.weights
    always, experts = (
        unpacking if tile and bits <= _FEW_BITS else 1.0
        for bits in (weights.other_bits, weights.routed_bits)
    )
    return _FLOPS * (tokens * model.always * always + routed * experts)


def _attention_flops(model: ModelFacts, tokens: float, depth: float) -> float:
    """Attention: comparing each token with those before it, and the sum of their values."""
    looking = model.window_layers
    seen = (model.layers - model.linear_layers - looking) * depth
    seen += looking * min(depth, model.window)
    return _FLOPS * tokens * 2 * seen * model.heads * model.head_dim


def _launches(model: ModelFacts) -> float:
    """Layers to start, in plain ones: routing, a state and residual streams have kernels too."""
    more = bool(model.routed) + (model.streams > 1)
    return model.layers * (1 + more) + model.linear_layers


def hops(strategy: Strategy, nodes: int, servers: int) -> int:
    """Count the hand-overs of a token's state in a pipeline.

    llama.cpp's client fetches from each of its RPC servers, those it gave their share included; of
    two and four servers in the lab 1.95 and 3.95 round trips a token were counted.

    servers: nodes that the client reaches by RPC, all but one that computes beside it.
    """
    return servers if _is_rpc(strategy) else nodes - 1


def hop(strategy: Strategy, fabric: FabricFacts, size: float) -> tuple[float, float]:
    """Seconds of latency and of transfer for a hand-over of SIZE bytes: there and back, or on."""
    trips = 1.0 if _is_rpc(strategy) else 0.5
    return trips * fabric.rtt_us / 1e6, size / _bytes_a_second(fabric)


def handled(strategy: Strategy, nodes: int, servers: int) -> float:
    """Count the actions of the host, in series, for a sum of all nodes.

    A collective is started once. llama.cpp's client adds up in pairs, log2 N rounds, and in each it
    fetches from every server; of two and four servers in the lab 2 and 8 round trips were counted.

    servers: nodes that the client reaches by RPC, all but one that computes beside it.
    """
    return log2(nodes) * servers if _is_rpc(strategy) else 1.0


def exchange(
    strategy: Strategy, nodes: int, servers: int, fabric: FabricFacts, size: float
) -> tuple[float, float]:
    """Seconds of latency and of transfer for a sum over all nodes.

    Ring (MLX's ring): 2(N-1) messages one after the other, each of size/N
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). NCCL and RCCL: that or a
    tree, up and down its log2 N levels with all of it, whichever is faster for the size
    (https://github.com/NVIDIA/nccl/issues/754). Mesh (JACCL): everyone sends to everyone at once.
    Mesh of distributed-llama: the same, but each sends to one after the other over its one link,
    and then reads from all (syncNodeSlices in its nn-network.cpp). Star (before its 0.11): the root
    serves one worker after the other, out and back. llama.cpp over RPC: all pairs through the
    client, in as many round trips as it handles.

    servers: as of hops. size: of what is summed, bytes.
    """
    one_way, rate = fabric.rtt_us / 2e6, _bytes_a_second(fabric)
    packed = size * 34 / 64  # Q80: 34 bytes for 32 values
    if collective(strategy) == "star":
        return 4 * (nodes - 1) * one_way, 2 * (nodes - 1) * packed / nodes / rate
    if collective(strategy) == "mesh":
        return one_way, (nodes - 1) * packed / rate
    if _is_rpc(strategy):
        return 2 * handled(strategy, nodes, servers) * one_way, 2 * (nodes - 1) * size / rate
    if fabric.kind in MAC_RDMA_KINDS:
        return one_way, size / rate
    ring = 2 * (nodes - 1) * one_way, 2 * (nodes - 1) / nodes * size / rate
    if collective(strategy) == "ring":
        return ring
    return min(ring, (2 * ceil(log2(nodes)) * one_way, 2 * size / rate), key=sum)


def collective(strategy: Strategy) -> str:
    """Name the collective of a sum: the library's in place of the engine's, or the version's."""
    engine = performance(strategy.engine)
    version = _VERSION.match(strategy.version)
    if version and tuple(map(int, version.groups())) < engine.star_before:
        return "star"
    return "tree" if strategy.collectives else engine.collective


def _is_rpc(strategy: Strategy) -> bool:
    return collective(strategy) == "rpc"


def _bytes_a_second(fabric: FabricFacts) -> float:
    return fabric.bandwidth_gbps * 1e9 / 8


_ROUNDS = 24
_FAR = 1.5  # deviations from which on a measurement counts less (Huber)


def least_squares(
    linear: Callable[[Array], tuple[Array, Array]],
    noise: Array,
    start: Array,
    precision: Array,
    *,
    longest: float,
    settled: float,
    robust: bool = False,
    first: Array | None = None,
) -> tuple[Array, Array]:
    """The unknowns that fit measurements and priors best, and their covariance.

    linear: at values of the unknowns, how far off each measurement is, and its slope by each
    unknown (measurements x unknowns). start: what each unknown is before, which it is pulled to;
    precision: inverse of the covariance of that (unknowns x unknowns). longest: the most that an
    unknown is moved in a round; settled: a round that moves all of them less is the last one.
    first: where the search begins; None: at start. robust: whether measurements that are far off
    count less: no single one bends the rest.
    """
    import numpy as np

    state = start.copy() if first is None else first.copy()
    for _ in range(_ROUNDS):
        off, slopes = linear(state)
        count = np.minimum(1.0, _FAR * noise / np.maximum(np.abs(off), 1e-9)) if robust else 1.0
        weight = count / noise**2
        curved = slopes.T @ (weight[:, None] * slopes) + precision
        pulled = slopes.T @ (weight * off) - precision @ (state - start)
        step = np.clip(np.linalg.solve(curved, pulled), -longest, longest)
        state += step
        if np.abs(step).max() < settled:
            break
    covariance: Any = np.linalg.inv(curved)
    return state, covariance
