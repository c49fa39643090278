"""What is done for a run does not depend on how many runs there are; counted, not timed."""

from __future__ import annotations

import sys
import threading

import pytest
from click.testing import CliRunner
from markupsafe import Markup

from many_runs import write_many
from nixwulf.cli.main import cli
from nixwulf.report import panels

_FEW = 60
_MOST_GROWTH = 2.3


def _calls(*words: str) -> int:
    """How many functions a command calls."""
    count = 0

    def one_more(_frame, event, _what):
        nonlocal count
        count += event in ("call", "c_call")

    before, of_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(one_more)
    sys.setprofile(one_more)
    try:
        done = CliRunner().invoke(cli, words)
    finally:
        sys.setprofile(before)
        threading.setprofile(of_threads)
    assert done.exit_code == 0, done.output
    return count


@pytest.mark.parametrize("command", ["report", "explain"])
def test_twice_as_many_runs_take_twice_as_many_calls(tmp_path, monkeypatch, command):
    # As many are drawn as a report may have, however many runs there are.
    monkeypatch.setattr(panels, "inline", lambda _chart: Markup())
    folders = [write_many(tmp_path / str(runs), runs) for runs in (_FEW, 2 * _FEW)]
    _calls(command, str(folders[0]))  # what is loaded once
    few, more = (_calls(command, str(folder)) for folder in folders)
    assert more <= _MOST_GROWTH * few
