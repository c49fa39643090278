"""Asking a started engine's server, under both clocks of the run."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from nixwulf.plugins.runtime import prompts
from nixwulf.plugins.runtime.endpoint import Endpoint
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure


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
        "prompt": prompts.GREEDY,
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
