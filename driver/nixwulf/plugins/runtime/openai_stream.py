"""Streamed answers of OpenAI-compatible servers, with the moment at which each piece came."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from nixwulf.core.errors import NixwulfError

if TYPE_CHECKING:
    import httpx

Content = str | Sequence[Mapping[str, str]]
"""What a request asks: a text, or the messages of a chat."""
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_DONE = "[DONE]"
# Other fields of server-sent events, and comments, which servers send to keep a connection open.
# https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
_IGNORED = (":", "event:", "id:", "retry:")
# Where chat servers put text: vLLM and llama-server have more than one name for thoughts.
MESSAGE_TEXTS = ("content", "reasoning_content", "reasoning")
_QUOTED = 200
_LINE_LIMIT = 1 << 20
_HEADERS = {
    "Accept-Encoding": "identity",  # a compressed stream would come in blocks of many tokens
    # llama-server (0c1e570) closes after a stream though it says keep-alive: the next request on
    # that connection is lost when it is sent before the close arrives.
    "Connection": "close",
}


class StreamError(NixwulfError):
    """An endpoint that did not stream what was asked of it, in one sentence."""


class Refused(StreamError):
    """An endpoint that answered a request with an HTTP status other than 200."""

    def __init__(self, status: int, path: str, body: str) -> None:
        """Keep the status beside the sentence.

        Args:
            path: of the request's URL.
        """
        super().__init__(f"The endpoint answered {status} to POST {path}: {_message(body)}.")
        self.status = status


@dataclass(frozen=True)
class Answer:
    """One streamed answer.

    sent: when the request was sent; came: when each chunk with text came; both in seconds of this
    machine's monotonic clock. prompt_tokens, tokens and cached_tokens are the server's own counts
    (usage). Where it streams no usage, prompt_tokens is None and tokens are the chunks with text.
    cached_tokens, of the prompt that its cache had, is None where it does not say, as some do not
    of none. text is what it wrote, without thoughts that an API has apart.
    finish is why it ended; timings are its own figures where it gives any (llama-server). model is
    what the server calls the model that answered, empty where it does not say.
    """

    sent: float
    came: tuple[float, ...]
    prompt_tokens: int | None
    tokens: int
    cached_tokens: int | None
    finish: str
    timings: Mapping[str, float]
    text: str = ""
    model: str = ""

    @property
    def counted(self) -> bool:
        """Whether the tokens were counted by the server."""
        return self.prompt_tokens is not None

    @property
    def ttft_ms(self) -> float:
        """From sending to the first text, milliseconds."""
        return (self.came[0] - self.sent) * 1e3

    @property
    def gaps_ms(self) -> list[float]:
        """Between chunks with text that follow each other, milliseconds."""
        return [(later - earlier) * 1e3 for earlier, later in pairwise(self.came)]

    @property
    def decode(self) -> float | None:
        """Tokens a second after the first one; None of a single piece."""
        seconds = self.came[-1] - self.came[0]
        return (self.tokens - 1) / seconds if seconds > 0 and self.tokens > 1 else None

    def document(self) -> dict[str, Any]:
        """As a line of the raw file: came in milliseconds after sent."""
        came_ms = [round((moment - self.sent) * 1e3, 4) for moment in self.came]
        known = {key: value for key, value in asdict(self).items() if value is not None}
        del known["text"]
        return {**known, "came": came_ms, "timings": dict(self.timings)}


def other_model(asked: str, answer: Mapping[str, Any]) -> str | None:
    """Why an answer is of another model than the one that was asked for, or None.

    Args:
        asked: the name that it has to give; empty: any.
        answer: as JSON; one that names no model may be of any.
    """
    named = answer.get("model")
    if not asked or not isinstance(named, str) or named in ("", asked):
        return None
    return (
        f"The endpoint was asked for the model {asked!r} and says that {named!r} answered; ask for "
        "that, or correct the server."
    )


def body(api: str, model: str, prompt: Content, n_gen: int, seed: int) -> dict[str, Any]:
    """A greedy request for a stream with usage at its end; as of `unstreamed`."""
    whole = unstreamed(api, model, prompt, n_gen, seed)
    return {**whole, "stream": True, "stream_options": {"include_usage": True}}


def unstreamed(api: str, model: str, prompt: Content, n_gen: int, seed: int) -> dict[str, Any]:
    """A greedy request for an answer as a whole.

    Args:
        prompt: the text; a chat's messages, of which a text is the first.
        n_gen: tokens of the answer at most.
    """
    chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {
        "model": model,
        **({"messages": chat} if api == "chat" else {"prompt": prompt}),
        "max_tokens": n_gen,
        "temperature": 0,
        "seed": seed,
    }


async def ask(
    client: httpx.AsyncClient, path: str, request: Mapping[str, Any], on_event: Callable[[], None]
) -> Answer:
    """Send a request and read its stream to the end.

    Args:
        on_event: called whenever something comes.

    Raises:
        Refused: the endpoint answered with another status than 200.
        StreamError: anything else that is not a whole answer.
    """
    import httpx

    reader = StreamReader(path)
    sent = time.monotonic()
    try:
        async with client.stream("POST", path, json=request, headers=_HEADERS) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise Refused(response.status_code, path, response.text)
            async for data in response.aiter_bytes():
                reader.feed(data, time.monotonic())
                on_event()
    except httpx.RequestError as error:
        words = str(error) or type(error).__name__
        raise StreamError(
            f"The connection to the endpoint broke after {len(reader.came)} chunks of an answer: "
            f"{words}."
        ) from None
    return reader.answer(sent)


async def count_prompt(
    client: httpx.AsyncClient, path: str, request: Mapping[str, Any]
) -> int | None:
    """The tokens of a request's prompt by the usage of an unstreamed answer; None without one."""
    import httpx

    whole = {key: value for key, value in request.items() if not key.startswith("stream")}
    try:
        response = await client.post(path, json=whole, headers=_HEADERS)
        return int(response.json()["usage"]["prompt_tokens"])
    except (httpx.RequestError, ValueError, TypeError, KeyError, RecursionError):
        return None


async def count_text(client: httpx.AsyncClient, model: str, text: str) -> int | None:
    """The tokens of a text by the server's tokenizer; None where it does not offer it.

    Args:
        text: without a beginning or a template.
    """
    import httpx

    # The text's name is that of vLLM, then of llama-server.
    request = {"model": model, "prompt": text, "content": text, "add_special": False}
    try:
        response = await client.post("/tokenize", json=request, headers=_HEADERS)
        tokens = response.json()["tokens"]
    except (httpx.RequestError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return len(tokens) if isinstance(tokens, list) else None


class StreamReader:
    """What the events of one stream have reported so far; came is as in an Answer."""

    def __init__(self, path: str) -> None:
        """Begin a stream of a path, which errors name."""
        self.came: list[float] = []
        self._texts: list[str] = []
        self._path = path
        self._rest = b""
        self._finish = ""
        self._ended = False
        self._usage: _Usage | None = None
        self._timings: dict[str, float] = {}
        self._model = ""

    def feed(self, data: bytes, moment: float) -> None:
        """Take the next bytes of the stream, read at a moment; raises StreamError.

        Lines end with LF or CRLF only: httpx's own aiter_lines splits at U+2028 and others too,
        which JSON may hold as they are.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._read(line.decode(errors="replace").rstrip("\r"), moment)
        if len(self._rest) > _LINE_LIMIT:
            self._read(self._rest.decode(errors="replace"), moment)

    def _read(self, line: str, moment: float) -> None:
        if not line or line.startswith(_IGNORED):
            return
        field, _, data = line.partition(":")
        if (field, data.strip()) == ("data", _DONE):
            self._ended = True
            return
        try:
            event = json.loads(data)
            if field == "error" or (field == "data" and event.get("error")):
                raise StreamError(f"The endpoint reported an error in its stream: {_words(event)}.")
            if field != "data":
                raise ValueError
            self._take(event, moment)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            raise StreamError(
                f"The endpoint streamed what is no event of {self._path}: {line[:_QUOTED]!r}."
            ) from None

    def answer(self, sent: float) -> Answer:
        """The whole answer; raises StreamError when there is something missing."""
        self.feed(b"\n", sent)
        chunks = len(self.came)
        if not (self._ended or self._finish):
            raise StreamError(f"The endpoint closed its stream after {chunks} chunks, unfinished.")
        if not chunks:
            raise StreamError("The endpoint's stream ended without any text.")
        usage = self._usage or _Usage(None, chunks, None)
        cached = usage.cached_tokens
        if cached is None and "cache_n" in self._timings:
            cached = int(self._timings["cache_n"])
        return Answer(
            sent=sent,
            came=tuple(self.came),
            prompt_tokens=usage.prompt_tokens,
            tokens=usage.completion_tokens,
            cached_tokens=cached,
            finish=self._finish,
            timings=self._timings,
            text="".join(self._texts),
            model=self._model,
        )

    def _take(self, event: Mapping[str, Any], moment: float) -> None:
        self._model = str(event.get("model") or self._model)
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if choice.get("text") or any(delta.get(name) for name in MESSAGE_TEXTS):
                self.came.append(moment)
                self._texts.append(str(choice.get("text") or delta.get("content") or ""))
            self._finish = str(choice.get("finish_reason") or self._finish)
        usage = event.get("usage")
        if usage:
            details = usage.get("prompt_tokens_details") or {}
            self._usage = _Usage(
                int(usage["prompt_tokens"]),
                int(usage["completion_tokens"]),
                None if (cached := details.get("cached_tokens")) is None else int(cached),
            )
        for key, value in (event.get("timings") or {}).items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._timings[key] = float(value)


class _Usage(NamedTuple):
    prompt_tokens: int | None
    completion_tokens: int
    cached_tokens: int | None


def _message(text: str) -> str:
    """The message of an error in JSON, else the text, quoted."""
    try:
        return _words(json.loads(text))
    except (ValueError, RecursionError):
        return repr(" ".join(text.split())[:_QUOTED] or "nothing")


def _words(event: Any) -> str:
    error = event.get("error", event) if isinstance(event, dict) else event
    return repr(str(error.get("message", error) if isinstance(error, dict) else error)[:_QUOTED])
