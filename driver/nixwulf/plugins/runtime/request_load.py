"""Load on an OpenAI-compatible endpoint: requests of the same size, several in flight at once.

Prompts have exact lengths, counted by the server: see `texts`. The clocks of the servers' run end
the load when nothing comes any more.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nixwulf.core.metric import Metric
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.openai_stream import (
    PATHS,
    Answer,
    Content,
    Refused,
    StreamError,
    ask,
    body,
    count_prompt,
    count_text,
    other_model,
)
from nixwulf.plugins.runtime.run import Clocks, RunFailure
from nixwulf.plugins.runtime.texts import (
    KINDS,
    PROBES,
    ROWS,
    Count,
    Counting,
    Cutter,
    counting,
    row,
)

if TYPE_CHECKING:
    import httpx

_IGNORE_EOS = {"ignore_eos": True}
_BAD_REQUEST = (400, 422)
_NUMBER_BITS = 48
# Tokens by which a server is seen to stream, times that it is tried, and the least that they take.
_SEVERAL, _TRIES, _QUICK_MS = 16, 3, 10.0


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

    answers_as: the name of a model that its answers may give alone; empty: any. foreign: whether it
    outlives the run. sent: requests so far.
    """

    client: httpx.AsyncClient
    model: str
    on_event: Callable[[], None]
    answers_as: str = ""
    foreign: bool = False
    busy: int = 0
    sent: int = 0


@dataclass
class Load:
    """Greedy requests of n_prompt tokens over an API, each to the server with fewest in flight.

    text is ROWS or one of KINDS. With a depth, each slot stays with one server and has a beginning
    of so many tokens, which all its prompts go on from. extra is what requests say beside the API's
    own keys; keeps_text as of `ask`. No two prompts, or beginnings, begin alike.
    """

    servers: Sequence[LoadTarget]
    api: str
    seed: int
    n_prompt: int
    text: str = ROWS
    depth: int = 0
    extra: dict[str, Any] = field(default_factory=_IGNORE_EOS.copy)
    keeps_text: bool = False
    _numbers: Iterator[int] = field(init=False)
    _cutter: Cutter | None = None
    _held: bool = False
    _beginnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Of a server that outlives the run no prompt may be in its cache from an earlier one."""
        first = secrets.randbits(_NUMBER_BITS) if self.servers[0].foreign else 0
        self._numbers = itertools.count(first)

    async def prepare(self) -> Counting | None:
        """What `learn` gives.

        Raises StreamError also where n_prompt or depth is less than what the server adds by itself.
        """
        found = await self.learn()
        if found:
            own = found.own if self.depth else 0
            self.require("n_prompt", self.n_prompt + own, found)
            self.require("depth", self.depth or found.least, found)
        return found

    async def learn(self) -> Counting | None:
        """Learn how the server counts prompts, and whether it knows ignore_eos; None: it does not.

        Raises StreamError when it counts otherwise than by words.
        """
        rows = [row(next(self._numbers), words, self.seed) for words in PROBES]
        try:
            first = await self._count(rows[0])
        except Refused as refused:
            if refused.status not in _BAD_REQUEST:
                raise
            self.extra = {}
            first = await self._count(rows[0])
        second = await self._count(rows[1])
        self._held = self.servers[0].foreign and await self._holds_back(rows[1])
        if first is None or second is None:
            self._cutter = self._cut(Counting(0, 1), _words)
            return None
        found = counting(first, second)
        if found is None:
            few, many = PROBES
            raise StreamError(
                f"The server counts {first} tokens in {few} short words and {second} in {many}: "
                "prompts of an exact length cannot be made for it."
            )
        if self.text != ROWS:
            known = [await self._tokenized(one) for one in rows]
            added = {has - (one or 0) for one, has in zip(known, (first, second), strict=True)}
            tokenizes = None not in known and len(added) == 1
            self._cutter = self._cut(found, self._counter(min(added) if tokenizes else None))
        return found

    def require(self, name: str, tokens: int, counting: Counting) -> None:
        """Raise StreamError where a length, by its parameter's name, is less than a prompt's."""
        if counting.least > tokens:
            raise StreamError(
                f"{name} is {tokens}, but the server's shortest prompts of {self.api} have "
                f"{counting.least} tokens, {counting.own} of them its own; raise {name}."
            )

    async def text_of(self, counting: Counting | None, tokens: int) -> str:
        """The next text, of so many tokens with what the server adds; raises StreamError.

        counting is how the server counts; None: tokens are words.
        """
        await asyncio.sleep(0)  # so that the clocks of a run are read while texts are made
        number = next(self._numbers)
        if self._cutter:
            return await self._cutter.text(number, tokens)
        return (counting or Counting(0, 1)).prompt(number, tokens, self.seed)

    async def fill(self, counting: Counting | None, slots: int) -> None:
        """Send the beginning of each slot, so that a cache has it there; as of `send`."""
        found = [await self.text_of(counting, self.depth) for _ in range(slots)]
        self._beginnings = tuple(found)
        await asyncio.gather(
            *(self.ask(self._server_of(slot), text, 1) for slot, text in enumerate(found))
        )

    async def send(self, counting: Counting | None, requests: int, slots: int, n_gen: int) -> Pass:
        """Send requests, each as soon as one of the slots is free; raises StreamError.

        counting is how the server counts prompts; None: prompts have n_prompt words.
        """
        own = counting.own if counting and self._beginnings else 0
        texts = [await self.text_of(counting, self.n_prompt + own) for _ in range(requests)]
        answers: list[tuple[Answer, int]] = []
        waiting = iter(texts)

        async def slot(number: int) -> None:
            for text in waiting:
                place = self._server_of(number)
                whole = f"{self._beginnings[number]} {text}" if self._beginnings else text
                answers.append((await self.ask(place, whole, n_gen), place))

        cpu = time.thread_time()
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(slots):
                    group.create_task(slot(number))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        seconds = time.thread_time() - cpu
        found, places = zip(*answers, strict=True)
        return Pass(found, seconds, places if len(self.servers) > 1 else ())

    async def ask(self, place: int, content: Content, n_gen: int) -> Answer:
        """The answer to a text or a chat, of the server at a place; raises StreamError."""
        server = self.servers[place]
        request = self._request(server, content, n_gen)
        server.sent += 1
        server.busy += 1
        try:
            path, keeps = PATHS[self.api], self.keeps_text
            answer = await ask(server.client, path, request, server.on_event, keeps_text=keeps)
        finally:
            server.busy -= 1
        if problem := other_model(server.answers_as, {"model": answer.model}):
            raise StreamError(problem)
        return replace(answer, held=True) if self._held else answer

    async def _holds_back(self, text: str) -> bool:
        """Whether text comes when all is there, as through a proxy that collects an answer.

        An answer of one token tells when the first can come. Machines may stand still once.
        """
        for _ in range(_TRIES):
            one = (await self.ask(0, text, 1)).ttft_ms
            several = await self.ask(0, text, _SEVERAL)
            took = (several.came[-1] - several.sent) * 1e3 - one
            if took < _QUICK_MS or several.ttft_ms - one < took / 2:
                return False
        return True

    def _server_of(self, slot: int) -> int:
        """The place of a slot's own server, else that with fewest in flight, then of these sent."""
        servers = self.servers
        if self._beginnings:
            return slot % len(servers)
        return min(range(len(servers)), key=lambda n: (servers[n].busy, servers[n].sent))

    def _cut(self, counting: Counting, count: Count) -> Cutter | None:
        if self.text == ROWS:
            return None
        return Cutter(KINDS[self.text], counting, self.seed, count)

    def _counter(self, added: int | None) -> Count:
        """What counts a text: the server's tokenizer, with what it adds, else its usage."""

        async def count(text: str) -> int:
            tokens = await (self._count(text) if added is None else self._tokenized(text))
            if tokens is None:
                raise StreamError(
                    "The server counted the tokens of two prompts, and not of others."
                )
            return tokens + (added or 0)

        return count

    async def _tokenized(self, text: str) -> int | None:
        server = self.servers[0]
        return await count_text(server.client, server.model, text)

    async def _count(self, text: str) -> int | None:
        """By the stream's usage, else by that of an unstreamed answer to the same text.

        All servers have the same model, so the first one is asked.
        """
        answer = await self.ask(0, text, 1)
        if answer.counted:
            return answer.prompt_tokens
        request = self._request(self.servers[0], text, 1)
        return await count_prompt(self.servers[0].client, PATHS[self.api], request)

    def _request(self, server: LoadTarget, content: Content, n_gen: int) -> dict[str, Any]:
        return body(self.api, server.model, content, n_gen, self.seed) | self.extra


async def _words(text: str) -> int:
    return len(text.split())


_CHECK_S = 0.1
# Streams of a server that dies end first; its end is known this much later at the latest.
_DEATH_S = 2.0


async def watched(
    endpoints: Sequence[Endpoint], load: Callable[[Sequence[LoadTarget]], Awaitable[list[Metric]]]
) -> list[Metric]:
    """What a load on some servers measures, with the clocks beside it.

    Raises:
        RunFailure: a server ended, or a clock ran out.
        StreamError: an answer is not whole.
    """
    async with AsyncExitStack() as stack:
        seen, servers = [], []
        for endpoint in endpoints:
            clocks = Clocks(endpoint.run, endpoint.server)
            client = await stack.enter_async_context(endpoint.async_client())
            target = LoadTarget(
                client,
                endpoint.model,
                clocks.on_event,
                endpoint.answers_as,
                foreign=endpoint.server is None,
            )
            servers.append(target)
            seen.append((endpoint, servers[-1], clocks))
        watching = asyncio.create_task(_watch(seen))
        loading = asyncio.ensure_future(load(servers))
        try:
            await asyncio.wait({watching, loading}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and loading.exception():
                await asyncio.wait({watching}, timeout=_DEATH_S)
            if watching.done():
                watching.result()
            return await loading
        finally:
            watching.cancel()
            loading.cancel()
            await asyncio.gather(watching, loading, return_exceptions=True)


async def _watch(seen: Sequence[tuple[Endpoint, LoadTarget, Clocks]]) -> None:
    """Raises RunFailure when a server ends or a clock runs out, else goes on."""
    while True:
        await asyncio.sleep(_CHECK_S)
        for endpoint, server, clocks in seen:
            several = len(seen) > 1
            if several and not server.busy:
                clocks.on_event()  # a replica that has no request is silent, and does not hang
            try:
                endpoint.require_running()
                # In a thread, because it may ask the nodes for signs of life.
                await asyncio.to_thread(clocks.check)
            except RunFailure as failure:
                where = f"Node {endpoint.run.head.node.name!r}: " if several else ""
                raise RunFailure(where + failure.reason, failure.outcome) from None
