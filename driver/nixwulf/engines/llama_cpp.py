"""llama.cpp: RPC servers on the nodes, split by layers (pipeline) or by tensors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from nixwulf.process import OwnedProcess
from nixwulf.run import Run, RunFailure
from nixwulf.ssh import Connection

# The RPC server's name changed over time and between distributions.
_RPC_SERVER_NAMES = ("ggml-rpc-server", "rpc-server", "llama-rpc-server")
_RPC_PORT = 50052
_SPLIT_MODE = {"pipeline": "layer", "tensor": "tensor"}
# Without it a backtrace of the debugger lands on stdout, between the results.
ENVIRONMENT = {"GGML_NO_BACKTRACE": "1"}
_PROMPT = "The quick brown fox jumps over the lazy dog."


class LlamaCpp:
    """llama.cpp with its RPC backend."""

    name = "llama.cpp"
    programs = ("llama-bench", "llama-server", *_RPC_SERVER_NAMES)

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
        return None if _rpc_server(programs) else repr(_RPC_SERVER_NAMES[0])

    def start(self, run: Run) -> None:
        """Start an RPC server on each node that computes, and wait until all listen."""
        if run.case.nodes == 1:
            return
        servers = []
        for node in run.nodes:
            program = _rpc_server(run.facts[node.node.name].programs) or _RPC_SERVER_NAMES[0]
            argv = [program, "-H", run.data_address(node), "-p", str(_RPC_PORT)]
            servers.append(run.start(node, "rpc-server", [*argv, *_threads(run)], ENVIRONMENT))
        _wait_until_listening(run, servers)

    def arguments(self, run: Run) -> list[str]:
        """What every client of llama.cpp takes to run a case."""
        arguments = ["-m", run.model, *_threads(run)]
        if run.case.nodes > 1:
            endpoints = ",".join(f"{run.data_address(node)}:{_RPC_PORT}" for node in run.nodes)
            split = _SPLIT_MODE[run.case.parallelism]
            arguments += ["--rpc", endpoints, "-sm", split, "-ngl", "99"]
        return arguments

    def greedy_tokens(self, run: Run, count: int) -> list[int]:
        """Ask a llama-server that listens on a Unix socket of the head, so no port is open."""
        socket = f"/tmp/nixwulf-{run.name}-{run.case.nodes}.sock"  # noqa: S108 - on the node
        argv = [run.program("llama-server"), *self.arguments(run), "--host", socket, "-np", "1"]
        argv += ["-c", "512", "--no-webui", "--no-warmup"]
        server = run.start(run.head, f"llama-server-{run.case.nodes}", argv, ENVIRONMENT)
        with run.head.forwarded(socket) as local:
            client = httpx.Client(transport=httpx.HTTPTransport(uds=str(local)), base_url="http://head")
            with client:
                _wait_until_healthy(run, server, client)
                tokens = _complete(run, server, client, count)
        server.stop()
        return tokens

    def description(self, run: Run) -> dict[str, str]:
        """What the record says of the engine that ran: read from llama-bench's own output."""
        return {}


ENGINE = LlamaCpp()


def _rpc_server(programs: Mapping[str, str]) -> str | None:
    return next((programs[name] for name in _RPC_SERVER_NAMES if name in programs), None)


def _threads(run: Run) -> list[str]:
    threads = run.case.parameters["threads"]
    return ["-t", str(threads)] if threads else []
