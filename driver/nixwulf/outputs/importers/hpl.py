"""HPL (xhpl, hpcc): Gflop/s of each problem whose residual check passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nixwulf.outputs import hpl as parser
from nixwulf.outputs.hpl import Solution
from nixwulf.outputs.importers import Found, Nodes, Tool, metric


def _read(text: str) -> list[Found]:
    solved = parser.parse(text)
    ranks = max(one.p * one.q for one in solved)
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    nodes = Nodes(1 if ranks == 1 else None, 1, ranks, processes)
    return [Found("hpl", list(_metrics(solved, _program(text))), machines=True, nodes=nodes)]


TOOL = Tool("hpl", parser, _read)


def _program(text: str) -> str | None:
    if "HPC Challenge" in text:
        return "hpcc"
    return "xhpl" if "HPLinpack" in text else None


def _metrics(solved: list[Solution], program: str | None) -> Iterator[Mapping[str, Any]]:
    """A problem that was solved several times is one metric with as many samples."""
    alike: dict[tuple[int, int, int, int], list[Solution]] = {}
    for one in solved:
        alike.setdefault((one.n, one.nb, one.p, one.q), []).append(one)
    for (n, nb, p, q), own in alike.items():
        conditions = {"n": n, "nb": nb, "p": p, "q": q, "program": program}
        worst = {"residual": max(one.residual for one in own)}
        gflops, seconds = [one.gflops for one in own], [one.seconds for one in own]
        yield metric("gflops", "Gflop/s", samples=gflops, conditions=conditions, observed=worst)
        yield metric("time", "s", samples=seconds, conditions=conditions)
