"""An engine's OpenAI-compatible server: reached over ssh, asked under the run's clocks."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.runtime.run import Case, Clocks, Run, RunFailure

if TYPE_CHECKING:
    import httpx

GREEDY = "The quick brown fox jumps over the lazy dog."
"""What engines go on from for the tokens that tell whether their text is right."""
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


def post(run: Run, endpoint: Endpoint, path: str, request: dict[str, Any]) -> Any:
    """The JSON that a server answers; raises RunFailure when it ends, refuses or says nothing."""
    import httpx

    answers: list[Any] = []
    errors: list[str] = []

    def ask() -> None:
        try:
            with endpoint.client() as client:
                answer = client.post(path, json=request, timeout=None)
            if answer.is_success:
                answers.append(answer.json())
            else:
                errors.append(f"{answer.status_code} {' '.join(answer.text.split())[:300]}")
        except (httpx.HTTPError, ValueError) as error:
            errors.append(str(error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    clocks = Clocks(run, endpoint.server)
    while asking.is_alive():
        asking.join(timeout=0.05)
        require_running(run, endpoint)
        clocks.check()
    if errors:
        raise RunFailure("failed", f"{_program(endpoint)!r} did not answer {path!r}: {errors[0]}.")
    return answers[0]


def greedy(run: Run, model: str, count: int) -> dict[str, Any]:
    """A request to /v1/completions for the tokens that the sanity check compares."""
    return {
        "model": model,
        "prompt": GREEDY,
        "max_tokens": count,
        "temperature": 0,
        "seed": run.case.seed,
    }


def wait_until_healthy(
    run: Run, endpoint: Endpoint, path: str = "/health", hopeless: int | None = None
) -> None:
    """Wait until GET of a path succeeds; raises RunFailure when the server ends or hangs first.

    hopeless: the status of a server that answers and will never be healthy.
    """
    import httpx

    clocks = Clocks(run, endpoint.server)
    with endpoint.client() as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = client.get(path, timeout=5)
                if answer.is_success:
                    return
                if answer.status_code == hopeless:
                    words = endpoint.server.last_line()
                    raise RunFailure("failed", f"{_program(endpoint)!r} does not work: {words}")
            require_running(run, endpoint)
            clocks.check()
            time.sleep(0.05)


def require_running(run: Run, endpoint: Endpoint) -> None:
    """Raise RunFailure when the server, or what serves it on the other nodes, has ended."""
    server = endpoint.server
    if not server.running:
        raise RunFailure(
            "failed", f"{_program(endpoint)!r} {server.ending()}: {server.last_line()}"
        )
    if any(p.background and not p.running and not p.stopped_by_driver for p in run.owned):
        raise RunFailure("failed", f"{_program(endpoint)!r} lost a node.")


def _program(endpoint: Endpoint) -> str:
    return endpoint.server.argv[0].rpartition("/")[2]
