"""An OpenAI-compatible server of an engine, as the driver reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.process import OwnedProcess

if TYPE_CHECKING:
    import httpx


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
        return httpx.Client(transport=transport, base_url="http://head")
