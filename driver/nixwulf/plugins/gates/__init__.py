"""Gates: conditions that must hold before a case runs, each with its reason and its fix.

A module of this package has some in its tuple GATES. A gate is judged from the facts of a node;
where they are not enough, a command is run on the nodes that it concerns, and its output too. All
such commands of a node are one round trip.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from nixwulf.core.registry import choose, discover
from nixwulf.core.text import as_typed
from nixwulf.inventory.cluster import LAB_PLATFORM, Cluster, Fabric, Node
from nixwulf.inventory.fabrics import Attachment
from nixwulf.inventory.platforms import load_platform
from nixwulf.nodes import macos
from nixwulf.nodes.facts import Facts
from nixwulf.nodes.ssh import Connection, Unreachable, each

if TYPE_CHECKING:
    from nixwulf.llm import PlacedModel
    from nixwulf.plugins.benchmarks import Benchmark
    from nixwulf.plugins.engines import Engine
    from nixwulf.plugins.runtime.case import Case
    from nixwulf.plugins.runtime.run import Run

LINUX = ("Linux",)
MACOS = macos.SYSTEM
LINUX_AND_MACOS = (*LINUX, MACOS)
GateState = Literal["ok", "refused", "waived", "unknown", "not applicable"]
_platform = cache(load_platform)
_MARK = "nixwulf-gate:"
_LIMIT_S = 60


@dataclass(frozen=True)
class Crossing:
    """A fabric, and whether RDMA is to cross it."""

    fabric: Fabric
    rdma: bool


@dataclass(frozen=True)
class GateContext:
    """What gates are held against: the nodes of a case, or all of a cluster.

    case, engine, benchmark and model are None where no case is about to run. answers: by gate and
    node, what the gate's command printed; asked: the driver's time before and after that.
    draft_bytes: of the files of a model that drafts.
    """

    nodes: tuple[Node, ...]
    facts: Mapping[str, Facts]
    crossings: tuple[Crossing, ...] = ()
    cluster: Cluster | None = None
    case: Case | None = None
    engine: Engine | None = None
    benchmark: Benchmark | None = None
    model: PlacedModel | None = None
    draft_bytes: int = 0
    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    asked: tuple[float, float] = (0.0, 0.0)

    def crossings_of(self, node: Node) -> tuple[Crossing, ...]:
        """The fabrics that a node is on."""
        return tuple(c for c in self.crossings if c.fabric.name in node.fabric_names)

    def ends_of(self, node: Node, fabric: Fabric) -> tuple[Attachment, ...]:
        """A node's ports on a fabric, of cables those that lead to nodes of the context."""
        return node.ends(fabric.name, [other.name for other in self.nodes if other is not node])

    def answer(self, gate: str, node: Node) -> str:
        """What a gate's command printed on a node; empty where it was not run."""
        return self.answers.get(gate, {}).get(node.name, "")

    def platform(self, node: Node) -> Mapping[str, Any]:
        """The facts of a node's platform."""
        return _platform(node.platform)

    def installing(self, engine: Engine) -> str:
        """What brings one version of an engine to the nodes, as a clause."""
        if engine.node_build() and self.cluster:
            return f"run {as_typed('engines', 'install', '--cluster', self.cluster.source)}"
        return f"install one version of {engine.name}"

    @property
    def is_case(self) -> bool:
        """Whether a case is about to run."""
        return self.case is not None

    @property
    def uses_gpu(self) -> bool:
        """Whether a platform's GPU matters: not to the machines' own speed, nor to a CPU case."""
        if self.case is None:
            return True
        return self.engine is not None and self.case.parameters.get("backend") != "cpu"


@dataclass(frozen=True)
class Verdict:
    """A gate's judgement of a node: refused, or unknown; a sentence why, with the next command."""

    state: Literal["refused", "unknown"]
    sentence: str


def refused(sentence: str) -> Verdict:
    """The gate does not hold."""
    return Verdict("refused", sentence)


def unknown(sentence: str) -> Verdict:
    """Whether the gate holds is not known."""
    return Verdict("unknown", sentence)


@dataclass(frozen=True)
class Gate:
    """One condition; holds, reads and fix document it, and judge yields nothing when it holds.

    systems: those of which it can read what it judges by, None for any. command: what to run on a
    node before judging, None where the facts are enough. slows: what is slower where it does not
    hold: all that nodes do, what their CPUs do, or the link; empty: nothing, or nothing runs.
    """

    name: str
    holds: str
    reads: str
    fix: str
    concerns: Callable[[GateContext, Node], bool]
    judge: Callable[[GateContext, Node], Iterable[Verdict]]
    command: Callable[[GateContext, Node], Sequence[str] | None] = lambda context, node: None
    systems: tuple[str, ...] | None = LINUX
    slows: Literal["nodes", "processors", "link", ""] = ""

    def reads_of(self, facts: Facts) -> bool:
        """Whether it can be judged by the facts of a node of this system."""
        return self.systems is None or facts.system in self.systems


@dataclass(frozen=True)
class GateResult:
    """What became of one gate on one node."""

    gate: str
    node: str
    state: GateState
    sentences: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As in a record and in preflight's JSON."""
        return {
            "gate": self.gate,
            "node": self.node,
            "state": self.state,
            "sentences": list(self.sentences),
        }


@cache
def all_gates() -> dict[str, Gate]:
    """Every gate by name."""
    return cast(dict[str, Gate], discover(sys.modules[__name__], "GATES"))


def known_names(names: Iterable[str], option: str = "--waive") -> tuple[str, ...]:
    """Names of gates, each once and sorted; raises InputError for one that is no gate's."""
    return tuple(sorted({choose(all_gates(), name, "gate", option).name for name in names}))


def context_of_run(run: Run, model: PlacedModel | None) -> GateContext:
    """What a run's gates are held against."""
    from nixwulf.plugins import benchmarks, engines

    case = run.case
    crossing = (Crossing(run.fabric, case.transport == "rdma"),) if run.fabric else ()
    return GateContext(
        nodes=tuple(node.node for node in run.nodes),
        facts=run.facts,
        crossings=crossing,
        cluster=run.cluster,
        case=case,
        engine=engines.find(case.engine) if case.engine else None,
        benchmark=benchmarks.find(case.benchmark),
        model=model,
        draft_bytes=run.draft_bytes,
    )


def context_of_cluster(cluster: Cluster, facts: Mapping[str, Facts]) -> GateContext:
    """All nodes with facts, on all fabrics, and RDMA wherever a fabric carries it."""
    return GateContext(
        nodes=tuple(node for node in cluster.nodes if node.name in facts),
        facts=facts,
        cluster=cluster,
        crossings=tuple(Crossing(f, "rdma" in f.transports) for f in cluster.fabrics.values()),
    )


def result_of(gate: Gate, context: GateContext, node: Node, waived: Sequence[str]) -> GateResult:
    """Judge one gate on one node by what is known."""
    if not gate.concerns(context, node):
        return GateResult(gate.name, node.name, "not applicable")
    if not gate.reads_of(context.facts[node.name]):
        only = " and macOS" if MACOS in (gate.systems or ()) else ""
        why = f"Node {node.name!r} runs no Linux, and nixwulf reads this of Linux{only} only."
        return GateResult(gate.name, node.name, "unknown", (why,))
    verdicts = list(gate.judge(context, node))
    against = tuple(v.sentence for v in verdicts if v.state == "refused")
    if against:
        state: GateState = "waived" if gate.name in waived else "refused"
        return GateResult(gate.name, node.name, state, against)
    open_ = tuple(v.sentence for v in verdicts)
    return GateResult(gate.name, node.name, "unknown" if open_ else "ok", open_)


def on_lab(node: Node) -> bool:
    """Whether a node is a namespace, whose hardware is another machine's."""
    return node.platform == LAB_PLATFORM


def pairs(context: GateContext, node: Node) -> Iterator[tuple[Crossing, Node]]:
    """Every other node that a fabric joins with a node, with that fabric."""
    for crossing in context.crossings_of(node):
        for other in context.nodes:
            if other is not node and other.end_to(crossing.fabric.name, node.name):
                yield crossing, other


def examine(
    context: GateContext,
    connections: Mapping[str, Connection],
    waived: Sequence[str],
    gates: Iterable[Gate] | None = None,
) -> list[GateResult]:
    """The result of every gate on every node, by gate and then by node.

    Commands are run only where the facts alone refuse nothing that is not waived: a node without
    an address has no path to probe.
    """
    chosen = list(all_gates().values() if gates is None else gates)
    commands = {
        (gate.name, node.name): command
        for gate in chosen
        for node in context.nodes
        if gate.concerns(context, node) and gate.reads_of(context.facts[node.name])
        if (command := gate.command(context, node))
    }
    results = {
        (gate.name, node.name): result_of(gate, context, node, waived)
        for gate in chosen
        for node in context.nodes
        if (gate.name, node.name) not in commands
    }
    refusal = next((r for r in results.values() if r.state == "refused"), None)
    if refusal is None and commands:
        before = time.time()
        answers = _ask(context, connections, commands)
        context = replace(context, answers=answers, asked=(before, time.time()))

    def asked(gate: Gate, node: Node) -> GateResult:
        if refusal is None:
            return result_of(gate, context, node, waived)
        why = f"Not asked, because gate {refusal.gate!r} refuses {refusal.node!r}."
        return GateResult(gate.name, node.name, "unknown", (why,))

    return [
        results.get((gate.name, node.name)) or asked(gate, node)
        for gate in chosen
        for node in context.nodes
    ]


def _ask(
    context: GateContext,
    connections: Mapping[str, Connection],
    commands: Mapping[tuple[str, str], Sequence[str]],
) -> dict[str, dict[str, str]]:
    """What the commands print, by gate and node; each node runs all of its own in one script."""

    def ask(node: Node) -> dict[str, str]:
        script = "".join(
            f"echo {_MARK}{gate}; {shlex.join(command)} 2>&1 </dev/null; echo\n"
            for (gate, name), command in commands.items()
            if name == node.name
        )
        if not script:
            return {}
        try:
            done = connections[node.name].run(["sh", "-c", script], timeout_s=_LIMIT_S)
        except Unreachable as error:
            return {gate: error.message for gate, name in commands if name == node.name}
        parts = f"\n{done.stdout}".split(f"\n{_MARK}")[1:]
        return {gate: text.strip() for gate, _, text in (part.partition("\n") for part in parts)}

    answers: dict[str, dict[str, str]] = {}
    for node, by_gate in zip(context.nodes, each(ask, context.nodes), strict=True):
        for gate, text in by_gate.items():
            answers.setdefault(gate, {})[node.name] = text
    return answers
