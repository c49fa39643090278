"""Reports of run folders: HTML, Markdown, a summary on the terminal, CSV and JSON.

Imports are inside: matplotlib and pandas take half a second.
"""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.core.interrupts import wait

if TYPE_CHECKING:
    from nixwulf.report.summary import Summary


def load() -> None:
    """Load what reports are made with, which takes half a second; an interrupt ends it between two.

    Raises KeyboardInterrupt: in a thread of a pool, when the driver was interrupted.
    """
    modules = ("matplotlib.backends.backend_svg", "matplotlib.figure", "pandas")
    for name in (*modules, "nixwulf.report.summary", "nixwulf.report.render"):
        importlib.import_module(name)
        wait(0)
    from nixwulf.report import render

    render.template()

    # It stays until the end: to look through it for garbage, at the end again, takes 0.1 s.
    gc.freeze()


def summary_of(folder: Path) -> Summary:
    """The summary of a run folder, whose records it validates; raises InputError."""
    from nixwulf.report.summary import summarize
    from nixwulf.results.store import read_folder

    return summarize(read_folder(folder))


def write(summary: Summary) -> Path:
    """Write report.html and report.md into the run's folder; gives the path of the page."""
    from nixwulf.core.files import write_atomically
    from nixwulf.report import render

    folder = summary.folder.path
    page = folder / "report.html"
    write_atomically(page, render.to_html(summary))
    write_atomically(folder / "report.md", render.to_markdown(summary))
    return page
