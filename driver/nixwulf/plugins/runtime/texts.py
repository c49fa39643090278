"""Texts of exact lengths, for a driver without a tokenizer: the server counts tokens.

A row is of English words of three letters. Each is one token after a space in the vocabularies of
Llama 2 and 3, Mistral, Qwen, GPT-2 and gpt-oss (counted), and as many bytes as any other where
bytes are tokens, as in the lab. So a server's counts of two rows tell what it adds by itself (a
beginning, a chat's template) and what a word takes.

A natural text is a row and a passage behind it: prose or a program that were written for the
driver, so that no model knows them by heart. The passage is cut between words where the server
counts a little less than was asked for, and the row is as much longer. So the end of the text, from
which an answer goes on, is as it was written.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from itertools import chain, cycle, islice

from nixwulf.core.files import shipped_text
from nixwulf.plugins.runtime.openai_stream import StreamError

_WORDS = (
    "the and for are but not you all can had her was one our out day get has him his how man "
    "new now old see two way who did its let put say she too use any own off why try big end "
    "far few got men run set"
)
WORDS = tuple(_WORDS.split())
# The first words are the text's number, so that no two prompts of a run begin alike and no
# server's prompt cache can help.
NUMBER_WORDS = 2
# Words of the two prompts that a server is asked to count.
PROBES = (4, 12)
Count = Callable[[str], Awaitable[int]]
"""The tokens of a whole text, with what the server adds."""
ROWS = "words"
"""The kind of text that is a row alone."""
_PASSAGE = re.compile(r"\n\n(?=\S)")
_PIECE = re.compile(r"\S+\s*")
# Of a natural text's tokens, for its row: it is not counted again to have a shorter one.
_ROW_SHARE, _ROW_LEAST = 0.02, 16
# Guesses are low, so that few texts that are counted are longer than what the server has room for.
_WORDS_A_TOKEN, _LOW = 0.1, 0.9
_GUESSES, _MOST_COUNTS = 4, 24
# As many words of the copy are given as show where it begins.
_BEGUN = 8
_COPY = "\n\nThe text above once more, word for word:\n\n"


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
        """The prompt of a request.

        What is left after whole words is letters: where a word is several tokens, a letter is one.

        number: of the request in the run; no two begin alike.
        """
        words, letters = divmod(tokens - self.own, self.word)
        return row(number, words, seed) + "x" * letters


def counting(few: int, many: int) -> Counting | None:
    """From a server's counts of PROBES words; None when they do not grow by whole tokens a word."""
    word, rest = divmod(many - few, PROBES[1] - PROBES[0])
    own = few - PROBES[0] * word
    return Counting(own, word) if word > 0 and rest == 0 and own >= 0 else None


def row(number: int, words: int, seed: int) -> str:
    """Words that differ from those of any other number, the first two for certain.

    words: how many, at least NUMBER_WORDS.
    """
    stream = random.Random(f"{seed}/{number}")  # noqa: S311 - the same on every machine
    digits = [number % len(WORDS), number // len(WORDS) % len(WORDS)]
    first = [WORDS[digit] for digit in digits]
    return " ".join([*first, *stream.choices(WORDS, k=max(0, words - NUMBER_WORDS))])


@dataclass(frozen=True)
class TextKind:
    """A kind of natural text: the file it is from, what stands before it, and what is asked."""

    file: str
    before: str = ""
    copied: bool = False

    @property
    def digest(self) -> str:
        """Of all that it is made of: texts of other bytes are no same measurement."""
        parts = (self.before, _COPY if self.copied else "", *_passages(self.file))
        return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()[:12]

    def passage(self, number: int, words: int) -> str:
        """So many words of it, whole lines and all; the number decides where it begins."""
        own = _passages(self.file)
        first = number % len(own)
        turned = cycle((*own[first:], *own[:first]))
        pieces = chain.from_iterable(_PIECE.findall(f"{one}\n\n") for one in turned)
        body = "".join(islice(pieces, words)).rstrip()
        begun = " ".join(body.split()[:_BEGUN])
        return self.before + body + (_COPY + begun if self.copied else "")


KINDS = {
    "prose": TextKind("prose.txt", "Continue this text.\n\n"),
    "code": TextKind("code.txt", "Continue this program.\n\n"),
    "extraction": TextKind("prose.txt", copied=True),
}


@cache
def _passages(file: str) -> tuple[str, ...]:
    return tuple(_PASSAGE.split(shipped_text(f"data/texts/{file}").strip()))


@dataclass
class Cutter:
    """Makes texts of a kind of exactly so many tokens, as a server counts them.

    count gives the tokens of a whole text, with what the server adds; counting is what it adds, and
    the tokens of a word.
    """

    kind: TextKind
    counting: Counting
    seed: int
    count: Count
    _rate: float = _WORDS_A_TOKEN

    async def text(self, number: int, tokens: int) -> str:
        """A text that begins like none of another number.

        Raises StreamError: the kind has no text as short as that.
        """
        most_left = max(_ROW_LEAST, int(tokens * _ROW_SHARE)) + self.counting.word
        low, most = 0, 2 * tokens + 1
        high = most
        words, found = max(1, int(tokens * self._rate * _LOW)), None
        for counted in range(1, _MOST_COUNTS):
            behind = f"\n\n{self.kind.passage(number, words)}"
            has = await self.count(row(number, NUMBER_WORDS, self.seed) + behind)
            left = tokens - has
            if left >= 0:
                low, found = words, (left, behind)
                self._rate = words / has
            else:
                high = words
            if high - low <= 1 or (found and low == words and left <= most_left):
                break
            # One word fewer than all that is left would take, so that most guesses are short.
            guess = int(words + left * words / has) - 1
            if counted >= _GUESSES and high < most:
                guess = (low + high) // 2
            words = min(high - 1, max(low + 1, guess))
        if found is None:
            raise StreamError(
                f"A text of {tokens} tokens is too short for {self.kind.file}: its first words and "
                f"what stands around them have {tokens - left}; ask for more tokens."
            )
        left, behind = found
        more, letters = divmod(left, self.counting.word)
        return row(number, NUMBER_WORDS + more, self.seed) + "x" * letters + behind
