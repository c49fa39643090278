"""Prompts of as many tokens as asked, for a tokenizer that the driver does not have.

A prompt is a row of English words of three letters. Each is one token after a space in the
vocabularies of Llama 2 and 3, Mistral, Qwen, GPT-2 and gpt-oss (counted), and as many bytes as any
other where bytes are tokens, as in the lab. So a server's counts of two rows tell what it adds by
itself (a beginning, a chat's template) and what a word takes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

GREEDY = "The quick brown fox jumps over the lazy dog."
"""What engines go on from for the tokens that tell whether their text is right."""

_WORDS = (
    "the and for are but not you all can had her was one our out day get has him his how man "
    "new now old see two way who did its let put say she too use any own off why try big end "
    "far few got men run set"
)
WORDS = tuple(_WORDS.split())
# The first words are the request's number, so that no two prompts of a run begin alike and no
# server's prompt cache can help.
NUMBER_WORDS = 2
# Words of the two prompts that a server is asked to count.
PROBES = (4, 12)


@dataclass(frozen=True)
class Counting:
    """How a server counts prompts: tokens of its own, and tokens of a word."""

    own: int
    word: int

    @property
    def least(self) -> int:
        """Tokens of the shortest prompt."""
        return self.own + NUMBER_WORDS * self.word

    def prompt(self, number: int, tokens: int, seed: int) -> str:
        """The prompt of a request by its number in the run; tokens is not less than the least.

        What is left after whole words is letters: where a word is several tokens, a letter is one.
        """
        words, letters = divmod(tokens - self.own, self.word)
        return row(number, words, seed) + "x" * letters


def counting(few: int, many: int) -> Counting | None:
    """From a server's counts of PROBES words; None when they do not grow by whole tokens a word."""
    word, rest = divmod(many - few, PROBES[1] - PROBES[0])
    own = few - PROBES[0] * word
    return Counting(own, word) if word > 0 and rest == 0 and own >= 0 else None


def row(number: int, words: int, seed: int) -> str:
    """Words that differ from those of any other number, the first ones surely."""
    stream = random.Random(f"{seed}/{number}")  # noqa: S311 - the same on every machine
    digits = [number % len(WORDS), number // len(WORDS) % len(WORDS)]
    first = [WORDS[digit] for digit in digits]
    return " ".join([*first, *stream.choices(WORDS, k=max(0, words - NUMBER_WORDS))])
