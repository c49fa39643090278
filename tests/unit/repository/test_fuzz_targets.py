"""A few inputs of every fuzz target; 'make campaign' runs the rest."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_each_fuzz_target_keeps_the_promise_for_its_first_inputs():
    done = subprocess.run(
        [sys.executable, "tests/campaign/fuzz_targets.py", "--inputs", "6"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(
        r"^([\w-]+): 6 inputs, 0 broken.* of (\d+) readings", done.stdout, re.MULTILINE
    )
    assert len(rows) == 15
    assert all(int(readings) for _, readings in rows), "a target that reads nothing"
