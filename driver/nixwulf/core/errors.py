"""The errors a user can cause, each one sentence and one exit code."""

from __future__ import annotations

import click

EXIT_OK = 0
EXIT_RUN_FAILED = 1
EXIT_USAGE = 2
EXIT_GATE = 3
EXIT_INTERRUPTED = 130


_MOST_QUOTED = 60


def quoted(value: object) -> str:
    """A value for a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}..."


class NixwulfError(click.ClickException):
    """One sentence with the quoted value and the next command; a run or an effect failed."""

    exit_code = EXIT_RUN_FAILED


class InputError(NixwulfError):
    """A bad command line or input file: names the file, the key and what was expected."""

    exit_code = EXIT_USAGE


class GateError(NixwulfError):
    """A gate refused: a fact of a node is not what a case needs."""

    exit_code = EXIT_GATE
