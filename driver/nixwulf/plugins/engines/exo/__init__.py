"""exo: one program a node, which find each other; models are placed through its HTTP API."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from nixwulf.core import web
from nixwulf.core.secrets import cut
from nixwulf.inventory.fabrics import TCP
from nixwulf.nodes.ssh import Connection, each
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.engines.exo import api
from nixwulf.plugins.engines.exo.api import ExoRequest, Instance, Network
from nixwulf.plugins.engines.mlx import Mlx, ranks
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, post, serving
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure

_API_PORT = TCP["exo-api"]
# Nodes exchange their memory a while after they have met; before, nothing can be placed. And
# what the master cannot place it only logs: no instance comes, and no answer reports it.
_SETTLE_S = 60.0
_ASK_S = 60
_REMOVE_S = 10.0
_POLL_S = 0.2
_DOWNLOADS_S = 10.0
# Offline: what is not on the nodes fails at once, and is not downloaded inside a run.
ENVIRONMENT = {"EXO_OFFLINE": "true", "PYTHONUNBUFFERED": "1"}
# Offline it complains once a minute, whatever else goes on: no sign of life of a placement.
_COMPLAINT = re.compile(rb"No internet and no cached file list")

T = TypeVar("T")


class Exo(Engine):
    """exo, which runs MLX.

    Each run is alone in a namespace `nixwulf-RUN`, with `EXO_OFFLINE=true`; the head has
    `--force-master`. Nodes see each other by the APIs, of which each has one. `exo --help` on
    every node shows its release: `--zenoh-port` (commit 09f9ea3 or later) or `--libp2p-port`
    (v1.0.71). Through the API on the head: topology until all have met, previews until the
    placement is possible, then it is placed, with the fabric's addresses where it is a ring (exo
    itself takes any network that nodes share); downloads, runners until each part is ready,
    `DELETE` at the end.

    Models are folders ORG--NAME with their `*.safetensors.index.json` in `~/.exo/models` on a Mac
    and `~/.local/share/exo/models` on Linux, or where the node's `EXO_DEFAULT_MODELS_DIR`,
    `EXO_MODELS_DIRS` or `EXO_MODELS_READ_ONLY_DIRS` say. A model without a card of exo's is looked
    up on the Internet, offline or not.
    """

    name = "exo"
    reserved_variables: ClassVar = {
        **Mlx.reserved_variables,
        "EXO_LIBP2P_NAMESPACE": "the axis nodes",
    }
    programs = ("exo",)
    packages = ("exo", "mlx", "mlx-lm")  # it has no option that prints its version
    lacking = (
        "exo is not on PATH (PyPI's 'exo' is another project); install it as "
        "https://github.com/exo-explore/exo says, and put 'exo' on PATH."
    )
    ports = (_API_PORT, api.PEER_PORT)
    api_port = _API_PORT
    apis = ("chat",)
    performance = Mlx.performance
    splits = Mlx.splits
    model_on_every_node = True
    hub_models = True
    gpus = ("apple",)
    over_cables: ClassVar = {"tcp": OverCables(), "rdma": OverCables()}
    # Its mlx_distributed_init: an MlxJacclInstance initialises jaccl strictly.
    rdma_known_by = (
        "exo was asked for an instance of MlxJaccl, which starts MLX with jaccl or not at all"
    )

    def unsupported(self, point: Mapping[str, object]) -> str | None:
        """Random weights, and RDMA that MLX's jaccl is not for."""
        if point.get("random") is not None:
            return "exo takes a model by its name on Hugging Face, not random weights"
        return super().unsupported(point) or ranks.rdma_problem(point)

    def start(self, run: Run) -> None:
        """Start it on every node, alone in a namespace, and wait until all have met."""
        run.engine_facts["origin"] = program = run.program("exo")
        if run.model.startswith("/"):
            reason = f"exo takes no folder such as {run.model!r}; give the model an id instead."
            raise RunFailure(reason, "unsupported")
        told = run.output(run.head, '"$@" || :', *self.version_command({"exo": program}))
        if told:
            run.engine_facts["version"] = ", ".join(told.replace(" version ", " ").splitlines())
        joined = api.network(_help(run), f"nixwulf-{run.name}")
        ranks.ask(run, self, "exo")
        environment = {**ENVIRONMENT, **joined.environment}
        for node in run.nodes:
            command, worker = argv(run, node, joined), node is not run.head
            started = run.start(node, "exo", command, environment, background=worker)
            started.no_progress = _COMPLAINT
        with _api(run) as endpoint:
            clocks = Clocks(run, endpoint.server)
            found: Any = []
            while len(found) < run.case.nodes:
                endpoint.require_running()
                clocks.check()
                time.sleep(_POLL_S)
                try:
                    found = _ask(endpoint, api.NODES)
                except RunFailure as failure:  # else it does not answer yet
                    if failure.outcome == "unsupported":
                        raise

    def greedy_tokens(self, run: Run, count: int) -> list[str]:
        """The texts of the tokens of a chat."""
        with self.endpoint(run) as endpoint:
            request = api.greedy(run.model, run.case.seed, count)
            return api.tokens(endpoint.post(request.path, dict(request.body or {})))

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """The head's API with the model placed on the case's nodes, and removed at the end."""
        with _api(run) as endpoint:
            model, case = run.model, run.case
            previewed = _settled(
                endpoint,
                api.previews(model),
                lambda answer: api.require_placement(model, case, answer),
            )
            before = frozenset(_ask(endpoint, api.INSTANCES))
            if run.fabric and case.transport == "tcp":
                request = _on_fabric(run, previewed, _ask(endpoint, api.NETWORKS))
            else:
                request = api.placement(model, case.parallelism, case.transport, case.nodes)
            _ask(endpoint, request)
            instance = _settled(
                endpoint, api.INSTANCES, lambda answer: api.placed_instance(model, before, answer)
            )
            try:
                _wait_until_ready(endpoint, instance)
                run.prove_from_here()
                yield endpoint
            finally:
                _remove(endpoint, instance)

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """Nodes meet in a namespace, and the model is placed on them by a request."""
        servers = []
        for one in run.of("exo"):
            argv, environment = list(one.argv), dict(one.environment)
            if "--namespace" in argv:
                argv[argv.index("--namespace") + 1] = "nixwulf"
            else:
                environment[api.NAMESPACE] = "nixwulf"
            servers.append(replace(one, argv=tuple(argv), environment=environment))
        servers.sort(key=lambda one: "--force-master" in one.argv)
        model, case = str(run.record["model"]["hub"]), run.case
        placed = api.placement(model, case["parallelism"], case.get("transport"), case["nodes"])
        found = serving(self, run, servers, model)
        return replace(found, then=(post(_API_PORT, placed.path, placed.body), *found.then))


ENGINE = Exo()


def argv(run: Run, node: Connection, joined: Network) -> list[str]:
    """A node's command line: the head leads. All answer, since exo meets no node that does not.

    An edge of its topology is a peer whose API answers GET /node_id, and nothing else
    (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/worker/main.py).
    """
    role = ["--force-master"] if node is run.head else []
    given = passthrough.arguments(run.case.parameters)
    return [run.program("exo", node), *role, *joined.arguments, *given]


def _on_fabric(run: Run, previewed: Mapping[str, object], networks: object) -> ExoRequest:
    """The request for a ring on the case's fabric: left alone, exo takes any that nodes share."""
    nodes = {node.node.name: node for node in run.nodes}
    known = {end.address: name for name, one in nodes.items() for end in one.node.all_ends}

    def meets(here: str, there: str) -> str:
        return run.end(nodes[there], nodes[here]).address

    return api.creation(previewed, networks, known, meets)


def _help(run: Run) -> dict[str, str]:
    """What `exo --help` prints, by the name of the node."""

    def printed(node: Connection) -> str:
        program = run.program("exo", node)
        return run.output(node, api.HELP, program)

    names = (node.node.name for node in run.nodes)
    return dict(zip(names, each(printed, run.nodes), strict=True))


@contextmanager
def _api(run: Run) -> Iterator[Endpoint]:
    """The API of the process on the head."""
    server = next(process for process in run.owned if process.node == run.head.node.name)
    with run.head.forwarded(f"127.0.0.1:{_API_PORT}") as local:
        yield Endpoint(run, local, run.model, server)


def _settled(endpoint: Endpoint, request: ExoRequest, read: Callable[[Any], T]) -> T:
    """What is read from an answer, asked for until it can be; raises RunFailure why it cannot."""
    limit = min(time.monotonic() + _SETTLE_S, endpoint.run.deadline)
    while True:
        answer = _ask(endpoint, request)
        try:
            return read(answer)
        except RunFailure:
            endpoint.require_running()
            if time.monotonic() > limit:
                raise
        time.sleep(_POLL_S)


def _wait_until_ready(endpoint: Endpoint, instance: Instance) -> None:
    """Until all parts of the model are loaded; raises RunFailure when one cannot be.

    Downloads are asked for where a part does not get on: exo lists every model that it knows.
    """
    clocks = Clocks(endpoint.run, endpoint.server)
    asked = time.monotonic()
    while not api.is_ready(instance, runners := _ask(endpoint, api.RUNNERS)):
        if time.monotonic() > asked:
            lacking = api.download_problem(instance, _ask(endpoint, api.DOWNLOADS))
            if lacking is not None:
                raise RunFailure(lacking)
            asked = time.monotonic() + _DOWNLOADS_S
        # After five tries exo takes an instance off that cannot be loaded.
        if instance.id not in _ask(endpoint, api.INSTANCES):
            raise RunFailure(f"exo gave up loading {instance.model!r}; read the logs.")
        endpoint.require_running()
        try:
            clocks.check()
        except RunFailure as failure:
            reason = f"{failure} exo's parts of the model: {api.states(instance, runners)}."
            raise RunFailure(reason, failure.outcome) from None
        time.sleep(_POLL_S)


def _remove(endpoint: Endpoint, instance: Instance) -> None:
    """Take the model off and see it gone, or the next one has less memory; exo may have ended."""
    limit = time.monotonic() + _REMOVE_S
    with suppress(RunFailure):
        _ask(endpoint, api.deletion(instance.id))
        while instance.id in _ask(endpoint, api.INSTANCES) and time.monotonic() < limit:
            time.sleep(_POLL_S)


def _ask(endpoint: Endpoint, request: ExoRequest) -> Any:
    """The JSON that exo answers; raises RunFailure when it refuses."""
    client, seconds = endpoint.async_client(), endpoint.run.head.limit(_ASK_S)
    try:
        answer = web.fetch(
            client, request.method, request.path, seconds, params=request.query, json=request.body
        )
    except web.NoAnswer as error:
        words = error.message
    else:
        if request == api.NODES and answer.status == web.NOT_FOUND:
            raise RunFailure(api.TOO_OLD, "unsupported")
        if answer.ok and answer.json is not None:
            return answer.json
        words = answer.text
    words = cut(" ".join(words.split()), 300)
    reason = f"exo did not answer {request.method} {request.path}: {words}."
    raise RunFailure(reason)
