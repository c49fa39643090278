"""Texts of few nodes with their log-probabilities, which runs are compared with.

A run is judged on prompts as far as memory, context and time allow. Its text's divergence from its
reference means that it is right, parted at a near tie, or wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import read_json, write_json
from nixwulf.core.text import fingerprint
from nixwulf.llm import PlacedModel
from nixwulf.plugins import engines
from nixwulf.plugins.runtime import memory, openai, passthrough
from nixwulf.plugins.runtime.case import Case, Limits
from nixwulf.plugins.runtime.memory import TokenDemand
from nixwulf.plugins.runtime.run import Run

SHORT = 64
LONG = (4096, 16_384)
"""Tokens of the prompts. Damage above 4,000 tokens has been met
(https://github.com/exo-explore/exo/issues/2270)."""
# A damaged tensor changed a token at index 30 at the latest, in 30 damages of the random models.
_SHORT_ANSWER = 32
_LONG_ANSWER = 16
# Of a run's wall limit, and seconds, that long prompts may take with their reference.
_SHARE = 0.1
_MOST_S = 20.0
# Seconds of a prompt grow with its tokens, and with their square where attention has most of it.
_GROWTH = 1.5
_LEAST_ROOM = 512


def answer_tokens(tokens: int) -> int:
    """How many tokens are compared after a prompt of so many."""
    return _SHORT_ANSWER if tokens == SHORT else _LONG_ANSWER


def room(lengths: Sequence[int]) -> int:
    """Tokens that a server needs room for, to be asked all of them."""
    return max(_LEAST_ROOM, *(tokens + answer_tokens(tokens) for tokens in lengths))


def allowed_s(limits: Limits) -> float:
    """Seconds that long prompts may take in a run."""
    return min(_MOST_S, _SHARE * limits.wall_s)


def fitting(run: Run, model: PlacedModel | None) -> tuple[int, ...]:
    """The prompts whose cache fits on the nodes of a run by the memory plan.

    Twice the cache has to fit, because a run that could be measured must not fail by being judged.
    What the case keeps anyway fits; where sizes or memory are not known, nothing else does.
    """
    own = TokenDemand.of(run.case.parameters).context
    sizes = model.sizes if model else None
    nodes = [node.node for node in run.nodes]
    known = all(memory.capacity(run.case, node, run.facts[node.name]) for node in nodes)
    found = [SHORT]
    for tokens in LONG:
        needed = tokens + answer_tokens(tokens)
        more = {"n_prompt": 2 * needed, "n_gen": 0, "depth": 0, "concurrency": 1}
        case = replace(run.case, parameters={**run.case.parameters, **more})
        fits = sizes and known and memory.problem(sizes, case, nodes, run.facts) is None
        if needed <= own or fits:
            found.append(tokens)
    return tuple(found)


class Prompts:
    """The prompts that one open engine is asked, the shortest first.

    left_out: why others are not asked, by their tokens. spent_s: seconds for the long ones.
    """

    def __init__(self, completer: openai.Completer, lengths: Sequence[int], seconds: float) -> None:
        """Ask `lengths` of tokens while that takes no more than some seconds, the first always."""
        self._completer = completer
        self._lengths = lengths
        self._seconds = seconds
        self._prompt_s = self._token_s = 0.0
        self._last = SHORT
        self.left_out: dict[int, str] = {}
        self.spent_s = 0.0

    def __iter__(self) -> Iterator[tuple[int, openai.Prompt]]:
        """Tokens and prompt; what passes until the next is asked for is taken as its time."""
        for tokens in self._lengths:
            prompt = self._worth(tokens)
            if prompt is None:
                continue
            begin = time.monotonic()
            yield tokens, prompt
            took = time.monotonic() - begin
            if tokens == SHORT:
                self._learn(prompt, took)
            else:
                self.spent_s += took
                self._prompt_s = max(0.0, took - self._decoding_s(tokens))
                self._last = tokens

    def _worth(self, tokens: int) -> openai.Prompt | None:
        if tokens == SHORT:
            return self._completer.prompt(tokens) or openai.GREEDY
        has = self._completer.context
        if not has:
            self.left_out[tokens] = "the engine is asked no prompt of a given length"
            return None
        if tokens + answer_tokens(tokens) > has:
            self.left_out[tokens] = f"the engine has room for {has:,} tokens"
            return None
        growth = 1.0 if self._last == SHORT else _GROWTH
        seconds = self._prompt_s * (tokens / self._last) ** growth + self._decoding_s(tokens)
        if self.spent_s + seconds > self._seconds:
            self.left_out[tokens] = (
                f"it would take {seconds:,.0f} s, and {max(0.0, self._seconds - self.spent_s):.0f} "
                "s are left for it"
            )
            return None
        prompt = self._completer.prompt(tokens)
        if prompt is None:
            self.left_out[tokens] = "the engine has no prompt of that length"
        return prompt

    def _learn(self, prompt: openai.Prompt, took: float) -> None:
        """Tell the prompt's share of an answer's time from that of the tokens."""
        if len(self._lengths) > 1 and self._completer.context > LONG[0]:
            begin = time.monotonic()
            self._completer.complete(prompt, (), 1)
            self._prompt_s = time.monotonic() - begin
            self._token_s = max(0.0, took - self._prompt_s) / _SHORT_ANSWER

    def _decoding_s(self, tokens: int) -> float:
        return self._token_s * answer_tokens(tokens)


@dataclass(frozen=True)
class Reference:
    """An answer to a prompt, and the floor: how far apart its engine's own repeat is.

    floor: mean Kullback-Leibler divergence of a position, nats; 0 without probabilities.
    """

    answer: openai.Answer
    floor: float


def reference_of(completer: openai.Completer, prompt: openai.Prompt, count: int) -> Reference:
    """An answer, and how far apart the engine's own repeat of its second half is.

    The repeat has the first half in its prompt, so that kernels for many tokens compute what those
    for one computed before: sums in another order, as other nodes have them. Where the engine
    cannot be given a beginning, all is repeated.
    """
    answer = completer.complete(prompt, (), count) or ()
    if not all(position.top for position in answer):
        return Reference(answer, 0.0)
    half = openai.compare(completer, prompt, answer, start=len(answer) // 2)
    again = half if half.divergences else openai.compare(completer, prompt, answer)
    return Reference(answer, again.mean)


References = dict[int, Reference]
"""By the prompt's tokens."""


class ReferenceFolder:
    """The references that runs are compared with, kept in the run's folder."""

    def __init__(self, folder: Path, *, long_prompts: bool = True) -> None:
        """Keep a file for each engine, model, seed, count of nodes and what else decides a text.

        Back ends round otherwise, and a cache of fewer bits is another text altogether.
        """
        self.path = folder
        self.long_prompts = long_prompts

    def get(self, case: Case, nodes: int) -> References | None:
        """The answers of a case of that kind, if that many nodes have given them.

        Raises NixwulfError: the file has something else.
        """
        path = self._path(case, nodes)
        return read_texts(path) if path.exists() else None

    def put(self, case: Case, nodes: int, references: References) -> None:
        """Keep answers, by the tokens of their prompt, for later runs."""
        write_texts(self._path(case, nodes), references)

    def _path(self, case: Case, nodes: int) -> Path:
        model = (case.model_digest or "")[:12]
        several = "" if nodes == 1 else f"-{nodes}nodes"
        known = text_parameters(case)
        passed = [fingerprint(known.pop(key))[:8] for key in passthrough.PARAMETERS if key in known]
        names = [case.engine, *known.values(), *passed, model, case.seed]
        return self.path / f"{'-'.join(map(str, names))}{several}-texts.json"


def text_parameters(case: Case) -> dict[str, Any]:
    """Those of a case on which its text depends, by their names."""
    wanted = (*engines.find(case.engine or "").text_parameters, *passthrough.PARAMETERS)
    return {key: case.parameters[key] for key in wanted if key in case.parameters}


def write_texts(path: Path, references: References) -> None:
    """Keep them in a file; raises NixwulfError."""
    document = {
        str(tokens): {"floor": one.floor, **openai.document_of(one.answer)}
        for tokens, one in references.items()
    }
    write_json(path, document)


def read_texts(path: Path) -> References:
    """What was kept in a file; raises NixwulfError where it has something else."""
    document = read_json(path)
    try:
        found = {int(tokens): _reference(value) for tokens, value in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        found = {}
    if SHORT not in found:
        raise NixwulfError(
            f"{path} has no texts that a run can be compared with; remove it, and the next run "
            "makes it again."
        )
    return found


def _reference(value: Any) -> Reference:
    """Of the document that was kept; raises ValueError, TypeError or KeyError for another one."""
    answer = openai.answer_of(value)
    floor = float(value["floor"])
    if not answer or not 0 <= floor < math.inf:
        raise ValueError(value)
    return Reference(answer, floor)


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
    comparison: openai.TextComparison
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


def judge(
    completer: openai.Completer,
    tokens: int,
    prompt: openai.Prompt,
    reference: Reference,
    limit: float | None = None,
) -> Judged:
    """Hold the text after a prompt against a reference's, whose floor sets a limit of None.

    limit: mean divergence up to which a text is right, nats.

    Raises RunFailure: the engine did not answer.
    """
    floors = min(MOST_LIMIT, max(LEAST_LIMIT, FACTOR * reference.floor))
    most = floors if limit is None else limit
    found = openai.compare(completer, prompt, reference.answer, enough=most)
    return Judged(tokens, reference, found, most)


def document(
    judged: Sequence[Judged], shown: Judged, words: str, left_out: dict[int, str]
) -> dict[str, Any]:
    """As in a record: tokens of the prompt that decided, numbers of all, why others are absent."""
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


def _tokens(answer: openai.Answer) -> list[openai.Token]:
    return [position.token for position in answer]


def _at(tokens: Sequence[openai.Token], index: int) -> openai.Token:
    return tokens[index] if index < len(tokens) else "missing"
