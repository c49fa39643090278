"""A language model as the performance model sees it: its sizes, and the bits of its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from nixwulf.core.errors import InputError


@dataclass(frozen=True)
class Weights:
    """Bits of a weight: of the experts that a router chooses among, and of all others."""

    routed_bits: float
    other_bits: float
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for bits in (self.routed_bits, self.other_bits):
            positive("bits of a weight", bits, "bits")


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
            positive(f"{what} of {self.name!r}", value, "or more")
        if self.routed and not 0 < self.experts_used <= self.experts:
            raise InputError(
                f"{self.name!r} uses {self.experts_used} of {self.experts} experts; expected 1 to "
                "all."
            )

    @property
    def active(self) -> float:
        """Parameters that one token reads."""
        return self.always + self.routed * self.share(1)

    @property
    def always(self) -> float:
        """Parameters that every step reads, whatever the router says."""
        return max(0.0, self.parameters - self.unread - self.routed)

    @property
    def weight_bytes(self) -> float:
        """All weights, in bytes; embeddings as the other weights."""
        others = (self.parameters - self.routed) * self.weights.other_bits
        return (others + self.routed * self.weights.routed_bits) / 8

    def share(self, tokens: float) -> float:
        """Of the experts, how many that many tokens touch, if a router chooses evenly."""
        if not self.routed:
            return 0.0
        return 1.0 - float((1.0 - self.experts_used / self.experts) ** tokens)

    def quantized(self, weights: Weights) -> ModelFacts:
        """The same model in other weights."""
        return replace(self, weights=weights)


def positive(what: str, value: float, unit: str) -> None:
    """Raise InputError for a number that is not finite and above 0."""
    if not (isfinite(value) and value > 0):
        raise InputError(f"The {what} is {value!r}; expected a number of {unit} above 0.")
