"""Measuring what the search asks for, with the sessions and runs of `nixwulf bench`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from nixwulf.core.interrupts import Pool, held_back
from nixwulf.nodes.facts import gather
from nixwulf.plugins import engines
from nixwulf.plugins.runtime.case import Case, Limits
from nixwulf.results.record import save
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.session import Observer, Session, of_used_nodes, record_path, run_one, session
from nixwulf.tune.search import Decision, SearchState, order

_PROGRESS_S = 120.0


def measure(
    state: SearchState,
    plan: Plan,
    folder: Path,
    budget_s: float,
    observer: Observer,
    on_run_end: Callable[[int], None],
    beside: Callable[[], None] = lambda: None,
) -> Decision:
    """Measure until no other strategy can be better or the time is up; gives why it stopped.

    Args:
        budget_s: seconds from when the nodes are up; no run outlives it.
        on_run_end: gets the place of each strategy whose run has ended.
        beside: called while the nodes are brought up: nothing may run beside a measurement.

    Raises GateError: where nodes cannot be reached.
    """
    cases = [option.case for option in state.options]
    with ExitStack() as stack:
        with Pool(1) as pool:
            pool.submit(beside)
            used = of_used_nodes(plan, [(case, 0) for case in cases])
            connected = stack.enter_context(session(used, observer))
        _leave_out_lacking(state, connected)
        end = time.monotonic() + budget_s
        done: list[tuple[Case, int]] = []
        while True:
            left = end - time.monotonic()
            decision = state.decide(left)
            if decision.next is None:
                return decision
            n = decision.next
            to_come = [n, *(other for other in order(state.ranked()) if other != n)]
            observer.sweep_starts([*done, *((cases[other], 0) for other in to_come)])
            observer.run_starts(cases[n], 0)
            limits = Limits(round(left, 1), min(round(left, 1), _PROGRESS_S))
            within = replace(plan, sweep=replace(plan.sweep, limits=limits))
            begin = time.monotonic()
            record = run_one(connected, within, folder, cases[n], 0, observer.phase_starts)
            took = time.monotonic() - begin
            with held_back():  # a record in the folder that the search does not know is lost
                save(record, record_path(folder, cases[n], 0))
                state.add(n, record, took)
            done.append((cases[n], 0))
            observer.run_ends(record, took)
            on_run_end(n)
            if state.lacks_watts:
                return Decision(None, "no meter gives watts")


def _leave_out_lacking(state: SearchState, connected: Session) -> None:
    """Engines that a node has not, by the facts of all nodes."""
    names = dict.fromkeys(option.engine for option in state.options)
    programs = [program for name in names for program in engines.find(name).programs]
    facts = gather(connected.nodes.values(), programs)
    for n, option in enumerate(state.options):
        engine = engines.find(option.engine)
        for node in option.candidate.nodes:
            if node.name not in facts:
                continue
            lacks = engine.missing(facts[node.name].programs)
            if lacks and n not in state.out:
                state.out[n] = f"node {node.name!r} lacks {lacks}"
