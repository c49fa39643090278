"""Versions of engines on nodes that are reached through ssh; the programs only print theirs.

hand-made: no builds of these numbers are at hand
(form: https://github.com/ggml-org/llama.cpp/blob/b9270/common/arg.cpp)
"""

import subprocess
import sys

import pytest
from lab_under_test import as_machines, cluster_of, desk

from nixwulf.inventory.cluster import Shape
from nixwulf.results.record import load
from stand_in import put

# By files beside the programs, which a test writes: a node sees no other folder of the test.
SAYS = 'cat "$(dirname "$0")/$(hostname)" >&2'
HELP = 'cat "$(dirname "$0")/help"'
SWEEP = """
name: versions
models: {{tiny: {{path: {model}}}}}
matrix: {{model: [tiny], nodes: [2], parallelism: [pipeline]}}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    put(folder, "llama-server", SAYS)
    put(folder, "llama-bench", HELP)
    put(folder, "ggml-rpc-server")
    return folder


@pytest.fixture(scope="module")
def machines(bring_up, programs):
    running = bring_up(cluster_of(2, cable=Shape(delay_us=200)), "programs", path=[programs])
    yield running
    running.lab.down()


@pytest.fixture
def print_versions(programs):
    def write(*versions, rpc=True):
        for name, version in zip(("n1", "n2"), versions, strict=True):
            (programs / name).write_text(f"version: {version}\nbuilt with cc\n")
        (programs / "help").write_text("  -rpc, --rpc <rpc_servers>\n" if rpc else "  -m\n")

    return write


@pytest.fixture
def nixwulf(machines, tmp_path):
    environment = desk(machines, tmp_path)
    file = tmp_path / "own.toml"
    file.write_text(as_machines(machines.lab.cluster))

    def run(*arguments):
        command = [sys.executable, "-m", "nixwulf", *(str(a) for a in arguments)]
        return subprocess.run(
            [file if word == "FILE" else word for word in command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_nodes_of_the_same_version_that_can_be_driven_pass(nixwulf, print_versions):
    print_versions("9842 (c1c3d15)", "9842 (c1c3d15)")
    done = nixwulf("preflight", "--gate", "versions", "--cluster", "FILE")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("versions", "rpc", "message"),
    [
        (
            ("9842 (c1c3d15)", "9843 (aaaaaaa)"),
            True,
            "Node 'n2' has llama.cpp 'version: 9843 (aaaaaaa)' and 'n1' has 'version: 9842 "
            "(c1c3d15)'; deploy both from one flake or run 'nixwulf engines install --cluster ",
        ),
        (
            ("6521 (3a4a4f3)", "6521 (3a4a4f3)"),
            True,
            "Node 'n1' has llama.cpp '6521', and nixwulf needs b6688 or later",
        ),
        (
            ("9842 (c1c3d15)", "9842 (c1c3d15)"),
            False,
            "Node 'n1' has llama.cpp without RPC: its 'llama-bench --help' has no '--rpc'",
        ),
    ],
)
def test_preflight_refuses_others(nixwulf, print_versions, versions, rpc, message):
    print_versions(*versions, rpc=rpc)
    done = nixwulf("preflight", "--cluster", "FILE")
    assert done.returncode == 3, done.stderr
    assert f"refused by versions: {message}" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_sweep_is_refused_before_anything_is_launched(
    nixwulf, print_versions, tmp_path, programs
):
    print_versions("6521 (3a4a4f3)", "6521 (3a4a4f3)")
    model = programs / "tiny.gguf"
    model.write_bytes(b"GGUF")
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(SWEEP.format(model=model))
    done = nixwulf("bench", sweep, "--cluster", "FILE", "--out", tmp_path / "run")
    assert done.returncode == 3, done.stdout + done.stderr
    (record,) = (tmp_path / "run").rglob("records/*.json")
    found = load(record)
    assert (found["outcome"], found["failure"]["phase"]) == ("skipped", "gates")
    reason = found["failure"]["reason"]
    assert reason.startswith("Gate 'versions': Node 'n1' has llama.cpp '6521'")
    assert not list((tmp_path / "run").rglob("*.stdout"))
