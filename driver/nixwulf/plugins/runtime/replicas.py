"""Replicas: on each node of a run a server of the whole model, started as on one node alone.

Nothing of a run crosses a fabric: the driver sends each request to a node over ssh, as to one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.runtime.run import Case, Run
from nixwulf.results.identity import REPLICAS


def slots_of(concurrency: int, nodes: int) -> tuple[int, ...]:
    """Requests in flight on each node where they are spread evenly; 0 on those that are idle."""
    least, more = divmod(concurrency, nodes)
    return tuple(least + (number < more) for number in range(nodes))


def of_one_node(case: Case) -> Case:
    """The case of one replica; any other case as it is."""
    if case.parallelism != REPLICAS:
        return case
    parameters = dict(case.parameters)
    if "concurrency" in parameters:
        parameters["concurrency"] = max(1, *slots_of(parameters["concurrency"], case.nodes))
    return replace(case, nodes=1, parallelism="single", parameters=parameters)


def replicas(run: Run) -> tuple[Run, ...]:
    """A run of one node for each replica, whose processes are the whole run's too; else the run."""
    if run.case.parallelism != REPLICAS:
        return (run,)
    case = of_one_node(run.case)
    return tuple(
        replace(
            run,
            # By it engines that look for others of their kind tell groups apart, as exo does.
            name=f"{run.name}-{node.node.name}",
            case=case,
            nodes=(node,),
            owned=_Owned(run.owned, node.node.name),
        )
        for node in run.nodes
    )


class _Owned(list[OwnedProcess]):
    """The processes of one node among those of a run; what is added is the whole run's too."""

    def __init__(self, whole: list[OwnedProcess], node: str) -> None:
        super().__init__(process for process in whole if process.node == node)
        self._whole = whole

    def append(self, process: OwnedProcess) -> None:
        super().append(process)
        self._whole.append(process)

    def extend(self, processes: Iterable[OwnedProcess]) -> None:
        for process in processes:
            self.append(process)
