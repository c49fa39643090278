"""Load on an OpenAI-compatible endpoint: requests of the same size, several in flight at once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nixwulf.plugins.runtime import prompts
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

_IGNORE_EOS = {"ignore_eos": True}
_BAD_REQUEST = (400, 422)


@dataclass(frozen=True)
class Pass:
    """Requests that were sent together: their answers, and what the client cost.

    client_seconds: CPU time of the client's thread in that.
    """

    answers: tuple[Answer, ...]
    client_seconds: float

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

    @property
    def client_share(self) -> float:
        """Share of the time in which the client computed; near 1 it is what limits."""
        return self.client_seconds / self.seconds


@dataclass
class Load:
    """Greedy requests of n_prompt tokens over an API; on_event is called for each event.

    extra is what requests say beside the API's own keys. No two requests have the same prompt.
    """

    client: httpx.AsyncClient
    model: str
    api: str
    seed: int
    n_prompt: int
    on_event: Callable[[], None]
    extra: dict[str, Any] = field(default_factory=_IGNORE_EOS.copy)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def prepare(self) -> prompts.Counting | None:
        """Learn how the server counts prompts, and whether it knows ignore_eos; None: it does not.

        Raises StreamError when it counts otherwise than by words, or more than n_prompt by itself.
        """
        few, many = prompts.PROBES
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
        found = prompts.counting(first, second)
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

    async def send(
        self, counting: prompts.Counting | None, requests: int, slots: int, n_gen: int
    ) -> Pass:
        """Send requests, each as soon as one of the slots is free; raises StreamError.

        Without a counting, prompts are rows of n_prompt words.
        """
        prompt = counting.prompt if counting else prompts.row
        numbers = list(itertools.islice(self._numbers, requests))
        texts = [prompt(number, self.n_prompt, self.seed) for number in numbers]
        answers: list[Answer] = []
        waiting = iter(texts)

        async def slot() -> None:
            for text in waiting:
                answers.append(await self._ask(text, n_gen))

        cpu = time.thread_time()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(slots):
                    group.create_task(slot())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return Pass(tuple(answers), time.thread_time() - cpu)

    async def _count(self, words: int) -> int | None:
        """By the stream's usage, else by that of an unstreamed answer to another such row."""
        answer = await self._ask(self._row(words), 1)
        if answer.counted:
            return answer.prompt_tokens
        request = self._request(self._row(words), 1)
        return await count_prompt(self.client, PATHS[self.api], request)

    def _row(self, words: int) -> str:
        return prompts.row(next(self._numbers), words, self.seed)

    def _request(self, text: str, n_gen: int) -> dict[str, Any]:
        return body(self.api, self.model, text, n_gen, self.seed) | self.extra

    async def _ask(self, text: str, n_gen: int) -> Answer:
        return await ask(self.client, PATHS[self.api], self._request(text, n_gen), self.on_event)
