"""A whole sweep through the command line: records, interruption, resume, and nothing left over."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest
import yaml
from lab_under_test import Running, Silent

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import lab
from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.results.record import load
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

SWEEP = """
name: interrupted
models:
  tiny: {random: {layers: 2}}
  experts: {random: {architecture: qwen3moe, layers: 2, experts: 4, experts_used: 2}}
matrix:
  model: [tiny, experts]
  nodes: [2]
  fabric: [gbe5]
  parallelism: [pipeline, tensor]
  parameters: {n_prompt: [16], n_gen: [8], threads: [1]}
samples: 1
limits: {wall_s: 60, progress_s: 20}
"""


@pytest.fixture(scope="module", autouse=True)
def _engine():
    ENGINE.install_local(lambda step, share: None)


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "interrupted.yaml"
    path.write_text(SWEEP)
    return path


def start(*arguments):
    command = [sys.executable, "-m", "nixwulf", "bench", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(*arguments):
    process = start(*arguments)
    output, errors = process.communicate(timeout=200)
    return process.returncode, output, errors


def records(folder):
    return {path.name: path.read_bytes() for path in (folder / "records").glob("*.json")}


def wait_for_records(folder, count, process):
    deadline = time.monotonic() + 120
    while len(records(folder)) < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_no_lab_is_left(pid):
    deadline = time.monotonic() + 20
    while any(one.name == f"bench-{pid}" for one in lab.labs()):
        assert time.monotonic() < deadline, "the lab outlived its driver"
        time.sleep(0.1)


def test_an_interrupted_sweep_keeps_its_records_and_resumes_only_what_is_missing(sweep, tmp_path):
    folder = tmp_path / "run"
    process = start(sweep, "--out", folder)
    wait_for_records(folder, 1, process)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"go on with 'nixwulf bench --resume {folder}'" in errors
    assert_no_lab_is_left(process.pid)
    kept = records(folder)
    assert 1 <= len(kept) < 4

    code, output, errors = finish("--resume", folder)
    assert code == 0, errors
    assert "Bringing up the lab: 2 nodes" in errors, "more than its runs take"
    assert f"[1/{4 - len(kept)}]" in errors
    after = records(folder)
    assert len(after) == 4
    assert {name: after[name] for name in kept} == kept
    assert f"Report: {folder / 'report.html'}" in output
    assert {json.loads(text)["outcome"] for text in after.values()} == {"ok"}
    raw = [path for path in (folder / "raw").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in raw} == {0o600}

    again = time.monotonic()
    code, _, errors = finish("--resume", folder)
    assert code == 0
    assert "[1/" not in errors, f"nothing was missing, and it ran {time.monotonic() - again} s"
    assert records(folder) == after


def test_a_driver_killed_by_kill_9_loses_no_record_and_leaves_no_lab(sweep, tmp_path):
    folder = tmp_path / "run"
    process = start(sweep, "--out", folder)
    wait_for_records(folder, 1, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert_no_lab_is_left(process.pid)
    for text in records(folder).values():
        assert json.loads(text)["outcome"] == "ok"
    code, _, errors = finish("--resume", folder)
    assert code == 0, errors
    assert len(records(folder)) == 4


def test_a_full_device_keeps_what_was_finished_valid(sweep, tmp_path):
    script = f"""
        mount -t tmpfs -o size=400k none {tmp_path}/small || exit 77
        {sys.executable} -m nixwulf bench {sweep} --out {tmp_path}/small/run
        echo "exit: $?"
        cp -r {tmp_path}/small/run/records {tmp_path}/kept
    """
    (tmp_path / "small").mkdir()
    sweep.write_text(SWEEP.replace("samples: 1", "samples: 1\nrepetitions: 40"))
    namespaces = ["unshare", "--mount"]
    namespaces += [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        [*namespaces, "sh", "-c", script], capture_output=True, text=True, timeout=280, check=False
    )
    if done.returncode == 77:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr}")
    assert "exit: 1" in done.stdout, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert f"go on with 'nixwulf bench --resume {tmp_path}/small/run'" in done.stderr
    assert "Traceback" not in done.stderr
    kept = list((tmp_path / "kept").glob("*.json"))
    assert kept
    assert not list((tmp_path / "kept").glob(".*"))
    validated = subprocess.run(
        [sys.executable, "-m", "nixwulf", "validate", *kept],
        capture_output=True,
        check=False,
    )
    assert validated.returncode == 0


FILL = (
    "cd && mkdir -p .cache/nixwulf/models && mount -t tmpfs -o size=64k none .cache/nixwulf/models"
)
FREE = "umount ~/.cache/nixwulf/models"


class Filling(Silent):
    """Of two runs, the first finds a full disk on the head."""

    def __init__(self):
        self.runs = 0

    def run_starts(self, case, repetition):
        self.runs += 1
        (up,) = (one for one in lab.labs() if one.name == f"bench-{os.getpid()}")
        Running(up).out("n1", FILL if self.runs == 1 else FREE)


def test_a_sweep_goes_on_after_a_model_that_could_not_be_copied(tmp_path):
    document = yaml.safe_load(SWEEP)
    document["matrix"] |= {"parallelism": ["pipeline"]}
    plan = make_plan(parse_sweep(document, "sweep.yaml"), load_cluster("lab"))
    assert session.run_plan(plan, tmp_path, Filling()) is None
    found = [load(session.record_path(tmp_path, *run)) for run in plan.runs()]
    assert [record["outcome"] for record in found] == ["failed", "ok"], found
    assert found[0]["failure"]["phase"] == "model"
    assert session.missing_runs(plan, tmp_path) == []


def end(running):
    """As 'nixwulf lab down' of another terminal."""
    running.down()


def kill(running):
    """As the kernel does when memory is short."""
    os.kill(int(running.files.process_id.read_text()), signal.SIGKILL)


def stop(running):
    """The supervisor, which then answers nothing; its nodes go on."""
    os.kill(int(running.files.process_id.read_text()), signal.SIGSTOP)


@pytest.mark.parametrize("ending", [end, kill, stop])
def test_a_lab_that_ends_within_a_sweep_leaves_a_record_of_each_run_and_a_report(
    sweep, tmp_path, ending
):
    folder = tmp_path / "run"
    process = start(sweep, "--out", folder)
    wait_for_records(folder, 1, process)
    (running,) = (one for one in lab.labs() if one.name == f"bench-{process.pid}")
    ending(running)
    output, errors = process.communicate(timeout=250)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    assert f"Report: {folder / 'report.html'}" in output
    found = [json.loads(text) for text in records(folder).values()]
    assert len(found) == 4
    failures = [one["failure"]["reason"] for one in found if one["outcome"] != "ok"]
    assert failures
    assert any(f"Lab {running.name!r} does not answer" in reason for reason in failures), failures
    assert not any("The driver cannot go on" in reason for reason in failures), failures
    assert_no_lab_is_left(process.pid)
