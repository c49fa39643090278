"""A whole sweep: the lab or the cluster brought up, every run of the plan, a record each."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from nixwulf.core.errors import GateError, InputError
from nixwulf.core.interrupts import Pool
from nixwulf.inventory.cluster import Cluster
from nixwulf.llm import PlacedModel, place
from nixwulf.nodes import lab
from nixwulf.nodes.hold import Hold
from nixwulf.nodes.lab.state import NODES_MINIMUM
from nixwulf.nodes.power.samples import PowerSession
from nixwulf.nodes.process import stop_orphans
from nixwulf.nodes.ssh import Connection, connections, each, open_all
from nixwulf.ops.models.machines import sha256_on
from nixwulf.ops.models.push import push, require_all
from nixwulf.ops.recover.ladder import recover
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.run import Case, Run
from nixwulf.results.record import Record, load, save
from nixwulf.sweep.phases import run_case
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.recording import without_values
from nixwulf.sweep.sanity import References


class Observer(Protocol):
    """Called on each event of a sweep."""

    def step(self, words: str) -> None:
        """Something that is no run begins, such as bringing the lab up."""

    def building(self, step: str, share: float) -> None:
        """A step of building an engine goes on; share is what is done of it, 0 to 1."""

    def sweep_starts(self, runs: Sequence[tuple[Case, int]]) -> None:
        """These runs are to come, each a case and its repetition (from 0), in this order."""

    def run_starts(self, case: Case, repetition: int) -> None:
        """The next run begins."""

    def phase_starts(self, phase: str) -> None:
        """The run that goes on reaches a phase."""

    def run_ends(self, record: Record, seconds: float) -> None:
        """The run has ended and its record is saved."""


@dataclass
class Session:
    """The connected nodes of a cluster, and the lab when it is one.

    hold: keeps other drivers off the nodes. fetch: whether models that nodes lack are pushed
    there; step: called with what takes long.
    """

    cluster: Cluster
    nodes: dict[str, Connection]
    lab: lab.Lab | None = None
    hold: Hold = field(default_factory=lambda: Hold("sweep"))
    placed: dict[tuple[str, ...], PlacedModel] = field(default_factory=dict)
    power: PowerSession = field(default_factory=PowerSession)
    fetch: bool = False
    step: Callable[[str], None] = lambda words: None


def record_path(folder: Path, case: Case, repetition: int) -> Path:
    """Where the record of a run is kept.

    Args:
        folder: of the sweep.
        case: the point of the matrix.
        repetition: of the case, from 0.
    """
    return folder / "records" / f"{case.run_name(repetition)}.json"


def builds(plan: Plan) -> bool:
    """Whether an engine of the plan is not on this machine and is made for the lab's nodes."""
    names = {case.engine for case in plan.cases if case.engine} if plan.cluster.is_lab else ()
    needed = [engines.find(name) for name in names]
    return any(engine.recipe() and not engine.find_local() for engine in needed)


def missing_runs(plan: Plan, folder: Path) -> list[tuple[Case, int]]:
    """The runs of a plan that have no record yet; raises InputError for an invalid record."""
    missing = []
    for case, repetition in plan.runs():
        path = record_path(folder, case, repetition)
        if path.exists():
            load(path)
        else:
            missing.append((case, repetition))
    return missing


def run_plan(
    plan: Plan,
    folder: Path,
    observer: Observer,
    beside: Callable[[], None] = lambda: None,
    *,
    fetch: bool = False,
) -> None:
    """Run what has no record yet, and save a record of each run.

    Args:
        plan: the cases and their repetitions.
        folder: where records go, and where those of earlier runs are.
        observer: is notified of each step.
        beside: is called while the nodes are brought up: nothing may run beside what is measured.
        fetch: whether models that nodes lack are pushed there.

    Raises:
        GateError: no nodes answer.
        NixwulfError: a model that nodes lack cannot be pushed.
    """
    todo = missing_runs(plan, folder)
    if not todo:
        return
    with ExitStack() as stack:
        with Pool(1) as pool:
            pool.submit(beside)
            connected = stack.enter_context(session(of_used_nodes(plan, todo), observer))
            connected.fetch, connected.step = fetch, observer.step
            _placed(connected, plan, todo[0][0])
        observer.sweep_starts(todo)
        for case, repetition in todo:
            observer.run_starts(case, repetition)
            begin = time.monotonic()
            record = run_one(connected, plan, folder, case, repetition, observer.phase_starts)
            path = record_path(folder, case, repetition)
            try:
                save(record, path)
            except InputError as error:
                save(record := without_values(record, error), path)
            observer.run_ends(record, time.monotonic() - begin)
            if record["outcome"] == "hang" and plan.sweep.recover_after_hang:
                _recover(connected, plan, case, observer)


def of_used_nodes(plan: Plan, todo: Sequence[tuple[Case, int]]) -> Plan:
    """The plan on a lab of the nodes that it takes; a recovery may also need their neighbours."""
    if not plan.cluster.is_lab or plan.sweep.recover_after_hang:
        return plan
    most = max(NODES_MINIMUM, *(case.nodes for case, _ in todo))
    return replace(plan, cluster=replace(plan.cluster, nodes=plan.cluster.nodes[:most]))


def _recover(connected: Session, plan: Plan, case: Case, observer: Observer) -> None:
    """Bring the nodes of a case back after a hang; raises GateError when they do not come."""
    names = [node.name for node in case.nodes_of(plan.cluster)]
    observer.step(f"Recovering {', '.join(names)} after a hang")
    for node in connected.nodes.values():
        node.close()
    found = recover(
        plan.cluster,
        connected.nodes,
        names,
        lambda name, words: observer.step(f"{name}: {words}"),
        waived=plan.waived,
    )
    for group in found:
        if group.step is None:
            raise GateError(
                f"{', '.join(group.nodes)} cannot be recovered: {group.words} What was measured is "
                "kept; go on with 'nixwulf bench --resume' and the folder of the run."
            )
    _connected(connected)


@contextmanager
def session(plan: Plan, observer: Observer) -> Iterator[Session]:
    """The nodes of a plan's cluster, connected and held; a lab lives as long as the session."""
    hold = Hold(f"sweep {plan.sweep.name!r}")
    if not plan.cluster.is_lab:
        try:
            yield _connected(Session(plan.cluster, connections(plan.cluster), hold=hold))
        finally:
            hold.release()
        return
    programs: set[Path] = set()
    for name in sorted({case.engine for case in plan.cases if case.engine}):
        installation = engines.find(name).install_local(observer.building)
        programs |= {program.parent for program in installation.programs.values()}
    observer.step(f"Bringing up the lab: {len(plan.cluster.nodes)} nodes")
    up = lab.up(plan.cluster, name=f"bench-{os.getpid()}", path=sorted(programs), lifeline=True)
    try:
        nodes = connections(plan.cluster, up.ssh_config)
        yield _connected(Session(plan.cluster, nodes, up, hold))
    finally:
        hold.release()
        up.down()


def _connected(opened: Session) -> Session:
    failures = open_all(opened.nodes.values())
    if failures:
        raise GateError(next(iter(failures.values())))
    opened.hold.take(opened.nodes.values())
    each(stop_orphans, opened.nodes.values())
    return opened


def run_one(
    connected: Session,
    plan: Plan,
    folder: Path,
    case: Case,
    repetition: int,
    observer: Callable[[str], None],
) -> Record:
    """Do one run of a plan on connected nodes.

    Args:
        connected: the session whose nodes run it.
        plan: gives the cluster, the models, the limits and the waived gates.
        folder: the run folder; raw outputs that an unfinished run left there are removed.
        case: what to run.
        repetition: its index, from 0.
        observer: called with the name of each phase as it starts.

    Returns:
        The sealed record, whatever the outcome.
    """
    deadline = time.monotonic() + plan.sweep.limits.wall_s
    names = [node.name for node in case.nodes_of(plan.cluster)]
    nodes = tuple(connected.nodes[name].until(deadline) for name in names)
    placed = _placed(connected, plan, case)
    name = case.run_name(repetition)
    run = Run(
        name=name,
        case=case,
        cluster=plan.cluster,
        nodes=nodes,
        model=placed.path if placed else "",
        limits=plan.sweep.limits,
        raw=folder / "raw" / name,
        deadline=deadline,
        waived=plan.waived,
        power=connected.power,
        tokenizer=(placed.model.tokenizer or "") if placed else "",
    )
    shutil.rmtree(run.raw, ignore_errors=True)
    shaped_by = connected.lab.shaping(case.fabric) if connected.lab and case.fabric else None
    references = References(folder / "references")
    judged = bool(plan.sweep.expect)
    return run_case(run, placed, repetition, references, shaped_by, observer, judged)


def _placed(connected: Session, plan: Plan, case: Case) -> PlacedModel | None:
    """The case's model on the nodes that read it, brought there once in a session."""
    if case.engine is None or case.model is None:
        return None
    engine = engines.find(case.engine)
    count = case.nodes if engine.model_on_every_node else 1
    readers = [connected.nodes[node.name] for node in case.nodes_of(plan.cluster)[:count]]
    key = (case.engine, case.model_digest or "", *(node.node.name for node in readers))
    if key not in connected.placed:
        model = plan.sweep.models[case.model]
        placed = place(model, readers, engine.random_model)
        if connected.fetch and placed.missing_on:
            _push(connected, placed.path, [node.node.name for node in readers])
            placed = place(model, readers, engine.random_model)
        if model.path and placed.bytes:
            connected.step(f"Reading the sha256 of {placed.path}")
            placed = replace(placed, sha256=sha256_on(readers[0], placed.path))
        connected.placed[key] = placed
    return connected.placed[key]


def _push(connected: Session, path: str, names: list[str]) -> None:
    """Bring a model of the folder of models to nodes; the gate refuses one of elsewhere."""
    name = connected.cluster.model_name(path)
    if name is not None:
        connected.step(f"Pushing {name} to {', '.join(names)}")
        done = push(connected.cluster, connected.nodes, name, names, None, lambda *_: None)
        require_all(done)
