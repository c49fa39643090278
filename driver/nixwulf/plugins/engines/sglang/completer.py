"""SGLang's texts with log-probabilities, over its own /generate: there tokens have numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nixwulf.plugins.runtime.logprobs import (
    TOP,
    Answer,
    Position,
    Prompt,
    Token,
    text_of,
    tokens_of,
    whole,
    without_tokens,
)
from nixwulf.plugins.runtime.openai import GREEDY, Endpoint

# Characters of a text that has at least so many tokens.
_CHARACTERS = 8


@dataclass(frozen=True)
class Generate:
    """A completer that gives prompts as numbers; context: tokens that there is room for."""

    endpoint: Endpoint
    context: int

    def prompt(self, tokens: int) -> Prompt | None:
        """The first tokens of the text, as the model's tokenizer makes them; raises RunFailure."""
        found = self._tokens(text_of(tokens * _CHARACTERS, self.endpoint.run.case.seed))
        return found[:tokens] if len(found) >= tokens else None

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """With a beginning, that is a part of the prompt."""
        before = self._tokens(prompt) if isinstance(prompt, str) else prompt
        sampling = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
        request = {
            "input_ids": [*before, *given],
            "sampling_params": sampling,
            "return_logprob": True,
            "top_logprobs_num": TOP,
        }
        return whole(positions(self.endpoint.post("/generate", request)), count)

    def _tokens(self, text: str) -> list[int]:
        request = {"model": self.endpoint.model, "prompt": text}
        return tokens_of(self.endpoint.post("/tokenize", request))


def context_of(endpoint: Endpoint) -> int:
    """Tokens that a server has room for, which it says when it tokenizes; raises RunFailure."""
    answer = endpoint.post("/tokenize", {"model": endpoint.model, "prompt": GREEDY})
    try:
        return int(answer["max_model_len"])
    except (KeyError, TypeError, ValueError):
        raise without_tokens(answer) from None


def positions(answer: Any) -> Answer:
    """The tokens of an answer: lists of a logarithm, a token's number and its text.

    https://github.com/sgl-project/sglang: srt/managers/tokenizer_manager.py of 0.5.10.

    Raises RunFailure: it has no tokens.
    """
    try:
        found = answer["meta_info"]
        tokens, tops = found["output_token_logprobs"], found["output_top_logprobs"]
        given = tuple(
            Position(int(one[1]), {int(other[1]): float(other[0]) for other in top or ()})
            for one, top in zip(tokens, tops, strict=True)
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise without_tokens(answer) from None
    if not given:
        raise without_tokens(answer)
    return given
