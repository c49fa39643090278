"""Streamed answers of OpenAI-compatible servers, with the moment at which each piece came."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError
from nixwulf.core.secrets import cut

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
_NO_EVENT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_QUOTED = 200
# Of an event, or of an error's body; each of a thousand streams may have one that has not ended.
_LINE_LIMIT = 1 << 17
# An error, comments of hours, and what an event has beside its token: llama-server's 0.3 kB, those
# of routers 2 kB.
_ANSWER_BYTES, _TOKEN_BYTES = 1 << 20, 1 << 14
# The longest tokens of vocabularies have 128 characters.
TOKEN_CHARACTERS, _NAME_CHARACTERS = 128, 256
# What is kept of usage and of llama-server's timings, which may have lists of a megabyte beside.
_COUNTS = ("prompt_tokens", "completion_tokens")
_FIGURES = (
    *("prompt_n", "prompt_ms", "prompt_per_second", "cache_n", "draft_n", "draft_n_accepted"),
    *("predicted_n", "predicted_ms", "predicted_per_second"),
)
# A token of a thought's end may come in two chunks.
_FEW = 16
# Prompts of routers, in tokens.
_ROUTERS_OWN = 1 << 16
# Clocks of two machines, and what a timer counts beside.
_CLOCKS, _CLOCKS_MS = 0.01, 100.0
# No stream of one request is faster, tokens a second, nor one that comes in bulk, of which the
# driver reads 1e5 chunks; and what a jittery network may hide.
_FASTEST, _FASTEST_BULK, _FASTER, _FEW_GAPS = 5e4, 2e5, 20.0, 4
_LARGEST, _FASTEST_PROMPT = 1e15, 1e6
# Drafted for a token of an answer; the longest n-grams are some dozens.
_DRAFTS = 1024
# Tokens of a chunk of those that draft unsaid or send several at once (--stream-interval of vLLM).
_IN_A_CHUNK = 64
_SHOWN = 40


class StreamError(NixwulfError):
    """An endpoint that did not stream what was asked of it, in one sentence."""


class Refused(StreamError):
    """An endpoint that answered a request with an HTTP status other than 200."""

    def __init__(self, status: int, path: str, body: str) -> None:
        super().__init__(f"The endpoint answered {status} to POST {path}: {_message(body)}.")
        self.status = status


@dataclass(frozen=True)
class Answer:
    """One streamed answer.

    sent: when the request was sent; came: when each chunk with text came; both in seconds of this
    machine's monotonic clock. prompt_tokens, tokens and cached_tokens are the server's own counts
    (usage). Where it streams no usage, prompt_tokens is None and tokens are the chunks with text.
    cached_tokens, of the prompt that its cache had, is None where it does not say, as some do not
    of none. text is what it wrote, without thoughts that an API has apart, if it was kept.
    finish is why it ended; timings are its own figures where it gives any (llama-server). model is
    what the server calls the model that answered, empty where it does not say. held is whether the
    server was seen to keep what it had until all was there.
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
    held: bool = False

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
        del known["text"], known["held"]
        return {**known, "came": came_ms, "timings": dict(self.timings)}


def other_model(asked: str, answer: Mapping[str, object]) -> str | None:
    """Why an answer, in JSON, is of another model than was asked for, or None.

    One that names no model may be of any, as may any where none was asked for.
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
    """A greedy request for a whole answer of n_gen tokens; a chat's first message may be a text."""
    chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {
        "model": model,
        **({"messages": chat} if api == "chat" else {"prompt": prompt}),
        "max_tokens": n_gen,
        "temperature": 0,
        "seed": seed,
    }


async def ask(
    client: httpx.AsyncClient,
    path: str,
    request: Mapping[str, Any],
    on_event: Callable[[], None],
    *,
    keeps_text: bool = False,
) -> Answer:
    """Send a request and read its stream to the end.

    on_event: called when something comes. keeps_text: whether the answer has its text, which may be
    megabytes.

    Raises:
        Refused: the endpoint answered with another status than 200.
        StreamError: anything else that is not a whole answer.
    """
    most = int(request["max_tokens"])
    reader = StreamReader(path, most, keeps_text=keeps_text)
    sent = time.monotonic()
    most_bytes = _ANSWER_BYTES + most * _TOKEN_BYTES
    try:
        async with web.incoming(client, "POST", path, most_bytes, json=request) as response:
            if response.status != web.OK:
                body = b""
                with contextlib.suppress(web.NoAnswer):
                    async for data in response.pieces:
                        body += data
                        if len(body) > _LINE_LIMIT:
                            break
                raise Refused(response.status, path, body.decode(errors="replace"))
            async for data in response.pieces:
                reader.feed(data, time.monotonic())
                on_event()
    except web.NoAnswer as error:
        after = f"broke after {len(reader.came)} chunks of an answer: {error.message}"
        raise StreamError(f"The connection to the endpoint {after}.") from None
    return reader.answer(sent, time.monotonic(), len(str(request)))


async def count_prompt(
    client: httpx.AsyncClient, path: str, request: Mapping[str, Any]
) -> int | None:
    """The tokens of a prompt by the usage of an unstreamed answer; raises for impossible ones."""
    whole = {key: value for key, value in request.items() if not key.startswith("stream")}
    try:
        response = await web.receive(client, "POST", path, json=whole)
        usage = dict(response.json["usage"])
        found = usage["prompt_tokens"]
    except (web.NoAnswer, TypeError, KeyError, ValueError):
        return None
    require_possible({"completion_tokens": 0, **usage}, {}, whole["max_tokens"], len(str(whole)))
    return int(found)


async def count_text(client: httpx.AsyncClient, model: str, text: str) -> int | None:
    """The tokens of a bare text by the server's tokenizer; None where it does not offer it."""
    # The text's name is that of vLLM, then of llama-server.
    request = {"model": model, "prompt": text, "content": text, "add_special": False}
    try:
        response = await web.receive(client, "POST", "/tokenize", json=request)
        tokens = response.json["tokens"]
    except (web.NoAnswer, TypeError, KeyError):
        return None
    return len(tokens) if isinstance(tokens, list) else None


def require_possible(
    usage: Mapping[str, Any],
    timings: Mapping[str, Any],
    most: float,
    asked: float = math.inf,
    seconds: float = math.inf,
    fastest: float = _FASTEST,
) -> None:
    """Raise StreamError for numbers of a server that no honest one gives.

    Args:
        usage: its counts; timings: its figures of itself.
        most: max_tokens of the request.
        asked: characters of the request, each a token at most; a router adds texts of its own.
        seconds: that the answer took by this machine's clock.
        fastest: tokens a second that the stream allows.
    """
    prompts, took_ms = asked + _ROUTERS_OWN, seconds * 1e3 * (1 + _CLOCKS) + _CLOCKS_MS
    figures = {key: one for key, one in timings.items() if isinstance(one, int | float)}
    if usage:
        counts = {key: usage.get(key) for key in _COUNTS}
        require_counts(counts, {"prompt_tokens": prompts, "completion_tokens": most})
        prompts = counts["prompt_tokens"] or 0
    details = usage.get("prompt_tokens_details") or {}
    if not isinstance(details, Mapping):
        raise _not_counted("prompt_tokens_details", details, "an object")
    limits = dict.fromkeys(("cached_tokens", "cache_n", "prompt_n"), prompts)
    limits |= {"predicted_n": most, "draft_n": most * _DRAFTS}
    limits |= {"draft_n_accepted": figures.get("draft_n", 0)}
    cached = details.get("cached_tokens")
    counted = figures if cached is None else {**figures, "cached_tokens": cached}
    require_counts({key: counted[key] for key in limits if key in counted}, limits)
    made = {"predicted": usage.get("completion_tokens", 0)}
    made["prompt"] = prompts - (cached or figures.get("cache_n", 0)) if usage else 0
    _require_times(figures, made, took_ms, fastest)


def _require_times(
    figures: Mapping[str, float], made: Mapping[str, float], took_ms: float, fastest: float
) -> None:
    """Raise StreamError for times and speeds that do not go together; made: tokens by kind."""
    times = dict.fromkeys(("prompt_ms", "predicted_ms"), took_ms)
    speeds = {"predicted_per_second": fastest, "prompt_per_second": _FASTEST_PROMPT}
    for key, largest in {**times, **speeds}.items():
        if not 0 <= figures.get(key, 0) <= largest:
            raise _not_counted(key, figures[key], f"at least 0 and at most {largest:g}")
    spent = {"prompt_ms + predicted_ms": sum(figures.get(key, 0) for key in times)}
    for kind, tokens in made.items():
        count, milliseconds = figures.get(f"{kind}_n", tokens), figures.get(f"{kind}_ms", 0)
        largest = speeds[f"{kind}_per_second"] / 1e3
        if milliseconds > 0 and count / milliseconds > largest:
            raise _not_counted(f"{kind}_ms", milliseconds, f"at least {count / largest:g}")
    if speed := figures.get("predicted_per_second"):
        # llama.cpp's is of the steps after the first token (n_gen_tps of server-common.h).
        steps = max(0, figures.get("predicted_n", 0) - 1)
        spent["(predicted_n - 1) / predicted_per_second"] = steps / speed * 1e3
    for key, milliseconds in spent.items():
        if milliseconds > took_ms:
            raise _not_counted(key, milliseconds, f"at most the {took_ms:.0f} ms that it took")


def require_speeds(answers: Sequence[Answer], *, decode: bool, drafts: bool) -> None:
    """Raise StreamError for more tokens than chunks can have brought, all in all or in the time.

    decode: whether that speed is to be told; drafts: whether the tokens of a step come together.
    """
    for one in answers:
        chunks, whole = len(one.came), one.came[-1] - one.sent
        most = chunks * (_DRAFTS if drafts else _IN_A_CHUNK)
        if chunks > 1 and one.tokens > most:
            raise _not_counted(
                "completion_tokens", one.tokens, f"at most {most} in {chunks} chunks"
            )
        speeds = {_FASTEST_BULK: one.tokens / whole if whole > 0 else 0}
        speeds[_FASTEST] = one.decode or 0 if decode else 0
        for fastest, speed in speeds.items():
            if speed > fastest:
                raise _not_counted("tokens a second", round(speed), f"at most {fastest:g}")


def require_counts(counts: Mapping[str, object], limits: Mapping[str, float]) -> None:
    """Raise StreamError for a count that is no whole number, below 0 or above its limit."""
    for key, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise _not_counted(key, value, "a whole number")
        if not 0 <= value <= limits[key]:
            raise _not_counted(key, value, f"at least 0 and at most {limits[key]:g}")


def _not_counted(field: str, value: object, limit: str) -> StreamError:
    return StreamError(
        f"The server does not count: {field} is {cut(repr(value), _SHOWN)}, expected {limit}; "
        "correct the server, or measure it by a path that does not change its numbers."
    )


class StreamReader:
    """What the events of one stream have reported so far; came is as in an Answer."""

    def __init__(self, path: str, most: float = math.inf, *, keeps_text: bool = False) -> None:
        """Begin a stream of a path, which errors name; most: tokens asked for; else as of `ask`."""
        self._most, self._keeps_text = most, keeps_text
        self.came: list[float] = []
        self._texts: list[str] = []
        self._characters = 0
        self._path = path
        self._rest = b""
        self._finish = ""
        self._ended = False
        self._usage: Mapping[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._model = ""

    def feed(self, data: bytes, moment: float) -> None:
        """Take the next bytes of the stream, read at a moment; raises StreamError.

        Lines end with LF or CRLF only: httpx's own aiter_lines splits at U+2028 and others too,
        which JSON may hold as they are.
        """
        if self._ended:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._read(line.decode(errors="replace").rstrip("\r"), moment)
        if len(self._rest) > _LINE_LIMIT:
            self._read(self._rest.decode(errors="replace"), moment)

    def _read(self, line: str, moment: float) -> None:
        if self._ended or not line or line.startswith(_IGNORED):
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
        except _NO_EVENT:
            raise StreamError(
                f"The endpoint streamed what is no event of {self._path}: {cut(line, _QUOTED)!r}."
            ) from None

    def answer(self, sent: float, ended: float = math.inf, asked: float = math.inf) -> Answer:
        """The whole answer; raises StreamError when something is missing, or is impossible.

        sent: when the request was; ended: when its answer had come. asked: characters of the
        request.
        """
        self.feed(b"\n", sent)
        chunks = len(self.came)
        if not (self._ended or self._finish):
            raise StreamError(f"The endpoint closed its stream after {chunks} chunks, unfinished.")
        if not chunks:
            raise StreamError("The endpoint's stream ended without any text.")
        usage, timings = self._usage, self._timings
        require_possible(usage, timings, self._most, asked, ended - sent, self._fastest())
        details = usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens", timings.get("cache_n"))
        tokens = usage.get("completion_tokens", chunks)
        if tokens > self._most:
            raise _not_counted("chunks with text", tokens, f"at most {self._most:g} without usage")
        if tokens * 2 + _FEW < chunks:
            raise _not_counted("completion_tokens", tokens, f"about {chunks}, as chunks came")
        return Answer(
            sent=sent,
            came=tuple(self.came),
            prompt_tokens=usage.get("prompt_tokens"),
            tokens=tokens,
            cached_tokens=cached,
            finish=self._finish,
            timings={
                key: round(float(value), 4)
                for key, value in timings.items()
                if isinstance(value, int | float) and abs(value) <= _LARGEST
            },
            text="".join(self._texts),
            model=self._model,
        )

    def _fastest(self) -> float:
        """Tokens a second that a server can have made, by how far apart their chunks came.

        By the median, which a client that stood still once does not change.
        """
        gaps = sorted(later - earlier for earlier, later in pairwise(self.came))
        if not gaps:
            return _LARGEST  # llama-server's speed of one token is any
        gap = gaps[len(gaps) // 2] if len(gaps) >= _FEW_GAPS else 0.0
        tokens = self._usage.get("completion_tokens")
        each = max(1.0, tokens / len(self.came)) if isinstance(tokens, int) else 1.0
        return min(_FASTEST, _FASTER * each / gap) if gap > 0 else _FASTEST

    def _take(self, event: Mapping[str, Any], moment: float) -> None:
        model = cut(str(event.get("model") or self._model), _NAME_CHARACTERS)
        if self._model not in ("", model):
            raise StreamError(
                f"The endpoint's stream begins as of the model {self._model!r} and goes on as of "
                f"{model!r}; ask a server that answers by one model."
            )
        self._model = model
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if choice.get("text") or any(delta.get(name) for name in MESSAGE_TEXTS):
                self.came.append(moment)
                text = str(choice.get("text") or delta.get("content") or "")
                self._characters += len(text)
                self._texts += [text] if self._keeps_text else []
            self._finish = cut(str(choice.get("finish_reason") or self._finish), _NAME_CHARACTERS)
        if usage := event.get("usage"):
            details = _short(usage.get("prompt_tokens_details") or {}, ("cached_tokens",))
            self._usage = {**_short(usage, _COUNTS), "prompt_tokens_details": details}
        self._timings |= _short(event.get("timings") or {}, _FIGURES)
        most = (self._most + _FEW) * TOKEN_CHARACTERS
        if self._characters > most:
            raise _not_counted("characters of text", self._characters, f"at most {most:g}")
        if len(self.came) > self._most + _FEW:
            asked = f"at most {self._most:g}, as max_tokens asked for"
            raise _not_counted("chunks with text", len(self.came), asked)


def _short(document: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """What a document has of some keys: numbers, and what is none as a text to be refused."""
    return {
        key: value if isinstance(value, int | float | None) else cut(str(value), _SHOWN)
        for key, value in dict(document).items()
        if key in keys
    }


def _message(text: str) -> str:
    """The message of an error in JSON, else the text, quoted."""
    try:
        return _words(json.loads(text))
    except (ValueError, RecursionError):
        return repr(cut(" ".join(text.split()), _QUOTED) or "nothing")


def _words(event: object) -> str:
    error = event.get("error", event) if isinstance(event, dict) else event
    words = error.get("message", error) if isinstance(error, dict) else error
    return repr(cut(str(words), _QUOTED))
