"""How to serve a way: the commands of its record, less what only measured, for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from nixwulf.inventory.cluster import Cluster
from nixwulf.plugins.engines import exo_api, exo_network, mlx_ranks
from nixwulf.plugins.runtime.endpoint import MARGIN
from nixwulf.results.record import Record

# Clients, and programs that answer once.
_ONLY_MEASURE = frozenset({"llama-bench", "iperf3", "mlx_lm.benchmark", "mlx_lm.generate"})
# Caches are off where it is measured, because prompts of a benchmark do not repeat; those of people
# do. The others make logs tell what was used.
_ONLY_WHILE_MEASURING = frozenset(
    {
        "LLAMA_ARG_CACHE_PROMPT",
        "LLAMA_ARG_CACHE_RAM",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
        "RAY_DEDUP_LOGS",
    }
)
_SECRET = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_GROUP_FILES = ("MLX_HOSTFILE", "MLX_IBV_DEVICES")
_GROUP = "/tmp/nixwulf-mlx.json"  # noqa: S108 - on the nodes
_JSON = "-H 'Content-Type: application/json' -d"


@dataclass(frozen=True)
class Started:
    """A program as a record has it, or one to be started."""

    node: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def program(self) -> str:
        """Its name without its place."""
        return PurePosixPath(self.argv[0]).name

    @property
    def line(self) -> str:
        """As a shell takes it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join([*(["env", *variables] if variables else []), *self.argv])


@dataclass(frozen=True)
class Written:
    """A file on a node."""

    node: str
    path: str
    text: str


@dataclass(frozen=True)
class Serving:
    """What starts on the nodes, in order; the last one of the head answers there on its loopback.

    before: files that they read; then: what is typed on one's own machine, where the head's port
    is; notes: what to know, as sentences.
    """

    head: str
    servers: tuple[Started, ...]
    port: int
    then: tuple[str, ...]
    before: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredOption:
    """A way that was measured; slots: requests at once.

    started: the last of each program on each node, for those before gave the text to compare with.
    """

    record: Record
    cluster: Cluster
    slots: int
    started: tuple[Started, ...]

    @property
    def case(self) -> Mapping[str, Any]:
        """Of its record."""
        return dict(self.record["case"])

    @property
    def fabric(self) -> str:
        """What it crosses, empty on one node."""
        return str(self.case.get("fabric") or "")

    @property
    def head(self) -> str:
        """The node that answers: the first that is on its fabric."""
        nodes = self.cluster.nodes_on(self.fabric) if self.fabric else self.cluster.nodes
        return nodes[0].name

    def of(self, *programs: str) -> tuple[Started, ...]:
        """What was started of some programs."""
        return tuple(one for one in self.started if one.program in programs)


def serving(record: Record, cluster: Cluster, slots: int) -> Serving:
    """How to serve a measured way with room for so many requests at once."""
    found: dict[tuple[str, str], Started] = {}
    for entry in record["commands"]:
        environment = {
            name: "SECRET" if name == _SECRET else value
            for name, value in entry.get("environment", {}).items()
            if name not in _ONLY_WHILE_MEASURING
        }
        one = Started(entry["node"], tuple(entry["argv"]), environment)
        if not _only_measures(one):
            found.pop((one.node, one.program), None)
            found[one.node, one.program] = one
    way = MeasuredOption(record, cluster, slots, tuple(found.values()))
    return SERVED[way.case["engine"]](way)


def _only_measures(one: Started) -> bool:
    names = {PurePosixPath(word).name for word in one.argv[:3]}
    return bool(_ONLY_MEASURE & names) or one.argv[1:2] == ("bench",)


def _llama_cpp(way: MeasuredOption) -> Serving:
    """A run has it listen on a socket of its own, with room for a few tokens."""
    parameters = way.case["parameters"]
    room = parameters.get("n_prompt", 0) + parameters.get("n_gen", 0) + MARGIN
    changed = {"--host": "127.0.0.1", "-np": str(way.slots), "-c": str(way.slots * room)}
    (head,) = way.of("llama-server")
    argv = [
        changed.get(before, word) for before, word in zip(("", *head.argv), head.argv, strict=False)
    ]
    dropped = {"--no-webui", "--no-warmup", "-lv"}
    argv = [w for b, w in zip(("", *argv), argv, strict=False) if w not in dropped and b != "-lv"]
    server = replace(head, argv=(*argv, "--port", "8080"))
    note = (
        f"Each request has room for {room:,} tokens, as it was measured (-c is that of all "
        f"{way.slots}): a larger -c takes more memory."
        if way.slots > 1
        else f"It has room for {room:,} tokens, as it was measured: a larger -c takes more memory."
    )
    workers = tuple(one for one in way.started if one is not head)
    return Serving(way.head, (*workers, server), 8080, (_complete(8080),), notes=(note,))


def _vllm(way: MeasuredOption) -> Serving:
    """Ray's daemons where there are some, ranks, and the server."""
    model = way.of("vllm")[-1].argv[2]
    tokens = any(_SECRET in one.environment for one in way.started)
    note = "SECRET is a long word of yours, the same in every line: who knows it runs code there."
    return Serving(
        way.head, way.started, 8000, (_complete(8000, model),), notes=(note,) if tokens else ()
    )


def _mlx(way: MeasuredOption) -> Serving:
    """Ranks read of their group in a file, which a run removes."""
    ranks = way.of("mlx_lm.server")
    servers = tuple(
        replace(one, environment={name: _GROUP if name in _GROUP_FILES else value
                                  for name, value in one.environment.items()})
        for one in ranks
    )  # fmt: skip
    before: tuple[Written, ...] = ()
    if any(name in one.environment for one in ranks for name in _GROUP_FILES):
        nodes = way.cluster.nodes_on(way.fabric)[: len(ranks)]
        text = mlx_ranks.group(way.cluster, nodes, way.fabric, way.case.get("transport"))
        before = tuple(Written(node.name, _GROUP, text) for node in nodes)
    return Serving(way.head, servers, 50054, (_complete(50054, "default_model"),), before)


def _exo(way: MeasuredOption) -> Serving:
    """Nodes meet in a namespace, and the model is placed on them by a request."""
    servers = []
    for one in way.of("exo"):
        argv, environment = list(one.argv), dict(one.environment)
        if "--namespace" in argv:
            argv[argv.index("--namespace") + 1] = "nixwulf"
        else:
            environment[exo_network.NAMESPACE] = "nixwulf"
        servers.append(replace(one, argv=tuple(argv), environment=environment))
    servers.sort(key=lambda one: "--force-master" in one.argv)
    model = str(way.record["model"]["hub"])
    case = way.case
    placed = exo_api.placement_of(model, case["parallelism"], case.get("transport"), case["nodes"])
    place = f"curl http://127.0.0.1:52415{placed.path} {_JSON} {_quoted(placed.body)}"
    return Serving(way.head, tuple(servers), 52415, (place, _chat(52415, model)))


def _mesh_llm(way: MeasuredOption) -> Serving:
    """The head tells the others the word by which they join."""
    servers = []
    for one in way.of("mesh-llm"):
        argv = list(one.argv)
        if "--join" in argv:
            argv[argv.index("--join") + 1] = "TOKEN"
        servers.append(replace(one, argv=tuple(argv)))
    note = "TOKEN is what the first line prints as the token of its event 'invite_token'."
    ask = ("curl http://127.0.0.1:9337/v1/models",)
    return Serving(way.head, tuple(servers), 9337, ask, notes=(note,) if len(servers) > 1 else ())


def _distributed_llama(way: MeasuredOption) -> Serving:
    """Workers, and dllama-api on the head; its own benchmark starts another program of the root."""
    workers = tuple(one for one in way.of("dllama") if "worker" in one.argv[1:2])
    root = [one for one in way.of("dllama-api", "dllama") if one not in workers][-1]
    argv = list(root.argv)
    first = argv.index("--model")
    arguments = argv[first:]
    for only in ("--seed", "--temperature"):
        place = arguments.index(only)
        del arguments[place : place + 2]
    program = str(PurePosixPath(argv[0]).with_name("dllama-api"))
    server = replace(root, argv=(program, "--host", "127.0.0.1", "--port", "9990", *arguments))
    return Serving(way.head, (*workers, server), 9990, (_chat(9990, "model"),))


SERVED: Mapping[str, Callable[[MeasuredOption], Serving]] = {
    "llama.cpp": _llama_cpp,
    "vllm": _vllm,
    "mlx": _mlx,
    "exo": _exo,
    "mesh-llm": _mesh_llm,
    "distributed-llama": _distributed_llama,
}


def _complete(port: int, model: str = "") -> str:
    named = {"model": model} if model else {}
    body = {**named, "prompt": "The quick brown fox", "max_tokens": 16}
    return f"curl http://127.0.0.1:{port}/v1/completions {_JSON} {_quoted(body)}"


def _chat(port: int, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
    return f"curl http://127.0.0.1:{port}/v1/chat/completions {_JSON} {_quoted(body)}"


def _quoted(body: Mapping[str, Any] | None) -> str:
    return shlex.quote(json.dumps(body))
