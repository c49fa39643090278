"""A search on a terminal: the ranking, each measurement beside its prediction, the best one.

Also what a search does not try, and why (nothing of it is among the strategies that are ranked),
and how to serve a measured strategy, as the command lines of the user's machine.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from nixwulf.core.document import Table, rich_table, say
from nixwulf.core.files import cache_dir
from nixwulf.core.text import Band, format_significant, plural
from nixwulf.inventory.cluster import Cluster
from nixwulf.nodes.lab.node import HOME
from nixwulf.nodes.lab.state import state_of
from nixwulf.perf.scenarios.render import ASSUMED
from nixwulf.plugins import engines
from nixwulf.plugins.engines.serving import Serving, Started, Written, measured_run
from nixwulf.plugins.runtime.run import servers_of
from nixwulf.results.identity import REPLICAS
from nixwulf.results.record import Record
from nixwulf.tune.options import Request, first_of_each_reason, no_watts
from nixwulf.tune.search import Decision, Ranked, SearchState, best, order, ranking


def not_tried(request: Request) -> tuple[str, ...]:
    """Sentences, those about engines first."""
    return (*_engines(request), *_strategies(request))


def _engines(request: Request) -> Iterator[str]:
    for name, engine in engines.all_engines().items():
        if name in request.engines:
            continue
        if engine.elsewhere:
            yield f"{name}: it measures a server that already runs, and starts none"
        elif name not in request.subject.engines:
            forms = " or ".join(engine.model_suffixes) or "a folder of Hugging Face's form"
            yield f"{name}: it reads {forms}, not this model"
        elif request.cluster.is_lab and not engine.find_local():
            yield f"{name}: it is not on this machine ('nixwulf engines' says how to get it)"
        else:
            yield f"{name}: --engine names others"


def _strategies(request: Request) -> Iterator[str]:
    if len(request.cluster.nodes) > 1:
        if not request.goal.loaded:
            yield f"{REPLICAS}: one request at a time is served by one node, which is ranked"
        yield "prompts on some nodes and answers on others: the driver starts no engine so"
        yield "other nodes than the first ones: a case takes the cluster's nodes in their order"
    yield "other quantizations and drafts of tokens: the model is taken as it is"
    yield "other parameters of an engine: each has its default; vary them in a sweep"


_LAB = "serve"
_APART = (
    "Each replica answers on a port of its own; in the measurement each request went to that with "
    "the fewest in flight."
)


@dataclass(frozen=True)
class ServeCommands:
    """Lines in the order of typing; first and last end by themselves, servers run until Ctrl-C."""

    first: tuple[str, ...]
    servers: tuple[str, ...]
    then: tuple[str, ...]
    last: tuple[str, ...]


def serving(record: Record, cluster: Cluster, slots: int) -> Serving:
    """Return the commands that serve a measured strategy."""
    engine = engines.find(record["case"]["engine"])
    run = measured_run(engine, record, cluster, slots)
    if servers_of(run.case) == 1:
        return engine.serve_commands(run)
    first, *others = map(engine.serve_commands, run.alone())
    return replace(first, replicas=tuple(others), notes=(*first.notes, _APART))


def serve_commands(served: Serving, cluster: Cluster, named: str) -> ServeCommands:
    """The lines to type, over the user's ssh; the head's port comes with the server that answers.

    A lab is brought up first, for that of the measurements has ended, and its nodes' homes with it.
    """
    targets = {node.name: node.ssh for node in cluster.nodes}
    # Connections that the lab's ssh shares outlive the line, and the port that comes here with it.
    config = ("-F", str(state_of(_LAB).ssh_config), "-S", "none") if cluster.is_lab else ()

    def ssh(node: str, line: str, *more: str) -> str:
        return shlex.join(["ssh", *config, *more, targets[node], line])

    def put(one: Written) -> str:
        return f"echo {shlex.quote(one.text)} | {ssh(one.node, f'cat > {one.path}')}"

    def start(one: Started, here: tuple[str, ...]) -> str:
        line = one.line
        if cluster.is_lab:
            line = line.replace(f"{HOME}/.cache/nixwulf/", f"{cache_dir()}/")
        return ssh(one.node, line, "-t", *here)

    def started(one: Serving, port: int) -> tuple[str, ...]:
        """The servers of a model, whose answers come to a port of this machine."""
        answers = [server for server in one.servers if server.node == one.head][-1]
        here = ("-L", f"{port}:127.0.0.1:{one.port}")
        return tuple(start(server, here if server is answers else ()) for server in one.servers)

    several = [served, *served.replicas]
    ports = range(served.port, served.port + len(several))
    own = f"127.0.0.1:{served.port}/"
    up = shlex.join(["nixwulf", "lab", "up", "--name", _LAB, "--cluster", named])
    return ServeCommands(
        first=(
            *((up,) if cluster.is_lab else ()),
            *(put(file) for one in several for file in one.before),
        ),
        servers=tuple(
            line for one, port in zip(several, ports, strict=True) for line in started(one, port)
        ),
        # Such as the placing of a model by exo, and a request.
        then=tuple(
            line.replace(own, f"127.0.0.1:{port}/") for port in ports for line in served.then
        ),
        last=(f"nixwulf lab down --name {_LAB}",) if cluster.is_lab else (),
    )


_MINUTE = 60.0
_TEN_MINUTES = 600.0


def heading(state: SearchState) -> str:
    """Say in one line what is asked."""
    request = state.request
    many = f", {request.concurrency} at once" if request.batch > 1 else ""
    return (
        f"{request.subject.model.name} on {request.cluster.name} by {', '.join(request.engines)}; "
        f"goal {request.goal.name}: {request.goal.words}; a prompt of {request.n_prompt:,} tokens, "
        f"then {request.n_gen:,} tokens{many}."
    )


def print_ranking(console: Console, state: SearchState, budget_s: float) -> None:
    """Print the ranking before anything is measured, what was left out, and the order of runs."""
    ranked = state.ranked()
    queue = order(ranked)
    say(console, heading(state))
    say(
        console,
        f"~ is a prediction, in {state.unit}; in brackets is what 80 % of measurements should lie "
        "between.",
    )
    rows = []
    for place, n in enumerate(ranking(state.estimates()), 1):
        one = ranked[n]
        when = one.out or (str(queue.index(n) + 1) if n in queue else "-")
        words = state.options[n].words
        rows.append((str(place), words, state.shown(one.estimate).text, minutes(one.seconds), when))
    console.print()
    console.print(rich_table(Table(("", "strategy", "predicted", "to measure", "order"), rows)))
    for left in first_of_each_reason(state.left_out):
        say(console, f"Left out: {left.what}: {left.reason}.")
    needed = sum(ranked[n].seconds for n in queue)
    others = "; those with - could not be" if len(queue) < len(ranked) else ""
    say(
        console,
        f"\nThe few that could be best: {len(queue)} of {plural(len(ranked), 'strategy')}, about "
        f"{minutes(needed)}{others}. The budget is {minutes(budget_s)}. Each measurement changes "
        "what the others should give, so some are dropped during the search.",
    )
    if len(state.request.engines) > 1:
        say(console, "Engines that a node lacks are left out when the nodes are asked.")
    say(console, "\nNot tried:")
    for sentence in not_tried(state.request):
        say(console, f"- {sentence}.")
    assumptions = dict.fromkeys(sentence for view in state.priors for sentence in view.assumptions)
    say(console, f"\n{ASSUMED}")
    for sentence in assumptions:
        say(console, f"- {sentence}")


def document(state: SearchState, budget_s: float, why: str = "") -> dict[str, object]:
    """A search, and why it ended, as JSON: strategies from the best, speeds in its unit."""
    ranked, request = state.ranked(), state.request
    queue = order(ranked)
    return {
        "model": request.subject.model.name,
        "goal": request.goal.name,
        "unit": state.unit,
        "budget_s": budget_s,
        "strategies": [
            {
                "strategy": state.options[n].words,
                "case": state.options[n].case.document(),
                "predicted": vars(state.shown(state.first[n])),
                "now": vars(state.shown(ranked[n].estimate)),
                "measured": ranked[n].measured,
                "to_measure_s": ranked[n].seconds,
                "order": queue.index(n) + 1 if n in queue else None,
                "out": ranked[n].out,
            }
            for n in ranking(state.estimates())
        ],
        "left_out": [{"what": one.what, "reason": one.reason} for one in state.left_out],
        "not_tried": not_tried(request),
        "assumed": list(dict.fromkeys(text for view in state.priors for text in view.assumptions)),
        "ended": why,
    }


def print_measurement(console: Console, state: SearchState, n: int, before: Band) -> None:
    """Print the result of a measurement beside its prediction just before it."""
    words = state.options[n].words
    if n in state.out:
        say(console, f"{words}: {state.out[n]}")
        return
    estimate, before = state.shown(state.estimates()[n]), state.shown(before)
    off = _off(before, estimate)
    ranked = state.ranked()
    left = sum(1 for m in order(ranked) if not ranked[m].measured)
    leads = " It leads." if best(ranked) == n else ""
    say(
        console,
        f"{words}: {format_significant(estimate.value)} {state.unit}; was {before.text}, "
        f"{off}.{leads} {plural(left, 'strategy')} left that could be better.",
    )


def print_result(
    console: Console,
    state: SearchState,
    decision: Decision,
    folder: Path,
    cluster: str,
    sweep: Path,
) -> None:
    """Print the final ranking, the best strategy, and how to serve it and measure it again."""
    ranked = state.ranked()
    estimates = state.estimates()
    top = best(ranked)
    least = ranked[top].estimate.value if top is not None else 0.0
    columns = ["", "strategy", f"measured, {state.unit}", "predicted at first"]
    if any(one.open and one.estimate.high > least for one in ranked):
        columns.append("predicted now")
    rows = []
    rest = []
    for place, n in enumerate(ranking(estimates), 1):
        one = ranked[n]
        if one.open and one.estimate.high <= least:
            rest.append(one.estimate)
            continue
        measured = format_significant(state.shown(one.estimate).value) if one.measured else one.out
        now = "" if one.measured or one.out else state.shown(one.estimate).text
        row = (str(place), state.options[n].words, measured, state.shown(state.first[n]).text, now)
        rows.append(row[: len(columns)])
    console.print()
    console.print(rich_table(Table(columns, rows)))
    if rest:
        highest = max(rest, key=lambda one: one.high)
        say(
            console,
            "Not measured, for none of them should be better: "
            f"{plural(len(rest), 'strategy')}, the nearest {state.shown(highest).text}.",
        )
    say(console, f"\nStopped after {plural(len(state.took), 'run')}: {decision.why}.")
    if top is None:
        return
    estimate, first = state.shown(ranked[top].estimate), state.shown(state.first[top])
    say(
        console,
        f"Best measured: {state.options[top].words}: {format_significant(estimate.value)} "
        f"{state.unit}; predicted at first {first.text}, {_off(first, estimate)}.",
    )
    _still_open(console, ranked, top)
    _to_serve(console, state, top, cluster)
    again = shlex.join(["nixwulf", "bench", str(sweep), "--cluster", cluster])
    say(console, f"To measure it again: {again}", whole=True)
    unmeasured = sum(1 for one in ranked if one.open)
    if unmeasured:
        words = plural(unmeasured, "strategy")
        resume = shlex.join(["nixwulf", "bench", "--resume", str(folder)])
        say(console, f"To measure the other {words} too: {resume}", whole=True)


def _to_serve(console: Console, state: SearchState, top: int, cluster: str) -> None:
    """List what to type: the commands of its record, over ssh."""
    served = serving(state.records[top], state.request.cluster, state.request.batch)
    lines = serve_commands(served, state.request.cluster, cluster)
    say(console, "\nTo serve it, by the commands of its record:")
    for line in lines.first:
        say(console, f"  {line}", whole=True)
    if len(lines.servers) > 1:
        say(
            console,
            "each in a terminal of its own, the next when the one before is up; until Ctrl-C:",
        )
    else:
        say(console, "until Ctrl-C:")
    for line in lines.servers:
        say(console, f"  {line}", whole=True)
    for note in served.notes:
        say(console, note)
    say(console, "To ask it:")
    for line in lines.then:
        say(console, f"  {line}", whole=True)
    for line in lines.last:
        say(console, f"At the end: {line}", whole=True)


def print_no_watts(console: Console, state: SearchState) -> None:
    """Say why efficiency cannot be judged."""
    record = next(iter(state.records.values()))
    say(
        console,
        f"Efficiency cannot be judged: {no_watts(record)} Give the nodes a meter in the cluster "
        "file (docs/results.md), or take --goal decode.",
    )


def minutes(seconds: float) -> str:
    """'12 s', '4.1 min', '30 min'."""
    if seconds < _MINUTE:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / _MINUTE:.{0 if seconds > _TEN_MINUTES else 1}f} min"


def _off(predicted: Band, measured: Band) -> str:
    inside = predicted.low <= measured.value <= predicted.high
    factor = measured.value / predicted.value
    return f"{100 * (factor - 1):+.0f} %, {'inside' if inside else 'outside'}"


def _still_open(console: Console, ranked: Sequence[Ranked], top: int) -> None:
    """Count the unmeasured strategies that could be better, and say how long they take."""
    least = ranked[top].estimate.value
    left = [one.seconds for one in ranked if one.open and one.estimate.high > least]
    if left:
        words = f"Not measured, could be better: {plural(len(left), 'strategy')}, about "
        say(console, f"{words}{minutes(sum(left))} more; a larger --budget measures them.")
