"""Sanity before speed: whether a run's text is that of the fewest nodes that have room.

The text is judged by what the engine gives as probabilities of its tokens, because a real model has
near ties: there greedy texts part by a rounding, and nothing is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.llm import PlacedModel
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.logprobs import (
    Answer,
    Comparison,
    Completer,
    Prompt,
    Token,
    compare,
    divergence,
)
from nixwulf.plugins.runtime.run import Run, RunFailure
from nixwulf.sweep.prompts import LONG as LONG_PROMPTS
from nixwulf.sweep.prompts import SHORT, Prompts, allowed_s, answer_tokens, fitting, room
from nixwulf.sweep.recording import Findings
from nixwulf.sweep.references import Reference, ReferenceFolder, References

# Text of so few different tokens is no text: "a a a a" or "a b a b".
_FEW = 2
LEAST_LIMIT = 3e-3
"""Mean divergence in nats up to which a text is right whatever the engine's repeat gives.

Ten times the largest of honest runs and half the least of damages, of f16 to q4_0 on CPUs
(results/figures/quality.txt). By weights it would be less for f16, but not on GPUs: llama.cpp's
own tests allow kernels a normalized squared error of 5e-4
(https://github.com/ggml-org/llama.cpp/blob/master/tests/test-backend-ops.cpp).
"""
FACTOR = 10.0
"""By how much more than the floor a text may be apart; the floor is of a few positions only."""


@dataclass(frozen=True)
class Judged:
    """The text after one prompt beside that of its reference."""

    tokens: int
    reference: Reference
    comparison: Comparison

    @property
    def by_probabilities(self) -> bool:
        """Whether both gave log-probabilities."""
        return bool(self.comparison.divergences)

    @property
    def limit(self) -> float:
        """Nats."""
        return limit_of(self.reference.floor)

    @property
    def wrong(self) -> bool:
        """Whether it is another text than roundings make."""
        if not self.by_probabilities:
            return self.comparison.first_difference is not None
        return self.comparison.mean > self.limit

    def document(self) -> dict[str, Any]:
        """As in a record; only of one that was judged by probabilities."""
        found = self.comparison
        place = found.first_difference
        return {
            "tokens": self.tokens,
            "positions": len(found.divergences),
            "mean_divergence": found.mean,
            "largest_divergence": max(found.divergences),
            "floor": self.reference.floor,
            "limit": self.limit,
            **({} if place is None else {"first_difference": place}),
        }


def limit_of(floor: float) -> float:
    """The mean divergence up to which a text is right, nats.

    Args:
        floor: that of the engine's own repeat.
    """
    return max(LEAST_LIMIT, FACTOR * floor)


def check_text(
    engine: Engine,
    run: Run,
    model: PlacedModel | None,
    found: Findings,
    folder: ReferenceFolder,
) -> None:
    """Compare texts with those of the fewest nodes that have room: sanity before speed.

    Args:
        engine: of the run.
        run: with the engine started.
        model: on the nodes.
        found: gets the comparison, and the failure where they differ.
        folder: references of earlier runs, to which new ones are added.
    """
    fits = fitting(run, model) if folder.long_prompts else (SHORT,)
    seconds = allowed_s(run.limits)
    count, references, spent = _references(engine, run, model, folder, fits, seconds / 2)
    left_out = _not_asked(folder, fits, references)
    lengths = [tokens for tokens in fits if tokens in references]
    with engine.completer(run, room(lengths)) as completer:
        prompts = Prompts(completer, lengths, seconds - spent)
        judged = [_judge(completer, one, prompt, references) for one, prompt in prompts]
    left_out |= prompts.left_out
    words = {None: "the same nodes, twice", 1: "one node"}.get(count, f"{count} nodes, pipeline")
    wrong = next((one for one in judged if one.wrong), None)
    parted = next((one for one in judged if one.comparison.first_difference is not None), None)
    found.sanity["text"] = _document(judged, wrong or parted or judged[0], words, left_out)
    if wrong:
        raise RunFailure("gibberish", _why_wrong(wrong, words))
    if parted:
        run.warnings.append(_why_parted(parted, words))
    observed = judged[0].comparison.observed
    if count is None and len(set(observed)) <= _FEW:
        raise RunFailure(
            "gibberish",
            f"Greedy text has {len(set(observed))} tokens over and over, and the model fits no "
            "other nodes to compare with.",
        )


def reference_of(completer: Completer, prompt: Prompt, count: int) -> Reference:
    """An answer, and how far apart the engine's own repeat of its second half is.

    The repeat has the first half in its prompt, so that kernels for many tokens compute what those
    for one computed before: sums in another order, as other nodes have them.

    Args:
        completer: of the engine.
        prompt: as it made it.
        count: tokens of the answer.
    """
    answer = completer.complete(prompt, (), count) or ()
    half = len(answer) // 2
    given = [position.token for position in answer[:half]]
    start = half
    again = completer.complete(prompt, given, len(answer) - half)
    if again is None:
        again, start = completer.complete(prompt, (), len(answer)) or (), 0
    return Reference(answer, _floor(answer[start:], again))


def _floor(answer: Answer, again: Answer) -> float:
    """The mean divergence up to the first token that differs, which has still the same text."""
    found = []
    for one, other in zip(answer, again, strict=False):
        if one.top and other.top:
            found.append(divergence(one.top, other.top))
        if one.token != other.token:
            break
    return math.fsum(found) / len(found) if found else 0.0


def _judge(completer: Completer, tokens: int, prompt: Prompt, references: References) -> Judged:
    reference = references[tokens]
    enough = limit_of(reference.floor)
    return Judged(tokens, reference, compare(completer, prompt, reference.answer, enough))


def _references(
    engine: Engine,
    run: Run,
    model: PlacedModel | None,
    folder: ReferenceFolder,
    fits: Sequence[int],
    seconds: float,
) -> tuple[int | None, References, float]:
    """The nodes that gave the texts to compare with, None for the run's own; texts; seconds."""
    count = _reference_nodes(run, model)
    if count is not None:
        kept = folder.get(run.case, count)
        if kept is not None:
            return count, kept, 0.0
        first = run.on_first(count)
        both = [tokens for tokens in fits if tokens in fitting(first, model)]
        try:
            made, spent = _make(engine, first, both, seconds)
            folder.put(run.case, count, made)
            return count, made, spent
        except RunFailure as failure:
            # Not every engine has a pipeline for every model; one node it always has.
            if count == 1 or failure.outcome not in {"failed", "unsupported"}:
                raise
    return None, *_make(engine, run, fits, seconds)


def _make(
    engine: Engine, run: Run, lengths: Sequence[int], seconds: float
) -> tuple[References, float]:
    with engine.completer(run, room(lengths)) as completer:
        prompts = Prompts(completer, lengths, seconds)
        found = {
            tokens: reference_of(completer, prompt, answer_tokens(tokens))
            for tokens, prompt in prompts
        }
    return found, prompts.spent_s


def _reference_nodes(run: Run, model: PlacedModel | None) -> int | None:
    """How many nodes give the tokens to compare with: the fewest on which the model fits.

    None when no fewer nodes than the run's own, split in another way, can hold it.
    """
    sizes = model.sizes if model else None
    for count in range(1, run.case.nodes + 1):
        first = run.on_first(count)
        if count > 1 and (count, "pipeline") == (run.case.nodes, run.case.parallelism):
            break
        nodes = [node.node for node in first.nodes]
        if sizes is None or memory.problem(sizes, first.case, nodes, run.facts) is None:
            return count
    return None


def _not_asked(
    folder: ReferenceFolder, fits: Sequence[int], references: References
) -> dict[int, str]:
    """Why long prompts are not even tried, by their tokens."""
    found = {}
    for tokens in LONG_PROMPTS:
        if not folder.long_prompts:
            found[tokens] = "the sweep has sanity: short"
        elif tokens not in fits:
            found[tokens] = "the nodes may have too little memory for it"
        elif tokens not in references:
            found[tokens] = "the reference has no text for it: too little context, memory or time"
    return found


def _document(
    judged: Sequence[Judged], shown: Judged, words: str, left_out: dict[int, str]
) -> dict[str, Any]:
    """As in a record: the prompt that decided, and numbers of all."""
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


def _why_wrong(judged: Judged, words: str) -> str:
    found = judged.comparison
    if not judged.by_probabilities:
        return f"{_difference(judged, words)}."
    place = next(n for n, one in enumerate(found.divergences) if one > judged.limit)
    return (
        f"After a prompt of {judged.tokens:,} tokens the text is another one from token {place} "
        f"on: its probabilities are {found.divergences[place]:.2g} nats from those of {words} "
        f"there and {found.mean:.2g} in the mean, where roundings make {judged.limit:.2g} at most. "
        f"{_difference(judged, words)}."
    )


def _why_parted(judged: Judged, words: str) -> str:
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
