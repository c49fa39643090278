"""A run from facts to teardown, and the record it leaves, whatever its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from nixwulf import benchmarks, engines, gates, link
from nixwulf.case import Case
from nixwulf.engines import Engine
from nixwulf.errors import NixwulfError
from nixwulf.facts import gather
from nixwulf.files import read_json, write_json
from nixwulf.hints import hint_for
from nixwulf.models import PlacedModel
from nixwulf.record import Record
from nixwulf.recording import Findings, log_tails, record_of
from nixwulf.run import Run, RunFailure

# A damaged tensor changed a token at index 30 at the latest, in 30 damages of the random models.
SANITY_TOKENS = 32
Observer = Callable[[str], None]
Tokens = list[int] | list[str]


class References:
    """The single-node tokens that runs are compared with, kept in the run's folder."""

    def __init__(self, folder: Path) -> None:
        """Keep them as one file for each engine, model and seed in a folder."""
        self._folder = folder

    def get(self, case: Case) -> Tokens | None:
        """The tokens of a case's engine, model and seed, if one node has given them."""
        path = self._path(case)
        return read_json(path) if path.exists() else None

    def put(self, case: Case, tokens: Tokens) -> None:
        """Keep tokens for later runs."""
        write_json(self._path(case), tokens)

    def _path(self, case: Case) -> Path:
        model = (case.model_digest or "")[:12]
        return self._folder / f"{case.engine}-{model}-{case.seed}.json"


def run_case(
    run: Run,
    model: PlacedModel | None,
    repetition: int,
    references: References,
    shaped_by: str | None,
    observer: Observer,
) -> Record:
    """Take a run through its phases; every way it can end is a record.

    The observer hears the name of each phase as it starts. KeyboardInterrupt passes through, after
    the teardown.
    """
    started = datetime.now(UTC)
    engine = engines.find(run.case.engine) if run.case.engine else None
    benchmark = benchmarks.find(run.case.benchmark)
    found = Findings()
    phase = "facts"

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        nonlocal phase
        phase = name
        observer(name)
        begin = time.monotonic()
        try:
            yield
        finally:
            found.seconds[name] = round(time.monotonic() - begin, 4)

    try:
        with timed("facts"):
            wanted = (*(engine.programs if engine else ()), *benchmark.programs)
            run.facts = gather(run.nodes, wanted)
        with timed("gates"):
            refused = gates.refusal(run, model)
            if refused:
                raise RunFailure("skipped", f"Gate {refused[0]!r}: {refused[1]}")
        with timed("link"):
            _probe(run, found, "rtt_before")
        if engine:
            with timed("launch"):
                engine.start(run)
            with timed("sanity"):
                _check_text(engine, run, found, references)
        with timed("measure"):
            before = run.fabric_bytes()
            found.metrics = benchmark.measure(run)
            _check_transport(run, found, benchmark.proof_bytes, before, run.fabric_bytes())
            _probe(run, found, "rtt_after")
    except RunFailure as failure:
        _fail(run, found, phase, failure.outcome, failure.reason)
    except NixwulfError as error:
        _fail(run, found, phase, "failed", error.message)
    finally:
        with timed("teardown"):
            run.stop()
    return record_of(run, found, model, repetition, started, shaped_by)


def _fail(run: Run, found: Findings, phase: str, outcome: str, reason: str) -> None:
    found.outcome = outcome
    found.metrics = []
    for process in run.owned:
        if process.background and not process.running and not process.stopped_by_driver:
            program = process.argv[0].rpartition("/")[2]
            reason += f" {program!r} on node {process.node!r} {process.ending()}."
    found.failure = {"phase": phase, "reason": reason}
    hint = hint_for(reason) or next(filter(None, map(hint_for, log_tails(run).values())), None)
    if hint:
        found.failure["hint"] = hint


def _probe(run: Run, found: Findings, moment: str) -> None:
    """Round trips from the head to each worker, and before the run the bandwidth too."""
    for index, worker in enumerate(run.workers):
        if moment == "rtt_before":
            found.links.append({"from": run.head.node.name, "to": worker.node.name})
        trips = link.round_trips(run.head, run.data_address(worker))
        if trips is None:
            raise RunFailure(
                "failed",
                f"No packet from {run.head.node.name!r} to {worker.node.name!r} came back over the "
                f"fabric {run.case.fabric!r}.",
            )
        found.links[index][moment] = trips.document()
        if moment == "rtt_before" and run.fabric is not None:
            stream = link.bandwidth(run.head, worker, run.fabric, run.raw)
            found.links[index]["bandwidth"] = stream.document()


def _check_text(engine: Engine, run: Run, found: Findings, references: References) -> None:
    """Sanity before speed: greedy tokens agree with those of the head alone."""
    expected = references.get(run.case)
    if expected is None:
        expected = engine.greedy_tokens(run.alone(), SANITY_TOKENS)
        references.put(run.case, expected)
    observed = engine.greedy_tokens(run, SANITY_TOKENS)
    difference = first_difference(expected, observed)
    found.sanity["text"] = {
        "agrees": difference is None,
        "expected": expected,
        "observed": observed,
        **({} if difference is None else {"first_difference": difference}),
    }
    if difference is not None:
        raise RunFailure(
            "gibberish",
            f"Greedy token {difference} is {_at(observed, difference)}, and one node gives "
            f"{_at(expected, difference)}.",
        )


def first_difference(expected: Tokens, observed: Tokens) -> int | None:
    """The index of the first token that differs or is missing; none when they agree."""
    for index in range(max(len(expected), len(observed))):
        if _at(expected, index) != _at(observed, index):
            return index
    return None


def _at(tokens: Tokens, index: int) -> int | str:
    return tokens[index] if index < len(tokens) else "missing"


def _check_transport(
    run: Run, found: Findings, least: int, before: dict[str, int], after: dict[str, int]
) -> None:
    moved = {name: after[name] - before[name] for name in after}
    silent = [name for name, moved_bytes in moved.items() if moved_bytes < least]
    if moved:
        found.sanity["transport"] = {"proved": not silent, "bytes": moved}
    if silent:
        raise RunFailure(
            "fallback",
            f"The fabric {run.case.fabric!r} carried only {moved[silent[0]]} bytes of node "
            f"{silent[0]!r} while measuring: the traffic crossed another network, or none.",
        )
