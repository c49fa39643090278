"""exo: one program a node, which find each other; models are placed through its HTTP API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nixwulf import asking
from nixwulf.endpoint import Endpoint
from nixwulf.engines import Engine, exo_api, python_versions
from nixwulf.engines.exo_api import Instance, Request
from nixwulf.engines.mlx_devices import rdma_problem
from nixwulf.errors import InputError
from nixwulf.models.random_model import RandomModel
from nixwulf.run import Clocks, Run, RunFailure
from nixwulf.ssh import Connection

# Its defaults (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/main.py): the API, what
# nodes exchange, and over UDP how they find each other.
_API_PORT, _PEER_PORT, _DISCOVERY_PORT = 52415, 52414, 52413
# Nodes tell each other their memory a while after they have met; before, nothing can be placed.
_SETTLE_S = 60.0
_REMOVE_S = 10.0
_POLL_S = 0.2
# Offline: what is not on the nodes fails at once, and is not downloaded inside a run.
ENVIRONMENT = {"EXO_OFFLINE": "true", "PYTHONUNBUFFERED": "1"}


class Exo(Engine):
    """exo, which runs MLX."""

    name = "exo"
    programs = ("exo",)
    lacking = (
        "exo is not on PATH (PyPI's 'exo' is another project); install it as "
        "https://github.com/exo-explore/exo says, and put 'exo' on PATH."
    )
    ports = (_API_PORT, _PEER_PORT)
    model_on_every_node = True
    hub_models = True
    gpus = ("apple",)
    # Its mlx_distributed_init: an MlxJacclInstance initialises jaccl strictly.
    rdma_known_by = (
        "exo was asked for an instance of MlxJaccl, which starts MLX with jaccl or not at all"
    )

    def random_model(self, model: RandomModel) -> Path:
        """None: it takes models by their names; raises InputError."""
        raise InputError("exo runs no random weights; give the model an id in the sweep.")

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Random weights, the API that it does not have, and RDMA that MLX's jaccl is not for."""
        if point.get("random") is not None:
            return "exo takes a model by its name on Hugging Face, not random weights"
        if point["benchmark"] == "serve" and point["parameters"].get("api") != "chat":
            return "exo answers chat only; give the parameter api: [chat]"
        return rdma_problem(point)

    def version_command(self, programs: Mapping[str, str]) -> list[str]:
        """It has no option that tells it."""
        return python_versions.command(programs.get("exo"), "exo", "mlx", "mlx-lm")

    def start(self, run: Run) -> None:
        """Start it on every node, alone in a namespace, and wait until all have met."""
        run.engine_facts["origin"] = run.program("exo")
        if run.model.startswith("/"):
            reason = f"exo takes no folder such as {run.model!r}; give the model an id instead."
            raise RunFailure("unsupported", reason)
        for node in run.nodes:
            worker = node is not run.head
            run.start(node, "exo", argv(run, node), ENVIRONMENT, background=worker)
        with _api(run) as endpoint:
            _wait_for(run, endpoint, exo_api.NODES, lambda found: len(found) >= run.case.nodes)

    def greedy_tokens(self, run: Run, count: int) -> list[str]:
        """The texts of the tokens of a chat."""
        with self.endpoint(run) as endpoint:
            request = exo_api.greedy(run.model, run.case.seed, count)
            return exo_api.tokens(
                asking.post(run, endpoint, request.path, dict(request.body or {}))
            )

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """The head's API with the model placed on the case's nodes, and removed at the end."""
        with _api(run) as endpoint:
            _wait_until_possible(run, endpoint)
            _ask(endpoint, exo_api.placement(run.model, run.case))
            instance = _placed(run, endpoint)
            try:
                for runner in instance.runners:
                    state = exo_api.runner_state(runner)
                    _wait_for(run, endpoint, state, exo_api.runner_is_ready)
                yield endpoint
            finally:
                _remove(endpoint, instance)


ENGINE = Exo()


def argv(run: Run, node: Connection) -> list[str]:
    """A node's command line: the head answers and leads; the namespace is the run's own.

    EXO_LIBP2P_NAMESPACE, which earlier versions read, ends version 0.3.70.
    """
    role = ["--force-master"] if node is run.head else ["--no-api"]
    ports = ["--zenoh-port", str(_PEER_PORT), "--discovery-port", str(_DISCOVERY_PORT)]
    program = run.facts[node.node.name].programs["exo"]
    return [program, *role, "--namespace", f"nixwulf-{run.name}", *ports]


@contextmanager
def _api(run: Run) -> Iterator[Endpoint]:
    """The API of the process on the head."""
    server = next(process for process in run.owned if process.node == run.head.node.name)
    with run.head.forwarded(f"127.0.0.1:{_API_PORT}") as local:
        yield Endpoint(local, run.model, server)


def _wait_until_possible(run: Run, endpoint: Endpoint) -> None:
    """Until exo previews the placement that is asked for; raises RunFailure with its reason."""
    limit = time.monotonic() + _SETTLE_S
    while True:
        found = _ask(endpoint, exo_api.previews(run.model))
        problem = exo_api.placement_problem(run.model, run.case, found)
        if problem is None:
            return
        asking.require_running(run, endpoint)
        if time.monotonic() > min(limit, run.deadline):
            raise RunFailure("failed", problem)
        time.sleep(_POLL_S)


def _placed(run: Run, endpoint: Endpoint) -> Instance:
    """What the stream of the await request ends with; it has comments meanwhile."""
    import httpx

    request = exo_api.awaiting(run.model)
    clocks = Clocks(run, endpoint.server)
    events = ""
    try:
        with (
            endpoint.client() as client,
            client.stream("GET", request.path, params=request.query, timeout=30) as response,
        ):
            for line in response.iter_lines():
                events += line + "\n"
                asking.require_running(run, endpoint)
                clocks.check()
    except httpx.HTTPError as error:
        raise RunFailure("failed", f"exo broke off {request.path}: {error}.") from None
    return exo_api.ready_instance(events)


def _remove(endpoint: Endpoint, instance: Instance) -> None:
    """Take the model off and see it gone, or the next await would find it; exo may have ended."""
    limit = time.monotonic() + _REMOVE_S
    with suppress(RunFailure):
        _ask(endpoint, exo_api.deletion(instance.id))
        while instance.id in _ask(endpoint, exo_api.INSTANCES) and time.monotonic() < limit:
            time.sleep(_POLL_S)


def _wait_for(run: Run, endpoint: Endpoint, request: Request, holds: Callable[[Any], bool]) -> None:
    """Ask again until the answer is as wanted; raises RunFailure when exo ends or a clock does."""
    clocks = Clocks(run, endpoint.server)
    while True:
        answer: Any = []
        with suppress(RunFailure):  # it does not answer yet
            answer = _ask(endpoint, request)
        if holds(answer):
            return
        asking.require_running(run, endpoint)
        clocks.check()
        time.sleep(_POLL_S)


def _ask(endpoint: Endpoint, request: Request) -> Any:
    """The JSON that exo answers; raises RunFailure when it refuses."""
    import httpx

    try:
        with endpoint.client() as client:
            answer = client.request(
                request.method, request.path, params=request.query, json=request.body, timeout=60
            )
            answer.raise_for_status()
            return answer.json()
    except (httpx.HTTPError, ValueError) as error:
        words = " ".join(str(error).split())[:300]
        reason = f"exo did not answer {request.method} {request.path}: {words}."
        raise RunFailure("failed", reason) from None
