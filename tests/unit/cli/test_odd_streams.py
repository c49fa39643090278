"""Streams that take no text, or not every character, end no command."""

import os
import subprocess
import sys

from rich.console import Console

from nixwulf.sweep.progress import TerminalProgress


def test_a_report_of_characters_that_the_terminal_lacks_is_printed_all_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "nixwulf", "report", "results/published/records"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "\\xb5s" in done.stdout or "\\u" in done.stdout


def test_progress_on_a_full_stream_does_not_end_the_sweep():
    with open("/dev/full", "w", buffering=1) as full:
        TerminalProgress(Console(file=full)).step("Bringing up the lab")
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
