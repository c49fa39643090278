"""Reports of run folders: HTML, Markdown, a summary on the terminal, CSV and JSON."""

from __future__ import annotations

from pathlib import Path

from nixwulf.files import write_atomically
from nixwulf.report import html, markdown, terminal
from nixwulf.report.folder import read_folder
from nixwulf.report.summary import summarize


def write(folder: Path) -> Path:
    """Write report.html and report.md into a run folder; gives the path of the page."""
    summary = summarize(read_folder(folder))
    page = folder / "report.html"
    write_atomically(page, html.to_html(summary))
    write_atomically(folder / "report.md", markdown.to_markdown(summary))
    return page


def print_summary(folder: Path) -> None:
    """Print the summary of a run folder: one line a case, failures, counts."""
    terminal.show(summarize(read_folder(folder)))
