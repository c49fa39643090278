"""The CPU's text after the short prompt: a reference that has no back end in common with a GPU's.

Without it one node is compared with itself only, and what is wrong alike on all nodes is right.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import cache_dir, read_json, write_json
from nixwulf.core.naming import fingerprint
from nixwulf.llm import PlacedModel
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.openai import GREEDY
from nixwulf.plugins.runtime.run import Run, RunFailure
from nixwulf.sweep.prompts import SHORT, answer_tokens, room
from nixwulf.sweep.references import (
    Reference,
    ReferenceFolder,
    read_texts,
    text_parameters,
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

    Args:
        folder: of the sweep's references.
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
