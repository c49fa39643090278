"""Texts with log-probabilities over the OpenAI API, as vLLM and mlx_lm.server have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.plugins.runtime.logprobs import TOP, Answer, Position, Prompt, Token, text_of
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import RunFailure

_PATH = "/v1/completions"
# Characters of a text that has at least so many tokens, and about.
_CHARACTERS = 8
_USUAL_CHARACTERS = 4
# As vLLM writes a token's number where it is asked for that.
_NUMBER = "token_id:"


@dataclass(frozen=True)
class ByTokens:
    """A completer that gives vLLM's API prompts of token numbers, which its /tokenize makes.

    endpoint: the server; context: tokens that it has room for; 0 where it did not say.
    """

    endpoint: Endpoint
    context: int

    @classmethod
    def of(cls, endpoint: Endpoint) -> ByTokens:
        """With the room that the server's list of models states (max_model_len)."""
        answer = endpoint.get("/v1/models")
        try:
            context = int(answer["data"][0]["max_model_len"])
        except (KeyError, IndexError, TypeError, ValueError):
            context = 0
        return cls(endpoint, context)

    def prompt(self, tokens: int) -> Prompt | None:
        """The first tokens of the text; None where the server does not tokenize."""
        if not self.context:
            return None
        text = text_of(tokens * _CHARACTERS, self.endpoint.run.case.seed)
        request = {"model": self.endpoint.model, "prompt": text}
        answer = self.endpoint.post("/tokenize", request)
        found = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(found, list) or len(found) < tokens:
            return None
        return [int(token) for token in found[:tokens]]

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """Only a prompt of token numbers can be gone on with."""
        if given and isinstance(prompt, str):
            return None
        request = self.endpoint.greedy(count) | {
            "prompt": prompt if isinstance(prompt, str) else [*prompt, *given],
            "ignore_eos": True,
            "logprobs": TOP,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
        }
        return positions_of_lists(self.endpoint.post(_PATH, request))


@dataclass(frozen=True)
class ByText:
    """A completer that gives mlx_lm.server's API a text, which is about as long as it is to be.

    endpoint: the server; top: log-probabilities that it gives at most; on_answer: called with each
    answer. It is asked nothing longer than a short prompt, because nothing says how many tokens a
    text is, or what there is room for.
    """

    endpoint: Endpoint
    top: int
    on_answer: Callable[[Any], None]
    context: int = 0

    def prompt(self, tokens: int) -> Prompt | None:
        """So many tokens of English, about."""
        return text_of(tokens * _USUAL_CHARACTERS, self.endpoint.run.case.seed)

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """None for tokens that an answer should begin with."""
        if given:
            return None
        request = self.endpoint.greedy(count)
        request |= {"prompt": prompt, "logprobs": True, "top_logprobs": self.top}
        answer = self.endpoint.post(_PATH, request)
        self.on_answer(answer)
        return positions_of_content(answer)


def positions_of_lists(answer: Any) -> Answer:
    """The tokens of a completion whose log-probabilities are lists by kind, as vLLM's.

    Their numbers; their texts from versions that answer none. Raises RunFailure.
    """
    try:
        choice = answer["choices"][0]
        logprobs = choice["logprobs"]
        tokens = [_number(token) for token in choice.get("token_ids") or logprobs["tokens"]]
        tops = [
            {_number(token): float(value) for token, value in (top or {}).items()}
            for top in logprobs.get("top_logprobs") or ()
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        tokens, tops = [], []
    return _positions(answer, tokens, tops)


def positions_of_content(answer: Any) -> Answer:
    """The tokens of a completion that has a list of tokens with all that is known of each.

    Greedy ones are the likeliest: mlx_lm.server names the first of its list, which has no order.
    Raises RunFailure.
    """
    try:
        parts = answer["choices"][0]["logprobs"]["content"]
        tops: list[dict[Token, float]] = [
            {int(one["id"]): float(one["logprob"]) for one in part.get("top_logprobs", ())}
            for part in parts
        ]
        tokens: list[Token] = [
            max(top, key=lambda token: top[token]) if top else int(part["id"])
            for part, top in zip(parts, tops, strict=True)
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        tokens, tops = [], []
    return _positions(answer, tokens, tops)


def _positions(answer: Any, tokens: Sequence[Token], tops: Sequence[dict[Token, float]]) -> Answer:
    if not tokens:
        raise RunFailure("failed", f"The server gave no tokens: {json.dumps(answer)[:200]}.")
    if len(tops) != len(tokens):
        tops = [{} for _ in tokens]
    return tuple(Position(token, top) for token, top in zip(tokens, tops, strict=True))


def _number(token: int | str) -> Token:
    text = str(token)
    return int(text.removeprefix(_NUMBER)) if text.startswith(_NUMBER) else token
