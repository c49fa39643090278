"""Servers that go on for the rest of a run, because a large model takes minutes to load."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from nixwulf.inventory.platforms import load_platform
from nixwulf.llm import safetensors
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines import Engine, devices
from nixwulf.plugins.runtime import nccl, speculation
from nixwulf.plugins.runtime.openai import Declined, Endpoint
from nixwulf.plugins.runtime.run import Run


class RankedServer(Engine):
    """An engine with a rank and one GPU on every node, whose server goes on for the rest of a run.

    print_device: Python that prints what a rank computes on; remedy: as of `require_gpus`;
    version_paths: of the server, of which the first that is there tells the version.
    """

    print_device: str
    remedy: str
    version_paths: tuple[str, ...]
    text_parameters = ("dtype",)
    model_on_every_node = True
    hub_models = True
    gpus = ("amd", "nvidia")
    drafts = speculation.KINDS
    over_cables = nccl.OVER_CABLES
    measuring_variables: tuple[str, ...] = nccl.LOGGING
    random_model = staticmethod(safetensors.ensure)

    def unsupported(self, point: Mapping[str, Any]) -> str | None:
        """Also more of the GPU than there is."""
        if point["parameters"]["gpu_memory_percent"] > 100:  # noqa: PLR2004 - per cent
            return "gpu_memory_percent is above 100"
        return super().unsupported(point)

    def start(self, run: Run) -> None:
        """Ask for the devices; the ranks start when the server is first asked."""
        self.look(run)

    def look(self, run: Run) -> dict[str, str]:
        """What each node computes on, by name; raises RunFailure where a GPU would be idle."""
        run.engine_facts["origin"] = run.program(self.name)
        found = devices.ask(run, self.name, self.print_device)
        devices.require_gpus(run, self, found, self.remedy)
        return found

    def log(self, run: Run, node: Connection) -> str:
        """What a node's ranks printed."""
        return printed(run, self.name, node)

    def transport_problem(self, run: Run) -> str | None:
        """What contradicts the case's transport in NCCL's logs of the nodes."""
        if run.fabric is None:
            return None
        logs = {node.node.name: self.log(run, node) for node in run.nodes}
        return nccl.transport_problem(run.case.transport, logs)

    def endpoint(self, run: Run) -> AbstractContextManager[Endpoint]:
        """The server, which goes on for the rest of the run."""
        launch = partial(self.launch, run)
        return endpoint(run, self.name, self.api_port, launch, *self.version_paths)

    @abstractmethod
    def launch(self, run: Run, name: str) -> OwnedProcess:
        """Start the ranks of the other nodes, then that of the head, which serves."""


@contextmanager
def endpoint(
    run: Run, program: str, port: int, launch: Callable[[str], OwnedProcess], *version: str
) -> Iterator[Endpoint]:
    """The server of a case, which is launched where none goes on, and ends those of other cases.

    Args:
        run: of the case; its engine's facts get the version.
        launch: starts the ranks under a name, and gives the process that serves.
        version: paths, of which the first that is there tells the version.
    """
    name = name_of(run, program)
    own = (p for p in run.owned if p.running and _is_named(p, run, name))
    server = next((p for p in own if p.node == run.head.node.name), None)
    with run.head.forwarded(f"127.0.0.1:{port}") as local:
        if server:
            yield Endpoint(run, local, run.model, server)
            return
        for process in reversed(run.owned):
            if _is_named(process, run, program):
                process.stop()
        found = Endpoint(run, local, run.model, launch(name))
        found.wait_until_healthy()
        run.engine_facts["version"] = _version(found, version)
        yield found


def _version(server: Endpoint, paths: Sequence[str]) -> str:
    for path in paths:
        try:
            return str(server.get(path).get("version", ""))
        except Declined:
            if path == paths[-1]:
                raise
    return ""


def name_of(run: Run, program: str) -> str:
    """Of the processes of a case's server: another split or draft is another server."""
    draft = "draft-" if speculation.speculates(run.case.parameters) else ""
    return f"{program}-{draft}{run.case.nodes}-{run.case.parallelism}"


def printed(run: Run, program: str, node: Connection) -> str:
    """What the ranks of a case's server printed on a node."""
    name = name_of(run, program)
    ranks = [p for p in run.owned if p.node == node.node.name and _is_named(p, run, name)]
    return "\n".join(words for rank in ranks for words in (rank.output, rank.errors))


def _is_named(process: OwnedProcess, run: Run, name: str) -> bool:
    """Whether a process of a run was started under a name, or one that begins with it and '-'."""
    return process.unit.startswith(f"nixwulf-{run.raw.name}-{name}-")


def gpu_memory(run: Run, node: Connection, usual: float) -> float:
    """The share of the GPU's memory that a server takes: the sweep's, at most the platform's.

    run: of the case, whose parameter gpu_memory_percent is what the sweep asks for, 0: nothing.
    usual: the share where neither says more.
    """
    fact = load_platform(node.node.platform).get("gpu_memory_fraction", {"value": usual})
    most = min(usual, float(fact["value"]))
    wanted = run.case.parameters["gpu_memory_percent"] / 100
    return min(most, wanted) if wanted else most
