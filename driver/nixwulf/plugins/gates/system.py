"""Gates: the clock, disk and free ports of a node; a case's programs, its model and room for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nixwulf.core.text import as_typed
from nixwulf.inventory.cluster import Node
from nixwulf.nodes.facts import Clock, listeners
from nixwulf.nodes.link import PORT as LINK_PORT
from nixwulf.nodes.link import PROGRAMS
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.gates import (
    LINUX_AND_MACOS,
    MACOS,
    Gate,
    GateContext,
    Verdict,
    refused,
    unknown,
)
from nixwulf.plugins.runtime import memory

# NTP keeps nodes within milliseconds; without it they drift apart by seconds a day.
_LIMIT_S = 1.0


def _clock(context: GateContext, node: Node) -> Clock | None:
    answer = context.answer("clock", node)
    printed = re.fullmatch(r"([0-9]{1,12})\.(?:([0-9]{9})|%?N)", answer)
    if printed:
        clock = Clock.of(float(f"{printed[1]}.{printed[2] or 0}"), *context.asked)
        # A date that knows no %N, as macOS's, is anywhere in its second.
        return clock if printed[2] else Clock(clock.least, clock.most + 1)
    return context.facts[node.name].clock


def _judge_clock(context: GateContext, node: Node) -> Iterator[Verdict]:
    first = context.nodes[0]
    ours, theirs = _clock(context, node), _clock(context, first)
    if ours is None or theirs is None:
        yield unknown(f"Node {(first if ours else node).name!r} does not report the time.")
        return
    # What the round trip may explain is taken off: the rest is certain.
    ahead, behind = ours.least - theirs.most, theirs.least - ours.most
    if max(ahead, behind) > _LIMIT_S:
        way = "ahead of" if ahead > behind else "behind"
        yield refused(
            f"The clock of node {node.name!r} is at least {max(ahead, behind):.1f} s {way} that of "
            f"{first.name!r}; run NTP on both."
        )


# Room for logs and caches; models are there already when a case runs.
_LEAST_GIB = 1


def _judge_disk(context: GateContext, node: Node) -> Iterator[Verdict]:
    text = context.answer("disk", node)
    rows = re.findall(r"^.* +\d+ +\d+ +(\d+) +\d+% +(/.*)$", text, re.MULTILINE)
    if not rows:
        yield unknown(f"Node {node.name!r} does not report its free space: {text[:80]!r}.")
    for free_kib, place in dict.fromkeys(rows):
        free = int(free_kib) / 2**20
        if free < _LEAST_GIB:
            yield refused(
                f"Node {node.name!r} has {free:.2f} GiB free on {place!r}, less than "
                f"{_LEAST_GIB}; see 'df -h' there, and remove what is not needed."
            )


_ANY = {"0.0.0.0", "::"}  # noqa: S104 - what to look for
# Servers for the driver alone listen here, also where engines talk over a fabric.
_LOOPBACK = "127.0.0.1"


def _wanted(context: GateContext, node: Node) -> dict[int, str]:
    """Ports and whose they are: a case's, or those of all that could run."""
    users: list[Engine | Benchmark | None] = [context.engine, context.benchmark]
    if not context.is_case:
        users = [*engines.all_engines().values(), *benchmarks.all_benchmarks().values()]
    wanted = {LINK_PORT: "the link's measurement"} if context.crossings_of(node) else {}
    for user in users:
        if user:
            wanted |= dict.fromkeys(user.ports, user.name)
    return wanted


def _judge_ports(context: GateContext, node: Node) -> Iterator[Verdict]:
    text = context.answer("ports", node)
    if "local_address" not in text:
        yield unknown(f"Node {node.name!r} does not report what listens: {text[:80]!r}.")
    taken = listeners(text)
    crossed = (c.fabric for c in context.crossings_of(node))
    ours = {end.address for fabric in crossed for end in context.ends_of(node, fabric)}
    for port, user in _wanted(context, node).items():
        for address in sorted({*_ANY, _LOOPBACK, *ours}):
            if (address, port) in taken:
                yield refused(
                    f"Something on node {node.name!r} listens on '{address}:{port}', which "
                    f"{user} needs; see 'ss -ltnp sport = :{port}' there, and end it."
                )


def _judge_programs(context: GateContext, node: Node) -> Iterator[Verdict]:
    programs = context.facts[node.name].programs
    # zsh reads no other file for what ssh starts.
    mac = context.facts[node.name].system == MACOS
    seen = " (ssh sees the PATH of ~/.zshenv)" if mac else ""
    lacking = context.engine.missing(programs) if context.engine else None
    if context.engine and lacking:
        yield refused(
            f"Node {node.name!r} lacks {lacking} on PATH{seen}; deploy it or "
            f"{context.installing(context.engine)}."
        )
    lacking = context.benchmark.missing(programs) if context.benchmark else None
    if lacking:
        yield refused(f"Node {node.name!r} lacks {lacking}{seen}.")
    lacking = context.benchmark.missing_here() if context.benchmark else None
    if lacking and node is context.nodes[0]:
        yield refused(f"This machine lacks {lacking}.")
    for name in PROGRAMS if context.crossings_of(node) else ():
        if name not in programs:
            yield refused(
                f"Node {node.name!r} lacks {name!r} on PATH{seen}, which measures the link; "
                "deploy it or install it."
            )


def _judge_model(context: GateContext, node: Node) -> Iterator[Verdict]:
    model = context.model
    if model and model.bytes is None and model.missing_on == node.name:
        what = "tokenizer" if model.path == model.model.tokenizer else "model"
        name = context.cluster.model_name(model.path) if context.cluster else None
        how = "copy it there"
        if context.cluster and name:
            where = ("--cluster", context.cluster.source, "--node", node.name)
            push = as_typed("models", "push", name, *where)
            how = f"bring it there by {push} or this command with --fetch"
        yield refused(
            f"Node {node.name!r} has no {what} {model.path!r}; {how}, or correct the path in the "
            "sweep."
        )


def _judge_memory(context: GateContext, node: Node) -> Iterator[Verdict]:
    if context.case and context.model and context.model.sizes:
        sizes = context.model.sizes
        everywhere = context.engine is not None and context.engine.model_on_every_node
        draft = (context.draft_bytes, everywhere)
        problem = memory.problem(sizes, context.case, context.nodes, context.facts, draft)
        if problem:
            yield refused(problem)


GATES = (
    Gate(
        name="clock",
        holds=f"the clocks of the nodes are less than {_LIMIT_S:g} s apart",
        reads="the shell's `$EPOCHREALTIME`, else `date`, against the driver's clock before and "
        "after",
        fix="run NTP on all nodes",
        concerns=lambda context, node: len(context.nodes) > 1,
        judge=_judge_clock,
        command=lambda context, node: (
            None
            if all(context.facts[other.name].clock for other in context.nodes)
            else ["date", "+%s.%N"]
        ),
        systems=LINUX_AND_MACOS,
    ),
    Gate(
        name="disk",
        holds=f"at least {_LEAST_GIB} GiB is free below the home folder and /tmp",
        reads="`df -Pk`",
        fix="remove what is not needed, or move models to another disk",
        concerns=lambda context, node: True,
        judge=_judge_disk,
        command=lambda context, node: ["sh", "-c", 'df -Pk "$HOME" /tmp'],
        systems=None,
    ),
    Gate(
        name="ports",
        holds="nothing listens on the ports of the engine, the benchmark and the link",
        reads="`/proc/net/tcp`, `/proc/net/tcp6`",
        fix="end what `ss -ltnp` shows",
        concerns=lambda context, node: bool(_wanted(context, node)),
        judge=_judge_ports,
        command=lambda context, node: ["cat", "/proc/net/tcp", "/proc/net/tcp6"],
    ),
    Gate(
        name="programs",
        holds="the engine's, the benchmark's and the link's programs are on PATH",
        reads="`command -v`",
        fix="deploy the node, or install them",
        concerns=lambda context, node: context.is_case or bool(context.crossings_of(node)),
        judge=_judge_programs,
        systems=None,
    ),
    Gate(
        name="model",
        holds="the model is on the nodes that read it",
        reads="the size of the file or folder",
        fix="`nixwulf models push` it, or correct the path in the sweep",
        concerns=lambda context, node: context.model is not None,
        judge=_judge_model,
        systems=None,
    ),
    Gate(
        name="memory",
        slows="nodes",
        holds="every node has room for its weights, KV cache and compute buffers",
        reads="the model's headers, `MemAvailable`, the GPU's `mem_info_*_total`; `vm_stat` on "
        "macOS",
        fix="use more nodes, a smaller model or a shorter context",
        concerns=lambda context, node: (
            context.model is not None
            and context.model.sizes is not None
            and node is context.nodes[0]
        ),
        judge=_judge_memory,
        systems=LINUX_AND_MACOS,
    ),
)
