"""Sanity before speed: whether a run's text is that of the fewest nodes that have room.

The text is judged by what the engine gives as probabilities of its tokens, because a real model has
near ties: there greedy texts part by a rounding, and nothing is wrong. The CPU's text after the
short prompt is a reference that has no back end in common with a GPU's: without it one node is
compared with itself only, and what is wrong alike on all nodes is right.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir, read_json, write_json
from nixwulf.core.text import fingerprint
from nixwulf.llm import PlacedModel
from nixwulf.nodes.ssh import each
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime import memory, speculation
from nixwulf.plugins.runtime.openai import GREEDY
from nixwulf.plugins.runtime.run import Run, RunFailure, replicas
from nixwulf.sweep.recording import Findings
from nixwulf.sweep.references import (
    CPU_LIMIT,
    LONG,
    SHORT,
    Judged,
    Prompts,
    Reference,
    ReferenceFolder,
    References,
    allowed_s,
    answer_tokens,
    document,
    fitting,
    judge,
    read_texts,
    reference_of,
    room,
    text_parameters,
    why_parted,
    why_wrong,
    write_texts,
)

# Of a run's wall limit, and seconds, that the text may take, loading included. Of 40 GB of weights
# each of 32 tokens reads all, which takes 20 s at 64 GB/s.
_SHARE = 0.1
_MOST_S = 60.0
_LEFT_OUT = "left_out"


def cpu_reference(
    engine: Engine, run: Run, model: PlacedModel | None, folder: ReferenceFolder
) -> Reference | str | None:
    """The answer of the CPU, or why there is none; None of a run that needs none.

    It is asked once a sweep, and where the hash of the model's file is known once a user: the same
    build with the same file gives the same text. What failed is not tried again in that sweep.
    """
    own = engine.on_cpu(run)
    if own is None or isinstance(own, str):
        return own
    sha256 = model.sha256 if model else None
    key = [sha256 or own.case.model_digest, run.engine_facts.get("version"), own.case.seed]
    name = f"{own.case.engine}-cpu-{fingerprint([*key, text_parameters(own.case)])[:12]}-texts.json"
    here, shared = folder.path / name, cache_dir() / "references" / name
    if here.exists():
        return _read(here)
    found = _read(shared) if sha256 and shared.exists() else _ask(engine, own, model)
    _write(here, found)
    if sha256 and isinstance(found, Reference):
        with suppress(NixwulfError):  # a home that is full or read-only costs the next sweep time
            _write(shared, found)
    return found


def _ask(engine: Engine, run: Run, model: PlacedModel | None) -> Reference | str:
    node = run.head.node
    sizes = model.sizes if model else None
    if sizes and (lacking := memory.problem(sizes, run.case, [node], run.facts)):
        return lacking
    seconds = min(_MOST_S, _SHARE * run.limits.wall_s)
    limits = replace(run.limits, wall_s=seconds)
    deadline = min(run.deadline, time.monotonic() + seconds)
    try:
        limited = replace(run, limits=limits, deadline=deadline)
        with engine.completer(limited, room((SHORT,))) as completer:
            prompt = completer.prompt(SHORT) or GREEDY
            answer = completer.complete(prompt, (), answer_tokens(SHORT)) or ()
    except RunFailure as failure:
        if failure.outcome == "timeout":
            return f"the CPU of node {node.name!r} took longer than {seconds:g} s"
        return failure.reason
    if not answer or not all(position.top for position in answer):
        return "the engine gives no log-probabilities"
    return Reference(answer, 0.0)


def _read(path: Path) -> Reference | str:
    document = read_json(path)
    if isinstance(document, dict) and isinstance(document.get(_LEFT_OUT), str):
        return str(document[_LEFT_OUT])
    return read_texts(path)[SHORT]


def _write(path: Path, found: Reference | str) -> None:
    if isinstance(found, str):
        write_json(path, {_LEFT_OUT: found})
    else:
        write_texts(path, {SHORT: found})


# Text of so few different tokens is no text: "a a a a" or "a b a b".
_FEW = 2


def check_text(
    engine: Engine, run: Run, model: PlacedModel | None, found: Findings, folder: ReferenceFolder
) -> None:
    """Compare texts with those of the fewest nodes that have room: sanity before speed."""
    fits: Sequence[int] = (SHORT,)
    if folder.long_prompts:
        fits = (SHORT, *LONG) if engine.elsewhere else fitting(run, model)
    seconds = allowed_s(run.limits)
    servers = replicas(run)
    count, references, spent = _references(engine, servers[0], model, folder, fits, seconds / 2)
    left_out = _not_asked(folder, fits, references)
    lengths = [tokens for tokens in fits if tokens in references]
    cpu = cpu_reference(engine, servers[0], model, folder)

    def ask(server: Run) -> Texts:
        return _texts(engine, server, lengths, references, cpu, seconds - spent)

    asked = each(ask, servers) if len(servers) > 1 else [ask(run)]
    badness = [2 if one.wrong else 1 if one.parted else 0 for one in asked]
    worst = badness.index(max(badness))
    texts = asked[worst]
    left_out |= texts.left_out
    words = _whose(engine, run, count, texts)
    found.sanity["text"] = document(
        texts.judged,
        texts.wrong or texts.parted or texts.judged[0],
        f"not compared: {words}, asked twice" if engine.elsewhere else words,
        left_out,
    )
    if cpu is not None:
        found.sanity["text"]["cpu"] = texts.cpu.numbers() if texts.cpu else {"left_out": cpu}
    where = f" It is that of node {servers[worst].head.node.name!r}." if len(servers) > 1 else ""
    _refuse(run, texts, words, where)
    observed = texts.judged[0].comparison.observed
    if count is None and len(set(observed)) <= _FEW:
        raise RunFailure(
            f"Greedy text has {len(set(observed))} tokens over and over, and there are no other "
            "nodes to compare with that hold the model.",
            "gibberish",
        )


def _whose(engine: Engine, run: Run, count: int | None, texts: Texts) -> str:
    """What texts were compared with; count: nodes that gave a reference, None: the run's own."""
    if texts.wrong and texts.wrong is texts.cpu:
        return "the CPU"
    own = "the endpoint itself" if engine.elsewhere else "the same nodes, twice"
    words = {None: own, 1: "one node"}.get(count, f"{count} nodes, pipeline")
    return f"{words}, without a draft" if speculation.speculates(run.case.parameters) else words


def _refuse(run: Run, texts: Texts, words: str, where: str) -> None:
    """Raise RunFailure for a wrong text, and warn of one that parted; words: from whose it is."""
    if texts.wrong:
        if texts.cpu and texts.cpu is not texts.wrong:
            where += f" From the CPU's text it is {texts.cpu.comparison.mean:.2g} nats apart."
        raise RunFailure(why_wrong(texts.wrong, words) + where, "gibberish")
    if texts.parted:
        run.warnings.append(why_parted(texts.parted, words) + where)


@dataclass(frozen=True)
class Texts:
    """A server's texts after prompts of some lengths, and why others were not asked for.

    cpu: that after the short prompt beside the CPU's, where there is one.
    """

    judged: Sequence[Judged]
    left_out: Mapping[int, str]
    cpu: Judged | None

    @property
    def wrong(self) -> Judged | None:
        """The first that is no such text; what the CPU contradicts comes before all others."""
        return next((one for one in (self.cpu, *self.judged) if one and one.wrong), None)

    @property
    def parted(self) -> Judged | None:
        """The first with another token."""
        differing = (one for one in self.judged if one.comparison.first_difference is not None)
        return next(differing, None)


def _texts(
    engine: Engine,
    run: Run,
    lengths: Sequence[int],
    references: References,
    cpu: Reference | str | None,
    seconds: float,
) -> Texts:
    with engine.completer(run, room(lengths)) as completer:
        prompts = Prompts(completer, lengths, seconds)
        judged: list[Judged] = []
        beside: Judged | None = None
        if isinstance(cpu, Reference):
            prompt = completer.prompt(SHORT) or GREEDY
            beside = judge(completer, SHORT, prompt, cpu, CPU_LIMIT)
        for tokens, prompt in prompts:
            judged.append(judge(completer, tokens, prompt, references[tokens]))
            if judged[-1].wrong or (beside and beside.wrong):
                break
    return Texts(judged, prompts.left_out, beside)


def _references(
    engine: Engine,
    run: Run,
    model: PlacedModel | None,
    folder: ReferenceFolder,
    fits: Sequence[int],
    seconds: float,
) -> tuple[int | None, References, float]:
    """The nodes that gave the texts to compare with, None for the run's own; texts; seconds."""
    count = None
    if not engine.elsewhere:
        count = memory.fewest_nodes(run, model.sizes if model else None)
    if count is not None:
        kept = folder.get(run.case, count)
        if kept is not None:
            return count, kept, 0.0
        first = speculation.without(run.on_first(count))
        both = [tokens for tokens in fits if tokens in fitting(first, model)]
        try:
            made, spent = _make(engine, first, both, seconds)
            folder.put(run.case, count, made)
            return count, made, spent
        except RunFailure as failure:
            # Not every engine has a pipeline for every model; one node it always has.
            if count == 1 or failure.outcome not in {"failed", "unsupported"}:
                raise
    return None, *_make(engine, speculation.without(run), fits, seconds)


def _make(
    engine: Engine, run: Run, lengths: Sequence[int], seconds: float
) -> tuple[References, float]:
    with engine.completer(run, room(lengths)) as completer:
        prompts = Prompts(completer, lengths, seconds)
        found = {
            tokens: reference_of(completer, prompt, answer_tokens(tokens))
            for tokens, prompt in prompts
        }
    return found, prompts.spent_s


def _not_asked(
    folder: ReferenceFolder, fits: Sequence[int], references: References
) -> dict[int, str]:
    """Why long prompts are not even tried, by their tokens."""
    found = {}
    for tokens in LONG:
        if not folder.long_prompts:
            found[tokens] = "the sweep has sanity: short"
        elif tokens not in fits:
            found[tokens] = "the nodes may have too little memory for it"
        elif tokens not in references:
            found[tokens] = "the reference has no text for it: too little context, memory or time"
    return found
