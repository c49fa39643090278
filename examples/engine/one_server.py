"""one-server: a llama-server on one node, as a whole engine in one file.

Copy it into driver/nixwulf/plugins/engines; every command then knows it. Replace the command line,
the names and the port by those of your own server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from nixwulf.core.registry import Parameter
from nixwulf.llm import gguf
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.openai import Endpoint, demand
from nixwulf.plugins.runtime.run import Run

_PORT = 50980


class OneServer(Engine):
    """A llama-server on one node, which computes on the CPU."""

    name = "one-server"
    parameters: ClassVar = {
        "server_threads": Parameter(default=1, minimum=1, help="threads of the server"),
    }
    programs = ("llama-server",)
    version_options = ("--version",)
    lacking = "llama-server is not on PATH; 'nixwulf engines install' brings it to the nodes."
    ports = (_PORT,)
    api_port = _PORT
    transports = ("tcp",)
    model_suffixes = (".gguf",)
    gpus = ()
    random_model = staticmethod(gguf.ensure)

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Why a point of a sweep cannot be run, as a clause, or None."""
        if point["nodes"] > 1:
            return "one-server runs on one node"
        return super().unsupported(point)

    def start(self, run: Run) -> None:
        """Start nothing: the server starts when it is first asked."""
        run.engine_facts["origin"] = run.program("llama-server")

    def greedy_tokens(self, run: Run, count: int) -> list[str]:
        """Return the characters of a greedy text, for the sanity check."""
        with self.endpoint(run) as server:
            answer = server.post("/v1/completions", server.greedy(count))
            return list(answer["choices"][0]["text"])

    @contextmanager
    def endpoint(self, run: Run) -> Iterator[Endpoint]:
        """Serve on the head's loopback address until the block ends."""
        values = run.case.parameters
        wanted = demand(run.case)
        argv = [run.program("llama-server"), "-m", run.model, "-ngl", "0"]
        argv += ["--host", "127.0.0.1", "--port", str(_PORT), "-t", str(values["server_threads"])]
        argv += ["-np", str(wanted.slots), "-c", str(wanted.slots * wanted.context)]
        argv += passthrough.arguments(values)
        process = run.start(run.head, f"one-server-{len(run.owned)}", argv, {})
        try:
            with run.head.forwarded(f"127.0.0.1:{_PORT}") as local:
                server = Endpoint(run, local, run.model, process)
                server.wait_until_healthy()
                yield server
        finally:
            process.stop()


ENGINE = OneServer()
