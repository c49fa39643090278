"""Causes of failures: those that data/hints.toml knows, and what a program says of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.secrets import cut
from nixwulf.nodes.process import OwnedProcess

_LONGEST = 300
# The last line of a Python traceback, which begins where the log's own words end.
_LOGGED = re.compile(r"(?:\([^()]*\) )*(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^]]*\] )?")
_RAISED = re.compile(r"((?:\w+\.)*\w*(?:Error|Exception))(: .+)?")
# Such as vLLM's, which say of a process no more than that another one has ended.
_SECOND_HAND = re.compile(
    r"\babove\b|EngineDead|closed by peer|reset by peer|Broken pipe|cancelled|BrokenPipe|EOFError"
)


@dataclass(frozen=True)
class Hint:
    """What a reader sees, the pattern of it in an output, its meaning, and the next step."""

    symptom: str
    pattern: str
    cause: str
    fix: str


_DATA = DATA / "hints.toml"
HINTS = tuple(Hint(**row) for row in read_toml(_DATA)["hints"])


def hint_for(text: str) -> str | None:
    """The meaning and the fix of the first known pattern in a text; None when nothing is known."""
    for hint in HINTS:
        if re.search(hint.pattern, text, re.IGNORECASE):
            return f"{hint.cause[0].upper()}{hint.cause[1:]}: {hint.fix}."
    return None


def raised(processes: Iterable[OwnedProcess]) -> str:
    """What the process that failed first says of why, as a sentence with its node; or empty.

    Of each it is the last exception that is not about another process.
    """
    found = []
    for process in processes:
        for text, times in (
            (process.output, process.stdout_times),
            (process.errors, process.stderr_times),
        ):
            lines = [_LOGGED.sub("", line, count=1).rstrip() for line in text.splitlines()]
            for number in reversed(range(len(lines))):
                match = _RAISED.fullmatch(lines[number])
                if match and not _SECOND_HAND.search(match[0]):
                    # An assertion has no words but its own line, which may be underlined.
                    before = (one.strip() for one in reversed(lines[:number]))
                    own = next(filter(lambda one: one.strip("^~ "), before), "")
                    words = match[0] if match[2] else f"{match[0]}: {own}"
                    when = times[number] if number < len(times) else float("inf")
                    found.append((when, process.node, cut(words, _LONGEST)))
                    break
    _, node, words = min(found, default=(0.0, "", ""))
    return f"Node {node!r} says {words.rstrip('.')}." if words else ""
