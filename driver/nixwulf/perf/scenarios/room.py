"""Whether a model fits nodes that nobody has reached: the plan of memory.py over platform facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nixwulf.llm.model_facts import ModelFacts
from nixwulf.llm.sizes import Sizes
from nixwulf.perf.inputs import PlatformFacts, Strategy
from nixwulf.perf.scenarios.source import ModelDescription
from nixwulf.plugins.runtime.memory import Need, TokenDemand, needs

_GIB = 2**30
_SYSTEM_GIB = 8.0
_SYSTEM_SHARE = 1 / 16
ASSUMED = "memory: all but a sixteenth of it, at most 8 GiB, is free for the model"
"""modules/strix-halo.nix leaves the system as much of 128 GiB."""
_FEED_FORWARD = 4  # widths of the stream, the usual of a plain model; only buffers depend on it


@dataclass(frozen=True)
class Room:
    """GiB that the fullest node needs and can have; can is 0 where it is not known."""

    needs_gib: float
    has_gib: float

    @property
    def fits(self) -> bool | None:
        """None where it is not known."""
        return self.needs_gib <= self.has_gib if self.has_gib else None

    @property
    def short_gib(self) -> float:
        """By how much it does not fit."""
        return max(0.0, self.needs_gib - self.has_gib) if self.has_gib else 0.0

    @property
    def words(self) -> str:
        """In a table's cell."""
        if self.fits is None:
            return f"{self.needs_gib:.1f} GiB needed"
        if self.fits:
            return f"{self.needs_gib:.1f} of {self.has_gib:.0f} GiB"
        return f"{self.short_gib:.1f} GiB too little"


def room(platforms: Sequence[PlatformFacts], model: ModelDescription, strategy: Strategy) -> Room:
    """The node that is short of most, or has least left."""
    free = [_free(platform.memory_gib) for platform in platforms]
    parameters = {"n_prompt": strategy.n_prompt, "n_gen": strategy.n_gen, "depth": strategy.depth}
    if strategy.batch > 1:
        parameters["concurrency"] = strategy.batch
    work = TokenDemand.of(parameters)
    sizes = model.sizes or sizes_of(model.facts, work.context // strategy.batch)
    # A pipeline is cut by memory; where none is known, into equal parts.
    memories = [max(1, int(gib * _GIB)) for gib in free]
    plan: Sequence[Need] = needs(sizes, work, strategy.parallelism, memories)
    pairs = [(need.total / _GIB, has) for need, has in zip(plan, free, strict=True)]
    return Room(*max(pairs, key=lambda pair: pair[0] - pair[1]))


def sizes_of(model: ModelFacts, context: int) -> Sizes:
    """Sizes by facts alone: layers are taken as equal, and of windows the tokens they keep."""
    matrix = int(model.vocabulary * model.hidden * model.weights.other_bits / 8)
    tied = not model.unread
    output = 0 if tied else matrix
    layer = max(0, int(model.weight_bytes) - matrix - output) // model.layers
    kept = min(context, model.window) / max(1, context)
    width = (model.cache_width + model.window_width * kept) / model.layers
    key = int(width / 2)
    return Sizes(
        layers=(layer,) * model.layers,
        embedding=matrix,
        output=output,
        tied=tied,
        vocabulary=model.vocabulary,
        cache_widths=((key, int(width) - key),) * model.layers,
        window=None,
        hidden=model.hidden,
        feed_forward=_FEED_FORWARD * model.hidden,
        heads=model.heads,
    )


def _free(memory_gib: float) -> float:
    return memory_gib - min(_SYSTEM_GIB, _SYSTEM_SHARE * memory_gib)
