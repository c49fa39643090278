"""The scripts of the VM tests, which run only where KVM is, fit the test driver's interface."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = """tests: builtins.mapAttrs (name: vm: {
  machines = builtins.attrNames vm.nodes;
  script = vm.config.testScriptString;
}) tests"""
NIXPKGS = "systems: toString (builtins.head (builtins.attrValues systems)).pkgs.path"


@pytest.fixture(scope="module")
def folder(flake, tmp_path_factory):
    """Each script with the type hints that NixOS puts before it, as a file."""
    folder = tmp_path_factory.mktemp("scripts")
    library = Path(flake.value("nixosConfigurations", NIXPKGS)) / "nixos" / "lib"
    hints = (library / "test-script-prepend.py").read_text()
    for name, test in flake.value("legacyPackages.x86_64-linux.tests", SCRIPTS).items():
        machines = "".join(f"{m} = create_fake_qemu_machine()\n" for m in test["machines"])
        text = f"{hints}\n{machines}\n{test['script']}"
        (folder / f"vm_{name.replace('-', '_')}.py").write_text(text)
    (folder / "driver").symlink_to(library / "test-driver" / "src")
    return folder


def names(folder):
    return {file.stem for file in folder.glob("*.nix")} - {"default"}


def test_there_is_a_script_for_each_file_and_for_each_platform_where_it_is_one_for_all(folder):
    tests = REPOSITORY / "nixos" / "tests"
    facts = (REPOSITORY / "driver" / "nixwulf" / "data" / "platforms").glob("*.toml")
    platforms = [
        file.stem
        for file in facts
        if tomllib.loads(file.read_text())["system"] == "x86_64-linux"
        and (REPOSITORY / "nixos" / "platforms" / file.stem).is_dir()
    ]
    assert "generic-x86_64" in platforms
    expected = names(tests) | {
        f"{test}-{platform}" for test in names(tests / "per-platform") for platform in platforms
    }
    assert {file.stem for file in folder.glob("vm_*.py")} == {
        f"vm_{name.replace('-', '_')}" for name in expected
    }


def complaints(script, folder):
    """What mypy says against a script."""
    mypy = [sys.executable, "-m", "mypy", "--no-incremental", "--check-untyped-defs"]
    return subprocess.run(
        [*mypy, "--ignore-missing-imports", "--follow-imports=silent", str(script)],
        env={"MYPYPATH": str(folder / "driver")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_the_scripts_fit_the_test_drivers_interface(folder):
    for script in sorted(folder.glob("vm_*.py")):
        assert "Success" in complaints(script, folder)


def test_a_script_that_calls_what_no_machine_has_is_found(folder):
    script = folder / "wrong.py"
    good = (folder / "vm_bench_node.py").read_text()
    script.write_text(f'{good}\ndesk.succed("true")\n')
    assert '"QemuMachine" has no attribute "succed"' in complaints(script, folder)


def test_the_scripts_have_no_name_that_does_not_exist(folder):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "--ignore", "F401"]
        + [str(script) for script in sorted(folder.glob("vm_*.py"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_no_script_asks_for_an_exit_status_that_its_shell_does_not_live_to_see(folder):
    # The test driver's shell has `set -e`: "(program; echo $? >done) &" writes nothing on failure.
    for script in sorted(folder.glob("vm_*.py")):
        assert "; echo $?" not in script.read_text(), script.name
