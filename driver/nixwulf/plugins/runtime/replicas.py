"""Replicas: servers of the whole model, on each node of a run or on each of its groups of nodes.

Each is started as one alone. No request crosses the fabric: the driver sends it to a head over ssh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.run import Run
from nixwulf.results.identity import REPLICAS

T = TypeVar("T")


def servers_of(case: Mapping[str, Any]) -> int:
    """How many servers share the nodes of a case, as a record has it."""
    if case.get("parallelism") == REPLICAS:
        return int(case["nodes"])
    return int(case.get("parameters", {}).get("servers", 1))


def groups_of(nodes: Sequence[T], servers: int) -> tuple[Sequence[T], ...]:
    """The nodes of each server: as many each, in the cluster's order, its head first."""
    size = len(nodes) // servers
    return tuple(nodes[place * size : (place + 1) * size] for place in range(servers))


def slots_of(concurrency: int, servers: int) -> tuple[int, ...]:
    """Requests in flight on each server where they are spread evenly; 0 on those that are idle."""
    least, more = divmod(concurrency, servers)
    return tuple(least + (number < more) for number in range(servers))


def of_one_server(case: Case) -> Case:
    """The case of one of several servers; any other case as it is."""
    servers = servers_of(case.document())
    if servers == 1:
        return case
    parameters = {**case.parameters, **({"servers": 1} if "servers" in case.parameters else {})}
    if "concurrency" in parameters:
        parameters["concurrency"] = max(1, *slots_of(parameters["concurrency"], servers))
    split = "single" if case.parallelism == REPLICAS else case.parallelism
    return replace(case, nodes=case.nodes // servers, parallelism=split, parameters=parameters)


def replicas(run: Run) -> tuple[Run, ...]:
    """A run for each of several servers, whose processes are the whole run's too; else the run."""
    case = of_one_server(run.case)
    if case is run.case:
        return (run,)
    return tuple(
        replace(
            run,
            # By it engines that look for others of their kind tell groups apart, as exo does.
            name=f"{run.name}-{group[0].node.name}",
            case=case,
            nodes=tuple(group),
            owned=_Owned(run.owned, {node.node.name for node in group}),
        )
        for group in groups_of(run.nodes, servers_of(run.case.document()))
    )


class _Owned(list[OwnedProcess]):
    """The processes of some nodes among those of a run; what is added is the whole run's too."""

    def __init__(self, whole: list[OwnedProcess], nodes: Collection[str]) -> None:
        super().__init__(process for process in whole if process.node in nodes)
        self._whole = whole

    def append(self, process: OwnedProcess) -> None:
        super().append(process)
        self._whole.append(process)

    def extend(self, processes: Iterable[OwnedProcess]) -> None:
        for process in processes:
            self.append(process)
