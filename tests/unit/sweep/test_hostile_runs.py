"""Whatever a run meets is a record that can be read back, and of bounded size."""

import sys
import time
from datetime import UTC, datetime

import pytest

from launch_plan import planned
from machine_runs import run_of
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import process
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.results.record import load, save, sealed
from nixwulf.sweep import phases
from nixwulf.sweep.phases import run_case
from nixwulf.sweep.power import Watch
from nixwulf.sweep.recording import Findings, bare_record
from nixwulf.sweep.references import ReferenceFolder
from record_factory import case, ok


class Here(Connection):
    """This machine in the place of a node."""

    def argv(self, command=()):
        return list(command)


def run(folder, code):
    node = Here(load_cluster("lab").nodes[0], ())
    started = OwnedProcess.start(node, "it", [sys.executable, "-c", code], {}, folder / "r")
    started._client.wait(timeout=60)
    assert not started.running
    return started


def test_a_line_without_an_end_is_kept_up_to_a_limit_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "KEPT_BYTES", 1 << 20)
    # no output: a program of this test, and what it prints
    done = run(tmp_path, "import os\nfor _ in range(40): os.write(1, b'x' * 100_000)\nprint('end')")
    assert len(done.output) < (1 << 20) + 2 * process._END_BYTES + 200
    assert f"[{done.left_out} bytes are left out here]" in done.output
    assert done.left_out + len(done.output) > 4_000_000
    assert done.output.endswith("xend\n")


def test_the_exit_mark_is_seen_behind_a_long_text_and_is_no_other_text(tmp_path):
    # no output: a program of this test, and what it prints
    code = "import os, sys\nos.write(2, b'nixwulf-exit:abc\\n' + b'y' * 70_000)\nsys.exit(7)"
    done = run(tmp_path, code)
    assert done.returncode == 7
    # no output: of the program above
    assert done.errors == "nixwulf-exit:abc\n" + "y" * 70_000


def test_a_process_that_has_ended_leaves_no_pipe_open(tmp_path):
    client = run(tmp_path, "print('end')")._client
    assert all(pipe.closed for pipe in (client.stdin, client.stdout, client.stderr))


@pytest.mark.parametrize("value", ["\ud800", 10**30, {"deep": [10**400]}])
def test_a_record_that_cannot_be_read_back_is_never_there(tmp_path, value):
    record = sealed({**ok(case(1), {"decode": [20.0]}), "sanity": {"text": value}})
    path = tmp_path / "record.json"
    with pytest.raises(InputError):
        save(record, path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("reason", ["a sentence", "half \ud800 of a character", "x" * 200_000])
def test_of_such_a_run_a_record_is_left_that_gives_the_reason(tmp_path, reason):
    matrix = {"engine": ["mesh-llm"], "benchmark": ["serve"], "nodes": [1]}
    matrix |= {"fabric": ["switch"], "parallelism": ["single"]}
    run = planned(tmp_path, "pi-cm5-4", {"path": "/models/llama.gguf"}, matrix)
    run.engine_facts["version"] = "\ud800"
    found = Findings(sanity={"text": 10**30}, seconds={"facts": 1.0})
    path = tmp_path / "record.json"
    save(bare_record(run, found, 1, datetime.now(UTC), reason), path)
    read = load(path)
    assert read["outcome"] == "failed"
    assert read["failure"]["reason"].startswith(reason[:4])
    assert read["phases"]["facts"] == 1.0


HUGE = pytest.param(10**5000, "(ValueError: ", id="huge")  # Python itself does not print it


class Unreachable(Connection):
    """A node that is off."""

    def argv(self, command=()):
        return ["sh", "-c", "echo 'ssh: no route to host' >&2; exit 255"]


@pytest.fixture
def case_run(tmp_path):
    """A run of a case whose nodes do not answer, and what it takes as far as its record."""
    run = run_of(tmp_path / "raw" / "x-r0", "iperf3", fabric="gbe5")
    run.nodes = tuple(Unreachable(node.node, ()) for node in run.nodes)
    run.deadline = time.monotonic() + 60

    def take():
        bring = pytest.fail  # it has no model
        references = ReferenceFolder(tmp_path / "references")
        record = run_case(run, bring, 0, references, lambda: None, lambda phase: None)
        save(record, tmp_path / "record.json")
        return load(tmp_path / "record.json")

    return take


def test_a_run_on_nodes_that_are_off_is_failed(case_run):
    record = case_run()
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "facts")
    assert "did not answer: ssh: no route to host" in record["failure"]["reason"]


def test_a_reason_with_words_of_a_program_moves_no_terminal_and_is_short(case_run, monkeypatch):
    def look(*_):
        # no output: the words of a gate
        raise RunFailure("it ran on '\x1b[2J\n\x07" + "z" * 1_000_000 + "'.", "fallback")

    monkeypatch.setattr(phases, "_look", look)
    reason = case_run()["failure"]["reason"]
    assert reason.startswith("it ran on '\\x1b[2J \\x07zz")
    assert len(reason) < 5000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("\ud800", "What the run gave: line "),
        (10**30, "What the run gave: "),
        (float("nan"), "(ValueError: "),
        ({1, 2}, "(TypeError: "),
        HUGE,
    ],
)
def test_what_no_record_can_hold_becomes_a_record_that_says_so(case_run, monkeypatch, value, words):
    monkeypatch.setattr(phases, "warnings", lambda power: [value])
    record = case_run()
    assert (record["outcome"], record["metrics"]) == ("failed", [])
    assert record["failure"]["phase"] == "facts"
    assert words in record["failure"]["reason"]
    assert "warnings" not in record
    assert [node["name"] for node in record["nodes"]] == ["n1", "n2"]


@pytest.mark.parametrize("name", ["stop", "document"])
def test_a_surprise_after_the_last_phase_is_a_record_too(case_run, monkeypatch, tmp_path, name):
    def unforeseen(*_):
        raise KeyError("joules")

    monkeypatch.setattr(Watch, name, unforeseen)
    record = case_run()
    assert record["outcome"] == "failed"
    assert "(KeyError: 'joules')" in record["failure"]["reason"]
    assert "in unforeseen" in (tmp_path / "raw" / "x-r0" / "driver.traceback").read_text()
