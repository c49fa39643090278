"""What a release brings: an sdist, from it a wheel, and that needs no checkout on any Python."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from email import message_from_string
from pathlib import Path

import pytest

import nixwulf

PROJECT = tomllib.loads(Path("driver/pyproject.toml").read_text())["project"]
BROUGHT = (
    *Path("clusters").rglob("*.toml"),
    *Path("sweeps").rglob("*.yaml"),
    *Path("results/published/records").glob("*.json"),
    Path("results/published/numbers.csv"),
)
INFORMATION = "nixwulf-{}.dist-info/{}"
PYTHONS = [f"python3.{minor}" for minor in range(11, 15)]


def test_clusters_sweeps_and_results_lie_in_the_package():
    for path in BROUGHT:
        assert Path("driver/nixwulf/data", path).read_bytes() == path.read_bytes()


@pytest.mark.repository
def test_one_version_is_in_all_places():
    """The package of the flake and pyproject.toml read the first of them."""
    (heading,) = re.findall(r"^## (\S+?),? .*$", Path("CHANGELOG.md").read_text(), re.MULTILINE)[:1]
    assert heading == nixwulf.__version__
    assert PROJECT["dynamic"] == ["version"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("release")


def backend(hook, source, target):
    """Call setuptools as every front end does, with the setuptools of this environment."""
    call = f"from setuptools import build_meta; print(build_meta.{hook}({str(target)!r}))"
    command = [sys.executable, "-c", call]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(folder):
    """Built in a copy, for a build writes into its source."""
    for name in ("clusters", "sweeps", "results", "driver"):
        kept_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(name, folder / "clone" / name, ignore=kept_out, symlinks=True)
    shutil.copy("LICENSE", folder / "clone")
    found = backend("build_sdist", folder / "clone" / "driver", folder)
    shutil.rmtree(folder / "clone")
    return found


@pytest.fixture(scope="module")
def wheel(folder, sdist):
    subprocess.run(["tar", "-xf", sdist, "-C", folder], check=True)
    return backend("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


@pytest.fixture(scope="module")
def metadata(folder, wheel):
    shutil.unpack_archive(wheel, folder / "wheel", "zip")
    return folder / "wheel" / f"nixwulf-{nixwulf.__version__}.dist-info"


@pytest.mark.slow
def test_an_sdist_holds_files_and_no_links(sdist):
    with tarfile.open(sdist) as archive:
        assert not [one.name for one in archive if one.issym() or one.islnk()]
        names = set(archive.getnames())
    base = sdist.name.removesuffix(".tar.gz")
    assert {f"{base}/nixwulf/data/{path}" for path in BROUGHT} <= names


@pytest.mark.slow
def test_a_wheel_says_what_it_is_and_under_which_licence(metadata):
    found = message_from_string((metadata / "METADATA").read_text())
    assert found["Version"] == nixwulf.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert (metadata / "licenses" / "LICENSE").read_bytes() == Path("LICENSE").read_bytes()
    assert "nixwulf predict" in found.get_payload()
    urls = dict(line.split(", ") for line in found.get_all("Project-URL"))
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(urls)
    assert found["Keywords"]
    assert len(found.get_all("Classifier")) > len(PYTHONS)


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request, folder, wheel):
    """The program of the wheel that the sdist gives, in an environment of this Python's own.

    Where it is not this Python's, the packages of the lock are fetched as `make setup` does.
    """
    place = folder / request.param
    bin_ = place / "bin"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if sys.version_info[:2] == tuple(map(int, request.param.removeprefix("python").split("."))):
        venv.create(place, with_pip=False)
        (libraries,) = place.glob("lib/python3*/site-packages")
        here = [path for path in sys.path if path.endswith("site-packages")]
        # Paths in a .pth file are added, but .pth files inside them are not read: no editable one.
        (libraries / "dependencies.pth").write_text("\n".join(here) + "\n")
    else:
        python = interpreter(request.param)
        subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
        locked = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
        locked += ["--requirement", "requirements.lock"]
        subprocess.run([*pip, "--python", bin_ / "python", "install", *locked], check=True)
    alone = ["install", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, "--python", bin_ / "python", *alone], check=True)
    return bin_ / "nixwulf"


def interpreter(name):
    """A Python of a name on PATH that starts; a version manager has names of some that do not."""
    places = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    places += sorted(Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}*/bin"))
    for place in places:
        found = place / name
        if found.is_file() and subprocess.run([found, "-c", ""], check=False).returncode == 0:
            return found
    return pytest.skip(f"{name} is not on this machine")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_installed_wheel_works_in_an_empty_home(installed, tmp_path):
    def run(words):
        done = subprocess.run(
            [installed, *words.split()],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    assert run("--version").split()[-1] == nixwulf.__version__
    predicted = run("predict --cluster framework-2 --model gpt-oss-120b")
    assert "2 nodes, pipeline, cable, tcp" in predicted
    plan = json.loads(run("bench smoke --cluster framework-2 --dry-run --format json"))
    assert len(plan["cases"]) == 5
    run("preflight --cluster framework-2 --only file")
    assert "llama.cpp" in run("engines")
    queries = "platform=dgx-spark platform=framework-desktop --over platform"
    assert "dgx-spark" in run(f"compare {queries}")
    assert "gpt-oss-120b by llama.cpp, 4 nodes" in run("explain results/published/records")
