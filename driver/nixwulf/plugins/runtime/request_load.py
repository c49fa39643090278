"""Load on an OpenAI-compatible endpoint: requests of the same size, several in flight at once.

The driver has no tokenizer. A prompt is a row of English words of three letters. Each is one token
after a space in the vocabularies of Llama 2 and 3, Mistral, Qwen, GPT-2 and gpt-oss (counted), and
as many bytes as any other where bytes are tokens, as in the lab. So a server's counts of two rows
tell what it adds by itself (a beginning, a chat's template) and what a word takes.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nixwulf.plugins.runtime.openai_stream import (
    PATHS,
    Answer,
    Refused,
    StreamError,
    ask,
    body,
    count_prompt,
)

if TYPE_CHECKING:
    import httpx

_WORDS = (
    "the and for are but not you all can had her was one our out day get has him his how man "
    "new now old see two way who did its let put say she too use any own off why try big end "
    "far few got men run set"
)
WORDS = tuple(_WORDS.split())
# The first words are the request's number, so that no two prompts of a run begin alike and no
# server's prompt cache can help.
NUMBER_WORDS = 2
# Words of the two prompts that a server is asked to count.
PROBES = (4, 12)
_IGNORE_EOS = {"ignore_eos": True}
_BAD_REQUEST = (400, 422)


@dataclass(frozen=True)
class Counting:
    """How a server counts prompts: tokens of its own, and tokens of a word."""

    own: int
    word: int

    @property
    def least(self) -> int:
        """Tokens of the shortest prompt."""
        return self.own + NUMBER_WORDS * self.word

    def prompt(self, number: int, tokens: int, seed: int) -> str:
        """The prompt of a request.

        What is left after whole words is letters: where a word is several tokens, a letter is one.

        Args:
            number: of the request in the run; no two begin alike.
            tokens: its length, not less than `least`.
            seed: of the case.
        """
        words, letters = divmod(tokens - self.own, self.word)
        return row(number, words, seed) + "x" * letters


def counting(few: int, many: int) -> Counting | None:
    """From a server's counts of PROBES words; None when they do not grow by whole tokens a word."""
    word, rest = divmod(many - few, PROBES[1] - PROBES[0])
    own = few - PROBES[0] * word
    return Counting(own, word) if word > 0 and rest == 0 and own >= 0 else None


def row(number: int, words: int, seed: int) -> str:
    """Words that differ from those of any other number, the first two for certain.

    Args:
        number: of the request in the run.
        words: how many, at least NUMBER_WORDS.
        seed: of the case.
    """
    stream = random.Random(f"{seed}/{number}")  # noqa: S311 - the same on every machine
    digits = [number % len(WORDS), number // len(WORDS) % len(WORDS)]
    first = [WORDS[digit] for digit in digits]
    return " ".join([*first, *stream.choices(WORDS, k=max(0, words - NUMBER_WORDS))])


@dataclass(frozen=True)
class Drafted:
    """Tokens that were drafted in a pass, and those of them that the model accepted."""

    drafted: int
    accepted: int

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted tokens, %; None where none was drafted."""
        return 100 * self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True)
class Pass:
    """Requests that were sent together: their answers, and what the client cost.

    client_seconds: CPU time of the client's thread in that. servers: which one gave each answer, by
    its place; empty where there is only one. drafted: tokens of a draft, where they are counted.
    """

    answers: tuple[Answer, ...]
    client_seconds: float
    servers: tuple[int, ...] = ()
    drafted: Drafted | None = None

    @property
    def window(self) -> tuple[float, float]:
        """From the first request to the last chunk, in seconds of time.perf_counter."""
        begin = min(answer.sent for answer in self.answers)
        return begin, max(answer.came[-1] for answer in self.answers)

    @property
    def seconds(self) -> float:
        """How long it took."""
        begin, end = self.window
        return end - begin

    @property
    def tokens(self) -> int:
        """Generated tokens, by the server's usage where it streams it, else chunks with text."""
        return sum(answer.tokens for answer in self.answers)

    def tokens_of(self, server: int) -> int:
        """Generated tokens of one server, by its place."""
        pairs = zip(self.answers, self.servers, strict=True)
        return sum(answer.tokens for answer, by in pairs if by == server)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Each answer as a line of the raw file, with the place of its server among several."""
        for number, answer in enumerate(self.answers):
            server = {"server": self.servers[number]} if self.servers else {}
            yield {**server, **answer.document()}

    @property
    def client_share(self) -> float:
        """Share of the time in which the client computed; near 1 it is what limits."""
        return self.client_seconds / self.seconds


@dataclass
class LoadTarget:
    """A server of a load: on_event is called for each event; busy: its requests in flight.

    sent: requests so far.
    """

    client: httpx.AsyncClient
    model: str
    on_event: Callable[[], None]
    busy: int = 0
    sent: int = 0


@dataclass
class Load:
    """Greedy requests of n_prompt tokens over an API, each to the server with fewest in flight.

    extra is what requests say beside the API's own keys. No two requests have the same prompt.
    """

    servers: Sequence[LoadTarget]
    api: str
    seed: int
    n_prompt: int
    extra: dict[str, Any] = field(default_factory=_IGNORE_EOS.copy)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def prepare(self) -> Counting | None:
        """Learn how the server counts prompts, and whether it knows ignore_eos; None: it does not.

        Raises StreamError when it counts otherwise than by words, or more than n_prompt by itself.
        """
        few, many = PROBES
        try:
            first = await self._count(few)
        except Refused as refused:
            if refused.status not in _BAD_REQUEST:
                raise
            self.extra = {}
            first = await self._count(few)
        second = await self._count(many)
        if first is None or second is None:
            return None
        found = counting(first, second)
        if found is None:
            raise StreamError(
                f"The server counts {first} tokens in {few} short words and {second} in {many}: "
                "prompts of an exact length cannot be made for it."
            )
        if found.least > self.n_prompt:
            raise StreamError(
                f"n_prompt is {self.n_prompt}, but the server's shortest prompts of {self.api} "
                f"have {found.least} tokens, {found.own} of them its own; raise n_prompt."
            )
        return found

    async def send(self, counting: Counting | None, requests: int, slots: int, n_gen: int) -> Pass:
        """Send requests, each as soon as one of the slots is free.

        Args:
            counting: how the server counts prompts; None: prompts are rows of n_prompt words.
            requests: how many.
            slots: in flight at once.
            n_gen: tokens of each answer.

        Raises:
            StreamError: an answer is not whole.
        """
        prompt = counting.prompt if counting else row
        numbers = list(itertools.islice(self._numbers, requests))
        texts = [prompt(number, self.n_prompt, self.seed) for number in numbers]
        answers: list[tuple[Answer, int]] = []
        waiting = iter(texts)

        async def slot() -> None:
            for text in waiting:
                place = self._least_busy()
                answers.append((await self._ask(self.servers[place], text, n_gen), place))

        cpu = time.thread_time()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(slots):
                    group.create_task(slot())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        seconds = time.thread_time() - cpu
        found, places = zip(*answers, strict=True)
        return Pass(found, seconds, places if len(self.servers) > 1 else ())

    def _least_busy(self) -> int:
        """The place of the server with fewest requests in flight, and of these so far."""
        servers = self.servers
        return min(range(len(servers)), key=lambda n: (servers[n].busy, servers[n].sent))

    async def _count(self, words: int) -> int | None:
        """By the stream's usage, else by that of an unstreamed answer to another such row.

        All servers have the same model, so the first one is asked.
        """
        server = self.servers[0]
        answer = await self._ask(server, self._row(words), 1)
        if answer.counted:
            return answer.prompt_tokens
        request = self._request(server, self._row(words), 1)
        return await count_prompt(server.client, PATHS[self.api], request)

    def _row(self, words: int) -> str:
        return row(next(self._numbers), words, self.seed)

    def _request(self, server: LoadTarget, text: str, n_gen: int) -> dict[str, Any]:
        return body(self.api, server.model, text, n_gen, self.seed) | self.extra

    async def _ask(self, server: LoadTarget, text: str, n_gen: int) -> Answer:
        request = self._request(server, text, n_gen)
        server.sent += 1
        server.busy += 1
        try:
            return await ask(server.client, PATHS[self.api], request, server.on_event)
        finally:
            server.busy -= 1
