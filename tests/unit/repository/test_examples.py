"""The examples of the Python API do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from record_factory import case, failed, ok, write_run

EXAMPLE = Path("examples/demo_plots.py")


def run(*arguments):
    command = [sys.executable, EXAMPLE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_example_makes_the_demo_s_plots_from_a_run_folder(tmp_path):
    speeds = {"near": (24.0, 60.0), "far": (2010.0, 12.0)}
    records = [ok(case(1), {"decode": [80.0, 82.0]})]
    for fabric, (rtt, speed) in speeds.items():
        for parallelism in ("pipeline", "tensor"):
            for nodes in (2, 4):
                measured = {"decode": [speed / nodes, speed / nodes + 1]}
                records.append(ok(case(nodes, fabric, parallelism), measured, rtt_us=rtt))
    folder = write_run(tmp_path / "demo", [*records, failed(case(4, "hung"))])
    done = run(folder, tmp_path / "plot.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    table = done.stdout.splitlines()
    assert table[0].split()[:4] == ["nodes", "parallelism", "fabric", "rtt_us"]
    assert len(table) == 1 + 9
    assert ["2", "tensor", "far", "2010.0", "6.5", "0.08", "0.04"] in [row.split() for row in table]


def test_without_arguments_it_says_what_it_needs():
    assert "RUN_FOLDER" in run().stderr
