"""A run of a cluster that nobody has: what would be started is kept, and nothing is."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.facts import Facts
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Run
from nixwulf.sweep.plan import make_plan, parse_sweep


class Started(NamedTuple):
    """One process of the launch plan, by the name of its node."""

    node: str
    name: str
    argv: list[str]
    environment: dict[str, str]
    after: list[str]


class Silent(OwnedProcess):
    """A process that was never started and never ends."""

    @property
    def running(self):
        """For as long as the test."""
        return self.returncode is None

    def stop(self):
        """Nothing is there to stop."""


@dataclass(frozen=True)
class Answering(Connection):
    """A node that answers scripts with nothing and commands with a text by one of their words."""

    answers: dict[str, str] = field(default_factory=dict, hash=False)

    def script(self, text, *arguments, timeout_s=60):
        """Nothing is there."""
        return self.answers.get("script", "")

    def run(self, command, *, stdin=None, timeout_s=60):
        """The text that was prepared for one of the command's words."""
        text = next((text for word, text in self.answers.items() if word in command), "")
        return subprocess.CompletedProcess(command, 0, text, "")


@dataclass
class Planned(Run):
    """Keeps what it was asked to start."""

    started: list[Started] = field(default_factory=list)

    def start(self, node, name, argv, environment, *, background=False, after=()):
        """Keep it, and pretend that it runs."""
        self.started.append(
            Started(node.node.name, name, list(argv), dict(environment), list(after))
        )
        full = f"{name}-{node.node.name}"
        process = Silent(
            node.node.name,
            f"nixwulf-{self.raw.name}-{full}",
            tuple(argv),
            dict(environment),
            self.raw / f"{full}.stdout",
            self.raw / f"{full}.stderr",
            background,
        )
        self.owned.append(process)
        return process


def facts_with(programs):
    """The facts of a node that has programs, by their places."""
    return Facts("", "", "", 0, 0, "", 0, "", programs, {}, frozenset(), {})


def planned(folder: Path, cluster: str, model: dict, matrix: dict, answers=None, **programs):
    """The first case of a matrix on a cluster of clusters/."""
    document = {"name": "plan", "models": {"m": model}, "matrix": {"model": ["m"], **matrix}}
    plan = make_plan(parse_sweep(document, "plan.yaml"), load_cluster(cluster))
    case = plan.cases[0]
    nodes = tuple(Answering(node, (), dict(answers or {})) for node in case.nodes_of(plan.cluster))
    return Planned(
        name="run",
        scratch="/tmp/nixwulf-1",
        case=case,
        cluster=plan.cluster,
        nodes=nodes,
        model=model.get("path") or model.get("id", ""),
        limits=Limits(),
        raw=folder / "run",
        deadline=float("inf"),
        facts={node.node.name: facts_with(programs) for node in nodes},
    )
