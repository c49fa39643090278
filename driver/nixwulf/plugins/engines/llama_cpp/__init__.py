"""llama.cpp: RPC servers on the nodes, split by layers (pipeline) or by tensors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from nixwulf.inventory.fabrics import TCP
from nixwulf.llm import gguf
from nixwulf.nodes.facts import NOT_RUN
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines import Engine, Performance
from nixwulf.plugins.engines.llama_cpp import devices, install, options
from nixwulf.plugins.engines.llama_cpp.install import RPC_SERVER_NAMES
from nixwulf.plugins.engines.local import NodeBuild, Recipe
from nixwulf.plugins.engines.serving import MeasuredRun, Serving, serving
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.plugins.runtime.case import OverCables
from nixwulf.plugins.runtime.memory import BY_MEMORY
from nixwulf.plugins.runtime.openai import Completions, Endpoint, context, demand
from nixwulf.plugins.runtime.run import Run, RunFailure, failure_of

_RPC_PORT = TCP["llama.cpp"]
_SPLIT_MODE = {"pipeline": "layer", "tensor": "tensor"}
# By variables, because builds that do not know an option end, and do not mind a variable. Caches
# help when prompts repeat, which few benchmarks' do; filling that of all slots costs time and up to
# 8 GiB, and what a benchmark asks for again is still in its slot.
_NO_SHARED_CACHE = {"LLAMA_ARG_CACHE_RAM": "0"}
_NO_CACHE = {"LLAMA_ARG_CACHE_PROMPT": "0", **_NO_SHARED_CACHE}
_START_LIMIT_S = 30.0
# $1 is llama-server, $2 llama-bench, whose help has --rpc where it was built with RPC.
_VERSION = '"$1" --version 2>&1; "$2" --help 2>&1 | grep -o -m 1 -e --rpc'
# Prints the addresses ($2...) that do not accept a connection on the port ($1).
_CONNECT = 'port=$1; shift; for a; do (: </dev/tcp/$a/$port) 2>/dev/null || echo "$a"; done'


class LlamaCpp(Engine):
    """llama.cpp with its RPC backend.

    Every device is named on the command line, asked of each build by `--list-devices`. All layers
    are asked for (`-ngl 999`): with 99 the last 28 of Llama 3.1 405B stayed on the CPU. `--fit off`
    keeps llama-server from changing the case's options; repacked weights are off everywhere,
    because RPC servers never use them. Without `split` no `--tensor-split` is given: llama.cpp
    shares layers out by the free memory of the devices, and tensors in equal parts. `arguments` go
    to llama-bench and to the llama-server by which its text is judged: of flags that those two take
    in different forms (`-nkvo 1`, `-nkvo`) use the benchmark serve.

    A draft runs on the head alone: on its GPUs, else its CPU (`-devd`). llama-server goes on
    without one that it cannot use, as of another vocabulary, and says so in `/slots`: that is
    `unsupported`.

    The device is proved by llama-bench's `devices` and `n_gpu_layers`, by each RPC server's list
    and by llama-server's lines at verbosity 4; other ones are `fallback`. The transport is proved
    by counters and by llama.cpp's lines: for `rdma` each node gets `GGML_RDMA_DEV` and
    `GGML_RDMA_GID`, and each RPC server has to say `RDMA activated`; for `tcp` both sides get
    `GGML_RPC_NO_RDMA=1` (older builds: `GGML_RDMA_DEV=none`), and none may.
    """

    name = "llama.cpp"
    also = ("ollama",)
    parameters: ClassVar = options.PARAMETERS
    text_parameters = ("backend", "type_k", "type_v")
    random_model = staticmethod(gguf.ensure)
    programs = ("llama-bench", "llama-server", *RPC_SERVER_NAMES)
    local_programs = tuple(install.PROGRAMS)
    built_from = install.BUILT_FROM
    model_suffixes = (".gguf",)
    native_benchmark = "llama-bench"
    clients = ("llama-bench",)
    measuring_variables = tuple(_NO_CACHE)
    rdma_known_by = "llama.cpp's RPC servers say that they activated it with their client"
    ports = (_RPC_PORT,)
    api_port = 8080
    over_cables: ClassVar = {"tcp": OverCables(), "rdma": OverCables()}
    drafts = speculation.KINDS
    splits = devices.SPLITS  # each node has at least one device
    # A tile of a product of matrices is as wide as the chunk, up to 128 on CUDA, HIP
    # (https://github.com/ggml-org/llama.cpp/pull/26977) and Vulkan, and 32 on Metal.
    performance = Performance(
        family="llama.cpp",
        collective="rpc",
        prompt_chunk=512,
        activation_bytes=4,
        tiles={"amd": 128, "nvidia": 128, "apple": 32, "cpu": 0},
        # Predictions without it were 1.74 of what was measured on AMD and 2.1 on NVIDIA, beside
        # those of more bits; Q2_K was 1.7 times IQ1_S in batches of 32 on RDNA 3, whose scales are
        # for 32 weights, not 16 (https://github.com/ggml-org/llama.cpp/pull/17576).
        unpacking=1.8,
        # Steps of dense Q8_0 with two guesses took 1.34 of those without, of experts 1.9
        # (https://github.com/kyuz0/amd-strix-halo-toolboxes, benchmark/results-mtp).
        verifying=0.2,
    )

    def recipe(self) -> Recipe:
        """On PATH, else built once."""
        return install.recipe()

    def node_build(self) -> NodeBuild:
        """From the same source as on this machine."""
        return install.node_build()

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Also a split of layers where none are split, or bandwidths that nobody knows."""
        problem = super().unsupported(point)
        split = point["parameters"].get("split", BY_MEMORY)
        if problem or split == BY_MEMORY:
            return problem
        if point["parallelism"] != "pipeline":
            return f"split {split} shares out the layers of a pipeline"
        unknown = [name for name, known in point.get("bandwidths", {}).items() if not known]
        if split == "even" or not unknown:
            return None
        return (
            f"split {split} needs the bandwidth of each node's memory; write memory_bandwidth_gbs "
            f"of {' and '.join(unknown)} in the cluster file"
        )

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """Every node needs all three, because any of them may be the head."""
        for name in ("llama-bench", "llama-server"):
            if name not in programs:
                return repr(name)
        return None if _rpc_server(programs) else repr(RPC_SERVER_NAMES[0])

    def version_command(self, programs: Mapping[str, str]) -> list[str]:
        """llama-server prints commit and build number, llama-bench whether it has --rpc."""
        if "llama-server" not in programs:
            return []
        places = [programs["llama-server"], programs.get("llama-bench", "llama-bench")]
        return ["sh", "-c", _VERSION, "sh", *places]

    def build_problem(self, printed: str, *, several: bool) -> str | None:
        """On several nodes a build without RPC, which has the servers' names in no --help."""
        if not several or "version:" not in printed:
            return None
        return options.rpc_problem("llama-bench", printed)

    def start(self, run: Run) -> None:
        """Start an RPC server on each node that computes by one, and wait until all listen."""
        devices.look(run)
        devices.require_few(run)
        if run.case.nodes == 1:
            return
        servers = [
            run.start(
                node,
                "rpc-server",
                self.rpc_server_argv(run, node),
                self.environment(run, node),
                background=True,
            )
            for node in devices.served(run)
        ]
        _wait_until_listening(run, servers)

    def rpc_server_argv(self, run: Run, node: Connection) -> list[str]:
        """The command line of a node's RPC server, on the fabric's address only."""
        program = _rpc_server(run.facts[node.node.name].programs) or RPC_SERVER_NAMES[0]
        threads = {"threads": run.case.parameters["threads"]}
        argv = [program, "-H", run.data_address(node), "-p", str(_RPC_PORT)]
        argv += options.common(threads)
        return [*argv, "-d", ",".join(devices.offered(run, node))]

    def environment(self, run: Run, node: Connection) -> dict[str, str]:
        """Of every program of llama.cpp on a node of a run."""
        case = run.case
        # The head of several cables needs another device for each: without a name, llama.cpp takes
        # the one that has the address of the connection.
        several = node is run.head and run.on_cables
        end = run.end(node) if case.fabric and not several else None
        return options.environment(case.parameters, case.transport, end)

    def arguments(self, run: Run) -> list[str]:
        """What every client of llama.cpp takes to run a case."""
        arguments = ["-m", run.model, *options.common(run.case.parameters)]
        arguments += passthrough.arguments(run.case.parameters)
        if run.case.nodes > 1:
            served = devices.served(run)
            endpoints = ",".join(f"{run.data_address(node)}:{_RPC_PORT}" for node in served)
            split = _SPLIT_MODE[run.case.parallelism or ""]
            # RPC devices exist from --rpc on, so -dev comes later.
            arguments += ["--rpc", endpoints, "-sm", split]
        return arguments

    def bench_arguments(self, run: Run) -> list[str]:
        """What llama-bench takes beside its tests."""
        arguments = [*self.arguments(run), *devices.arguments(run, "/")]
        flags = devices.flags(run, "llama-bench")
        arguments += options.of_bench(run.case.parameters, flags)
        # Only -v shows its 'RDMA activated': seven hundred lines while it loads, none for a token.
        return [*arguments, *(["-v"] if run.case.transport == "rdma" else [])]

    def require_devices(self, run: Run, row: Mapping[str, object]) -> None:
        """Compare a row of llama-bench with the devices it was given; raises RunFailure fallback.

        By then the RPC servers' own lists have been read, unless still in a buffer.
        """
        asked = devices.of_client(run)
        layers = devices.ALL_LAYERS if asked else 0
        problem = devices.bench_problem(asked, layers, run.head.node.name, row)
        _refuse(problem or _rpc_servers_problem(run))

    def transport_problem(self, run: Run) -> str | None:
        """RPC servers over rdma say so in their output, and clients at times; over tcp neither."""
        clients = _owned(run, "llama-bench", "llama-server")
        if run.case.transport is None or not clients:
            return None
        return devices.transport_problem(
            run.case.transport,
            clients[-1].node,
            _output(clients[-1]),
            {server.node: _output(server) for server in _owned(run, "rpc-server")},
        )

    @contextmanager
    def completer(self, run: Run, context: int) -> Iterator[Completions]:
        """A llama-server, which has no more room than the model was trained for."""
        verbose = options.verbose(devices.flags(run, "llama-server"))
        with self._server(run, ["-np", "1", "-c", str(context), *verbose]) as endpoint:
            devices.record_placed(run, _output(_owned(run, "llama-server")[-1]))
            yield endpoint.completions(_room(endpoint.get("/props"), context))

    def on_cpu(self, run: Run) -> Run | str | None:
        """With the case's cache types and no other option: those are a GPU's."""
        return devices.on_cpu(run)

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """A llama-server with a slot for each request that is in flight at once."""
        wanted = demand(run.case)
        size = ["-np", str(wanted.slots), "-c", str(wanted.slots * wanted.context)]
        cache = _NO_SHARED_CACHE if wanted.cache else _NO_CACHE
        with self._server(run, size, cache) as endpoint:
            yield endpoint

    def serve_commands(self, run: MeasuredRun) -> Serving:
        """A measured server listens on a socket of its own, with room for a few tokens."""
        room = context(run.case["parameters"])
        changed = {"--host": "127.0.0.1", "-np": str(run.slots), "-c": str(run.slots * room)}
        (head,) = run.of("llama-server")
        pairs = zip(("", *head.argv), head.argv, strict=False)
        argv = [
            changed.get(before, word)
            for before, word in pairs
            if before != "-lv" and word not in {"--no-webui", "--no-warmup", "-lv"}
        ]
        server = replace(head, argv=(*argv, "--port", str(self.api_port)))
        note = (
            f"Each request has room for {room:,} tokens, as it was measured (-c is that of all "
            f"{run.slots}): a larger -c takes more memory."
            if run.slots > 1
            else f"It has room for {room:,} tokens, as it was measured: a larger -c takes more "
            "memory."
        )
        return serving(self, run, [*run.of(*RPC_SERVER_NAMES), server], notes=[note])

    @contextmanager
    def _server(
        self, run: Run, more: list[str], cache: Mapping[str, str] = _NO_CACHE
    ) -> Iterator[Endpoint]:
        """A llama-server that listens on a Unix socket of the head, so no port is open."""
        label = f"llama-server-{len(run.owned)}"
        socket = f"{run.scratch}/{label}.sock"
        argv = [run.program("llama-server"), *self.arguments(run), "--host", socket]
        argv += [*devices.arguments(run, ","), *more, "--no-webui", "--no-warmup"]
        flags = devices.flags(run, "llama-server")
        argv += options.of_server(run.case.parameters, flags)
        own = devices.gpus(run, run.head)
        argv += options.of_draft(run.case.parameters, run.draft, own, flags)
        environment = {**self.environment(run, run.head), **cache}
        server = run.start(run.head, label, argv, environment)
        try:
            with run.head.forwarded(socket) as local:
                endpoint = Endpoint(run, local, run.model.rpartition("/")[2], server)
                _wait_until_healthy(endpoint, server)
                asked = devices.of_client(run)
                problem = devices.server_problem(asked, server.node, _output(server))
                _refuse(problem or _rpc_servers_problem(run))
                yield endpoint
        finally:
            server.stop()


ENGINE = LlamaCpp()


def _rpc_server(programs: Mapping[str, str]) -> str | None:
    return next((programs[name] for name in RPC_SERVER_NAMES if name in programs), None)


def _owned(run: Run, *names: str) -> list[OwnedProcess]:
    """The processes of a run by the names they were started under, in that order.

    In a toolbox the command line begins with podman's.
    """
    starts = tuple(f"{name}-" for name in names)
    return [process for process in run.owned if process.stdout.name.startswith(starts)]


def _output(process: OwnedProcess) -> str:
    return f"{process.output}\n{process.errors}"


def _rpc_servers_problem(run: Run) -> str | None:
    """What the RPC servers of a run list, against what they were to offer."""
    servers = {server.node: _output(server) for server in _owned(run, "rpc-server")}
    for node in devices.served(run):
        name, asked = node.node.name, devices.offered(run, node)
        problem = devices.rpc_server_problem(asked, name, servers.get(name, ""))
        if problem:
            return problem
    return None


def _wait_until_healthy(endpoint: Endpoint, server: OwnedProcess) -> None:
    """Also until it drafts as the case asks, else raise RunFailure unsupported.

    Of some drafts that it cannot use llama-server ends, of others it goes on without.
    """
    run = endpoint.run
    drafts = speculation.speculates(run.case.parameters)
    try:
        endpoint.wait_until_healthy()
        if not drafts or all(slot.get("speculative", True) for slot in endpoint.get("/slots")):
            return
    except RunFailure:
        if not drafts or not devices.draft_problem(run, _output(server)):
            raise
    server.stop()  # then all that it printed is here
    silent = "llama-server drafts nothing, and does not say why."
    raise RunFailure(devices.draft_problem(run, _output(server)) or silent, "unsupported")


def _refuse(problem: str | None) -> None:
    if problem:
        raise RunFailure(problem, "fallback")


def _wait_until_listening(run: Run, servers: list[OwnedProcess]) -> None:
    """Connect from the head to every server, as the engine will; their output is buffered."""
    addresses = [run.data_address(node) for node in devices.served(run)]
    while True:
        answer = run.head.run(["bash", "-c", _CONNECT, "bash", str(_RPC_PORT), *addresses])
        if answer.returncode in NOT_RUN:
            raise RunFailure(
                f"Node {run.head.node.name!r} lacks 'bash', by which the driver sees whether RPC "
                "servers listen; install it there.",
                "skipped",
            )
        closed = answer.stdout.split()
        if not closed:
            return
        for server in servers:
            if not server.running:
                raise failure_of(server, f"The RPC server on {server.node!r}")
        if time.monotonic() > min(run.deadline, servers[0].started + _START_LIMIT_S):
            raise RunFailure(
                f"Nothing listens on {closed[0]}:{_RPC_PORT} after {_START_LIMIT_S:g} s."
            )
        time.sleep(0.01)


def _room(props: Any, asked: int) -> int:
    """Tokens that a slot has room for: newer builds have no more than the model was trained for."""
    try:
        return min(asked, int(props["default_generation_settings"]["n_ctx"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return asked
