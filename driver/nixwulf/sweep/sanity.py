"""Sanity before speed: whether a run's greedy text is that of the fewest nodes that have room."""

from __future__ import annotations

from pathlib import Path

from nixwulf.core.files import read_json, write_json
from nixwulf.llm import PlacedModel
from nixwulf.nodes.ssh import each
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.replicas import replicas
from nixwulf.plugins.runtime.run import Case, Run, RunFailure
from nixwulf.results.identity import REPLICAS
from nixwulf.sweep.recording import Findings

# A damaged tensor changed a token at index 30 at the latest, in 30 damages of the random models.
SANITY_TOKENS = 32
# Text of so few different tokens is no text: "a a a a" or "a b a b".
_FEW = 2

Tokens = list[int] | list[str]


class References:
    """The tokens of few nodes that runs are compared with, kept in the run's folder."""

    def __init__(self, folder: Path) -> None:
        """Keep a file for each engine, back end, model, seed and count of nodes in a folder.

        Back ends round otherwise, and at a near tie the greedy token is another one.
        """
        self._folder = folder

    def get(self, case: Case, nodes: int) -> Tokens | None:
        """The tokens of a case of that kind, if that many nodes have given them."""
        path = self._path(case, nodes)
        return read_json(path) if path.exists() else None

    def put(self, case: Case, nodes: int, tokens: Tokens) -> None:
        """Keep tokens for later runs.

        Args:
            case: the kind of case that they are of.
            nodes: how many gave them.
            tokens: in their order.
        """
        write_json(self._path(case, nodes), tokens)

    def _path(self, case: Case, nodes: int) -> Path:
        model = (case.model_digest or "")[:12]
        several = "" if nodes == 1 else f"-{nodes}nodes"
        backend = f"-{case.parameters['backend']}" if "backend" in case.parameters else ""
        return self._folder / f"{case.engine}{backend}-{model}-{case.seed}{several}.json"


def check_text(
    engine: Engine, run: Run, model: PlacedModel | None, found: Findings, references: References
) -> None:
    """Compare greedy tokens with those of the fewest nodes that have room: sanity before speed.

    Args:
        engine: of the run.
        run: with the engine started.
        model: on the nodes.
        found: gets the comparison, and the failure where they differ.
        references: tokens of earlier runs, to which new ones are added.
    """
    count, expected = _reference(engine, run, model, references)
    several = replicas(run)
    if len(several) > 1:
        texts = each(lambda one: engine.greedy_tokens(one, SANITY_TOKENS), several)
    else:
        texts = [engine.greedy_tokens(run, SANITY_TOKENS)]
    differences = [_first_difference(expected, text) for text in texts]
    wrong = next((n for n, one in enumerate(differences) if one is not None), 0)
    observed, difference = texts[wrong], differences[wrong]
    where = f" on node {several[wrong].head.node.name!r}" if len(several) > 1 else ""
    words = {None: "the same nodes, twice", 1: "one node"}.get(count, f"{count} nodes, pipeline")
    found.sanity["text"] = {
        "agrees": difference is None,
        "reference": words,
        "expected": expected,
        "observed": observed,
        **({} if difference is None else {"first_difference": difference}),
    }
    if difference is not None:
        raise RunFailure(
            "gibberish",
            f"Greedy token {difference}{where} is {_at(observed, difference)}, and {words} gave "
            f"{_at(expected, difference)}.",
        )
    if count is None and len(set(observed)) <= _FEW:
        raise RunFailure(
            "gibberish",
            f"Greedy text has {len(set(observed))} tokens over and over, and the model fits no "
            "other nodes to compare with.",
        )


def _reference(
    engine: Engine, run: Run, model: PlacedModel | None, references: References
) -> tuple[int | None, Tokens]:
    """The nodes that gave the tokens to compare with, None for the run's own; and the tokens."""
    count = _reference_nodes(run, model)
    if count is not None:
        kept = references.get(run.case, count)
        if kept is not None:
            return count, kept
        try:
            tokens = engine.greedy_tokens(run.on_first(count), SANITY_TOKENS)
            references.put(run.case, count, tokens)
            return count, tokens
        except RunFailure as failure:
            # Not every engine has a pipeline for every model; one node it always has.
            if count == 1 or failure.outcome not in {"failed", "unsupported"}:
                raise
    return None, engine.greedy_tokens(run, SANITY_TOKENS)


def _reference_nodes(run: Run, model: PlacedModel | None) -> int | None:
    """How many nodes give the tokens to compare with: the fewest on which the model fits.

    None when no fewer nodes than the run's own, split in another way, can hold it.
    """
    sizes = model.sizes if model else None
    if run.case.parallelism == REPLICAS:
        return 1
    for count in range(1, run.case.nodes + 1):
        first = run.on_first(count)
        if count > 1 and (count, "pipeline") == (run.case.nodes, run.case.parallelism):
            break
        nodes = [node.node for node in first.nodes]
        if sizes is None or memory.problem(sizes, first.case, nodes, run.facts) is None:
            return count
    return None


def _first_difference(expected: Tokens, observed: Tokens) -> int | None:
    """The index of the first token that differs or is missing; None when they agree."""
    for index in range(max(len(expected), len(observed))):
        if _at(expected, index) != _at(observed, index):
            return index
    return None


def _at(tokens: Tokens, index: int) -> int | str:
    return tokens[index] if index < len(tokens) else "missing"
