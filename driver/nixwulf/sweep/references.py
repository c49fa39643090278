"""Texts of few nodes with their log-probabilities, which runs are compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import read_json, write_json
from nixwulf.core.naming import fingerprint
from nixwulf.plugins import engines
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.logprobs import (
    Answer,
    Completer,
    Prompt,
    answer_of,
    compare,
    document_of,
)
from nixwulf.sweep.prompts import SHORT


@dataclass(frozen=True)
class Reference:
    """An answer to a prompt, and the floor: how far apart its engine's own repeat is.

    floor: mean Kullback-Leibler divergence of a position, nats; 0 without probabilities.
    """

    answer: Answer
    floor: float


def reference_of(completer: Completer, prompt: Prompt, count: int) -> Reference:
    """An answer, and how far apart the engine's own repeat of its second half is.

    The repeat has the first half in its prompt, so that kernels for many tokens compute what those
    for one computed before: sums in another order, as other nodes have them. Where the engine
    cannot be given a beginning, all is repeated.

    Args:
        count: tokens of the answer.
    """
    answer = completer.complete(prompt, (), count) or ()
    if not all(position.top for position in answer):
        return Reference(answer, 0.0)
    half = compare(completer, prompt, answer, start=len(answer) // 2)
    again = half if half.divergences else compare(completer, prompt, answer)
    return Reference(answer, again.mean)


References = dict[int, Reference]
"""By the prompt's tokens."""


class ReferenceFolder:
    """The references that runs are compared with, kept in the run's folder."""

    def __init__(self, folder: Path, *, long_prompts: bool = True) -> None:
        """Keep a file for each engine, model, seed, count of nodes and what else decides a text.

        Back ends round otherwise, and a cache of fewer bits is another text altogether.

        Args:
            long_prompts: whether runs are judged on long prompts too.
        """
        self.path = folder
        self.long_prompts = long_prompts

    def get(self, case: Case, nodes: int) -> References | None:
        """The answers of a case of that kind, if that many nodes have given them.

        Raises:
            NixwulfError: the file has something else.
        """
        path = self._path(case, nodes)
        return read_texts(path) if path.exists() else None

    def put(self, case: Case, nodes: int, references: References) -> None:
        """Keep answers for later runs.

        Args:
            references: by the prompt's tokens.
        """
        write_texts(self._path(case, nodes), references)

    def _path(self, case: Case, nodes: int) -> Path:
        model = (case.model_digest or "")[:12]
        several = "" if nodes == 1 else f"-{nodes}nodes"
        known = text_parameters(case)
        passed = [fingerprint(known.pop(key))[:8] for key in passthrough.PARAMETERS if key in known]
        names = [case.engine, *known.values(), *passed, model, case.seed]
        return self.path / f"{'-'.join(map(str, names))}{several}-texts.json"


def text_parameters(case: Case) -> dict[str, Any]:
    """Those of a case on which its text depends, by their names."""
    wanted = (*engines.find(case.engine or "").text_parameters, *passthrough.PARAMETERS)
    return {key: case.parameters[key] for key in wanted if key in case.parameters}


def write_texts(path: Path, references: References) -> None:
    """Keep them in a file; raises NixwulfError."""
    document = {
        str(tokens): {"floor": one.floor, **document_of(one.answer)}
        for tokens, one in references.items()
    }
    write_json(path, document)


def read_texts(path: Path) -> References:
    """What was kept in a file; raises NixwulfError where it has something else."""
    document = read_json(path)
    try:
        found = {int(tokens): _reference(value) for tokens, value in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        found = {}
    if SHORT not in found:
        raise NixwulfError(
            f"{path} has no texts that a run can be compared with; remove it, and the next run "
            "makes it again."
        )
    return found


def _reference(value: Any) -> Reference:
    """Of the document that was kept; raises ValueError, TypeError or KeyError for another one."""
    answer = answer_of(value)
    floor = float(value["floor"])
    if not answer or not 0 <= floor < math.inf:
        raise ValueError(value)
    return Reference(answer, floor)
