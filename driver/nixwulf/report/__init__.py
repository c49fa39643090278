"""Reports of run folders: HTML, Markdown, a summary on the terminal, CSV and JSON."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path

from nixwulf.files import write_atomically
from nixwulf.report import html, markdown, terminal
from nixwulf.report.contents import Summary
from nixwulf.report.folder import read_folder
from nixwulf.report.summary import summarize


def load() -> None:
    """Load what reports are made with, which takes half a second."""
    for name in ("matplotlib.backends.backend_svg", "matplotlib.figure", "pandas"):
        importlib.import_module(name)
    html.template()

    # It stays until the end: to look through it for garbage, at the end again, takes 0.1 s.
    gc.freeze()


def summary_of(folder: Path) -> Summary:
    """The summary of a run folder, whose records it validates; raises InputError."""
    return summarize(read_folder(folder))


def write(summary: Summary) -> Path:
    """Write report.html and report.md into the run's folder; gives the path of the page."""
    folder = summary.folder.path
    page = folder / "report.html"
    write_atomically(page, html.to_html(summary))
    write_atomically(folder / "report.md", markdown.to_markdown(summary))
    return page


def print_summary(summary: Summary) -> None:
    """Print a summary: one line a case, failures, counts."""
    terminal.show(summary)
