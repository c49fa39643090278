"""llama.cpp: RPC servers on the nodes, split by layers (pipeline) or by tensors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nixwulf.endpoint import Endpoint
from nixwulf.engines import llama_cpp_build, llama_cpp_programs
from nixwulf.engines.asking import ask, require_running
from nixwulf.engines.llama_cpp_programs import RPC_SERVER_NAMES
from nixwulf.engines.local import Installation, Progress
from nixwulf.models import random_gguf
from nixwulf.models.random_model import RandomModel
from nixwulf.process import OwnedProcess
from nixwulf.run import Clocks, Run, RunFailure
from nixwulf.ssh import Connection

_RPC_PORT = 50052
_SPLIT_MODE = {"pipeline": "layer", "tensor": "tensor"}
# Without it a backtrace of the debugger lands on stdout, between the results.
ENVIRONMENT = {"GGML_NO_BACKTRACE": "1"}
_START_LIMIT_S = 30.0
_GPU = "gpu"
# RPC servers never use repacked weights. A single node that does runs other kernels, so its logits
# differ by 2e-2, and with q8_0 on AMX llama.cpp 0c1e570 crashes: measured, so it is off everywhere.
_REPACK = "repack"
# Prints the addresses ($2...) that do not accept a connection on the port ($1).
_CONNECT = 'port=$1; shift; for a; do (: </dev/tcp/$a/$port) 2>/dev/null || echo "$a"; done'
_PROMPT = "The quick brown fox jumps over the lazy dog."


class LlamaCpp:
    """llama.cpp with its RPC backend."""

    name = "llama.cpp"
    programs = ("llama-bench", "llama-server", *RPC_SERVER_NAMES)
    local_programs = tuple(llama_cpp_programs.PROGRAMS)
    built_from = llama_cpp_programs.BUILT_FROM
    model_on_every_node = False

    def find_local(self) -> Installation | None:
        """On PATH, else built before."""
        return llama_cpp_programs.find()

    def install_local(self, progress: Progress) -> Installation:
        """On PATH, else built once."""
        return llama_cpp_build.find_or_build(progress)

    def random_model(self, model: RandomModel) -> Path:
        """A GGUF."""
        return random_gguf.ensure(model)

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """The RPC backend's RDMA transport is not driven yet."""
        if point.get("transport") == "rdma":
            return "this version of nixwulf drives llama.cpp over tcp only"
        return None

    def missing(self, programs: Mapping[str, str]) -> str | None:
        """Every node needs all three, because any of them may be the head."""
        for name in ("llama-bench", "llama-server"):
            if name not in programs:
                return repr(name)
        return None if _rpc_server(programs) else repr(RPC_SERVER_NAMES[0])

    def start(self, run: Run) -> None:
        """Start an RPC server on each node that computes by one, and wait until all listen."""
        _look_at_head(run)
        if run.case.nodes == 1:
            return
        servers = []
        for node in _served(run):
            program = _rpc_server(run.facts[node.node.name].programs) or RPC_SERVER_NAMES[0]
            argv = [program, "-H", run.data_address(node), "-p", str(_RPC_PORT), *_threads(run)]
            servers.append(run.start(node, "rpc-server", argv, ENVIRONMENT, background=True))
        _wait_until_listening(run, servers)

    def arguments(self, run: Run) -> list[str]:
        """What every client of llama.cpp takes to run a case."""
        arguments = ["-m", run.model, *_threads(run)]
        if run.case.nodes > 1:
            endpoints = ",".join(f"{run.data_address(node)}:{_RPC_PORT}" for node in _served(run))
            split = _SPLIT_MODE[run.case.parallelism or ""]
            arguments += ["--rpc", endpoints, "-sm", split, "-ngl", "99"]
        return arguments

    def bench_arguments(self, run: Run) -> list[str]:
        """What llama-bench takes beside its tests."""
        return [*self.arguments(run), *(["--repack", "0"] if _REPACK in run.engine_options else [])]

    def greedy_tokens(self, run: Run, count: int) -> list[int]:
        """Ask a llama-server, which gives token numbers."""
        with self._server(run, ["-np", "1", "-c", "512"]) as endpoint:
            return _complete(run, endpoint, count)

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """A llama-server with a slot for each request that is in flight at once."""
        with self._server(run, []) as endpoint:
            yield endpoint

    @contextmanager
    def _server(self, run: Run, options: list[str]) -> Iterator[Endpoint]:
        """A llama-server that listens on a Unix socket of the head, so no port is open."""
        label = f"llama-server-{len(run.owned)}"
        socket = f"/tmp/nixwulf-{run.name}-{label}.sock"  # noqa: S108 - on the node
        argv = [run.program("llama-server"), *self.arguments(run), "--host", socket]
        argv += [*options, "--no-webui", "--no-warmup"]
        argv += ["--no-repack"] if _REPACK in run.engine_options else []
        server = run.start(run.head, label, argv, ENVIRONMENT)
        try:
            with run.head.forwarded(socket) as local:
                endpoint = Endpoint(local, run.model.rpartition("/")[2], server)
                _wait_until_healthy(run, endpoint)
                yield endpoint
        finally:
            server.stop()
            run.head.run(["rm", "-f", socket])


ENGINE = LlamaCpp()


def _rpc_server(programs: Mapping[str, str]) -> str | None:
    return next((programs[name] for name in RPC_SERVER_NAMES if name in programs), None)


def _served(run: Run) -> tuple[Connection, ...]:
    """The nodes that compute through an RPC server.

    A GPU of the head takes part by itself, and the head in its own list has crashed clients
    (https://github.com/geerlingguy/beowulf-ai-cluster/issues/15). A CPU does not: llama.cpp splits
    over devices, and with RPC devices only, the head looks up embeddings and samples, nothing else.
    """
    return run.workers if _GPU in run.engine_options else run.nodes


def _look_at_head(run: Run) -> None:
    program = run.program("llama-bench")
    script = '"$1" --list-devices 2>/dev/null; "$1" --help; "$2" --version 2>&1'
    text = run.head.script(script, program, run.program("llama-server"))
    if re.search(r"^ +\w+: .*MiB", text, re.MULTILINE):
        run.engine_options.add(_GPU)
    if re.search(r"^ +--repack", text, re.MULTILINE):
        run.engine_options.add(_REPACK)
    run.engine_facts["origin"] = program
    version = re.search(r"^version: (.*)", text, re.MULTILINE)
    if version:
        run.engine_facts["version"] = version[1]


def _threads(run: Run) -> list[str]:
    threads = run.case.parameters["threads"]
    return ["-t", str(threads)] if threads else []


def _wait_until_listening(run: Run, servers: list[OwnedProcess]) -> None:
    """Connect from the head to every server, as the engine will; their output is buffered."""
    addresses = [run.data_address(node) for node in _served(run)]
    while True:
        answer = run.head.run(["bash", "-c", _CONNECT, "bash", str(_RPC_PORT), *addresses])
        closed = answer.stdout.split()
        if not closed:
            return
        for server in servers:
            if not server.running:
                raise RunFailure(
                    "failed",
                    f"The RPC server on {server.node!r} {server.ending()}: {server.last_line()}",
                )
        if time.monotonic() > min(run.deadline, servers[0].started + _START_LIMIT_S):
            raise RunFailure(
                "failed", f"Nothing listens on {closed[0]}:{_RPC_PORT} after {_START_LIMIT_S:g} s."
            )
        time.sleep(0.05)


def _wait_until_healthy(run: Run, endpoint: Endpoint) -> None:
    import httpx

    clocks = Clocks(run, endpoint.server)
    with endpoint.client() as client:
        while True:
            with suppress(httpx.TransportError):
                if client.get("/health", timeout=5).is_success:
                    return
            require_running(endpoint.server)
            clocks.check()
            time.sleep(0.05)


def _complete(run: Run, endpoint: Endpoint, count: int) -> list[int]:
    request = {
        "prompt": _PROMPT,
        "n_predict": count,
        "temperature": 0,
        "seed": run.case.seed,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
    }
    answer = ask(run, endpoint, "/completion", request)
    try:
        return [int(token) for token in answer["tokens"]]
    except (KeyError, TypeError, ValueError):
        raise RunFailure("failed", f"llama-server gave no tokens: {str(answer)[:200]}.") from None
