"""Whatever a run meets is a record that can be read back, and of bounded size."""

import sys
import time

import pytest

from machine_runs import run_of
from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import process
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.results.record import load, save, sealed
from nixwulf.sweep import phases
from nixwulf.sweep.phases import run_case
from nixwulf.sweep.power.watch import Watch
from nixwulf.sweep.sanity import References
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
    done = run(tmp_path, "import os\nfor _ in range(40): os.write(1, b'x' * 100_000)\nprint('end')")
    assert len(done.output) < (1 << 20) + 2 * process._END_BYTES + 200
    assert f"[{done.left_out} bytes are left out here]" in done.output
    assert done.left_out + len(done.output) > 4_000_000
    assert done.output.endswith("xend\n")


def test_the_exit_mark_is_seen_behind_a_long_text_and_is_no_other_text(tmp_path):
    code = "import os, sys\nos.write(2, b'nixwulf-exit:abc\\n' + b'y' * 70_000)\nsys.exit(7)"
    done = run(tmp_path, code)
    assert done.returncode == 7
    assert done.errors == "nixwulf-exit:abc\n" + "y" * 70_000


@pytest.mark.parametrize("value", ["\ud800", 10**30, {"deep": [10**400]}])
def test_a_record_that_cannot_be_read_back_is_refused_before_it_has_its_name(tmp_path, value):
    kept = tmp_path / "record.json"
    save(ok(case(1), {"decode": [20.0]}), kept)
    before = kept.read_bytes()
    with pytest.raises(InputError):
        save(sealed({**ok(case(1), {"decode": [20.0]}), "sanity": {"text": value}}), kept)
    assert kept.read_bytes() == before
    assert list(tmp_path.iterdir()) == [kept]


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
        references = References(tmp_path / "references")
        record = run_case(run, bring, 0, references, lambda: None, lambda phase: None)
        save(record, tmp_path / "record.json")
        return load(tmp_path / "record.json")

    return take


def test_a_run_on_nodes_that_are_off_is_failed(case_run):
    record = case_run()
    assert (record["outcome"], record["failure"]["phase"]) == ("failed", "facts")
    assert "did not answer: ssh: no route to host" in record["failure"]["reason"]


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
