"""How often right texts are called wrong, and wrong ones found: python tests/quality [PART...].

Runs llama.cpp on this machine's loopback: one node against several and other options of the same
model (honest), against damaged models (damages), and against contexts whose tokens are wrong above
4,096 only (long). Each run is judged by the driver's own code. What was measured is kept in a file,
from which `report` writes results/figures/quality.txt.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import quality_models as models
from quality_backends import backends, damaged
from quality_models import Damage
from quality_report import report
from quality_servers import ONE, SETUPS, completer

from nixwulf.plugins.runtime.openai import Completer
from nixwulf.sweep.references import LONG, SHORT, answer_tokens, judge, reference_of, room

KEPT = Path(tempfile.gettempdir()) / "nixwulf-quality.jsonl"
SEEDS = 5
LONG_SEEDS = 2
_TAIL = 64


def honest(folder: Path) -> Iterator[dict[str, Any]]:
    """Each model in each way; of the first seeds after a prompt of 4,096 tokens too."""
    for kind, seed, weights in _models():
        path = models.write(folder, kind, weights, seed)
        lengths = (SHORT, LONG[0]) if seed < LONG_SEEDS else (SHORT,)
        with completer(path, ONE, room(lengths)) as one:
            expected = {tokens: _expected(one, tokens) for tokens in lengths}
        for setup in SETUPS:
            with completer(path, setup, room(lengths)) as other:
                for tokens in lengths:
                    judged = _judged(other, tokens, expected[tokens])
                    yield {
                        "part": "honest",
                        **{"kind": kind, "weights": weights, "seed": seed, "what": setup.name},
                        **judged,
                    }
        path.unlink()


def _models() -> Iterable[tuple[str, int, str]]:
    for seed in range(SEEDS):
        for kind in models.KINDS if seed == 0 else models.KINDS[:2]:
            for weights in models.WEIGHTS:
                yield kind, seed, weights


def damages(folder: Path) -> Iterator[dict[str, Any]]:
    """Forty-four damages of tensors, layers and the cache, after the short prompt."""
    for (what, damage, swapped), (weights, kind) in zip(
        _damages(), itertools.cycle(itertools.product(models.WEIGHTS, models.KINDS)), strict=False
    ):
        whole = models.write(folder, kind, weights, 0)
        with completer(whole, ONE, room((SHORT,))) as one:
            expected = _expected(one, SHORT)
        path = models.write(folder, kind, weights, 0, damage, swapped)
        with completer(path, ONE, room((SHORT,))) as other:
            judged = _judged(other, SHORT, expected)
        path.unlink()
        yield {"part": "damages", "kind": kind, "weights": weights, "seed": 0, **what, **judged}


def _damages() -> Iterator[tuple[dict[str, str], Damage | None, tuple[int, int] | None]]:
    tensors = models.tensor_damages()
    for number in range(20):
        damage = tensors[number * 9 % len(tensors)]  # each kind of damage and of tensor comes
        yield {"group": "a tensor", "what": damage.name}, damage, None
    for _ in range(4):
        for pair in ((0, 1), (1, 2), (0, 3)):
            yield {"group": "two layers swapped", "what": f"layers {pair}"}, None, pair
    for _ in range(4):
        for damage in models.cache_damages():
            yield {"group": "the cache", "what": damage.name}, damage, None


def long(folder: Path) -> Iterator[dict[str, Any]]:
    """Sixteen contexts that are wrong above 4,096 tokens only, and honest runs of that length."""
    tokens = LONG[1]
    for weights in models.WEIGHTS:
        path = models.write(folder, "sharp", weights, 0, sizes=models.SMALL)
        common = {"kind": "sharp", "weights": weights, "seed": 0}
        with completer(path, ONE, room((tokens,))) as one:
            expected = _expected(one, tokens)
            yield {"part": "speed", **common, "tokens": tokens, "seconds": expected[1]}
            for name, change in CONTEXTS.items():
                judged = _judged(_Changed(one, change), tokens, expected)
                yield {"part": "damages", "group": "above 4,096", "what": name, **common, **judged}
        for setup in SETUPS[-2:]:
            with completer(path, setup, room((tokens,))) as other:
                judged = _judged(other, tokens, expected)
            yield {"part": "honest", "what": setup.name, **common, **judged}


def _shifted(prompt: list[int]) -> list[int]:
    start, end = LONG[0], len(prompt) - _TAIL
    return prompt[:start] + prompt[: end - start] + prompt[end:]


def _reversed(prompt: list[int]) -> list[int]:
    start, end = LONG[0], len(prompt) - _TAIL
    return prompt[:start] + prompt[start:end][::-1] + prompt[end:]


CONTEXTS: dict[str, Callable[[list[int]], list[int]]] = {
    "cells above hold the tokens of those below": _shifted,
    "cells above in reverse order": _reversed,
    "cells above lost": lambda prompt: prompt[: LONG[0]] + prompt[-_TAIL:],
    "only the last 4,096 seen": lambda prompt: prompt[-LONG[0] :],
}


class _Changed:
    """A completer that sees other tokens than it is given, where a prompt is longer than 4,096."""

    def __init__(self, whole: Completer, change: Callable[[list[int]], list[int]]) -> None:
        self._whole, self._change = whole, change
        self.context = whole.context

    def prompt(self, tokens: int) -> Any:
        return self._whole.prompt(tokens)

    def complete(self, prompt: Any, given: Any, count: int) -> Any:
        return self._whole.complete(self._change(prompt), given, count)


def _expected(one: Completer, tokens: int) -> tuple[Any, float]:
    prompt = one.prompt(tokens)
    assert prompt is not None
    begin = time.monotonic()
    return reference_of(one, prompt, answer_tokens(tokens)), time.monotonic() - begin


def _judged(other: Completer, tokens: int, expected: tuple[Any, float]) -> dict[str, Any]:
    prompt = other.prompt(tokens)
    assert prompt is not None
    found = judge(other, tokens, prompt, expected[0])
    return {**found.document(), "wrong": found.wrong}


PARTS = {
    "backends": backends,
    "damaged-backends": lambda folder: damaged(folder, _damages()),
    "honest": honest,
    "damages": damages,
    "long": long,
}


def main(parts: list[str]) -> None:
    """Measure parts, or all, and write the report of all that was ever kept."""
    for part in parts or PARTS:
        if part == "report":
            continue
        with tempfile.TemporaryDirectory() as folder, KEPT.open("a") as kept:
            for row in PARTS[part](Path(folder)):
                kept.write(json.dumps(row) + "\n")
                kept.flush()
    if "report" in parts or not parts:
        report([json.loads(line) for line in KEPT.read_text().splitlines()])


if __name__ == "__main__":
    main(sys.argv[1:])
