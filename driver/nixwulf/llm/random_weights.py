"""Weights and words of random models, the same in every file format and on every machine."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from nixwulf.llm.random_model import BYTE_TOKENS, FIRST_WORD, SPECIAL_TOKENS, RandomModel, Tensor

if TYPE_CHECKING:
    import numpy as np

_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwyz" for vowel in "aeiou"]


def values(tensor: Tensor, model: RandomModel) -> np.ndarray[Any, Any]:
    """The tensor's weights, f32, in its shape.

    Uniform weights, because they need no libm: a normal distribution's last bit may differ between
    machines. Each tensor has a stream of its own, so that it depends on nothing written before it.
    """
    import numpy as np

    if tensor.spread is None:
        return np.ones(tensor.shape, dtype=np.float32)
    stream = np.random.Generator(np.random.PCG64([model.seed, zlib.crc32(tensor.name.encode())]))
    weights = stream.random(tensor.shape, dtype=np.float32) - np.float32(0.5)
    weights *= np.float32(tensor.spread * 12**0.5)
    if tensor.name == "output.weight":
        weights[:FIRST_WORD] = 0  # greedy text is words only: no end, no half of a UTF-8 character
    return weights


def vocabulary(size: int) -> list[str]:
    """The text of each token: special ones, one for each byte, then words."""
    names = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(BYTE_TOKENS))]
    return names + [word(number) for number in range(size - FIRST_WORD)]


def word(number: int) -> str:
    """The number-th word (from 0): a space mark and syllables, each word another one."""
    syllables = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, len(_SYLLABLES))
        syllables = _SYLLABLES[digit] + syllables
    return "\N{LOWER ONE EIGHTH BLOCK}" + syllables
