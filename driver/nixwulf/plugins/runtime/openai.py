"""An engine's OpenAI-compatible server: reached over ssh, asked under the run's clocks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.core import web
from nixwulf.core.secrets import cut
from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.logprobs import TOP, Completions
from nixwulf.plugins.runtime.openai_stream import other_model
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure, failure_of

if TYPE_CHECKING:
    import httpx

GREEDY = "The quick brown fox jumps over the lazy dog."
"""The prompt whose continuation shows whether an engine's text is right."""
_BASE_URL = "http://head"
# Tokens of a slot beyond prompt and generation: what a server adds to a short prompt by itself.
_MARGIN = 128
_MOST_WORDS = 300
_HEALTH_S = 5.0
_LEAST_S = 0.1


@dataclass(frozen=True)
class Demand:
    """What a case asks of a server: requests in flight at once, and tokens that each may have.

    cache: whether what a slot has computed is kept for a prompt that begins alike.
    """

    slots: int
    context: int
    cache: bool = False


def demand(case: Case) -> Demand:
    """The demand of a case's parameters; of a benchmark that has no such ones, a small one."""
    values = case.parameters
    cache = "turns" in values or values.get("depth", 0) > 0
    return Demand(values.get("concurrency", 1), context(values), cache)


def context(parameters: Mapping[str, Any]) -> int:
    """Tokens that a server keeps of one request, or of one session when its last turn has ended."""
    return longest_request(parameters) + _MARGIN * int(parameters.get("turns", 1))


def longest_request(parameters: Mapping[str, Any]) -> int:
    """Tokens of the longest request of a case with its answer, nothing that a server adds."""
    once = sum(parameters.get(key, 0) for key in ("n_prompt", "depth", "system"))
    turns = parameters.get("turns", 1)
    each = parameters.get("message", 0) + parameters.get("n_gen", 0)
    tools = parameters.get("insertion", 0) * (turns // parameters.get("every", 1))
    return int(once + turns * each + tools)


class Declined(RunFailure):
    """A server that answered a request with an HTTP status that is no success."""

    def __init__(self, reason: str, status: int) -> None:
        """Keep the status beside the sentence."""
        super().__init__("failed", reason)
        self.status = status


@dataclass(frozen=True)
class Endpoint:
    """A server of a run: a Unix socket here, forwarded by ssh, so that no port of the head is open.

    model: the name that requests give. server: the process whose end ends the run; None: the run
    did not start it, so that nothing is known of its end but that it does not answer. base_url:
    what stands before the paths; of https its host is held against the certificate. headers: of
    each request. answers_as: the name of a model that its answers may give alone; empty: any.
    """

    run: Run
    socket: Path
    model: str
    server: OwnedProcess | None
    base_url: str = _BASE_URL
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    answers_as: str = ""

    def async_client(self) -> httpx.AsyncClient:
        """A client of the server, without a limit in time; its requests give paths."""
        return web.client(self.base_url, self.socket, self.headers)

    def post(self, path: str, request: Mapping[str, Any]) -> Any:
        """The JSON that the server answers to a request.

        Raises:
            Declined: It refused.
            RunFailure: The server ended, a clock of the run ran out, or another model answered.
        """
        answer = self._answer("POST", path, request)
        if isinstance(answer, dict) and (problem := other_model(self.answers_as, answer)):
            raise RunFailure("failed", problem)
        return answer

    def get(self, path: str) -> Any:
        """The JSON that the server answers to GET of a path; raises RunFailure as `post` does."""
        return self._answer("GET", path, None)

    def _answer(self, method: str, path: str, request: Mapping[str, Any] | None) -> Any:
        answers: list[Any] = []
        errors: list[str] = []
        refusals: list[int] = []
        seconds = max(_LEAST_S, self.run.deadline - time.monotonic())

        def ask() -> None:
            try:
                client = self.async_client()
                reply = web.fetch(client, method, path, seconds, web.LONGEST, json=request)
                if reply.ok and (found := reply.json) is not None:
                    answers.append(found)
                else:
                    words = cut(" ".join(reply.text.split()), _MOST_WORDS)
                    refusals.extend([] if reply.ok else [reply.status])
                    errors.append(f"{reply.status} {words}".rstrip())
            except Exception as error:  # whatever came: nobody else hears of it in this thread
                errors.append(str(error).rstrip(".") or type(error).__name__)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        clocks = Clocks(self.run, self.server)
        while asking.is_alive():
            asking.join(timeout=0.05)
            self.require_running()
            clocks.check()
        if errors:
            reason = f"{self._program!r} did not answer {path!r}: {errors[0]}."
            raise Declined(reason, refusals[0]) if refusals else RunFailure("failed", reason)
        return answers[0]

    def greedy(self, count: int) -> dict[str, Any]:
        """A request to /v1/completions for the tokens that the sanity check compares."""
        return {**self._fixed, "prompt": GREEDY, "max_tokens": count}

    def completions(self, context: int, **wanted: Any) -> Completions:
        """What continues prompts with log-probabilities.

        context: tokens that the server has room for; 0 where it does not tokenize. wanted: how it
        is asked for log-probabilities, if not by their count.
        """
        return Completions(self.post, self._fixed, context, wanted or {"logprobs": TOP})

    @property
    def _fixed(self) -> dict[str, Any]:
        return {"model": self.model, "temperature": 0, "seed": self.run.case.seed}

    def wait_until_healthy(self, path: str = "/health", hopeless: int | None = None) -> None:
        """Wait until GET of a path succeeds; raises RunFailure when the server ends or hangs first.

        hopeless: the status of a server that answers and will never be healthy.
        """
        clocks = Clocks(self.run, self.server)
        while True:
            seconds = min(_HEALTH_S, max(_LEAST_S, self.run.deadline - time.monotonic()))
            with contextlib.suppress(web.NoAnswer):
                answer = web.fetch(self.async_client(), "GET", path, seconds, 0, head=True)
                if answer.ok:
                    break
                if answer.status == hopeless:
                    words = self.server.last_line() if self.server else "it answers so"
                    raise RunFailure("failed", f"{self._program!r} does not work: {words}")
            self.require_running()
            clocks.check()
            time.sleep(0.05)
        self.run.prove_from_here()

    def require_running(self) -> None:
        """Raise RunFailure when the server, or what serves it on the other nodes, has ended."""
        if self.server and not self.server.running:
            raise failure_of(self.server, repr(self._program))
        if any(p.background and not p.running and not p.stopped_by_driver for p in self.run.owned):
            raise RunFailure("failed", f"{self._program!r} lost a node.")

    @property
    def _program(self) -> str:
        return self.server.program if self.server else self.base_url
