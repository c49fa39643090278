"""HPL (xhpl, and the same lines in hpcc's hpccoutf.txt): each problem that was solved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from nixwulf.core.metric import Metric
from nixwulf.core.query import grouped
from nixwulf.outputs import Found, Nodes, ParseError, Tool, ToolFailed

_NUMBER = r"[\d.]+(?:[eE][+-]?\d+)?"
_COLUMNS = {
    "T/V": r"(?P<variant>W[RC]\w+)",
    **{name: rf"(?P<{name.lower()}>\d+)" for name in ("N", "NB", "P", "Q")},
    **{name: rf"(?P<{name.lower()}>{_NUMBER})" for name in ("Time", "Gflops")},
}
_RESIDUAL = re.compile(r"^\|\|Ax-b\|\|.*=\s*(?P<value>\S+)\s+\.+\s+(?P<verdict>PASSED|FAILED)$")
_ERROR = re.compile(r"^(?:HPL ERROR from process # \d+|>>>)(?P<words>.*)$")


def _row(columns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\s+".join(_COLUMNS.get(name, r"\S+") for name in columns) + "$")


_ROW = _row(_COLUMNS)


@dataclass(frozen=True)
class Problem:
    """A matrix of order n in blocks of nb, on a grid of p x q ranks."""

    n: int
    nb: int
    p: int
    q: int

    def __str__(self) -> str:
        return f"n {self.n}, nb {self.nb} on a grid {self.p} x {self.q}"


@dataclass(frozen=True)
class Solution:
    """A solved problem; residual is HPL's scaled one, variant its name for how it was solved.

    line and last_line are the numbers (from 0) of the lines of its result and of its residual.
    """

    problem: Problem
    seconds: float
    gflops: float
    residual: float
    line: int
    last_line: int
    variant: str = ""


def parse(text: str) -> list[Solution]:
    """The problems whose residual check passed; raises ParseError unless all that ran did."""
    solutions, problem = _solved(text)
    if problem:
        raise ParseError(problem)
    return solutions


def _solved(text: str) -> tuple[list[Solution], str]:
    """The same, and why a result is none of them; raises ParseError where there is none at all."""
    solutions: list[Solution] = []
    lines = (line.split() for line in text.splitlines())
    pattern = _row(next((one for one in lines if _COLUMNS.keys() <= {*one}), _COLUMNS))
    row: tuple[int, re.Match[str]] | None = None
    orphan = wrong = ""
    kept = False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if line.startswith(">>>") and _ERROR.match(line):
            raise ToolFailed(f"HPL refused its input in line {number}: {line.strip('<> ')}.")
        if match := pattern.match(line):
            if row:
                break
            row, kept = (number, match), False
        elif match := _RESIDUAL.match(line):
            if match["verdict"] == "FAILED":
                solutions = solutions[: -1 if kept else None]
                wrong = wrong or (
                    f"HPL's residual check FAILED in line {number} with {match['value']}: the "
                    "result is wrong."
                )
                kept = False
            elif row:
                solutions.append(_solution(row[1], match["value"], row[0] - 1, number - 1))
                kept = True
            elif not solutions:
                orphan = f"HPL has a residual in line {number} and no result before it."
            # HPL 1 has three of each result.
            row = None
    unproved = f"HPL's result in line {row[0]} has no residual check that PASSED." if row else ""
    problem = wrong or unproved or orphan
    if not solutions:
        error = ToolFailed if wrong else ParseError
        nothing = f"HPL gave no result by line {len(text.splitlines())}, expected 'WR...'."
        raise error(problem or nothing)
    return solutions, problem


def recognises(text: str) -> bool:
    """A result, or the head of HPL's output."""
    lines = [line.strip() for line in text.splitlines()]
    known = (_ROW.match(line) or line.startswith("HPLinpack ") for line in lines)
    return any(known) or any(_COLUMNS.keys() <= {*line.split()} for line in lines)


def read(text: str) -> list[Found]:
    """One case of the machines, with at most a node a process."""
    solved, problem = _solved(text)
    ranks = max(one.problem.p * one.problem.q for one in solved)
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    nodes = Nodes(1 if ranks == 1 else None, 1, ranks, processes)
    program = "hpcc" if "HPC Challenge" in text else "xhpl" if "HPLinpack" in text else None
    variants = grouped((one.variant, one) for one in solved)
    found = [
        metric
        for variant, own in variants.items()
        for metric in metrics(own, {"program": program, "variant": variant})
    ]
    warnings, version = (problem,) if problem else (), re.search(r"HPLinpack (\d[\d.]*)", text)
    note = f"HPL {version[1]}" if version else ""
    return [Found("hpl", found, machines=True, nodes=nodes, warnings=warnings, note=note)]


TOOL = Tool("hpl", recognises, read, failed=Found("hpl", (), machines=True))


def metrics(
    solved: Sequence[Solution], more: Mapping[str, str | None], state: str | None = None
) -> list[Metric]:
    """Gflop/s and seconds; a problem that was solved several times has as many samples.

    more: further conditions, such as the program (xhpl or hpcc). state: warm, cold, or None where
    it is not known.
    """
    alike = grouped((one.problem, one) for one in solved)
    found = []
    for problem, own in alike.items():
        conditions = {**asdict(problem), **more}
        worst = {"residual": max(one.residual for one in own)}
        gflops, seconds = tuple(one.gflops for one in own), tuple(one.seconds for one in own)
        found.append(Metric("gflops", "Gflop/s", gflops, state, conditions, observed=worst))
        found.append(Metric("time", "s", seconds, state, conditions))
    return found


def _solution(row: re.Match[str], residual: str, line: int, last_line: int) -> Solution:
    try:
        return Solution(
            Problem(int(row["n"]), int(row["nb"]), int(row["p"]), int(row["q"])),
            seconds=float(row["time"]),
            gflops=float(row["gflops"]),
            residual=float(residual),
            line=line,
            last_line=last_line,
            variant=row["variant"],
        )
    except ValueError:
        raise ParseError(f"HPL's numbers before line {last_line + 1} are none.") from None
