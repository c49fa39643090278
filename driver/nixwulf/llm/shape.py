"""The counts of a model that decide over how many nodes it can be split."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Layers and heads of a model, 0 where a count is not known.

    kv_heads: 1 stands for latent attention too, whose cache every node keeps whole.
    """

    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
