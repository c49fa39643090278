"""One table of symptoms: those that the driver knows, and those that only a reader can match."""

from __future__ import annotations

import tomllib
from pathlib import Path

from markdown import table

from nixwulf.sweep.phases import HINTS

_OTHERS = Path(__file__).with_name("symptoms.toml")
_INTRODUCTION = """# Symptom, cause, what to do

Search this page for words of what you see. Sentences of `nixwulf` itself name the next command
and are not all here; [gates.md](gates.md) has what each gate reads. Where `hint` stands, a run's
record has cause and fix by itself.

"""


def pages() -> dict[str, str]:
    """The page; those of the data file by what they are about, each with its place."""
    others = tomllib.loads(_OTHERS.read_text(encoding="utf-8"))
    rows = [["hint", hint.symptom, hint.cause, hint.fix] for hint in HINTS]
    rows += [[topic, *one] for topic, each in others.items() for one in each]
    head = ["of", "symptom", "cause", "what to do"]
    return {"troubleshooting.md": _INTRODUCTION + table(head, rows)}
