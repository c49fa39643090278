"""Answers over HTTP, the only way to them: each is bounded as a whole, whoever sends it.

A limit for each read is none: a server that sends a byte in two seconds held the driver for ever.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from urllib.parse import SplitResult, urlsplit

from nixwulf.core import interrupts
from nixwulf.core.errors import NixwulfError
from nixwulf.core.secrets import cut

if TYPE_CHECKING:
    import httpx

OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 401, 403, 404
_HEADERS = {
    # A compressed stream would come in blocks of many tokens, and 1 MB of gzip became 3.2 GiB.
    "Accept-Encoding": "identity",
    # llama-server (0c1e570) closes after a stream though it says keep-alive: the next request on
    # that connection is lost when it is sent before the close arrives.
    "Connection": "close",
}
_TLS_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
_CHECK_S = 0.1
# The longest, log-probabilities of the 20 likeliest at 4,000 tokens, have so many (llama-server).
# Small objects take 27 times their bytes in Python and 111 bytes for each comma or bracket, wide
# texts 9 times: with both limits no JSON takes more than 200 MB.
LONGEST, _MOST_VALUES = 1 << 23, 1_000_000
_MOST_BYTES = 1 << 22


class NoAnswer(NixwulfError):
    """A missing or cut answer: a clause that says why.

    kind: the error's name for those who know HTTP; sent: whether the request may have arrived.
    """

    def __init__(self, message: str, kind: str = "", *, sent: bool = True) -> None:
        super().__init__(message)
        self.kind = kind or message
        self.sent = sent


@dataclass(frozen=True)
class Reply:
    """A whole answer: its status, its body and its head; no redirect is followed."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Tell whether the status is a success."""
        return OK <= self.status < 300  # noqa: PLR2004

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    @property
    def json(self) -> Any:
        """The body; None of what is no JSON, or has more values than an answer has."""
        if sum(map(self.body.count, (b",", b"[", b"{"))) > _MOST_VALUES:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Incoming:
    """An answer whose head has come; pieces gives its body and raises NoAnswer at the limit."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    async def whole(self) -> Reply:
        """Read all of it; raises NoAnswer."""
        return Reply(self.status, b"".join([one async for one in self.pieces]), self.headers)


def client(
    base_url: str,
    unix: Path | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    proxies: bool = False,
) -> httpx.AsyncClient:
    """A client without a limit in time, which `fetch` or the clocks of a run set.

    TLS is loaded for https alone, as its variables may name files that are not there; raises
    NixwulfError where it cannot be.

    unix: a socket that leads to base_url. proxies: whether by those of the environment; what is
    measured is reached by none.
    """
    import httpx

    verify = tls() if base_url.lower().startswith("https:") else False
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    uds = str(unix) if unix else None
    direct = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, uds=uds, limits=limits)
    return httpx.AsyncClient(
        transport=None if proxies else direct,
        verify=verify,
        base_url=base_url,
        headers={**_HEADERS, **(headers or {})},
        timeout=None,  # noqa: S113 - whole answers have one
        trust_env=proxies,
    )


@cache  # it takes as long as many small files
def tls() -> ssl.SSLContext:
    """Return the TLS context; raises NixwulfError, which names the variables."""
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:
        given = {one: os.environ[one] for one in _TLS_VARIABLES if os.environ.get(one)}
        gone = {one: path for one, path in given.items() if not Path(path).exists()} or given
        raise NixwulfError(
            f"TLS cannot be loaded ({error.strerror or error}), for which the environment names "
            f"{gone}; correct that, or run 'unset {' '.join(gone)}' and the same command again."
        ) from None


class _Loop(asyncio.SelectorEventLoop):
    """A loop that waits for no look-up of a name once it is closed: DNS may take half a minute."""

    async def getaddrinfo(
        self, host: str | bytes | None, port: str | bytes | int | None, **how: int
    ) -> list[Any]:
        found: Future[list[Any]] = Future()

        def look() -> None:
            try:
                found.set_result(socket.getaddrinfo(host, port, **how))
            except Exception as error:  # whatever it is, who waits gets it
                found.set_exception(error)

        found.set_running_or_notify_cancel()  # so it takes an answer that nobody waits for
        threading.Thread(target=look, daemon=True).start()
        return await asyncio.wrap_future(found)


class _Given(TypedDict, total=False):
    json: object
    params: Mapping[str, str] | None


@asynccontextmanager
async def incoming(
    of: httpx.AsyncClient,
    method: str,
    path: str,
    most_bytes: int,
    begun: Mapping[str, object] | None = None,
    **given: Unpack[_Given],
) -> AsyncIterator[Incoming]:
    """The answer to a request, once its head is there; most_bytes of its body; raises NoAnswer."""
    import httpx

    async def pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", ""):
            raise NoAnswer(
                f"its answer is compressed ({cut(encoding, 40)!r}), which was not asked for"
            )
        left = most_bytes
        async for piece in answer.aiter_raw():
            left -= len(piece)
            if left < 0:
                raise NoAnswer(f"more than {most_bytes >> 20} MiB came")
            yield piece

    try:
        async with of.stream(
            method, path, follow_redirects=False, extensions=begun, **given
        ) as answer:
            yield Incoming(answer.status_code, answer.headers, pieces(answer))
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
        kind = type(error).__name__
        unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)
        raise NoAnswer(str(error).rstrip(".") or kind, kind, sent=not unsent) from None


async def receive(of: httpx.AsyncClient, method: str, path: str, **given: Unpack[_Given]) -> Reply:
    """The whole answer to a request, as of `incoming`; raises NoAnswer."""
    async with incoming(of, method, path, _MOST_BYTES, **given) as answer:
        return await answer.whole()


def fetch(
    of: httpx.AsyncClient,
    method: str,
    path: str,
    seconds: float,
    most_bytes: int = _MOST_BYTES,
    *,
    head: bool = False,
    **given: Unpack[_Given],
) -> Reply:
    """The whole answer, waited for here, of a client closed with it; half of `seconds` is to
    connect.

    Raises:
        NoAnswer: there was none in time.
        KeyboardInterrupt: the driver was interrupted.
    """
    begun = {"timeout": {"connect": seconds / 2}}

    async def asked() -> Reply:
        async with of, incoming(of, method, path, most_bytes, begun, **given) as answer:
            return Reply(answer.status, b"", answer.headers) if head else await answer.whole()

    async def in_time() -> Reply:
        asking = asyncio.ensure_future(asked())
        try:
            async with asyncio.timeout(seconds):
                while not asking.done():
                    await asyncio.wait({asking}, timeout=_CHECK_S)
                    interrupts.wait(0)
                return await asking
        finally:
            asking.cancel()

    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            return runner.run(in_time())
    except TimeoutError:
        raise NoAnswer(f"nothing whole in {seconds:.3g} s") from None


def address(text: str) -> SplitResult | None:
    """The parts of an http or https address with a host; None of what is none."""
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if right else None


def host_of(url: str) -> str:
    """The host of an address, as an IP address in its usual form where it is one."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def in_clear(url: str) -> bool:
    """Tell whether what goes to an address crosses a network by http, where anybody reads it."""
    host = host_of(url)
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return urlsplit(url).scheme == "http" and not loopback


def warning(url: str) -> str:
    """A key that crosses a network in clear."""
    return (
        f"The key for {url!r} crosses the network in clear, where anybody on the way reads it; use "
        "https, or a server on the first node."
    )
