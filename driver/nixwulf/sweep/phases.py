"""A run from facts to teardown, and the record it leaves, whatever its outcome.

Also causes of failures: those that data/hints.toml knows, and what a program says of its own.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from nixwulf.core import web
from nixwulf.core.errors import NixwulfError, one_line
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.secrets import cut
from nixwulf.llm import PlacedModel
from nixwulf.nodes import container, link
from nixwulf.nodes.facts import busy_cpus, gather
from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.gates import context_of_run, examine
from nixwulf.plugins.runtime import speculation
from nixwulf.plugins.runtime.run import Run, RunFailure, of_one_server, replicas
from nixwulf.results.cost import warnings
from nixwulf.results.record import Record, text_of
from nixwulf.sweep import consent, transport
from nixwulf.sweep.power import Watch
from nixwulf.sweep.recording import Findings, bare_record, log_tails, record_of
from nixwulf.sweep.references import ReferenceFolder
from nixwulf.sweep.sanity import check_text

_DEATH_S = 2.0
_TRACE = "driver.traceback"
_MOST_WORDS = 300
_BROKEN = frozenset({"failed", "timeout", "hang"})
Observer = Callable[[str], None]


def run_case(
    run: Run,
    bring: Callable[[], PlacedModel],
    repetition: int,
    references: ReferenceFolder,
    shaped_by: Callable[[], str | None],
    observer: Observer,
) -> Record:
    """Take a run through its phases; each outcome is a record, which can be read back.

    KeyboardInterrupt passes through, after the teardown.

    run: the case on its nodes; its model's paths and its limit in time are set here. bring: brings
    the case's model to the nodes that read it. references: texts of earlier runs, to compare with.
    shaped_by: gives what shapes the fabric of a lab, None on machines.
    """
    started = datetime.now(UTC)
    found = Findings()
    try:
        _take(run, bring, found, references, shaped_by, observer)
        record = record_of(run, found, repetition, started)
        text_of(record, "What the run gave")
    except Exception as error:
        return bare_record(run, found, repetition, started, _words(run, error))
    return record


def _take(
    run: Run,
    bring: Callable[[], PlacedModel],
    found: Findings,
    references: ReferenceFolder,
    shaped_by: Callable[[], str | None],
    observer: Observer,
) -> None:
    """The phases of a run, of which FOUND keeps what they find; the rest is as in `run_case`."""
    engine = engines.find(run.case.engine) if run.case.engine else None
    benchmark = benchmarks.find(run.case.benchmark)
    watch = Watch(run)
    phase = "facts"

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        nonlocal phase
        if name != "teardown" and time.monotonic() > run.deadline:
            raise RunFailure(_too_long(run), "timeout")
        phase = name
        observer(name)
        begin = time.monotonic()
        try:
            yield
        finally:
            found.seconds[name] = round(time.monotonic() - begin, 4)

    try:
        found.shaped_by = shaped_by()  # first: a lab that is gone says so better than its nodes
        if run.case.model is not None:
            with timed("model"):
                _bring(run, found, bring, engine)
        with timed("facts"):
            _look(run, engine, benchmark)
        with timed("gates"):
            _pass_gates(run, found)
        watch.start()
        with timed("link"):
            _probe(run, found, "rtt_before")
        with timed("idle"):
            watch.settle()
        if engine:
            with timed("launch"):
                for one in replicas(run):
                    engine.start(one)
            with timed("sanity"):
                check_text(engine, run, found.model, found, references)
        with timed("measure"):
            _measure(engine, benchmark, run, found, watch)
    except Exception as error:
        _fail(run, found, phase, *_why(run, error))
    finally:
        with timed("teardown"):
            try:
                watch.stop()
            finally:
                run.stop()
    found.power = watch.document(found.metrics)
    run.warnings += [*warnings(found.power), *map(web.warning, consent.in_clear([run.case]))]


def _bring(
    run: Run, found: Findings, bring: Callable[[], PlacedModel], engine: Engine | None
) -> None:
    """The model on its nodes; raises RunFailure where its header shows that it does not split so.

    The plan knew its counts by its name, if at all.
    """
    found.model = bring()
    run.model = found.model.path
    run.tokenizer = found.model.model.tokenizer or ""
    run.sizes = found.model.sizes
    if engine and found.model.sizes:
        shape, case = found.model.sizes.shape, of_one_server(run.case)
        reason = engines.splitting_problem(
            engine.name, engine.splits, shape, case.nodes, case.parallelism or ""
        )
        if reason:
            raise RunFailure(f"By the header of {run.model}, {reason}.", "unsupported")
    if name := speculation.draft_model(run.case.parameters):
        placed = run.bring_model(name)
        if placed.missing_on:
            raise RunFailure(
                f"Node {placed.missing_on!r} has no draft {placed.path!r}; copy it there, or "
                "correct the path in the sweep.",
                "skipped",
            )
        run.draft = placed.path
        run.draft_bytes = placed.bytes or 0
        run.engine_facts["draft"] = placed.path.rpartition("/")[2]
        if placed.sha256:
            run.engine_facts["draft_sha256"] = placed.sha256


def _look(run: Run, engine: Engine | None, benchmark: Benchmark) -> None:
    """Read the facts of the nodes, and what else keeps their processors busy."""
    wanted = (*(engine.programs if engine else ()), *benchmark.programs, *link.PROGRAMS)
    run.facts = gather(run.nodes, wanted)
    _open_toolboxes(run, engine)
    run.facts = busy_cpus(run.nodes, run.facts)


def _pass_gates(run: Run, found: Findings) -> None:
    connections = {node.node.name: node for node in run.nodes}
    results = examine(context_of_run(run, found.model), connections, run.waived)
    found.gates = [result.document() for result in results if result.sentences]
    refusals = [result for result in results if result.state == "refused"]
    if refusals:
        more = sum(len(result.sentences) for result in refusals) - 1
        others = f" ({more} more in the record, below 'gates'.)" if more else ""
        first = refusals[0]
        raise RunFailure(f"Gate {first.gate!r}: {first.sentences[0]}{others}", "skipped")


def _open_toolboxes(run: Run, engine: Engine | None) -> None:
    """Where the case has a toolbox, the engine's programs are those inside; raises RunFailure."""
    if run.case.image is None or engine is None:
        return
    run.engine_facts["image"] = run.case.image
    for node in run.nodes:
        name = node.node.name
        found = container.look(node, run.case.image, run.model, engine.programs)
        if isinstance(found, str):
            raise RunFailure(f"Gate {container.NAME!r}: {found}", "skipped")
        run.toolboxes[name] = found
        own = run.facts[name].programs.items()
        others = {program: place for program, place in own if program not in engine.programs}
        facts = replace(run.facts[name], programs={**others, **found.programs})
        run.facts = {**run.facts, name: facts}


def _why(run: Run, error: Exception) -> tuple[str, str]:
    """The outcome that an exception makes, and its reason."""
    if isinstance(error, RunFailure):
        outcome, reason = error.outcome, error.reason
    else:
        outcome, reason = "failed", _words(run, error)
    foreseen = isinstance(error, RunFailure | NixwulfError)
    if foreseen and outcome == "failed" and time.monotonic() > run.deadline:
        return "timeout", f"{_too_long(run)} {reason}"
    return outcome, reason


def _words(run: Run, error: Exception) -> str:
    """A sentence for an exception that is no outcome of a run.

    Of what nobody foresaw (an answer like none before, a full disk) the place is kept in raw/.
    """
    if isinstance(error, NixwulfError):
        return error.message
    with suppress(OSError):
        run.raw.mkdir(parents=True, exist_ok=True)
        (run.raw / _TRACE).write_text("".join(traceback.format_exception(error)), "utf-8")
    words = f"{type(error).__name__}: {cut(str(error), _MOST_WORDS)}"
    name = run.raw.name
    return (
        f"The driver cannot go on with what it met ({words}); report it with raw/{name}/{_TRACE}. "
        f"To try again, remove records/{name}.json and give its folder to 'nixwulf bench --resume'."
    )


def _too_long(run: Run) -> str:
    return f"The run took longer than {run.limits.wall_s:g} s."


def _fail(run: Run, found: Findings, phase: str, outcome: str, reason: str) -> None:
    found.outcome = outcome
    found.metrics = []
    # A client can hear of its server's death before the driver does, which hears of it over ssh.
    until = time.monotonic() + _DEATH_S
    while outcome == "failed" and run.servers and time.monotonic() < until:
        if deaths := run.deaths():
            reason += deaths
            break
        time.sleep(0.02)
    # A run that was judged, not broken, has in its logs how its programs took being stopped.
    broken = outcome in _BROKEN
    cause = raised(run.owned) if broken else ""
    reason = _with_cause(reason, cause)
    found.failure = {"phase": "link" if phase == "idle" else phase, "reason": one_line(reason)}
    # Where a program gives its cause, what others print because of it is no hint.
    texts = [cause] if cause else [reason, *(log_tails(run).values() if broken else ())]
    hint = next(filter(None, map(hint_for, texts)), None)
    if hint:
        found.failure["hint"] = hint


def _with_cause(reason: str, cause: str) -> str:
    """A reason and what a program gave as the cause, whose words stand there once."""
    said = cause.partition(" says ")[2].rstrip(".")
    if said in reason:
        return reason
    for start in (match.start() for match in re.finditer(r"\b\w", reason)):
        if said.startswith(reason[start:].rstrip(".")):
            return f"{reason[:start]}{said}."
    return f"{reason.rstrip('.')}. {cause}"


def _probe(run: Run, found: Findings, moment: str) -> None:
    """Round trips over each link, and before the run its bandwidth too."""
    links = [pair for one in replicas(run) for pair in one.links]
    for index, (source, target) in enumerate(links):
        if moment == "rtt_before":
            found.links.append({"from": source.node.name, "to": target.node.name})
        address = run.data_address(target, source)
        trips = link.round_trips(source, address, system=run.facts[source.node.name].system)
        if trips is None:
            raise RunFailure(
                f"No packet from {source.node.name!r} to {target.node.name!r} came back over the "
                f"fabric {run.case.fabric!r}."
            )
        found.links[index][moment] = trips.document()
        if moment == "rtt_before" and run.fabric is not None:
            stream = link.bandwidth(source, target, run.fabric, run.raw)
            found.links[index]["bandwidth"] = stream.document()


def _measure(
    engine: Engine | None, benchmark: Benchmark, run: Run, found: Findings, watch: Watch
) -> None:
    run.prove_from_here()
    with watch.measuring():
        found.metrics = benchmark.measure(run)
    _check_transport(engine, benchmark, run, found)
    _probe(run, found, "rtt_after")


def _check_transport(
    engine: Engine | None, benchmark: Benchmark, run: Run, found: Findings
) -> None:
    """Counters of all nodes, then the engine's own output, have to agree with the case."""
    fabric, asked = run.case.fabric, run.case.transport
    if fabric is None or asked is None:
        return
    before, after = run.proof_from, run.counters()
    nodes = {
        node.node.name: transport.traffic(
            run.ends(node), before[node.node.name], after[node.node.name]
        )
        for node in run.nodes
    }
    problem: str | None = None
    unproved: str | None = transport.NOT_STARTED
    if not (engine and engine.elsewhere):
        known_by = (engine or benchmark).rdma_known_by or None
        problem = transport.problem(fabric, asked, nodes, benchmark.proof_bytes, known_by)
        if engine and not problem:
            problem = next(filter(None, map(engine.transport_problem, replicas(run))), None)
        unproved = None if problem else transport.uncounted(asked, nodes, known_by)
    found.sanity["transport"] = transport.document(asked, nodes, problem, unproved)
    if problem:
        raise RunFailure(problem, "fallback")
    if unproved:
        run.warnings.append(f"The transport is not proved: {unproved}.")


_LONGEST = 300
# The last line of a Python traceback, which begins where the log's own words end.
_LOGGED = re.compile(r"(?:\([^()]*\) )*(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^]]*\] )?")
_RAISED = re.compile(r"((?:\w+\.)*\w*(?:Error|Exception))(: .+)?")
# pydantic's, on whose next lines the first field that was refused stands, and why.
_REFUSED = re.compile(r"\d+ validation errors? for ")
# Such as vLLM's, which say of a process no more than that another one has ended.
_SECOND_HAND = re.compile(
    r"\babove\b|EngineDead|closed by peer|reset by peer|Broken pipe|cancelled|BrokenPipe|EOFError"
)


@dataclass(frozen=True)
class Hint:
    """What a reader sees, the pattern of it in an output, its meaning, and the next step."""

    symptom: str
    pattern: str
    cause: str
    fix: str


_DATA = DATA / "hints.toml"
HINTS = tuple(Hint(**row) for row in read_toml(_DATA)["hints"])


def hint_for(text: str) -> str | None:
    """The meaning and the fix of the first known pattern in a text; None when nothing is known."""
    for hint in HINTS:
        if re.search(hint.pattern, text, re.IGNORECASE):
            return f"{hint.cause[0].upper()}{hint.cause[1:]}: {hint.fix}."
    return None


def raised(processes: Iterable[OwnedProcess]) -> str:
    """What the process that failed first says of why, as a sentence with its node; or empty.

    Of each it is the last exception that is not about another process. What a process says that
    the driver stopped counts where no other one gives a cause: it can be of the stop itself.
    """
    found = []
    for process in processes:
        for text, times in (
            (process.output, process.stdout_times),
            (process.errors, process.stderr_times),
        ):
            lines = [_LOGGED.sub("", line, count=1).rstrip() for line in text.splitlines()]
            for number in reversed(range(len(lines))):
                match = _RAISED.fullmatch(lines[number])
                if match and not _SECOND_HAND.search(match[0]):
                    when = times[number] if number < len(times) else float("inf")
                    words = cut(_exception(match, lines, number), _LONGEST)
                    found.append((process.stopped_by_driver, when, process.node, words))
                    break
    *_, node, words = min(found, default=(False, 0.0, "", ""))
    return f"Node {node!r} says {words.rstrip('.')}." if words else ""


def _exception(match: re.Match[str], lines: Sequence[str], number: int) -> str:
    """The words of the exception on one of the lines, with those that say why on other lines."""
    if not match[2]:
        # An assertion has no words but its own line, which may be underlined.
        before = (one.strip() for one in reversed(lines[:number]))
        return f"{match[0]}: {next(filter(lambda one: one.strip('^~ '), before), '')}"
    if _REFUSED.search(match[2]):
        return ": ".join([match[0], *(one.strip() for one in lines[number + 1 : number + 3])])
    return match[0]
