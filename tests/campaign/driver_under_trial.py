"""The driver as a trial runs it: itself, but that each step is written to a file as it begins.

CAMPAIGN_EVENTS is that file. CAMPAIGN_PROGRAMS is a folder that the engine's programs are taken
from; CAMPAIGN_CLOCK_S is what the clock jumps by as the measurement begins.
"""

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nixwulf.cli.main import main
from nixwulf.plugins.engines.llama_cpp import LlamaCpp
from nixwulf.sweep.recording import TerminalProgress

_EVENTS = Path(os.environ["CAMPAIGN_EVENTS"])
_real_time = time.time


def _note(event: str) -> None:
    # Of a driver that may write no file this is none either.
    with suppress(OSError), _EVENTS.open("a", encoding="utf-8") as stream:
        stream.write(f"{event}\n")
    jump = os.environ.get("CAMPAIGN_CLOCK_S")
    if jump and event == "measure":
        time.time = lambda: _real_time() + float(jump)


def _noted(method: str, event: Any) -> None:
    real = getattr(TerminalProgress, method)

    def wrapper(self: Any, *arguments: Any) -> Any:
        _note(event(*arguments))
        return real(self, *arguments)

    setattr(TerminalProgress, method, wrapper)


def _programs_of_the_trial(folder: Path) -> None:
    real = LlamaCpp.install_local

    def install(self: Any, progress: Any) -> Any:
        found = real(self, progress)
        return replace(found, programs={name: folder / name for name in found.programs})

    LlamaCpp.install_local = install  # type: ignore[method-assign]


_note("start")
_noted("step", lambda words: words.split(" ")[0])
_noted("phase_starts", lambda phase: phase)
if _programs := os.environ.get("CAMPAIGN_PROGRAMS"):
    _programs_of_the_trial(Path(_programs))
main()
