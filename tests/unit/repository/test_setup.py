"""make setup says what it needs and never installs a service."""

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCRIPT = Path("tools/setup.sh")


@pytest.fixture
def machine():
    """A copy of the script, and a PATH without cmake, iperf3 and sudo, for an ordinary user."""
    folder = Path(tempfile.mkdtemp(prefix="nwsetup"))
    folder.chmod(0o755)
    (folder / "tools").mkdir()
    shutil.copy(SCRIPT, folder / "tools")
    (folder / "bin").mkdir()
    for place in ("/usr/bin", "/bin", "/usr/sbin"):
        for program in Path(place).glob("*"):
            link = folder / "bin" / program.name
            if program.name not in {"cmake", "iperf3", "sudo", "llama-bench"} and not link.exists():
                link.symlink_to(program)
    yield folder
    shutil.rmtree(folder)


def setup(machine, *arguments):
    """What setup.sh does for an ordinary user."""
    ordinary = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("setpriv is needed to become an ordinary user")
    script = str(machine / "tools" / "setup.sh")
    return subprocess.run(
        [*(ordinary if os.getuid() == 0 else []), script, *arguments],
        env={"PATH": str(machine / "bin"), "HOME": str(machine)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_system_of_debootstrap_gets_what_the_tests_call(machine):
    (machine / "bin" / "pkill").unlink(missing_ok=True)
    done = setup(machine, "tests")
    assert done.returncode == 2, done.stderr
    assert "procps" in done.stdout.split()
    assert "procps" not in setup(machine).stdout.split()


def test_without_root_and_sudo_it_names_the_exact_command_and_exits_2(machine):
    done = setup(machine)
    assert done.returncode == 2, done.stderr
    assert "setup: these system packages are needed: iperf3 cmake" in done.stdout
    assert "run 'sudo apt-get install --no-install-recommends iperf3 cmake" in done.stderr
    assert not (machine / ".venv").exists()


def test_the_lock_has_a_hashed_version_of_all_that_the_driver_needs():
    project = tomllib.loads(Path("driver/pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for file, wanted in [
        ("requirements.lock", [*project["dependencies"], *extras["dev"]]),
        ("requirements-browser.lock", extras["browser"]),
    ]:
        blocks = re.split(r"\n(?=\w)", Path(file).read_text())
        assert all("--hash=sha256:" in block for block in blocks)
        locked = {m[1]: m[2] for block in blocks if (m := re.match(r"([\w-]+)==([\w.]+)", block))}
        for requirement in map(Requirement, wanted):
            version = locked[canonicalize_name(requirement.name)]
            assert version in requirement.specifier, f"{requirement}: run 'make lock'"


def test_an_environment_keeps_its_python_and_is_made_anew_where_that_has_gone(tmp_path):
    there = tmp_path / "environment"
    call = ["bash", "-c", 'source "$1" && make_environment "$2"', "bash", SCRIPT.resolve(), there]
    subprocess.run(call, check=True)
    (there / "kept").touch()
    subprocess.run(call, check=True)
    assert (there / "kept").exists()
    (lib,) = there.glob("lib/python3*")
    lib.rename(lib.with_name("python3.0"))  # as after an upgrade of the system's Python
    subprocess.run(call, check=True)
    assert not (there / "kept").exists()
    subprocess.run([there / "bin/python", "-m", "pip", "--version"], check=True)


def test_what_would_start_a_service_is_not_among_what_is_installed(tmp_path):
    """Installing openssh-server or nginx would open a port; they are unpacked into the cache."""
    asked = f"source {SCRIPT.resolve()} tests; PATH={tmp_path}; missing_packages"
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    names = done.stdout.split()
    assert {"iperf3", "zsh", "procps"} <= {*names}
    assert {"openssh-server", "nginx", "nginx-light"}.isdisjoint(names)


def test_a_purpose_that_there_is_none_of_is_refused_before_anything_is_made():
    command = ["bash", SCRIPT.resolve(), "nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'nosuch'" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not on this machine")
def test_shellcheck_finds_nothing_in_the_scripts():
    scripts = [*map(str, Path("tools").glob("*.sh")), ".ci/run"]
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_package_is_checked_without_modules_that_import_a_tool():
    left_out = tomllib.loads(Path("packages/nixwulf/source.toml").read_text("utf-8"))["without"]
    tools = "|".join(path.stem for path in Path("tools").rglob("*.py"))
    imports = re.compile(rf"^(?:import|from) (?:{tools})\b", re.MULTILINE)
    modules = [one for one in Path("tests/unit").rglob("*.py") if imports.search(one.read_text())]
    assert Path(__file__).with_name("test_house.py").relative_to(Path.cwd()) in modules
    assert {str(module) for module in modules} <= set(left_out)
