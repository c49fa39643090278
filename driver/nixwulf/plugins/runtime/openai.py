"""OpenAI-compatible servers of a run: reached over ssh, asked under its clocks, also for texts.

Texts come with log-probabilities from llama-server, vLLM and mlx_lm.server, and two engines' are
compared by them. Prompts are numbers of tokens where the server tokenizes: so they have exactly
their length, and an answer can be begun.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nixwulf.core import web
from nixwulf.core.secrets import cut
from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.openai_stream import TOKEN_CHARACTERS, other_model
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure, failure_of
from nixwulf.plugins.runtime.texts import WORDS

if TYPE_CHECKING:
    import httpx

GREEDY = "The quick brown fox jumps over the lazy dog."
"""The prompt whose continuation shows whether an engine's text is right."""
_BASE_URL = "http://head"
# Tokens of a slot beyond prompt and generation: what a server adds to a short prompt by itself.
_MARGIN = 128
_MOST_WORDS = 300
_HEALTH_S = 5.0
_LEAST_S = 0.1


@dataclass(frozen=True)
class Demand:
    """What a case asks of a server: requests in flight at once, and tokens that each may have.

    cache: whether what a slot has computed is kept for a prompt that begins alike.
    """

    slots: int
    context: int
    cache: bool = False


def demand(case: Case) -> Demand:
    """The demand of a case's parameters; of a benchmark that has no such ones, a small one."""
    values = case.parameters
    cache = "turns" in values or values.get("depth", 0) > 0
    return Demand(values.get("concurrency", 1), context(values), cache)


def context(parameters: Mapping[str, Any]) -> int:
    """Tokens that a server keeps of one request, or of one session when its last turn has ended."""
    return longest_request(parameters) + _MARGIN * int(parameters.get("turns", 1))


def longest_request(parameters: Mapping[str, Any]) -> int:
    """Tokens of the longest request of a case with its answer, nothing that a server adds."""
    once = sum(parameters.get(key, 0) for key in ("n_prompt", "depth", "system"))
    turns = parameters.get("turns", 1)
    each = parameters.get("message", 0) + parameters.get("n_gen", 0)
    tools = parameters.get("insertion", 0) * (turns // parameters.get("every", 1))
    return int(once + turns * each + tools)


class Declined(RunFailure):
    """A server that answered a request with an HTTP status that is no success."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Endpoint:
    """A server of a run: a Unix socket here, forwarded by ssh, so that no port of the head is open.

    model: the name that requests give. server: the process whose end ends the run; None: the run
    did not start it, so that nothing is known of its end but that it does not answer. base_url:
    what stands before the paths; of https its host is held against the certificate. headers: of
    each request. answers_as: the name of a model that its answers may give alone; empty: any.
    """

    run: Run
    socket: Path
    model: str
    server: OwnedProcess | None
    base_url: str = _BASE_URL
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    answers_as: str = ""

    def async_client(self) -> httpx.AsyncClient:
        """A client of the server, without a limit in time; its requests give paths."""
        return web.client(self.base_url, self.socket, self.headers)

    def post(self, path: str, request: Mapping[str, object]) -> Any:
        """The JSON that the server answers to a request.

        Raises:
            Declined: It refused.
            RunFailure: The server ended, a clock of the run ran out, or another model answered.
        """
        answer = self._answer("POST", path, request)
        if isinstance(answer, dict) and (problem := other_model(self.answers_as, answer)):
            raise RunFailure(problem)
        return answer

    def get(self, path: str) -> Any:
        """The JSON that the server answers to GET of a path; raises RunFailure as `post` does."""
        return self._answer("GET", path, None)

    def _answer(self, method: str, path: str, request: Mapping[str, Any] | None) -> Any:
        answers: list[Any] = []
        errors: list[str] = []
        refusals: list[int] = []
        seconds = max(_LEAST_S, self.run.deadline - time.monotonic())

        def ask() -> None:
            try:
                client = self.async_client()
                reply = web.fetch(client, method, path, seconds, web.LONGEST, json=request)
                if reply.ok and (found := reply.json) is not None:
                    answers.append(found)
                else:
                    words = cut(" ".join(reply.text.split()), _MOST_WORDS)
                    refusals.extend([] if reply.ok else [reply.status])
                    errors.append(f"{reply.status} {words}".rstrip())
            except Exception as error:  # whatever came: nobody else hears of it in this thread
                errors.append(str(error).rstrip(".") or type(error).__name__)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        clocks = Clocks(self.run, self.server)
        while asking.is_alive():
            asking.join(timeout=0.05)
            self.require_running()
            clocks.check()
        if errors:
            reason = f"{self._program!r} did not answer {path!r}: {errors[0]}."
            raise Declined(reason, refusals[0]) if refusals else RunFailure(reason)
        return answers[0]

    def greedy(self, count: int) -> dict[str, Any]:
        """A request to /v1/completions for the tokens that the sanity check compares."""
        return {**self._fixed, "prompt": GREEDY, "max_tokens": count}

    def completions(self, context: int, **wanted: Any) -> Completions:
        """What continues prompts with log-probabilities.

        context: tokens that the server has room for; 0 where it does not tokenize. wanted: how it
        is asked for log-probabilities, if not by their count.
        """
        return Completions(self.post, self._fixed, context, wanted or {"logprobs": TOP})

    @property
    def _fixed(self) -> dict[str, Any]:
        return {"model": self.model, "temperature": 0, "seed": self.run.case.seed}

    def wait_until_healthy(self, path: str = "/health", hopeless: int | None = None) -> None:
        """Wait until GET of a path succeeds; raises RunFailure when the server ends or hangs first.

        hopeless: the status of a server that answers and will never be healthy.
        """
        clocks = Clocks(self.run, self.server)
        while True:
            seconds = min(_HEALTH_S, max(_LEAST_S, self.run.deadline - time.monotonic()))
            with contextlib.suppress(web.NoAnswer):
                answer = web.fetch(self.async_client(), "GET", path, seconds, 0, head=True)
                if answer.ok:
                    break
                if answer.status == hopeless:
                    words = self.server.last_line() if self.server else "it answers so"
                    raise RunFailure(f"{self._program!r} does not work: {words}")
            self.require_running()
            clocks.check()
            time.sleep(0.05)
        self.run.prove_from_here()

    def require_running(self) -> None:
        """Raise RunFailure when the server, or what serves it on the other nodes, has ended."""
        if self.server and not self.server.running:
            raise failure_of(self.server, repr(self._program))
        if any(p.background and not p.running and not p.stopped_by_driver for p in self.run.owned):
            raise RunFailure(f"{self._program!r} lost a node.")

    @property
    def _program(self) -> str:
        return self.server.program if self.server else self.base_url


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


def _token(value: object) -> Token:
    if isinstance(value, int | str):
        return value
    raise TypeError(value)


def text_token(value: object) -> str:
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


# Characters of a text that has at least so many tokens, and about.
_CHARACTERS = 8
_USUAL_CHARACTERS = 4
# As vLLM writes a token's number where it is asked for that.
_NUMBER = "token_id:"
# Added to a logit: more than any differs from another.
_CERTAIN = 1e6
# The logarithm of a probability of 1, as one that was computed in 16 bits may come.
_ROUNDED_UP = 1e-2


@dataclass(frozen=True)
class Completions:
    """A completer that asks a server's /v1/completions.

    post: sends a request to a path and gives the JSON of the answer. request: what each has, such
    as the model. context: tokens that the server has room for; 0 of one that does not tokenize: it
    is asked texts of about a length, and nothing long. wanted: how it is asked for
    log-probabilities. forced_in_prompt: whether a token is forced as the last of a prompt (vLLM),
    not by a bias (llama-server).
    """

    post: Callable[[str, Mapping[str, Any]], Any]
    request: Mapping[str, Any]
    context: int
    wanted: Mapping[str, Any]
    forced_in_prompt: bool = False

    def prompt(self, tokens: int) -> Prompt | None:
        """The first tokens of the text, as the model's tokenizer makes them; raises RunFailure."""
        seed = self.request["seed"]
        if not self.context:
            return text_of(tokens * _USUAL_CHARACTERS, seed)
        found = self.tokens(text_of(tokens * _CHARACTERS, seed))
        return found[:tokens] if len(found) >= tokens else None

    def tokens(self, text: str, *, beginning: bool = True) -> list[int]:
        """A text as the model's tokenizer makes it, with what a beginning has before it, if any.

        Raises RunFailure: the server does not tokenize.
        """
        # Names are those of vLLM, then of llama-server.
        request = {"model": self.request["model"], "prompt": text, "content": text}
        request |= {"add_special_tokens": beginning, "add_special": beginning}
        return tokens_of(self.post("/tokenize", request))

    def forced(self, before: Sequence[int], token: int) -> Position:
        """What the server gives for a token after others, whose logarithm is in the top too.

        Of llama-server a bias makes it the one that is taken; log-probabilities are of before any
        bias. There are none of a token that is the first part of a character.

        Raises RunFailure: it took another one, or gave no answer.
        """
        if self.forced_in_prompt:
            return self._in_prompt(before, token)
        request = {
            **self.request,
            **self.wanted,
            "prompt": [*before],
            "max_tokens": 1,
            "cache_prompt": True,
            "logit_bias": [[token, _CERTAIN]],
        }
        answer = self.post("/v1/completions", request)
        try:
            logprobs = answer["choices"][0]["logprobs"]
            if logprobs is None:
                return Position(token, {})
            (part,) = logprobs["content"]
            own: dict[Token, float] = {_id(part): logarithm(part["logprob"])}
            for one in part["top_logprobs"]:
                own.setdefault(_id(one), logarithm(one["logprob"]))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise without_tokens(answer) from None
        if next(iter(own)) != token:
            raise RunFailure("This build of llama-server takes no 'logit_bias'.", "unsupported")
        return Position(token, own)

    def _in_prompt(self, before: Sequence[int], token: int) -> Position:
        """By prompt_logprobs, whose lists have the prompt's own token beside the likeliest.

        https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/openai/completion/protocol.py
        """
        request = {
            **self.request,
            "prompt": [*before, token],
            "max_tokens": 1,
            "prompt_logprobs": TOP,
        }
        answer = self.post("/v1/completions", request)
        try:
            last = answer["choices"][0]["prompt_logprobs"][-1]
            top: dict[Token, float] = {
                int(number): logarithm(one["logprob"]) for number, one in last.items()
            }
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise without_tokens(answer) from None
        if token not in top:
            raise without_tokens(answer)
        return Position(token, top)

    def complete(self, prompt: Prompt, given: Sequence[Token], count: int) -> Answer | None:
        """What begins with given tokens is computed on top of the same prompt's cache."""
        if isinstance(prompt, str) and given:
            return None
        request = {
            **self.request,
            **self.wanted,
            "prompt": prompt if isinstance(prompt, str) else [*prompt, *given],
            "max_tokens": count,
            "cache_prompt": bool(given),
            "ignore_eos": True,
        }
        found = self.post("/v1/completions", request)
        answer = self._up_to_a_character(found, count)
        if answer is not None and (answer or given):
            return answer
        answer = positions(found)
        if not self.context:
            return _up_to_a_tie(answer)
        return whole(answer, count)

    def _up_to_a_character(self, found: Any, count: int) -> Answer | None:
        """Of llama-server, which leaves out a token that ends within a character, as of an emoji.

        What comes after it is of a text that is not known. None where no token is left out.

        found: the answer, which says how many tokens were made.
        """
        try:
            parts = (found["choices"][0]["logprobs"] or {"content": []})["content"]
            if len(parts) >= count or found["usage"]["completion_tokens"] != count:
                return None
            return tuple(map(_position, takewhile(self._is_whole, parts)))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            return None

    def _is_whole(self, part: Mapping[str, object]) -> bool:
        """Whether a token has all of its text, not the last bytes of a character alone."""
        text = str(part["token"])
        if text.isascii():
            return True
        own = self.post("/detokenize", {"tokens": [_id(part)]})["content"]
        return str(own).strip() == text.strip()


def whole(answer: Answer, count: int) -> Answer:
    """An answer that has as many tokens as were asked for; raises RunFailure for another."""
    if len(answer) != count:
        raise RunFailure(f"The server was asked for {count} tokens and gave {len(answer)}.")
    return answer


def tokens_of(answer: object) -> list[int]:
    """The numbers of tokens that a server answers to /tokenize; raises RunFailure without them."""
    found = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
        raise without_tokens(answer)
    return found


def positions(answer: Any) -> Answer:
    """The tokens of a completion: their numbers, or their texts from servers that have no numbers.

    Either a list has all that is known of each token (llama-server, mlx_lm.server), or there is a
    list of each kind (vLLM). llama-server has numbers since December 2024
    (https://github.com/ggml-org/llama.cpp/pull/10783).

    Raises RunFailure: it has no tokens.
    """
    try:
        choice = answer["choices"][0]
        logprobs = choice["logprobs"]
        if "content" in logprobs:
            found = tuple(map(_position, logprobs["content"]))
        else:
            tokens = [_number(token) for token in choice.get("token_ids") or logprobs["tokens"]]
            tops = [
                {_number(token): logarithm(value) for token, value in top.items()}
                for top in logprobs.get("top_logprobs") or [{}] * len(tokens)
            ]
            found = tuple(Position(*pair) for pair in zip(tokens, tops, strict=True))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        raise without_tokens(answer) from None
    if not found:
        raise without_tokens(answer)
    return found


def _position(part: Mapping[str, Any]) -> Position:
    """The token that was taken; mlx_lm.server names any of those that it lists.

    Greedy text takes one of the likeliest, of equal ones not always the first of the list.
    """
    tops = part.get("top_logprobs", ())
    top: dict[Token, float] = {_id(one): logarithm(one["logprob"]) for one in tops}
    token = _id(part)
    likeliest = max(top, key=lambda one: top[one], default=token)
    return Position(token if top.get(token) == top.get(likeliest) else likeliest, top)


def _id(part: Mapping[str, Any]) -> int:
    number = int(part["id"])
    if number < 0:
        raise ValueError("no token has a number below 0")
    return number


def logarithm(value: Any) -> float:
    """That of a probability, as a server gives it; raises ValueError, TypeError, OverflowError."""
    number = float(value)
    if not number <= _ROUNDED_UP:
        raise ValueError("no probability is above 1")
    return number


def _up_to_a_tie(answer: Answer) -> Answer:
    """Of a server that does not name the token it took: behind two equal ones all is unknown."""
    for place, position in enumerate(answer, start=1):
        likeliest = sorted(position.top.values())[-2:]
        if len(likeliest) > 1 and likeliest[0] == likeliest[1]:
            return answer[:place]
    return answer


def _number(token: object) -> Token:
    if isinstance(token, str) and token.startswith(_NUMBER):
        return int(token.removeprefix(_NUMBER))
    return token if isinstance(token, int) else text_token(token)


def without_tokens(answer: object) -> RunFailure:
    """Why an answer is of no use, with its beginning."""
    return RunFailure(f"The server gave no tokens: {cut(json.dumps(answer), 200)}.")
