"""What a wheel brings beside the package, and that an installed one needs no checkout."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

SETUPTOOLS = tomllib.loads(Path("driver/pyproject.toml").read_text())["tool"]["setuptools"]
BROUGHT = (
    *Path("clusters").rglob("*.toml"),
    *Path("sweeps").rglob("*.yaml"),
    *Path("results/published/records").glob("*.json"),
    Path("results/published/numbers.csv"),
)


def test_a_wheel_brings_clusters_sweeps_and_results_where_the_driver_looks_for_them():
    brought = {
        f"{folder}/{name.name}"
        for folder, patterns in SETUPTOOLS["data-files"].items()
        for pattern in patterns
        for name in Path("driver").glob(pattern)
    }
    assert {f"share/nixwulf/{path}" for path in BROUGHT} <= brought


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The program of a wheel that was built from a copy, in an environment of its own.

    The dependencies are this environment's: pipx would fetch the same.
    """
    folder = tmp_path_factory.mktemp("installed")
    for name in ("clusters", "sweeps", "results", "driver"):
        kept_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(name, folder / "clone" / name, ignore=kept_out)
    venv.create(folder / "venv", with_pip=False)
    pip = [sys.executable, "-m", "pip"]
    alone = ["--quiet", "--no-deps", "--no-index"]
    built = ["wheel", "--no-build-isolation", "--wheel-dir", folder, folder / "clone" / "driver"]
    subprocess.run([*pip, *built, *alone], check=True)
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", wheel, *alone], check=True)
    shutil.rmtree(folder / "clone")
    (libraries,) = (folder / "venv").glob("lib/python3*/site-packages")
    here = [path for path in sys.path if path.endswith("site-packages")]
    # Paths in a .pth file are added, but .pth files inside them are not read: no editable install.
    (libraries / "dependencies.pth").write_text("\n".join(here) + "\n")
    return folder / "venv" / "bin" / "nixwulf"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("predict --cluster framework-2 --model gpt-oss-120b", "2 nodes, pipeline, cable, tcp"),
        ("bench smoke --cluster framework-2 --dry-run", "5 cases"),
        ("preflight --cluster framework-2 --only file", ""),
        ("compare platform=dgx-spark platform=framework-desktop --over platform", "dgx-spark"),
        ("explain results/published/records", "gpt-oss-120b by llama.cpp, 4 nodes"),
    ],
)
def test_an_installed_wheel_works_in_an_empty_home(installed, tmp_path, words, shown):
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [installed, *words.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
