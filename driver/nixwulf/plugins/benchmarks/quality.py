"""quality: what a model still says over nodes, transports, cache types and weights."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import read_json, shipped_text, write_json
from nixwulf.core.metric import Metric
from nixwulf.core.registry import parameters_of
from nixwulf.core.text import fingerprint
from nixwulf.plugins import engines
from nixwulf.plugins.benchmarks import Benchmark
from nixwulf.plugins.engines import endpoint, llama_cpp
from nixwulf.plugins.runtime import memory, openai
from nixwulf.plugins.runtime.run import Run, RunFailure

# Abraham Lincoln's address at Gettysburg, 1863.
TEXT = shipped_text("data/texts/gettysburg.txt").replace("\n", " ")
_ASKED = "\nThe secret number of the cluster is"
_DIGITS = 6
_CACHE_TYPES = ("type_k", "type_v")
# Of a text that has a token for so many at the least.
_CHARACTERS = 8
# Of a token's mean logarithm: a record holds 1e100.
_MOST = 230.0


class Quality(Benchmark):
    """A model's text by log-probabilities, which llama-server gives for tokens that are forced.

    Of an endpoint too, where a llama-server answers there.

    `perplexity` (PPL) of the first `positions` tokens of Lincoln's address at Gettysburg, given all
    before. `divergence` (nats): the mean Kullback-Leibler divergence of what comes next at the same
    positions from that of the reference: the model `reference` on the fewest nodes that hold it, in
    a pipeline, with the default cache. `needle_recall` (%): of secret numbers in prompts of
    `n_prompt` tokens, one each at another depth, those that are repeated when asked for.

    All is greedy and the same in each pass, so each metric has one sample.
    """

    name = "quality"
    parameters: ClassVar = parameters_of("quality")
    engines = (llama_cpp.ENGINE.name, endpoint.ENGINE.name)

    def measure(self, run: Run) -> list[Metric]:
        """Ask the reference, unless it is kept, and the run; raises RunFailure."""
        values = run.case.parameters
        expected = _reference(run)
        with _server(run) as server:
            text = _text(server, values["positions"])
            if [position.token for position in expected] != text[1:]:
                raise RunFailure(
                    "The reference has another tokenizer than the case's model, so that there are "
                    "no probabilities to compare; name one of the same family as 'reference'.",
                    "unsupported",
                )
            found = _positions(server, text)
            recalled = [_recalls(server, run, number) for number in range(values["needles"])]
        pairs = [pair for pair in zip(expected, found, strict=True) if all(one.top for one in pair)]
        lost = -math.fsum(one.top[one.token] for _, one in pairs) / len(pairs)
        apart = math.fsum(openai.divergence(one.top, two.top) for one, two in pairs) / len(pairs)
        cache = {key: values[key] for key in _CACHE_TYPES if key in values}
        conditions = {"positions": values["positions"], **cache}
        needles = {"n_prompt": values["n_prompt"], "needles": values["needles"], **cache}
        share = 100 * sum(recalled) / len(recalled)
        perplexity = math.exp(min(lost, _MOST))
        return [
            Metric("perplexity", "PPL", (perplexity,), "cold", conditions),
            Metric("divergence", "nats", (apart,), "cold", conditions),
            Metric("needle_recall", "%", (share,), "cold", needles),
        ]


BENCHMARK = Quality()


@contextmanager
def _server(run: Run) -> Iterator[openai.Completions]:
    """With room for both prompts; raises RunFailure where the model has less."""
    values = run.case.parameters
    needed = max(values["n_prompt"] + 2 * _DIGITS, values["positions"] + 1)
    with engines.find(run.case.engine or "").completer(run, needed) as server:
        if not isinstance(server, openai.Completions) or not server.context:
            raise RunFailure(
                "The endpoint gives no log-probabilities of tokens that are forced, which quality "
                "is made of; take benchmark: [serve], or a llama-server or vLLM behind the "
                "address.",
                "unsupported",
            )
        if server.context < needed:
            raise RunFailure(
                f"The model has room for {server.context:,} tokens, and these parameters need "
                f"{needed:,}; lower n_prompt ({values['n_prompt']:,}) or positions "
                f"({values['positions']:,}).",
                "unsupported",
            )
        yield server


def _text(server: openai.Completions, positions: int) -> list[int]:
    found = server.tokens(TEXT)[: positions + 1]
    if len(found) <= positions:
        raise RunFailure(
            f"The text has {len(found):,} tokens of this model, and positions is {positions:,}; "
            f"give positions: [{len(found) - 1}].",
            "unsupported",
        )
    return found


def _positions(server: openai.Completions, text: Sequence[int]) -> openai.Answer:
    return tuple(server.forced(text[:place], text[place]) for place in range(1, len(text)))


def _reference(run: Run) -> openai.Answer:
    """What the reference gives for the same text; it is kept beside the references of the texts."""
    values = run.case.parameters
    placed = run.bring_model(values["reference"])
    own = run.on_first(memory.fewest_nodes(run, placed.sizes) or run.case.nodes)
    known = engines.find(own.case.engine or "").parameters
    cache = {key: known[key].default for key in _CACHE_TYPES if key in known}
    parameters = {**own.case.parameters, **cache}
    case = replace(own.case, parameters=parameters, model=placed.model.name)
    case = replace(case, model_digest=placed.model.digest)
    key = [case.id, placed.sha256]
    path = run.raw.parents[1] / "references" / f"quality-{fingerprint(key)[:12]}.json"
    if path.exists():
        return _kept(path)
    with _server(replace(own, case=case, model=placed.path)) as server:
        found = _positions(server, _text(server, values["positions"]))
    write_json(path, openai.document_of(found))
    return found


def _kept(path: Path) -> openai.Answer:
    try:
        return openai.answer_of(read_json(path))
    except (KeyError, TypeError, ValueError):
        raise NixwulfError(
            f"{path} has no probabilities of a reference; remove it, and the next run makes it "
            "again."
        ) from None


def _recalls(server: openai.Completions, run: Run, number: int) -> bool:
    """Whether the secret of a prompt, at a depth of its own, is likeliest after the question."""
    values, stream = run.case.parameters, random.Random(f"{run.case.seed} {number}")  # noqa: S311
    secret = "".join(stream.choices("0123456789", k=_DIGITS))
    asked = server.tokens(_ASKED, beginning=False)
    needle = server.tokens(f"{_ASKED} {secret}.\n", beginning=False)
    shared = next(n for n, token in enumerate([*asked, None]) if token != needle[n])
    answer = server.tokens(f"{_ASKED} {secret}", beginning=False)[shared:]
    rest = values["n_prompt"] - len(needle) - shared
    filler = server.tokens(openai.text_of(_CHARACTERS * rest, run.case.seed + number))[:rest]
    at = 1 + round((rest - 1) * (number + 0.5) / values["needles"])
    prompt = [*filler[:at], *needle, *filler[at:], *needle[:shared]]
    for place, token in enumerate(answer):
        top = server.forced([*prompt, *answer[:place]], token).top
        if not top or top[token] < max(top.values()):
            return False
    return True
