"""Commands at a desk that lacks programs say which, and the next command; its PATH is empty."""

import json
import os
import subprocess
import sys

import pytest

from machine_factory import cluster_text
from stand_in import put

CLUSTER = cluster_text("mine", "fw1")
INSTALL = "install it by 'curl -L https://nixos.org/nix/install | sh -s -- --daemon'."


@pytest.fixture
def nixwulf(tmp_path):
    """Runs the driver with an empty PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "mine.toml").write_text(CLUSTER)

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "nixwulf", *words, "--cluster", "mine.toml"],
            env=os.environ | {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (("update",), "Systems cannot be built or copied here"),
        (("deploy", "--yes-wipe", "fw1"), "Nothing can be installed from here"),
    ],
)
def test_without_nix_the_sentence_says_how_to_get_it(nixwulf, words, begin):
    done = nixwulf(*words)
    assert done.returncode == 2
    assert done.stderr == f"Error: {begin}, because nix is not on PATH; {INSTALL}\n"


def test_a_plan_and_what_nodes_answer_are_json_where_no_node_answers(nixwulf, tmp_path):
    put(tmp_path / "bin", "ssh", "echo 'ssh: no route to host' >&2; exit 255")
    done = nixwulf("deploy", "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    (node,) = plan["nodes"]
    assert plan["cluster"] == "mine.toml"
    assert (node["node"]["name"], node["method"], node["machine"]) == ("fw1", "kexec", None)
    assert "no route to host" in node["unreached"]
    (state,) = json.loads(nixwulf("preflight", "--only", "status", "--format", "json").stdout)
    assert (state["name"], state["owned"]) == ("fw1", [])
    assert "no route to host" in state["error"]
    facts = json.loads(nixwulf("preflight", "--only", "facts", "--format", "json").stdout)
    assert "no route to host" in facts["fw1"]


def test_json_is_of_a_dry_run(nixwulf):
    done = nixwulf("deploy", "--format", "json")
    assert done.returncode == 2
    assert "--format json is of --dry-run." in done.stderr


def test_the_file_is_checked_without_nix(nixwulf):
    done = nixwulf("preflight", "--only", "file")
    assert done.returncode == 0, done.stderr
