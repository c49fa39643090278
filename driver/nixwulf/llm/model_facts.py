"""A language model: its headers, what it needs of memory, and what decoding does."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from typing import Literal, NamedTuple

from nixwulf.core.errors import InputError

# What the readers of headers raise for a file that they do not know or that is damaged.
NOT_OF_A_MODEL = (
    ValueError, KeyError, IndexError, TypeError, ArithmeticError, AttributeError, RecursionError,
    MemoryError, struct.error,
)  # fmt: skip
FirstBytes = Callable[[str, int], bytes]
"""Reads so many bytes of a path, or as many as there are."""
_MOST_LAYERS = 10_000
_KERNELS = ((3.2, "two"), (5.3, "four"), (7.0, "six"), (10.0, "eight"), (inf, "sixteen"))
_IMPOSSIBLE = 10**15  # of anything: bytes that were lost give such numbers
WINDOW_LAYERS_UNKNOWN = (
    "which layers have the sliding window is not in the header: all are taken to keep every token"
)


@dataclass(frozen=True)
class Weights:
    """Bits of a weight: of the experts that a router chooses among, and of all others.

    form: of the files where its kernels are others than its bits tell: int4, nvfp4, mxfp4.
    """

    routed_bits: float
    other_bits: float
    assumptions: tuple[str, ...] = ()
    form: str = ""

    def __post_init__(self) -> None:
        for bits in (self.routed_bits, self.other_bits):
            positive("bits of a weight", bits, "bits")

    @property
    def kernels(self) -> str:
        """Name the kernels of most weights: by the form, else by about how many bits they have."""
        return self.form or next(name for most, name in _KERNELS if self.routed_bits <= most)


@dataclass(frozen=True)
class ModelShape:
    """Counts that decide over how many nodes a model can be split, 0 where one is not known.

    kv_heads: 1 stands for latent attention too, whose cache every node keeps whole.
    """

    layers: int = 0
    heads: int = 0
    kv_heads: int = 0


@dataclass(frozen=True)
class ModelFacts:
    """A language model as decoding sees it.

    parameters: all of them; routed: those in experts that a router chooses among; unread: tables of
    which a token reads a row (untied embeddings), and what decoding does not touch (vision, MTP).
    cache_width: values a token that all layers without a window keep; window_width: the same of the
    window_layers that look back window tokens only. linear_layers: layers whose state does not
    grow (linear attention, Mamba); state_width: values of all their states. streams: residual
    streams that hyper-connections mix. head_dim: values that a query is compared by (of latent
    attention, the latent's). kv_heads: how many nodes the cache can be shared out to (1: latent
    attention, which every node keeps whole). nvfp4_bits: of a weight that is in no expert, in files
    that are called NVFP4.
    """

    name: str
    layers: int
    hidden: int
    parameters: float
    weights: Weights
    vocabulary: int = 0
    unread: float = 0.0
    experts: int = 0
    experts_used: int = 0
    routed: float = 0.0
    heads: int = 0
    head_dim: int = 0
    kv_heads: int = 1
    cache_width: float = 0.0
    window_width: float = 0.0
    window: int = 0
    window_layers: int = 0
    linear_layers: int = 0
    state_width: float = 0.0
    streams: int = 1
    nvfp4_bits: float = 16.0
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, value in (("layers", self.layers), ("parameters", self.parameters)):
            positive(f"number of {what} of {self.name!r}", value, what)
        counts = [value for value in vars(self).values() if isinstance(value, int | float)]
        if self.layers > _MOST_LAYERS or not all(abs(count) < _IMPOSSIBLE for count in counts):
            raise InputError(
                f"{self.name!r} has more layers than {_MOST_LAYERS}, or another count of "
                f"{_IMPOSSIBLE:.0e} or more, which no model has."
            )
        if self.routed and not 0 < self.experts_used <= self.experts:
            raise InputError(
                f"{self.name!r} uses {self.experts_used} of {self.experts} experts; expected 1 to "
                "all."
            )

    @property
    def shape(self) -> ModelShape:
        """The counts that decide how it splits."""
        return ModelShape(self.layers, self.heads, self.kv_heads)

    @cached_property
    def silent(self) -> ModelFacts:
        """Leave out the output matrix, for tokens that ask for no answer."""
        return replace(self, unread=self.unread + self.vocabulary * self.hidden)

    @property
    def active(self) -> float:
        """Parameters that one token reads."""
        return self.always + self.routed * self.share(1)

    @property
    def always(self) -> float:
        """Parameters that every step reads, whatever the router chooses."""
        return max(0.0, self.parameters - self.unread - self.routed)

    @property
    def weight_bytes(self) -> float:
        """Sum up the bytes of all weights; embeddings count as the other weights."""
        others = (self.parameters - self.routed) * self.weights.other_bits
        return (others + self.routed * self.weights.routed_bits) / 8

    def share(self, tokens: float) -> float:
        """Return the share of experts that so many tokens touch, if a router chooses evenly."""
        if not self.routed:
            return 0.0
        return 1.0 - float((1.0 - self.experts_used / self.experts) ** tokens)

    def quantized(self, weights: Weights) -> ModelFacts:
        """The same model in other weights."""
        return replace(self, weights=weights)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model in memory.

    layers: bytes of the weights of each layer; embedding, output: bytes of the tensors before and
    after them; tied: of the embedding, the bytes that are the output's matrix too, 0 where it has
    its own; cache_widths: values of a key and of a value that each layer keeps for one token;
    windows: tokens that each layer looks back, 0 for all; feed_forward: width for one token, of all
    its experts together; kv_heads: as in ModelFacts, 0 where they are not known.
    """

    layers: tuple[int, ...]
    embedding: int
    output: int
    tied: int
    vocabulary: int
    cache_widths: tuple[tuple[int, int], ...]
    windows: tuple[int, ...]
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int = 0

    @property
    def shape(self) -> ModelShape:
        """The counts that decide how it splits."""
        return ModelShape(len(self.layers), self.heads, self.kv_heads)

    def possible(self) -> Sizes:
        """The same; raises ValueError for a size that no model has."""
        widths = (width for pair in self.cache_widths for width in pair)
        single = (self.embedding, self.output, self.tied, self.vocabulary, self.hidden)
        rest = (self.feed_forward, self.heads, *self.layers, *self.windows, *widths)
        if not all(0 <= number < _IMPOSSIBLE for number in (*single, *rest)):
            raise ValueError("a size that no model has")
        return self


class TensorSize(NamedTuple):
    """A tensor of a file: its bytes there, and how many weights they are."""

    bytes: int
    weights: int


class Part(NamedTuple):
    """A tensor of a model.

    place: its layer, or 'input' and 'output' for what is before and after them; routed: of experts
    that a router chooses among; unread: decoding reads a row of it, or nothing.
    """

    size: TensorSize
    place: int | Literal["input", "output"]
    routed: bool = False
    unread: bool = False


@dataclass(frozen=True)
class Header:
    """A model by the headers of its files, whatever their format.

    sizes: what memory needs, its cache_widths 0 of a layer with a state of its own and of a network
    alone; the rest is as in ModelFacts.
    """

    sizes: Sizes
    parts: tuple[Part, ...]
    linear_layers: int
    state_width: int
    head_dim: int
    experts: int
    experts_used: int
    assumptions: tuple[str, ...] = ()

    def facts(self, name: str) -> ModelFacts:
        """Return the facts of decoding, with the exact bits of each part."""
        sizes = self.sizes
        caches = [(sum(w), n) for w, n in zip(sizes.cache_widths, sizes.windows, strict=True)]
        windowed = [width for width, window in caches if width and window]
        parameters, size = _sum(self.parts)
        routed, routed_size = _sum(p for p in self.parts if p.routed and not p.unread)
        unread, unread_size = _sum(p for p in self.parts if p.unread)
        bits = 8 * (size - routed_size - unread_size) / max(1, parameters - routed - unread)
        return ModelFacts(
            name=name,
            layers=sum(any(widths) for widths in sizes.cache_widths) + self.linear_layers,
            hidden=sizes.hidden,
            parameters=float(parameters),
            weights=Weights(8 * routed_size / routed if routed else bits, bits),
            vocabulary=sizes.vocabulary,
            unread=float(unread),
            experts=self.experts,
            experts_used=self.experts_used,
            routed=float(routed),
            heads=sizes.heads,
            head_dim=self.head_dim,
            kv_heads=sizes.kv_heads,
            cache_width=float(sum(width for width, window in caches if not window)),
            window_width=float(sum(windowed)),
            window=max(sizes.windows),
            window_layers=len(windowed),
            linear_layers=self.linear_layers,
            state_width=float(self.state_width),
            assumptions=self.assumptions,
        )


def bytes_by_place(parts: Iterable[Part], layers: int) -> tuple[tuple[int, ...], int, int]:
    """Return bytes of each layer, before them and after them; the last part only guesses ahead."""
    places: Counter[int | str] = Counter()
    for part in parts:
        places[part.place] += part.size.bytes
    return tuple(places[number] for number in range(layers)), places["input"], places["output"]


def _sum(parts: Iterable[Part]) -> tuple[int, int]:
    sizes = [part.size for part in parts]
    return sum(size.weights for size in sizes), sum(size.bytes for size in sizes)


def integer(value: object) -> int:
    """A number of a header, also one that is written as text; raises TypeError or ValueError."""
    if not isinstance(value, int | float | str):
        raise TypeError(f"a {type(value).__name__} in place of a number")
    return int(value)


def layer_count(value: object) -> int:
    """A count that lists of layers can be made of; raises TypeError or ValueError."""
    count = integer(value)
    if not 0 < count <= _MOST_LAYERS:
        raise ValueError(f"{count} layers")
    return count


def positive(what: str, value: float, unit: str) -> None:
    """Raise InputError, which names it, for a number that is not finite and above 0."""
    if not (isfinite(value) and value > 0):
        raise InputError(f"The {what} is {value!r}; expected a number of {unit} above 0.")
