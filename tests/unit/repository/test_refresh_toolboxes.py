"""packages/refresh-toolboxes pins the tags of a lock file, with a registry that the test plays."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stand_in import put

SCRIPT = Path("packages/refresh-toolboxes/refresh-toolboxes.sh")
OLD, NEW = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
SKOPEO = f"""#!/usr/bin/env bash
[[ ${{!#}} == *:gone ]] && {{ echo 'manifest unknown' >&2; exit 1; }}
echo {NEW}
"""

pytestmark = pytest.mark.skipif(not shutil.which("jq"), reason="There is no jq on PATH.")


@pytest.fixture
def refresh(tmp_path):
    """Runs the script on a lock file's images: what it did, and the images after it."""
    programs = tmp_path / "bin"
    put(programs, "skopeo", SKOPEO)

    def run(images, *names):
        lock = tmp_path / "toolboxes.lock.json"
        lock.write_text(json.dumps({"version": 1, "images": images}))
        done = subprocess.run(
            # As writeShellApplication does.
            ["bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", SCRIPT, lock, *names],
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, json.loads(lock.read_text())["images"]

    return run


def test_a_tag_is_pinned_and_the_note_on_the_old_digest_goes(refresh):
    entry = {"image": "docker.io/a/b", "tag": "t", "digest": OLD, "note": "n"}
    done, images = refresh({"x": entry})
    assert images == {"x": {"image": "docker.io/a/b", "tag": "t", "digest": NEW}}
    assert (done.returncode, done.stdout) == (0, f"x: {OLD} -> {NEW}\n")


def test_what_is_current_or_has_no_tag_stays_as_it_is(refresh):
    before = {
        "current": {"image": "i", "tag": "t", "digest": NEW, "note": "n"},
        "kept": {"image": "i", "tag": None, "digest": OLD},
    }
    done, images = refresh(before)
    assert (done.returncode, done.stdout, images) == (0, "", before)


def test_a_tag_that_is_gone_keeps_its_digest_and_the_others_are_pinned(refresh):
    done, images = refresh(
        {
            "lost": {"image": "i", "tag": "gone", "digest": OLD},
            "x": {"image": "i", "tag": "t", "digest": None},
        }
    )
    assert done.returncode == 1
    assert "'i:gone' could not be read, so 'lost' stays as it is" in done.stderr
    assert (images["lost"]["digest"], images["x"]["digest"]) == (OLD, NEW)


def test_only_those_named_are_pinned(refresh):
    entry = {"image": "i", "tag": "t", "digest": None}
    done, images = refresh({"x": entry, "y": entry}, "y")
    assert (images["x"]["digest"], images["y"]["digest"]) == (None, NEW)
    done, _ = refresh({"x": entry}, "z")
    assert done.returncode == 1
    assert "'z' has no tag" in done.stderr
