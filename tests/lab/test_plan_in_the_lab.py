"""Finding the best way for real: nodes, engines, records, and a search that can be interrupted."""

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from nixwulf import record
from nixwulf.engines.llama_cpp_build import find_or_build
from nixwulf.report.folder import read_folder
from nixwulf.sweep import load_sweep

SHORT = ("--engine", "llama.cpp", "--n-prompt", "16", "--n-gen", "8", "--samples", "1")


@pytest.fixture(scope="module", autouse=True)
def _engine():
    find_or_build(lambda step, share: None)


def start(*arguments):
    command = [sys.executable, "-m", "nixwulf.cli", "plan", "--model", "random", *SHORT]
    return subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def records(folder):
    return [record.load(path) for path in sorted((folder / "records").glob("*.json"))]


def test_the_best_way_is_measured_and_can_be_served_measured_again_and_reported(tmp_path):
    folder = tmp_path / "run"
    process = start("--goal", "throughput", "--concurrency", "2", "--budget", "25s",
                    "--out", folder)  # fmt: skip
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors

    found = read_folder(folder)
    speeds = {
        one["id"]: metric["value"]
        for one in found.records
        for metric in one["metrics"]
        if metric["name"] == "throughput"
    }
    fastest = max(found.records, key=lambda one: speeds.get(one["id"], 0))
    assert fastest["outcome"] == "ok"
    (line,) = [line for line in output.splitlines() if line.startswith("Best measured: ")]
    assert f"{fastest['case']['nodes']} node" in line
    assert "predicted at first ~" in line

    assert found.planned_runs > len(found.records)
    assert load_sweep(folder / "best.yaml").name == "best"
    matrix = yaml.safe_load((folder / "best.yaml").read_text())["matrix"]
    assert matrix["nodes"] == [fastest["case"]["nodes"]]
    assert "llama-server -m" in output.partition("To serve it")[2]
    assert f"nixwulf bench {folder / 'best.yaml'} --cluster lab" in output
    assert (folder / "report.html").exists()


def test_an_interrupted_search_keeps_what_it_measured_and_says_the_best_of_it(tmp_path):
    folder = tmp_path / "run"
    process = start("--goal", "prompt", "--out", folder)
    deadline = time.monotonic() + 60
    while not records(folder):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert records(folder)
    assert "it was interrupted" in output
    assert "Best measured: " in output
