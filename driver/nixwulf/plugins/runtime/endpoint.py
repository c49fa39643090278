"""An OpenAI-compatible server of an engine, as the driver reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.runtime.case import Case

if TYPE_CHECKING:
    import httpx

_BASE_URL = "http://head"
# Tokens of a slot beyond prompt and generation: what a server adds to a short prompt by itself.
MARGIN = 128


@dataclass(frozen=True)
class Demand:
    """What a case asks of a server: requests in flight at once, and tokens that each may have."""

    slots: int
    context: int


def demand(case: Case) -> Demand:
    """The demand of a case's parameters; of a benchmark that has no such ones, a small one."""
    values = case.parameters
    tokens = values.get("n_prompt", 0) + values.get("n_gen", 0) + MARGIN
    return Demand(values.get("concurrency", 1), tokens)


@dataclass(frozen=True)
class Endpoint:
    """A local Unix socket that ssh forwards to the server, so that no port is open on the head.

    model: the name that requests give; server: the process whose end ends the run.
    """

    socket: Path
    model: str
    server: OwnedProcess

    def client(self) -> httpx.Client:
        """A client of the server; its requests give paths."""
        import httpx

        transport = httpx.HTTPTransport(uds=str(self.socket))
        return httpx.Client(transport=transport, base_url=_BASE_URL)

    def async_client(self) -> httpx.AsyncClient:
        """A client for many requests at once, without a time limit: the run's clocks are that."""
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket), limits=limits)
        return httpx.AsyncClient(
            transport=transport,
            base_url=_BASE_URL,
            timeout=None,  # noqa: S113 - the clocks of the run
        )
