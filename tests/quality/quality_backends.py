"""A back end's text against that of the CPU of the same build, which is its reference.

Wants a llama.cpp with Vulkan first on PATH. Without a GPU that is Mesa's llvmpipe, whose kernels
are Vulkan's and whose arithmetic is this machine's. What it lacks is measured on the CPU: kernels
that do not quantize activations beside those that do, by the same weights stored in f32.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import quality_models as models
from quality_models import Damage
from quality_servers import Setup, completer

from nixwulf.plugins.runtime.openai import compare
from nixwulf.sweep.references import SHORT, answer_tokens, room

SEEDS = 3
_THREADS = ("-t", "1")
_GPU = ("-dev", "Vulkan0", "-ngl", "999")
_CPU = ("-dev", "none", "-ngl", "0")
CACHES = {
    "": (),
    ", cache q8_0": ("-ctk", "q8_0", "-ctv", "q8_0"),
    ", cache q4_0": ("-ctk", "q4_0", "-ctv", "q4_0"),
}
WAYS = {
    "Vulkan": (),
    "Vulkan, -fa off": ("-fa", "off"),
    "Vulkan, -nkvo": ("-nkvo",),
    "Vulkan, -ub 32": ("-ub", "32"),
}
EXACT = "CPU, same weights in f32"


def backends(folder: Path) -> Iterator[dict[str, Any]]:
    """Each model by Vulkan in each way, and with whole activations, against its CPU."""
    for seed, kind, weights in itertools.product(range(SEEDS), models.KINDS, models.WEIGHTS):
        whole = models.write(folder, kind, weights, seed)
        exact = models.stored_in_f32(whole)
        common = {"part": "backends", "kind": kind, "weights": weights, "seed": seed}
        for cache, options in CACHES.items():
            expected = _cpu_answer(whole, options)
            ways = [(name, whole, (*_GPU, *more)) for name, more in WAYS.items() if not cache]
            ways += [("Vulkan" + cache, whole, _GPU)] if cache else []
            ways += [(EXACT + cache, exact, _CPU)]
            for name, path, more in ways:
                yield {**common, "what": name, **_apart(path, (*more, *options), expected)}
        whole.unlink()
        exact.unlink()


def damaged(
    folder: Path, damages: Iterator[tuple[dict[str, str], Damage | None, tuple[int, int] | None]]
) -> Iterator[dict[str, Any]]:
    """Damaged models by Vulkan against the CPU's text of the whole one."""
    pairs = itertools.cycle(itertools.product(models.WEIGHTS, models.KINDS))
    for (what, damage, swapped), (weights, kind) in zip(damages, pairs, strict=False):
        expected = _cpu_answer(models.write(folder, kind, weights, 0), ())
        path = models.write(folder, kind, weights, 0, damage, swapped)
        found = _apart(path, _GPU, expected)
        path.unlink()
        yield {"part": "damaged backends", "kind": kind, "weights": weights, **what, **found}


def _cpu_answer(path: Path, options: tuple[str, ...]) -> Any:
    setup = Setup("CPU", options=(*_THREADS, *_CPU, *options))
    with completer(path, setup, room((SHORT,))) as one:
        prompt = one.prompt(SHORT)
        assert prompt is not None
        return one.complete(prompt, (), answer_tokens(SHORT))


def _apart(path: Path, options: tuple[str, ...], expected: Any) -> dict[str, Any]:
    setup = Setup("tested", options=(*_THREADS, *options))
    with completer(path, setup, room((SHORT,))) as other:
        prompt = other.prompt(SHORT)
        assert prompt is not None
        found = compare(other, prompt, expected)
    return {"mean_divergence": found.mean, "largest_divergence": max(found.divergences)}
