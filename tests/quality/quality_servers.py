"""llama.cpp's servers on this machine's loopback, as a run of a cluster has them."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.plugins.runtime.openai import TOP, Completions

START_S = 120
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass(frozen=True)
class Setup:
    """How a model is computed: servers beside the client (none: on one node), split and options."""

    name: str
    servers: int = 0
    split: str = "layer"
    options: tuple[str, ...] = ("-t", "1")


ONE = Setup("one node")
SETUPS = (
    Setup("one node, again"),
    Setup("one node, 2 threads", options=("-t", "2")),
    Setup("one node, -ub 96", options=("-t", "1", "-ub", "96")),
    Setup("one node, -fa off", options=("-t", "1", "-fa", "off")),
    Setup("2 nodes, pipeline", 2),
    Setup("2 nodes, tensor", 2, "tensor"),
)


def programs() -> dict[str, Path]:
    """Of the llama.cpp that the driver built or finds."""
    found = ENGINE.find_local()
    if found is None:
        raise SystemExit("llama.cpp is neither on PATH nor built before; run 'nixwulf bench' once.")
    return found.programs


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _process(argv: list[str], ready: Any) -> Iterator[None]:
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    with subprocess.Popen(argv, env=environment, **QUIET) as process:  # type: ignore[call-overload]
        try:
            deadline = time.monotonic() + START_S
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"does not start: {' '.join(argv)}")
                time.sleep(0.02)
            yield
        finally:
            process.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def completer(model: Path, setup: Setup, context: int, seed: int = 1) -> Iterator[Completions]:
    """A llama-server of a model, asked as the driver asks it."""
    found = programs()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ports = [_free_port() for _ in range(setup.servers)]
        for port in ports:
            place = ["-H", "127.0.0.1", "-p", str(port), "-t", "1", "-d", "CPU"]
            argv = [str(found["rpc-server"]), *place]
            stack.enter_context(_process(argv, lambda port=port: _listens(port)))
        path = f"{folder}/s.sock"
        argv = [str(found["llama-server"]), "-m", str(model), "--host", path, "-np", "1"]
        argv += ["-c", str(context), *setup.options, "--no-repack", "--no-webui", "--no-warmup"]
        argv += ["--fit", "off"]
        if setup.servers:
            argv += ["--rpc", ",".join(f"127.0.0.1:{port}" for port in ports), "-sm", setup.split]
            names = ",".join(f"RPC{number}" for number in range(setup.servers))
            argv += ["-dev", names, "-ngl", "999"]
        transport = httpx.HTTPTransport(uds=path)
        client = stack.enter_context(
            httpx.Client(transport=transport, base_url="http://head", timeout=600)
        )

        def healthy() -> bool:
            try:
                return client.get("/health").is_success
            except httpx.TransportError:
                return False

        stack.enter_context(_process(argv, healthy))

        def post(where: str, request: Mapping[str, Any]) -> Any:
            return client.post(where, json=request).raise_for_status().json()

        fixed = {"model": model.name, "temperature": 0, "seed": seed}
        yield Completions(post, fixed, context, {"logprobs": TOP})
