"""Texts with their log-probabilities, and how far two engines' are apart."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nixwulf.core.secrets import cut
from nixwulf.plugins.runtime.openai_stream import TOKEN_CHARACTERS
from nixwulf.plugins.runtime.texts import WORDS

Token = int | str
Prompt = str | list[int]

TOP = 20
"""Log-probabilities that are asked for at each position; vLLM gives no more unless started so
(https://docs.vllm.ai/en/latest/api/vllm/config/model/: max_logprobs)."""
# Of probabilities. A rest of less is a rounding of the twenty numbers that it is what remains of.
_LEAST = 1e-6
_WORDS_IN_LINE = 4


@dataclass(frozen=True)
class Position:
    """One generated token, and the natural logarithms of the likeliest tokens' probabilities.

    top is empty where an engine gives none.
    """

    token: Token
    top: Mapping[Token, float]


Answer = tuple[Position, ...]
"""Greedy tokens after a prompt, in their order."""


def document_of(answer: Answer) -> dict[str, Any]:
    """What is kept of an answer in a file."""
    return {
        "tokens": [position.token for position in answer],
        "log_probabilities": [list(position.top.items()) for position in answer],
    }


def answer_of(value: Any) -> Answer:
    """Of what was kept; raises ValueError, TypeError or KeyError for anything else."""
    pairs = zip(value["tokens"], value["log_probabilities"], strict=True)
    return tuple(Position(_token(token), _top(top)) for token, top in pairs)


def _top(pairs: Any) -> dict[Token, float]:
    top = {_token(token): float(value) for token, value in pairs}
    if not all(map(math.isfinite, top.values())):
        raise ValueError(pairs)
    return top


def _token(value: Any) -> Token:
    if isinstance(value, int | str):
        return value
    raise TypeError(value)


def text_token(value: Any) -> str:
    """A token by its text, which no server can make long."""
    return cut(str(value), TOKEN_CHARACTERS)


class Completer(Protocol):
    """What continues prompts greedily, for as long as an engine is open."""

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together; 0: it takes no prompt by its length."""

    def prompt(self, tokens: int) -> Prompt | None:
        """The text of that many tokens, the same at each call; None where it has no such one."""

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """That many tokens after a prompt and tokens that an answer to it begins with.

        None where it cannot be given tokens to begin with. Raises RunFailure.
        """


@dataclass(frozen=True)
class TokensOnly:
    """A completer of an engine without log-probabilities: tokens after a short prompt of its own.

    ask: gives that many.
    """

    ask: Callable[[int], Sequence[Token]]
    context: int = 0

    def prompt(self, tokens: int) -> Prompt | None:
        """None: the engine's prompt has a length of its own."""
        return None

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """Without probabilities."""
        if given:
            return None
        found = self.ask(count)[: count * TOKEN_CHARACTERS]
        return tuple(Position(t if isinstance(t, int) else text_token(t), {}) for t in found)


def text_of(characters: int, seed: int) -> str:
    """That many characters or a few more of numbered lines, the same for the same seed.

    Their words are random, and each line repeats those of the line half as far from the beginning:
    a model that reads well foretells them, and loses that with any tokens it does not see.
    """
    stream = random.Random(seed)  # noqa: S311 - the same on every machine
    words: list[str] = []
    parts: list[str] = []
    length = 0
    while length < characters:
        words += stream.choices(WORDS, k=_WORDS_IN_LINE)
        number = len(words) // _WORDS_IN_LINE
        before = number // 2 or 1
        own, old = (
            " ".join(words[(n - 1) * _WORDS_IN_LINE : n * _WORDS_IN_LINE]) for n in (number, before)
        )
        parts.append(f"Line {number}: {own}; line {before} was {old}.\n")
        length += len(parts[-1])
    return "".join(parts)


def divergence(expected: Mapping[Token, float], observed: Mapping[Token, float]) -> float:
    """Kullback-Leibler divergence of two distributions of the next token by their tops, in nats.

    A token that only one of the two lists has got at most the least probability of the other list,
    and is given that, or its own where that is less: what is not known counts as equal. All tokens
    that neither has are one. So it is a lower estimate, 0 for equal lists and finite for any.

    expected: natural logarithms of probabilities by token, not empty.
    """
    p = {token: math.exp(min(0.0, value)) for token, value in expected.items()}
    q = {token: math.exp(min(0.0, value)) for token, value in observed.items()}
    least_p, least_q = min(p.values()), min(q.values())
    pairs = [
        (
            p.get(token, min(least_p, q.get(token, least_p))),
            q.get(token, min(least_q, p.get(token, least_q))),
        )
        for token in {**p, **q}
    ]
    pairs.append((1 - math.fsum(one for one, _ in pairs), 1 - math.fsum(one for _, one in pairs)))
    known = [(max(one, _LEAST), max(other, _LEAST)) for one, other in pairs]
    p_sum, q_sum = math.fsum(one for one, _ in known), math.fsum(other for _, other in known)
    total = math.fsum(one / p_sum * math.log(one / p_sum / (other / q_sum)) for one, other in known)
    return max(0.0, total)


def _apart(expected: Mapping[Token, float], observed: Position) -> float:
    """The divergence of a position; where only its token is known, the least of any that takes it.

    That is 0 for the likeliest token, and of another one that both are as likely as their mean:
    llama-server gives no probabilities of tokens that were drafted and accepted.
    """
    if observed.top:
        return divergence(expected, observed.top)
    best = math.exp(min(0.0, max(expected.values())))
    own = math.exp(min(0.0, expected.get(observed.token, min(expected.values()))))
    mean = (best + own) / 2
    return sum(one * math.log(one / mean) for one in (best, own) if one > 0)


@dataclass(frozen=True)
class TextComparison:
    """An answer held against another, token by token of the same text.

    divergences: in nats, of each position that was compared; empty without probabilities.
    observed: the tokens that were given by itself. first_difference: of the greedy tokens, from 0.
    """

    divergences: tuple[float, ...]
    observed: tuple[Token, ...]
    first_difference: int | None

    @property
    def mean(self) -> float:
        """Of the positions that were compared."""
        return math.fsum(self.divergences) / len(self.divergences)


def compare(
    completer: Completer,
    prompt: Prompt,
    expected: Answer,
    *,
    start: int = 0,
    enough: float = math.inf,
) -> TextComparison:
    """Continue a prompt and hold each position against an expected answer's.

    From a token that differs on, the texts are two; so the completer is given the expected tokens
    up to there and goes on. Where it cannot be, that is the last position which is compared.

    start: the place of the first position that is compared. enough: a mean divergence above which
    no more is asked.
    """
    first: Answer | None = None
    difference: int | None = None
    found: list[float] = []
    at = start
    while at < len(expected) and math.fsum(found) <= enough * len(expected):
        given = [position.token for position in expected[:at]]
        answer = completer.complete(prompt, given, len(expected) - at)
        if answer is None:
            break
        first = answer if first is None else first
        pairs = list(zip(expected[at:], answer, strict=False))
        same = next((n for n, (one, other) in enumerate(pairs) if one.token != other.token), None)
        for one, other in pairs if same is None else pairs[: same + 1]:
            if one.top:
                found.append(_apart(one.top, other))
        if same is None and len(answer) < len(expected) - at:
            same = len(answer)
        if same is None:
            break
        difference = at + same if difference is None else difference
        if not found:
            break
        at += same + 1
    tokens = tuple(position.token for position in first or ())
    return TextComparison(tuple(found), tokens, difference)
