"""The texts that a foreign server gives, to hold its own repeat against them.

By the numbers of tokens where it tokenizes, else by the texts of its tokens with their
probabilities, else by the words of its answer alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nixwulf.core.secrets import cut
from nixwulf.plugins.engines.endpoint import server
from nixwulf.plugins.runtime import openai
from nixwulf.plugins.runtime.openai_stream import MESSAGE_TEXTS, PATHS, TOKEN_CHARACTERS, unstreamed
from nixwulf.plugins.runtime.run import Run, RunFailure

_CHAT = "chat"
# As many as servers of either API give at most: https://platform.openai.com/docs/api-reference
_WANTED: Mapping[str, Mapping[str, Any]] = {
    "completions": {"logprobs": 5},
    _CHAT: {"logprobs": True, "top_logprobs": 5},
}
# Of vLLM: tokens by their numbers, in the answer and in the lists of the likeliest.
_NUMBERED = {"logprobs": openai.TOP, "return_tokens_as_token_ids": True, "return_token_ids": True}
_NO_SUCH_KEY = (400, 422, 501)
_KEY_WANTED = (401, 403)
_NO_SUCH_PATH = (404, 405)
_PROBABILITIES = "probabilities"


@dataclass(frozen=True)
class TextAnswers:
    """A completer that asks for text, as any client does.

    api: of PATHS. wanted: how the server is asked for log-probabilities; empty: it gives none.
    """

    endpoint: openai.Endpoint
    api: str
    wanted: Mapping[str, Any]
    context: int = 0

    def prompt(self, tokens: int) -> openai.Prompt | None:
        """None: nobody knows how many tokens a text has there."""
        return None

    def complete(
        self, prompt: openai.Prompt, given: Sequence[openai.Token], count: int
    ) -> openai.Answer | None:
        """Its tokens by their texts; None where it is to begin with some."""
        if given:
            return None
        own = (self.endpoint.model, str(prompt), count, self.endpoint.run.case.seed)
        request = {**unstreamed(self.api, *own), **self.wanted}
        return positions(self.endpoint.post(PATHS[self.api], request), count)


def positions(answer: Any, count: int) -> openai.Answer:
    """The first tokens of an answer by their texts, with probabilities, if any; else its words.

    A chat lists each token with all that is known of it, a completion has a list of each kind.

    Raises RunFailure: it has no text.
    """
    try:
        choice = answer["choices"][0]
        found = _tokens(choice.get("logprobs")) or _words(choice, count)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        found = ()
    if not found:
        raise RunFailure(f"The endpoint answered no text: {cut(str(answer), 200)}.")
    return found[:count]


def _tokens(logprobs: object) -> openai.Answer:
    if not isinstance(logprobs, dict):
        return ()
    if parts := logprobs.get("content"):
        listed = ((one["token"], one.get("top_logprobs") or ()) for one in parts)
        return tuple(
            openai.Position(
                openai.text_token(token),
                {openai.text_token(one["token"]): openai.logarithm(one["logprob"]) for one in top},
            )
            for token, top in listed
        )
    tokens = logprobs.get("tokens") or ()
    tops = logprobs.get("top_logprobs") or [{}] * len(tokens)
    return tuple(
        openai.Position(
            openai.text_token(token),
            {openai.text_token(one): openai.logarithm(value) for one, value in (top or {}).items()},
        )
        for token, top in zip(tokens, tops, strict=True)
    )


def _words(choice: Mapping[str, Any], count: int) -> openai.Answer:
    message = choice.get("message") or {}
    texts = (choice.get("text"), *(message.get(name) for name in MESSAGE_TEXTS))
    text = next((one for one in texts if isinstance(one, str) and one), "")
    text = cut(text, count * TOKEN_CHARACTERS)
    return tuple(openai.Position(word, {}) for word in re.findall(r"\s*\S+", text))


def require_answer(endpoint: openai.Endpoint, run: Run) -> None:
    """Ask for one token: that loads the model, and shows whether there are probabilities.

    The prompt is that of the texts, so that a server's cache of prompts is the same for all.

    Raises RunFailure: the server refused, or another model answered.
    """
    api = run.case.parameters.get("api", "completions")
    plain = TextAnswers(endpoint, api, {})
    try:
        try:
            replace(plain, wanted=_WANTED[api]).complete(openai.GREEDY, (), 1)
            run.engine_found[endpoint.base_url, _PROBABILITIES] = (api,)
        except openai.Declined as refusal:
            if refusal.status not in _NO_SUCH_KEY:
                raise
            plain.complete(openai.GREEDY, (), 1)
    except openai.Declined as refusal:
        if refusal.status in _KEY_WANTED:
            raise server.refused(endpoint, refusal.status) from None
        if refusal.status in _NO_SUCH_PATH and api != _CHAT:
            raise RunFailure(
                f"{refusal.reason.rstrip('.')}; if it answers chats alone, give the parameter api: "
                f"[{_CHAT}]."
            ) from None
        raise


def completer(endpoint: openai.Endpoint, run: Run, context: int) -> openai.Completer:
    """How a server that was identified and has answered is asked for texts.

    context: tokens that it should have room for.
    """
    program = run.engine_facts.get("program")
    if program == server.LLAMA_SERVER:
        return endpoint.completions(min(context, _room_of_slot(endpoint)))
    if program == server.VLLM:
        room = endpoint.completions(min(context, _room_of_model(endpoint)), **_NUMBERED)
        return replace(room, forced_in_prompt=True)
    api = run.case.parameters.get("api", "completions")
    given = (endpoint.base_url, _PROBABILITIES) in run.engine_found
    return TextAnswers(endpoint, api, _WANTED[api] if given else {})


def _room_of_slot(endpoint: openai.Endpoint) -> int:
    document = server.ask(endpoint, server.PROPERTIES).json
    try:
        return int(document["default_generation_settings"]["n_ctx"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def _room_of_model(endpoint: openai.Endpoint) -> int:
    models = server.ask(endpoint, server.MODELS).json
    try:
        return next(int(m["max_model_len"]) for m in models["data"] if m["id"] == endpoint.model)
    except (KeyError, TypeError, ValueError, OverflowError, StopIteration):
        return 0
