"""The errors a user can cause, each one sentence and one exit code."""

from __future__ import annotations

import re
import reprlib
import unicodedata

import click

from nixwulf.core.secrets import cut, without

EXIT_OK = 0
EXIT_RUN_FAILED = 1
EXIT_USAGE = 2
EXIT_GATE = 3
EXIT_INTERRUPTED = 130

_MOST_QUOTED = 60
_LONGEST = 4000  # characters of a sentence, of which a tool's own words may be megabytes
_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control characters, marks of direction, half characters
# The repr of a large value takes time and memory for what the sentence then cuts off.
_BEGINNING = reprlib.Repr()
_BEGINNING.maxlevel = 4
_BEGINNING.maxlist = _BEGINNING.maxtuple = _BEGINNING.maxdict = _BEGINNING.maxset = 20
_BEGINNING.maxstring = _BEGINNING.maxlong = _BEGINNING.maxother = 4 * _MOST_QUOTED


def quoted(value: object) -> str:
    """A value for a sentence, cut where it is long."""
    value = cut(value, _BEGINNING.maxstring) if isinstance(value, str) else value
    text = _BEGINNING.repr(value)
    return text if len(text) <= _MOST_QUOTED else f"{cut(text, _MOST_QUOTED)}..."


def one_line(message: str) -> str:
    """A message of one line, with nothing in it that a terminal acts on."""
    if len(message) > _LONGEST and len(message := without(message)) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
    joined = " ".join(filter(None, map(str.strip, re.split(r"[\r\n]", message))))
    if joined.isascii() and joined.isprintable():
        return joined
    return "".join(
        one if unicodedata.category(one) not in _ESCAPED else ascii(one)[1:-1] for one in joined
    )


class NixwulfError(click.ClickException):
    """A sentence with the quoted value and the next command; a run or an effect failed."""

    exit_code = EXIT_RUN_FAILED

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class InputError(NixwulfError):
    """A bad command line or input file: names the file, the key and what was expected."""

    exit_code = EXIT_USAGE


class GateError(NixwulfError):
    """A gate refused: a fact of a node is not what a case needs."""

    exit_code = EXIT_GATE
