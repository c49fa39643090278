"""One request to a server of an engine, under both clocks of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from nixwulf.endpoint import Endpoint
from nixwulf.process import OwnedProcess
from nixwulf.run import Clocks, Run, RunFailure


def ask(
    run: Run,
    endpoint: Endpoint,
    path: str,
    request: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The object that the server answers with; check raises when the run has failed otherwise.

    Raises RunFailure when the server ends, is silent for too long, or answers anything else.
    """
    import httpx

    program = endpoint.server.argv[0].rpartition("/")[2]
    outcome: dict[str, Any] = {}

    def send() -> None:
        try:
            with endpoint.client() as client:
                answer = client.post(path, json=dict(request), timeout=None)
            if answer.is_success:
                outcome["answer"] = answer.json()
            else:
                outcome["error"] = f"status {answer.status_code}, {answer.text[:200]}"
        except (httpx.HTTPError, ValueError) as error:
            outcome["error"] = str(error)

    asking = threading.Thread(target=send, daemon=True)
    asking.start()
    clocks = Clocks(run, endpoint.server)
    while asking.is_alive():
        asking.join(timeout=0.05)
        require_running(endpoint.server)
        check()
        clocks.check()
    answer = outcome.get("answer")
    if not isinstance(answer, dict):
        raise RunFailure("failed", f"{program} did not answer: {outcome.get('error', answer)}.")
    return answer


def require_running(server: OwnedProcess) -> None:
    """Raise RunFailure when a server has ended."""
    if not server.running:
        program = server.argv[0].rpartition("/")[2]
        raise RunFailure("failed", f"{program} {server.ending()}: {server.last_line()}")
