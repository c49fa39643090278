"""What a llama-server answers to a prompt of token numbers: tokens with their log-probabilities.

Token numbers and not text: so a prompt has exactly its length, and an answer can be begun.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nixwulf.plugins.runtime.logprobs import TOP, Answer, Position, Prompt, Token, text_of
from nixwulf.plugins.runtime.run import RunFailure

# No tokenizer makes more of a text than one token a byte, and common ones a token of four.
_CHARACTERS = 8


class Completions:
    """A completer that asks a llama-server.

    context: tokens that its slot has room for.
    """

    def __init__(
        self, post: Callable[[str, Mapping[str, Any]], Any], seed: int, context: int
    ) -> None:
        """Ask by POST.

        Args:
            post: sends a request to a path and gives the JSON of the answer; raises RunFailure.
            seed: of the prompts' text.
            context: tokens that the server has room for.
        """
        self._post = post
        self._seed = seed
        self.context = context

    def prompt(self, tokens: int) -> Prompt | None:
        """The first tokens of the text, as the model's tokenizer makes them."""
        content = text_of(tokens * _CHARACTERS, self._seed)
        answer = self._post("/tokenize", {"content": content, "add_special": True})
        found = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
            raise RunFailure("failed", f"llama-server gave no tokens: {_start_of(answer)}.")
        return found[:tokens] if len(found) >= tokens else None

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """What begins with given tokens is computed on top of the same prompt's cache."""
        if isinstance(prompt, str) and given:
            return None
        request = {
            "prompt": prompt if isinstance(prompt, str) else [*prompt, *given],
            "n_predict": count,
            "n_probs": TOP,
            "temperature": 0,
            "seed": self._seed,
            "ignore_eos": True,
            "cache_prompt": bool(given),
            "return_tokens": True,
        }
        return positions(self._post("/completion", request))


def served_context(props: Any, asked: int) -> int:
    """Tokens that a slot has room for, by what a llama-server tells of itself.

    Args:
        props: its answer to /props.
        asked: as it was started; builds before September 2024 do not say what became of it.
    """
    try:
        return min(asked, int(props["default_generation_settings"]["n_ctx"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return asked


def positions(answer: Any) -> Answer:
    """The tokens of an answer of /completion, and their log-probabilities where it has any.

    Builds before December 2024 have them in another form
    (https://github.com/ggml-org/llama.cpp/pull/10783), and are taken as without.

    Raises:
        RunFailure: it has no tokens.
    """
    try:
        tokens = [int(token) for token in answer["tokens"]]
        parts = answer.get("completion_probabilities") or []
        tops = [_top(part) for part in parts]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        tokens, tops = [], []
    if not tokens:
        raise RunFailure("failed", f"llama-server gave no tokens: {_start_of(answer)}.")
    if len(tops) != len(tokens):
        tops = [{} for _ in tokens]
    return tuple(Position(token, top) for token, top in zip(tokens, tops, strict=True))


def _top(part: Mapping[str, Any]) -> dict[Token, float]:
    return {int(one["id"]): float(one["logprob"]) for one in part.get("top_logprobs", ())}


def _start_of(answer: Any) -> str:
    return json.dumps(answer)[:200]
