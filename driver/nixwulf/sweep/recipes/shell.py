"""Commands of a text as words: read as a shell would, and never given to one.

What a shell would do more than split words (expand, redirect, join, start something else) is
refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA, read_toml

_ACTS, _BLOCKS = (read_toml(DATA / "wrappers.toml")[part] for part in ("acts", "blocks"))
_EXPANDS = re.compile(r"`|\$[A-Za-z_{(0-9@*#?!]|^~")
_TOKEN = re.compile(
    r"""(?P<continued>\\[ \t]*\r?\n)
    |(?P<newline>\n)
    |(?P<space>[^\S\n]+)
    |(?P<single>'[^']*+')
    |(?P<double>"(?:\\.|[^"\\])*+")
    |(?P<escaped>\\.)
    |(?P<acts>[;|&<>()`$])
    |(?P<plain>[^\s'"\\;|&<>()`$]++|\\)""",
    re.VERBOSE | re.DOTALL,
)
# What a shell does with the output of a command and with the next one; none changes the command.
_AROUND = re.compile(
    r"(?P<next>&&)|(?P<output>&?>>?[ \t]*(?:&\d|[^\s;|&<>()`$'\"]+)|<[ \t]*/dev/null"
    r"|\$@|\|[ \t]*tee\b[^\n;|&<>()`$]*|&(?=[ \t]*(?:\n|$)))"
)
_ESCAPED = re.compile(r"\\(?:\n|([$`\"\\]))")


@dataclass(frozen=True)
class ShellCommand:
    """The words of a command, and the line of its text in which it begins, from 1 on.

    dropped: what only a shell does with its output, as '2>&1'.
    """

    words: tuple[str, ...]
    line: int
    dropped: tuple[str, ...] = ()


class ShellError(Exception):
    """A text is more than commands: in which line of it, from 1 on, and what is there."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


def commands(text: str) -> list[ShellCommand]:
    """The commands of a text, one a line but for continued lines and lines in quotes.

    Raises ShellError: for what only a shell could do, and for a quote that is not closed.
    """
    read, line, at = _Read(), 1, 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ShellError(line, f"a quote ({text[at]}) that is not closed")
        kind, piece, end = token.lastgroup or "", token[0], token.end()
        around = _AROUND.match(text, at) if kind == "acts" and read.words else None
        if around:
            end = around.end()
            read.around(around)
        elif kind == "acts":
            raise ShellError(line, _BLOCKS.get((*read.words, "")[0], _ACTS[piece]))
        elif kind == "plain" and read.word is None and piece.startswith("#"):
            end = text.find("\n", end) if "\n" in text[end:] else len(text)
        elif kind in ("continued", "newline", "space"):
            read.end_word()
            if kind == "newline":
                read.end_command()
        else:
            read.begun = read.begun if read.words or read.word is not None else line
            read.word = (read.word or "") + _unquoted(kind, piece, line)
        line += 0 if around else piece.count("\n")
        at = end
    read.end_word()
    read.end_command()
    return read.found


@dataclass
class _Read:
    """What was read of a text: whole commands, and of the one that it is in."""

    found: list[ShellCommand] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    word: str | None = None
    begun: int = 1

    def end_word(self) -> None:
        self.words += [] if self.word is None else [self.word]
        self.word = None

    def end_command(self) -> None:
        if self.words:
            self.found.append(ShellCommand(tuple(self.words), self.begun, tuple(self.dropped)))
            self.words, self.dropped = [], []

    def around(self, match: re.Match[str]) -> None:
        """The end of a command, or what is dropped; a number in front says which output it is."""
        number = self.word if self.word and self.word.isdigit() and not match["next"] else ""
        self.word = None if number else self.word
        self.end_word()
        if match["next"]:
            self.end_command()
        else:
            self.dropped.append(f"{number}{match[0].strip()}")


def _unquoted(kind: str, piece: str, line: int) -> str:
    """What a token stands for; raises ShellError for an expansion inside of double quotes."""
    if kind == "single":
        return piece[1:-1]
    if kind == "escaped":
        return piece[1:]
    if kind != "double":
        return piece
    expands = _EXPANDS.search(re.sub(r"\\.", lambda escaped: "  ", piece, flags=re.DOTALL))
    if expands:
        raise ShellError(line + piece.count("\n", 0, expands.start()), _ACTS[expands[0][0]])
    return _ESCAPED.sub(lambda escaped: escaped[1] or "", piece[1:-1])


def refusal(error: ShellError, line: str, number: int, source: str) -> InputError:
    """The sentence for a line, numbered from 1 on, that a shell would have to run."""
    return InputError(
        f"{source}: line {number} has {error.what}: {quoted(line.strip())}; a recipe is "
        "never given to a shell: write the command alone."
    )


def require_plain(words: Iterable[str], source: str) -> None:
    """Raise InputError for a word that a shell would expand: nothing here does."""
    for word in words:
        if _EXPANDS.search(word):
            raise InputError(
                f"{source}: {quoted(word)} is for a shell to expand, and no recipe is given to "
                "one; write what it stands for."
            )
