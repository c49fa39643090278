"""What a text's divergence from its reference means: right, parted at a near tie, or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.plugins.runtime.logprobs import (
    Answer,
    Completer,
    Prompt,
    TextComparison,
    Token,
    compare,
)
from nixwulf.sweep.references import Reference

LEAST_LIMIT = 3e-3
"""Mean divergence in nats up to which a text is right whatever the engine's repeat gives.

Measured on CPUs with f16, bf16, q8_0 and q4_0: 264 honest runs had at most 4.5e-4, 60 damages at
least 8e-3 (results/figures/quality.txt). One limit for all weights: after 4,096 tokens f16 had as
much as q4_0, and on GPUs llama.cpp's own tests allow kernels a normalized squared error of 5e-4
(https://github.com/ggml-org/llama.cpp/blob/master/tests/test-backend-ops.cpp).
"""
FACTOR = 10.0
"""By how much more than the floor a text may be apart; the floor is of a few positions only."""
MOST_LIMIT = 3e-2
"""The same for engines that round much; one whose own repeat is farther apart is no reference.

Chosen, not measured: the median damage of a tensor is three times that.
"""
CPU_LIMIT = 1e-2
"""The same of a text by another back end beside the CPU's, whose kernels round otherwise.

Of quantized weights the CPU quantizes to 8 bits what they are multiplied with, and others do not.
Honest texts were 5.0e-4 apart at most, 1.7e-3 with a cache of q8_0, and 39 of 44 damages are above
the limit (results/figures/cpu-reference.txt). 5e-3 would find all 44; but no real GPU was measured,
and 8 bits in all weights of a real model are 1.4e-3 already (Llama 3 8B,
https://github.com/ggml-org/llama.cpp/blob/master/tools/perplexity/README.md). A right back end that
is called wrong stops all its runs.
"""


@dataclass(frozen=True)
class Judged:
    """The text after one prompt beside that of its reference.

    limit: of the mean divergence, nats.
    """

    tokens: int
    reference: Reference
    comparison: TextComparison
    limit: float

    @property
    def by_probabilities(self) -> bool:
        """Whether both gave log-probabilities."""
        return bool(self.comparison.divergences)

    @property
    def wrong(self) -> bool:
        """Whether it is another text than roundings make, or the reference contradicts itself."""
        if not self.by_probabilities:
            return self.comparison.first_difference is not None
        return self.reference.floor > MOST_LIMIT or self.comparison.mean > self.limit

    def numbers(self) -> dict[str, Any]:
        """As in a record; only of one that was judged by probabilities."""
        found = self.comparison
        place = found.first_difference
        return {
            "positions": len(found.divergences),
            "mean_divergence": found.mean,
            "largest_divergence": max(found.divergences),
            "limit": self.limit,
            **({} if place is None else {"first_difference": place}),
        }

    def document(self) -> dict[str, Any]:
        """The same of a prompt, with the reference's floor."""
        return {"tokens": self.tokens, "floor": self.reference.floor, **self.numbers()}


def limit_of(floor: float) -> float:
    """The mean divergence up to which a text is right, nats.

    Args:
        floor: that of the engine's own repeat.
    """
    return min(MOST_LIMIT, max(LEAST_LIMIT, FACTOR * floor))


def judge(
    completer: Completer,
    tokens: int,
    prompt: Prompt,
    reference: Reference,
    limit: float | None = None,
) -> Judged:
    """Hold the text after a prompt against a reference's.

    Args:
        limit: of the mean divergence, nats; None: as the reference's floor has it.

    Raises:
        RunFailure: the engine did not answer.
    """
    most = limit_of(reference.floor) if limit is None else limit
    found = compare(completer, prompt, reference.answer, enough=most)
    return Judged(tokens, reference, found, most)


def document(
    judged: Sequence[Judged], shown: Judged, words: str, left_out: dict[int, str]
) -> dict[str, Any]:
    """As in a record: the prompt that decided, and numbers of all.

    Args:
        judged: each prompt's text.
        shown: the one of them whose tokens are kept.
        left_out: why other prompts were not judged, by their tokens.
    """
    found = shown.comparison
    place = found.first_difference
    numbers = [one.document() for one in judged if one.by_probabilities]
    reasons = [{"tokens": tokens, "reason": left_out[tokens]} for tokens in sorted(left_out)]
    return {
        "agrees": place is None,
        "reference": words,
        "prompt_tokens": shown.tokens,
        "judged_by": "log-probabilities" if numbers else "tokens",
        "expected": _tokens(shown.reference.answer),
        "observed": list(found.observed),
        **({} if place is None else {"first_difference": place}),
        **({"prompts": numbers} if numbers else {}),
        **({"left_out": reasons} if reasons else {}),
    }


def why_wrong(judged: Judged, words: str) -> str:
    """The sentences of a failure: where another text begins, and both tokens."""
    found = judged.comparison
    if not judged.by_probabilities:
        return f"{_difference(judged, words)}."
    if judged.reference.floor > MOST_LIMIT:
        return (
            f"After a prompt of {judged.tokens:,} tokens the text of {words} contradicts itself: "
            f"computed again, its probabilities are {judged.reference.floor:.2g} nats apart in the "
            f"mean, where roundings make {MOST_LIMIT:g} at most."
        )
    place = next(n for n, one in enumerate(found.divergences) if one > judged.limit)
    return (
        f"After a prompt of {judged.tokens:,} tokens the text is another one from token {place} "
        f"on: its probabilities are {found.divergences[place]:.2g} nats from those of {words} "
        f"there and {found.mean:.2g} in the mean, where roundings make {judged.limit:.2g} at most. "
        f"{_difference(judged, words)}."
    )


def why_parted(judged: Judged, words: str) -> str:
    """The sentences of a warning, with both texts; arguments as of `why_wrong`."""
    expected = " ".join(map(str, _tokens(judged.reference.answer)))
    return (
        f"After a prompt of {judged.tokens:,} tokens greedy texts part at a near tie: "
        f"{_difference(judged, words)}; probabilities are {judged.comparison.mean:.2g} nats apart "
        f"in the mean, within {judged.limit:.2g}. Expected {expected}; observed "
        f"{' '.join(map(str, judged.comparison.observed))}."
    )


def _difference(judged: Judged, words: str) -> str:
    place = judged.comparison.first_difference
    if place is None:
        return "The greedy tokens are the same"
    expected = _at(_tokens(judged.reference.answer), place)
    return (
        f"Greedy token {place} is {_at(judged.comparison.observed, place)}, and {words} gave "
        f"{expected}"
    )


def _tokens(answer: Answer) -> list[Token]:
    return [position.token for position in answer]


def _at(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if index < len(tokens) else "missing"
