"""A whole sweep: the lab or the cluster brought up, every run of the plan, a record each.

The model of a run is brought to the nodes that read it once in a session.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.files import inside
from nixwulf.core.interrupts import Pool
from nixwulf.core.text import as_typed
from nixwulf.inventory.cluster import Cluster
from nixwulf.llm import Model, PlacedModel, place
from nixwulf.nodes import lab
from nixwulf.nodes.lab.state import NODES_MINIMUM
from nixwulf.nodes.power import PowerSession
from nixwulf.nodes.process import Hold, stop_orphans
from nixwulf.nodes.ssh import Connection, connections, each, open_all
from nixwulf.nodes.transfer import put
from nixwulf.ops.models.push import push, require_all, sha256_on
from nixwulf.ops.recover import recover
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.run import Run, replicas
from nixwulf.results.record import Record, load, save
from nixwulf.sweep.phases import run_case
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.references import ReferenceFolder

_SHOWN_AFTER_S = 1.0
Key = tuple[str, ...]
ModelObserver = Callable[[str, float], None]
"""Called with what is being done, and how much of it is, 0 to 1."""


@dataclass
class Models:
    """What a session has brought to its nodes.

    fetch: whether models that nodes lack are pushed there; observer: shows what takes long.
    """

    fetch: bool = False
    observer: ModelObserver = lambda words, share: None
    _placed: dict[Key, PlacedModel] = field(default_factory=dict)

    def bring(self, run: Run, model: Model, nodes: Mapping[str, Connection]) -> PlacedModel:
        """The run's model on the nodes that read it.

        What is made, copied or hashed meanwhile has limits of its own, and moves that of the run.

        Raises NixwulfError: it cannot be made or brought there, or a node did not answer.
        """
        engine = engines.find(run.case.engine or "")
        readers = run.nodes
        if not engine.model_on_every_node:
            readers = tuple(one.head for one in replicas(run))
        names = [node.node.name for node in readers]
        key = (engine.name, model.digest, *names)
        if key in self._placed:
            return self._placed[key]

        def copy(node: Connection, file: Path, remote: str) -> None:
            words = f"Copying {Path(remote).name} to {node.node.name}"
            with _uncounted(run):
                put(node.until(None), file, remote, self._shown(words))

        if model.random:
            with _uncounted(run):
                engine.random_model(model.random)
        placed = place(model, readers, engine.random_model, copy)
        if self.fetch and placed.missing_on:
            with _uncounted(run):
                self._push(run, placed.path, names, nodes)
            placed = place(model, readers, engine.random_model, copy)
        if model.path and placed.bytes:
            with _uncounted(run):
                shown = self._shown(f"Reading the sha256 of {placed.path}")
                placed = replace(placed, sha256=sha256_on(run.head.until(None), placed.path, shown))
        self._placed[key] = placed
        return placed

    def _push(self, run: Run, path: str, names: list[str], nodes: Mapping[str, Connection]) -> None:
        """Bring a model of the folder of models to nodes; the gate refuses one of elsewhere."""
        name = run.cluster.model_name(path)
        if name is None:
            return
        shown = {one: self._shown(f"Pushing {name} to {one}") for one in names}

        def show(node: str, count: int, size: int) -> None:
            shown[node](count, size)

        require_all(push(run.cluster, nodes, name, names, None, show))

    def _shown(self, words: str) -> Callable[[int, int], None]:
        """An observer of bytes, which shows only what takes long."""
        begin = time.monotonic()

        def show(count: int, size: int) -> None:
            if time.monotonic() - begin > _SHOWN_AFTER_S:
                self.observer(words, count / max(1, size))

        return show


@contextmanager
def _uncounted(run: Run) -> Iterator[None]:
    """What takes as long as it moves is not the run's time."""
    begin = time.monotonic()
    try:
        yield
    finally:
        run.extend(time.monotonic() - begin)


class Observer(Protocol):
    """Called on each event of a sweep."""

    def step(self, words: str) -> None:
        """Something that is no run begins, such as bringing the lab up."""

    def building(self, step: str, share: float) -> None:
        """A long step such as building an engine goes on; share is what is done, 0 to 1."""

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

    hold: keeps other drivers off the nodes. models: what was brought to them.
    """

    cluster: Cluster
    nodes: dict[str, Connection]
    lab: lab.Lab | None = None
    hold: Hold = field(default_factory=lambda: Hold("sweep"))
    models: Models = field(default_factory=Models)
    power: PowerSession = field(default_factory=PowerSession)


def record_path(folder: Path, case: Case, repetition: int) -> Path:
    """Where the record of a run is kept; repetitions are from 0."""
    return inside(folder, f"records/{case.run_name(repetition)}.json")


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
) -> NixwulfError | None:
    """Run what has no record yet, and save a record of each run.

    beside: is called while the nodes are brought up: nothing may run beside what is measured.

    Returns:
        Once a record was saved, what ended the sweep early: a full disk, a lab that did not end, or
        nodes that do not come back after a hang. Else None.

    Raises:
        GateError: no nodes answer.
        NixwulfError: the first record cannot be saved.
    """
    todo = missing_runs(plan, folder)
    if not todo:
        return None
    kept = False
    try:
        with ExitStack() as stack:
            with Pool(1) as pool:
                pool.submit(beside)
                connected = stack.enter_context(session(of_used_nodes(plan, todo), observer))
                connected.models = Models(fetch, observer.building)
            observer.sweep_starts(todo)
            for case, repetition in todo:
                observer.run_starts(case, repetition)
                begin = time.monotonic()
                record = run_one(connected, plan, folder, case, repetition, observer.phase_starts)
                _keep(record, folder, record_path(folder, case, repetition))
                kept = True
                observer.run_ends(record, time.monotonic() - begin)
                if record["outcome"] == "hang" and plan.sweep.recover_after_hang:
                    _recover(connected, plan, case, observer)
    except NixwulfError as error:
        if not kept:
            raise
        return error
    return None


def _keep(record: Record, folder: Path, path: Path) -> None:
    """Save a record; raises NixwulfError where nothing more can be kept: no input is at fault."""
    try:
        again = as_typed("bench", "--resume", folder)
        save(record, path, f"free some space, and go on with {again}")
    except InputError as error:
        raise NixwulfError(error.message) from None


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
    with ExitStack() as stack:
        up = _lab(plan, observer) if plan.cluster.is_lab else None
        if up:
            stack.callback(up.down)
        hold = Hold(f"sweep {plan.sweep.name!r}")
        stack.callback(hold.release)
        nodes = connections(plan.cluster, up.ssh_config if up else None)
        yield _connected(Session(plan.cluster, nodes, up, hold))


def _lab(plan: Plan, observer: Observer) -> lab.Lab:
    """The plan's lab, brought up with the programs of its engines."""
    programs: set[Path] = set()
    for name in sorted({case.engine for case in plan.cases if case.engine}):
        installation = engines.find(name).install_local(observer.building)
        programs |= {program.parent for program in installation.programs.values()}
    observer.step(f"Bringing up the lab: {len(plan.cluster.nodes)} nodes")
    return lab.up(plan.cluster, name=f"bench-{os.getpid()}", path=sorted(programs), lifeline=True)


def _connected(opened: Session) -> Session:
    failures = open_all(opened.nodes.values())
    if failures:
        raise GateError(next(iter(failures.values())))
    opened.hold.take(opened.nodes.values())
    each(stop_orphans, opened.nodes.values())
    return opened


def clear(raw: Path) -> None:
    """Remove what an unfinished run left; raises NixwulfError where it would stay."""
    try:
        shutil.rmtree(raw)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise NixwulfError(
            f"Cannot clear {str(raw)!r}: {error.strerror}; try 'rm -r {shlex.quote(str(raw))}'."
        ) from None


def run_one(
    connected: Session,
    plan: Plan,
    folder: Path,
    case: Case,
    repetition: int,
    observer: Callable[[str], None],
) -> Record:
    """The sealed record of one run of a plan on connected nodes; the first repetition is 0.

    Raw outputs that an unfinished run left are removed. observer hears the name of each phase.
    """
    deadline = time.monotonic() + plan.sweep.limits.wall_s
    names = [node.name for node in case.nodes_of(plan.cluster)]
    nodes = tuple(connected.nodes[name].until(deadline) for name in names)
    name = case.run_name(repetition)
    run = Run(
        name=name,
        case=case,
        cluster=plan.cluster,
        nodes=nodes,
        model="",
        limits=plan.sweep.limits,
        raw=inside(folder, f"raw/{name}"),
        deadline=deadline,
        waived=plan.waived,
        power=connected.power,
    )
    clear(run.raw)
    up, fabric = connected.lab, case.fabric

    def bring(model: str) -> PlacedModel:
        return connected.models.bring(run, plan.sweep.model(model), connected.nodes)

    run.bring_model = bring
    before = os.umask(0o077)  # until a run has ended its raw outputs may hold a secret
    try:
        return run_case(
            run,
            lambda: bring(case.model or ""),
            repetition,
            ReferenceFolder(folder / "references", long_prompts=plan.sweep.long_prompts),
            lambda: up.shaping(fabric) if up and fabric else None,
            observer,
        )
    finally:
        os.umask(before)
