"""exo: one program a node, which find each other; models are placed through its HTTP API.

exo's HTTP API, each request as data and what its answers say; and how its nodes find each other.

Of v1.0.71 and of b5375f8 alike: https://github.com/exo-explore/exo/blob/b5375f8/docs/api.md and
src/exo/api there. What they print is in tests/fixtures/exo and exo-lab.

The version cannot tell which of zenoh and libp2p they use: it is 0.3.70 in v1.0.71, which has
libp2p, and in https://github.com/exo-explore/exo/commit/09f9ea3, which has zenoh, and after it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from nixwulf.core import web
from nixwulf.core.secrets import cut
from nixwulf.inventory.fabrics import TCP, UDP
from nixwulf.nodes.ssh import Connection, each
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.engines.mlx import Mlx, ranks
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, post, serving
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import Case, OverCables
from nixwulf.plugins.runtime.openai import GREEDY, Endpoint
from nixwulf.plugins.runtime.run import Clocks, Run, RunFailure

_SHARDING = {"single": "Pipeline", "pipeline": "Pipeline", "tensor": "Tensor"}
_META = {None: "MlxRing", "tcp": "MlxRing", "rdma": "MlxJaccl"}
# exo's defaults where it has one: what nodes exchange over TCP, and how they find each other over
# UDP (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/main.py). v1.0.71 takes any free TCP
# port, which no firewall rule can name, and finds nodes by mDNS.
PEER_PORT, _DISCOVERY_PORT = TCP["exo"], UDP["exo"]
# Of a ring: a part's own place, and that of a part that is no neighbour
# (https://github.com/exo-explore/exo/blob/b5375f8/src/exo/master/placement_utils.py).
_NO_HOSTS = ("0.0.0.0", "198.51.100.1")  # noqa: S104 - nothing listens by it
HELP = '"$1" --help 2>&1 || true'
NAMESPACE = "EXO_LIBP2P_NAMESPACE"


@dataclass(frozen=True)
class ExoRequest:
    """A request, its body as JSON."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Instance:
    """A placed model: its ids, and that of its part on each node."""

    id: str
    model: str
    runners: Mapping[str, str]


NODES = ExoRequest("GET", "/state/topology/nodes")
INSTANCES = ExoRequest("GET", "/state/instances")
RUNNERS = ExoRequest("GET", "/state/runners")
DOWNLOADS = ExoRequest("GET", "/state/downloads")
NETWORKS = ExoRequest("GET", "/state/nodeNetwork")
# Paths below /state came with commit c6c5a3e.
TOO_OLD = (
    f"exo has no {NODES.method} {NODES.path}, which v1.0.70 and later have; install v1.0.71, or "
    "commit 09f9ea3 or a later one, on all nodes."
)


def previews(model: str) -> ExoRequest:
    """What placements are possible."""
    return ExoRequest("GET", "/instance/previews", query={"model_id": model})


def placement(model: str, parallelism: str | None, transport: str | None, nodes: int) -> ExoRequest:
    """The request that places a model.

    parallelism: "single", "pipeline" or "tensor". transport: "tcp" or "rdma"; None on one node.
    """
    body = {"model_id": model, **_split(parallelism, transport, nodes)}
    return ExoRequest("POST", "/place_instance", body)


def greedy(model: str, seed: int, count: int) -> ExoRequest:
    """A chat whose answer has as many tokens as counted, with their texts."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": GREEDY}],
        "max_tokens": count,
        "temperature": 0,
        "seed": seed,
        "logprobs": True,
        "stream": False,
    }
    return ExoRequest("POST", "/v1/chat/completions", body)


def deletion(instance: str) -> ExoRequest:
    """Take a model off the nodes."""
    return ExoRequest("DELETE", f"/instance/{instance}")


def require_placement(model: str, case: Case, answer: Any) -> Mapping[str, Any]:
    """The instance of the preview that a case asks for.

    Raises RunFailure: there is no such preview, with exo's reason where it gives one.
    """
    wanted = _split(case.parallelism, case.transport, case.nodes)
    reason = ""
    try:
        for preview in answer["previews"]:
            if all(preview[key] == wanted[key] for key in ("sharding", "instance_meta")):
                placed = preview.get("instance")
                if placed and len(_read(placed).runners) == case.nodes:
                    return dict(placed)
                reason = preview.get("error") or reason
    except (KeyError, TypeError, AttributeError, StopIteration):
        raise RunFailure(f"exo previewed no placements: {cut(str(answer), 200)}.") from None
    how = f"{wanted['sharding']}, {wanted['instance_meta']} on {case.nodes} nodes"
    reason = reason or "it offers no such placement"
    raise RunFailure(f"exo cannot place {model!r} as {how}: {reason}.")


def creation(
    previewed: Mapping[str, Any],
    answer: Any,
    known: Mapping[str, str],
    meets: Callable[[str, str], str],
) -> ExoRequest:
    """The request that makes a previewed ring with the driver's addresses in place of exo's.

    Args:
        answer: of NETWORKS.
        known: the names of the cluster's nodes by each of their addresses.
        meets: the address at which the first of two nodes reaches the second.

    Raises RunFailure: a node of exo has no address that the cluster file has.
    """
    kind, inner = next(iter(previewed.items()))
    names: dict[str, str] = {}
    for node in inner["hostsByNode"]:
        faces = answer.get(node, {}).get("interfaces", ())
        name = next((known[one["ipAddress"]] for one in faces if one["ipAddress"] in known), None)
        if name is None:
            raise RunFailure(
                f"exo's node {node!r} has no address of the cluster file: {cut(str(faces), 200)}."
            )
        names[node] = name
    # A part's own place in its list is its rank.
    ranks = {[one["ip"] for one in ring].index(_NO_HOSTS[0]): names[node]
             for node, ring in inner["hostsByNode"].items()}  # fmt: skip
    hosts = {
        node: [
            one if one["ip"] in _NO_HOSTS else {**one, "ip": meets(names[node], ranks[rank])}
            for rank, one in enumerate(ring)
        ]
        for node, ring in inner["hostsByNode"].items()
    }
    return ExoRequest("POST", "/instance", {"instance": {kind: {**inner, "hostsByNode": hosts}}})


def placed_instance(model: str, before: Collection[str], answer: Any) -> Instance:
    """The instance of a model that is new among the instances of exo.

    Raises RunFailure: there is none.
    """
    try:
        for id_, instance in answer.items():
            found = _read(instance)
            if id_ not in before and found.model == model:
                return found
    except (KeyError, TypeError, AttributeError, StopIteration):
        raise RunFailure(f"exo listed no instances: {cut(str(answer), 200)}.") from None
    reason = f"exo took the request to place {model!r} and did not place it; read the head's log."
    raise RunFailure(reason)


def download_problem(instance: Instance, answer: Any) -> str | None:
    """Why a node cannot have the files of an instance's model, or None."""
    for node in instance.runners:
        for status in answer.get(node, ()):
            if not (failed := status.get("DownloadFailed")):
                continue
            (shard,) = failed["shardMetadata"].values()  # its kind is the one key around it
            if shard["modelCard"]["modelId"] == instance.model:
                folder = failed.get("modelDirectory")
                return (
                    f"exo lacks the model on a node: {failed['errorMessage']}; put its files, or a "
                    f"link to their folder, at {folder!r} there."
                )
    return None


def states(instance: Instance, answer: Any) -> str:
    """The states of an instance's parts, in words."""
    known = (answer.get(runner) or {"unknown": None} for runner in instance.runners.values())
    return ", ".join(next(iter(state)) for state in known)


def is_ready(instance: Instance, answer: Any) -> bool:
    """Whether all parts of an instance are loaded; raises RunFailure when one has failed."""
    states = [answer.get(runner, {}) for runner in instance.runners.values()]
    for state in states:
        if "RunnerFailed" in state:
            failed = state["RunnerFailed"]
            causes = [cause["message"] for kind in failed.get("diagnostics", ())
                      for cause in kind.values()]  # fmt: skip
            words = "; ".join([failed.get("errorMessage") or "it gives no reason", *causes])
            raise RunFailure(f"A part of the model failed on a node of exo: {words}.")
    return all("RunnerReady" in state or "RunnerRunning" in state for state in states)


def tokens(answer: Any) -> list[str]:
    """The texts of a chat's tokens; raises RunFailure."""
    try:
        return [str(part["token"]) for part in answer["choices"][0]["logprobs"]["content"]]
    except (KeyError, IndexError, TypeError):
        raise RunFailure(f"exo answered no tokens: {cut(str(answer), 200)}.") from None


def _split(parallelism: str | None, transport: str | None, nodes: int) -> dict[str, Any]:
    return {
        "sharding": _SHARDING[parallelism or ""],
        "instance_meta": _META[transport],
        "min_nodes": nodes,
    }


def _read(instance: Mapping[str, Any]) -> Instance:
    """An instance; its kind is the one key around it."""
    inner = next(iter(instance.values()))
    shards = inner["shardAssignments"]
    return Instance(str(inner["instanceId"]), shards["modelId"], shards["nodeToRunner"])


@dataclass(frozen=True)
class Network:
    """What a node is started with for one of the two."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def network(texts: Mapping[str, str], namespace: str) -> Network:
    """The network that the nodes have in common, alone in a namespace.

    texts: what `exo --help` prints, by the name of the node. Raises RunFailure unsupported where
    there is none, or where the nodes have different releases.
    """
    offered = {node: frozenset(re.findall(r"--[a-z][\w-]+", text)) for node, text in texts.items()}
    first, flags = next(iter(offered.items()))
    for node, others in offered.items():
        # Messages of two releases need not fit: exo refuses fields that it does not know.
        if others != flags:
            differs = sorted(flags ^ others)[0]
            having, lacking = (first, node) if differs in flags else (node, first)
            raise RunFailure(
                f"'exo --help' has {differs!r} on node {having!r} and not on node {lacking!r}: "
                "different releases of exo, of which all may say 0.3.70, do not meet; install one "
                "commit on all nodes.",
                "unsupported",
            )
    if {"--namespace", "--zenoh-port", "--discovery-port"} <= flags:
        ports = ("--zenoh-port", str(PEER_PORT), "--discovery-port", str(_DISCOVERY_PORT))
        return Network(("--namespace", namespace, *ports), {})
    if "--libp2p-port" in flags:
        return Network(("--libp2p-port", str(PEER_PORT)), {NAMESPACE: namespace})
    last = texts[first].strip().rpartition("\n")[2]
    raise RunFailure(
        f"'exo --help' on node {first!r} has neither '--zenoh-port' nor '--libp2p-port', and ends "
        f"with {cut(last, 200)!r}; install v1.0.71, or commit 09f9ea3 or a later one.",
        "unsupported",
    )


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
    programs = ("exo",)
    packages = ("exo", "mlx", "mlx-lm")  # it has no option that prints its version
    lacking = (
        "exo is not on PATH (PyPI's 'exo' is another project); install it as "
        "https://github.com/exo-explore/exo says, and put 'exo' on PATH."
    )
    ports = (_API_PORT, PEER_PORT)
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
        joined = network(_help(run), f"nixwulf-{run.name}")
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
                    found = _ask(endpoint, NODES)
                except RunFailure as failure:  # else it does not answer yet
                    if failure.outcome == "unsupported":
                        raise

    def greedy_tokens(self, run: Run, count: int) -> list[str]:
        """The texts of the tokens of a chat."""
        with self.endpoint(run) as endpoint:
            request = greedy(run.model, run.case.seed, count)
            return tokens(endpoint.post(request.path, dict(request.body or {})))

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """The head's API with the model placed on the case's nodes, and removed at the end."""
        with _api(run) as endpoint:
            model, case = run.model, run.case
            previewed = _settled(
                endpoint,
                previews(model),
                lambda answer: require_placement(model, case, answer),
            )
            before = frozenset(_ask(endpoint, INSTANCES))
            if run.fabric and case.transport == "tcp":
                request = _on_fabric(run, previewed, _ask(endpoint, NETWORKS))
            else:
                request = placement(model, case.parallelism, case.transport, case.nodes)
            _ask(endpoint, request)
            instance = _settled(
                endpoint, INSTANCES, lambda answer: placed_instance(model, before, answer)
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
                environment[NAMESPACE] = "nixwulf"
            servers.append(replace(one, argv=tuple(argv), environment=environment))
        servers.sort(key=lambda one: "--force-master" in one.argv)
        model, case = str(run.record["model"]["hub"]), run.case
        placed = placement(model, case["parallelism"], case.get("transport"), case["nodes"])
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

    return creation(previewed, networks, known, meets)


def _help(run: Run) -> dict[str, str]:
    """What `exo --help` prints, by the name of the node."""
    printed = each(lambda node: run.output(node, HELP, run.program("exo", node)), run.nodes)
    return dict(zip((node.node.name for node in run.nodes), printed, strict=True))


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
    while not is_ready(instance, runners := _ask(endpoint, RUNNERS)):
        if time.monotonic() > asked:
            lacking = download_problem(instance, _ask(endpoint, DOWNLOADS))
            if lacking is not None:
                raise RunFailure(lacking)
            asked = time.monotonic() + _DOWNLOADS_S
        # After five tries exo takes an instance off that cannot be loaded.
        if instance.id not in _ask(endpoint, INSTANCES):
            raise RunFailure(f"exo gave up loading {instance.model!r}; read the logs.")
        endpoint.require_running()
        try:
            clocks.check()
        except RunFailure as failure:
            reason = f"{failure} exo's parts of the model: {states(instance, runners)}."
            raise RunFailure(reason, failure.outcome) from None
        time.sleep(_POLL_S)


def _remove(endpoint: Endpoint, instance: Instance) -> None:
    """Take the model off and see it gone, or the next one has less memory; exo may have ended."""
    limit = time.monotonic() + _REMOVE_S
    with suppress(RunFailure):
        _ask(endpoint, deletion(instance.id))
        while instance.id in _ask(endpoint, INSTANCES) and time.monotonic() < limit:
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
        if request == NODES and answer.status == web.NOT_FOUND:
            raise RunFailure(TOO_OLD, "unsupported")
        if answer.ok and answer.json is not None:
            return answer.json
        words = answer.text
    words = cut(" ".join(words.split()), 300)
    raise RunFailure(f"exo did not answer {request.method} {request.path}: {words}.")
