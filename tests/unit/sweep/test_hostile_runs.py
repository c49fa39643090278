"""Whatever a run meets is a record that can be read back, and of bounded size."""

import sys

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import process
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.results.record import load, save, sealed
from nixwulf.sweep.recording import without_values
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
def test_a_record_that_cannot_be_read_back_becomes_one_that_says_so(tmp_path, value):
    record = sealed({**ok(case(1), {"decode": [20.0]}), "sanity": {"text": value}})
    path = tmp_path / "record.json"
    with pytest.raises(InputError) as refused:
        save(record, path)
    assert not path.exists()
    save(without_values(record, refused.value), path)
    read = load(path)
    assert read["outcome"] == "failed"
    assert "nothing that a record can hold" in read["failure"]["reason"]
