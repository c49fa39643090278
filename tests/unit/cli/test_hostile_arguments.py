"""Arguments that no command can use: one sentence, and never a traceback."""

import subprocess
import sys

import pytest

LONG = "a" * 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", LONG],
        ["validate", f"{LONG}.toml"],
        ["site", LONG, "--out", "site"],
        ["explain", LONG],
        ["report", LONG],
        ["publish", LONG, "--out", "public"],
        ["compare", LONG, LONG],
        ["compare", "a=b", "a=b", "--in", LONG],
        ["bench", LONG, "--dry-run"],
        ["bench", "--resume", LONG],
        ["bench", "smoke", "--dry-run", "--out", LONG],
        ["predict", "--cluster", LONG, "--model", "x"],
        ["predict", "--cluster", "framework-2", "--model", LONG],
        ["import", LONG, "--platform", "dgx-spark"],
        ["deploy", "--cluster", "mini-3", "--extra-files", LONG],
        ["site", "", "--out", "site"],
        ["validate", ""],
        ["report", ""],
        ["validate", "\x1b[31mred"],
        ["compare", "a\nb", "c\nd"],
        ["no-such\x1b[31m"],
    ],
    ids=lambda arguments: " ".join(one[:12] for one in arguments),
)
def test_an_argument_that_nothing_can_be_made_of_is_one_sentence(tmp_path, arguments):
    done = subprocess.run(
        [sys.executable, "-m", "nixwulf", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())
    assert 0 < len(done.stderr.splitlines()) <= 4
    assert "Traceback" not in done.stderr
