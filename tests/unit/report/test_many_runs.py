"""What is done for a run does not depend on how many runs there are; counted, not timed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from markupsafe import Markup

from many_runs import many_runs, write_many
from nixwulf.cli.main import cli
from nixwulf.perf.explain.explanation import explain_records
from nixwulf.report import panels
from nixwulf.report.site import look

_FEW = 85  # five runs of a case on each of the demo's 17 records
_SIZES = (_FEW, 2 * _FEW, 3 * _FEW)
_MOST_GROWTH = 1.05  # 0.96 to 1.02 were counted
# The most memory that getrusage() knows of a program was its parent's when that was larger.
_MEASURED = """
import atexit, re, resource, sys
from nixwulf.cli.main import main

def tell():
    kib = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]
    print("\\n", resource.getrusage(resource.RUSAGE_SELF).ru_utime, kib, file=sys.stderr)

atexit.register(tell)
main()
"""


def _calls(work: Callable[[], object]) -> int:
    """How many functions something calls."""
    count = 0

    def one_more(_frame, event, _what):
        nonlocal count
        count += event in ("call", "c_call")

    before, of_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(one_more)
    sys.setprofile(one_more)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(of_threads)
    return count


def _growth(works: Iterable[Callable[[], object]]) -> float:
    """Calls for the last third of the runs over calls for the second; the first loads modules."""
    first, second, third = map(_calls, works)
    return (third - second) / (second - first)


def _run(command: str, folder: Path) -> None:
    out = ["--out", str(folder.with_name("site"))] if command == "site" else []
    done = CliRunner().invoke(cli, [command, str(folder), *out])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "command", ["report", "explain", pytest.param("site", marks=pytest.mark.slow)]
)
def test_each_run_takes_as_many_calls_however_many_there_are(tmp_path, monkeypatch, command):
    # As many are drawn as a report or page may have, however many runs there are.
    for module in (panels, look):
        monkeypatch.setattr(module, "inline", lambda _chart: Markup())
    folders = [write_many(tmp_path / str(runs), runs) for runs in _SIZES]
    _run(command, folders[0])  # what is loaded once
    assert _growth(partial(_run, command, folder) for folder in folders) <= _MOST_GROWTH


def test_values_of_one_parameter_are_not_all_held_against_each_other():
    found = []
    for number in range(_SIZES[-1]):
        one = next(many_runs(1))
        one["case"]["parameters"]["threads"] = number
        one["case"]["id"] = f"{number:012x}"
        for metric in one["metrics"]:
            metric["value"] *= 1 + number % 7
        found.append((one, None))
    explained, _ = explain_records(found)
    assert any(remedy.kind == "parameter" for one in explained for remedy in one.remedies)
    assert _growth(partial(explain_records, found[:runs]) for runs in _SIZES) <= _MOST_GROWTH


@pytest.mark.slow
def test_5000_runs_take_seconds_and_megabytes(tmp_path):
    """User CPU and memory when nothing else runs: results/figures/many-runs.txt."""
    folder = write_many(tmp_path / "runs", 5000)
    for command in ("report", "explain", "site"):
        out = ["--out", tmp_path / "site"] if command == "site" else []
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED, command, folder, *out],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seconds, kib = map(float, done.stderr.splitlines()[-1].split())
        assert seconds <= 60, command
        assert kib <= 300 << 10, command
