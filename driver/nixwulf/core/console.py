"""Where summaries are printed."""

from __future__ import annotations

from rich.console import Console


def output(pipe_width: int) -> Console:
    """Standard output: plain text of a fixed width where it is a pipe or a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=pipe_width)
