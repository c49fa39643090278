"""What of a program's output is a sign of life."""

import io
import re
from array import array

import pytest

from nixwulf.nodes.process import OwnedProcess
from nixwulf.plugins.engines.exo import _COMPLAINT

# hand-made: exo needs an Internet that is not there to print it
# (form: https://github.com/exo-explore/exo/blob/b5375f8/src/exo/download/download_utils.py)
COMPLAINT = b"WARNING | No internet and no cached file list for m - using local file list\n"


@pytest.mark.parametrize(("line", "progress"), [(COMPLAINT, False), (b"layer 3 of 80\n", True)])
def test_a_complaint_that_comes_once_a_minute_is_kept_and_is_no_progress(tmp_path, line, progress):
    process = OwnedProcess("n1", "u", (), {}, tmp_path / "o", tmp_path / "e", background=True)
    process.no_progress = _COMPLAINT
    process.output_at = 0.0
    process._mark = b"mark:"
    kept, times = io.BytesIO(), array("d")
    kept.close = lambda: None
    process._copy(io.BytesIO(line), kept, times)
    assert (process.output_at > 0) == progress
    assert (kept.getvalue(), len(times)) == (line, 1)


def test_without_such_a_pattern_all_output_is_progress(tmp_path):
    process = OwnedProcess("n1", "u", (), {}, tmp_path / "o", tmp_path / "e", background=True)
    process.output_at, process._mark = 0.0, b"mark:"
    process._copy(io.BytesIO(COMPLAINT), io.BytesIO(), array("d"))
    assert process.output_at > 0
    assert isinstance(_COMPLAINT, re.Pattern)
