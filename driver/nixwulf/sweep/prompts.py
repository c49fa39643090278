"""The prompts that a run's text is judged on, as far as memory, context and time allow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nixwulf.llm import PlacedModel
from nixwulf.plugins.runtime import memory
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.logprobs import Completer, Prompt
from nixwulf.plugins.runtime.memory import TokenDemand
from nixwulf.plugins.runtime.openai import GREEDY
from nixwulf.plugins.runtime.run import Run

SHORT = 64
LONG = (4096, 16_384)
"""Tokens of the prompts. Damage above 4,000 tokens has been met
(https://github.com/exo-explore/exo/issues/2270)."""
# A damaged tensor changed a token at index 30 at the latest, in 30 damages of the random models.
_SHORT_ANSWER = 32
_LONG_ANSWER = 16
# Of a run's wall limit, and seconds, that long prompts may take with their reference.
_SHARE = 0.1
_MOST_S = 20.0
# Seconds of a prompt grow with its tokens, and with their square where attention has most of it.
_GROWTH = 1.5
_LEAST_ROOM = 512


def answer_tokens(tokens: int) -> int:
    """How many tokens are compared after a prompt of so many."""
    return _SHORT_ANSWER if tokens == SHORT else _LONG_ANSWER


def room(lengths: Sequence[int]) -> int:
    """Tokens that a server needs room for, to be asked all of them."""
    return max(_LEAST_ROOM, *(tokens + answer_tokens(tokens) for tokens in lengths))


def allowed_s(limits: Limits) -> float:
    """Seconds that long prompts may take in a run."""
    return min(_MOST_S, _SHARE * limits.wall_s)


def fitting(run: Run, model: PlacedModel | None) -> tuple[int, ...]:
    """The prompts whose cache fits on the nodes of a run by the memory plan.

    Twice the cache has to fit, because a run that could be measured must not fail by being judged.
    What the case keeps anyway fits; where sizes or memory are not known, nothing else does.
    """
    own = TokenDemand.of(run.case.parameters).context
    sizes = model.sizes if model else None
    nodes = [node.node for node in run.nodes]
    known = all(memory.capacity(run.case, node, run.facts[node.name]) for node in nodes)
    found = [SHORT]
    for tokens in LONG:
        needed = tokens + answer_tokens(tokens)
        more = {"n_prompt": 2 * needed, "n_gen": 0, "depth": 0, "concurrency": 1}
        case = replace(run.case, parameters={**run.case.parameters, **more})
        fits = sizes and known and memory.problem(sizes, case, nodes, run.facts) is None
        if needed <= own or fits:
            found.append(tokens)
    return tuple(found)


class Prompts:
    """The prompts that one open engine is asked, the shortest first.

    left_out: why others are not asked, by their tokens. spent_s: seconds for the long ones.
    """

    def __init__(self, completer: Completer, lengths: Sequence[int], seconds: float) -> None:
        """Ask as long as it is estimated to take no more than some seconds.

        Args:
            lengths: tokens of the prompts; the short one is always asked.
        """
        self._completer = completer
        self._lengths = lengths
        self._seconds = seconds
        self._prompt_s = self._token_s = 0.0
        self._last = SHORT
        self.left_out: dict[int, str] = {}
        self.spent_s = 0.0

    def __iter__(self) -> Iterator[tuple[int, Prompt]]:
        """Tokens and prompt; what passes until the next is asked for is taken as its time."""
        for tokens in self._lengths:
            prompt = self._worth(tokens)
            if prompt is None:
                continue
            begin = time.monotonic()
            yield tokens, prompt
            took = time.monotonic() - begin
            if tokens == SHORT:
                self._learn(prompt, took)
            else:
                self.spent_s += took
                self._prompt_s = max(0.0, took - self._decoding_s(tokens))
                self._last = tokens

    def _worth(self, tokens: int) -> Prompt | None:
        if tokens == SHORT:
            return self._completer.prompt(tokens) or GREEDY
        has = self._completer.context
        if not has:
            self.left_out[tokens] = "the engine is asked no prompt of a given length"
            return None
        if tokens + answer_tokens(tokens) > has:
            self.left_out[tokens] = f"the engine has room for {has:,} tokens"
            return None
        growth = 1.0 if self._last == SHORT else _GROWTH
        seconds = self._prompt_s * (tokens / self._last) ** growth + self._decoding_s(tokens)
        if self.spent_s + seconds > self._seconds:
            self.left_out[tokens] = (
                f"it would take {seconds:,.0f} s, and {max(0.0, self._seconds - self.spent_s):.0f} "
                "s are left for it"
            )
            return None
        prompt = self._completer.prompt(tokens)
        if prompt is None:
            self.left_out[tokens] = "the engine has no prompt of that length"
        return prompt

    def _learn(self, prompt: Prompt, took: float) -> None:
        """Tell the prompt's share of an answer's time from that of the tokens."""
        if len(self._lengths) > 1 and self._completer.context > LONG[0]:
            begin = time.monotonic()
            self._completer.complete(prompt, (), 1)
            self._prompt_s = time.monotonic() - begin
            self._token_s = max(0.0, took - self._prompt_s) / _SHORT_ANSWER

    def _decoding_s(self, tokens: int) -> float:
        return self._token_s * answer_tokens(tokens)
