"""The package is built and its tests run where no more is there than in a Nix build.

What is copied and which tests run is read from the file that the Nix expression reads. The phases
are not run by Nix: pip makes and installs the wheel, and pytest is called as nixpkgs' hook does.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).parents[2]
SOURCE = tomllib.loads((CHECKOUT / "packages/nixwulf/source.toml").read_text("utf-8"))
ENTER = Path(__file__).with_name("enter.sh")
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store")
# What nixpkgs' stdenv puts on PATH, but for compilers; 'sh' is bash there.
_TOOLS = """
[ arch base64 basename cat chmod cp cut date dd df dirname du echo env expr false fold head hostid
id install join kill link ln ls md5sum mkdir mkfifo mknod mktemp mv nice nl nohup nproc od paste
pathchk pr printenv printf pwd readlink realpath rm rmdir seq sha1sum sha256sum sleep sort split
stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname unexpand
uniq unlink users wc who whoami yes
bash find xargs cmp diff diff3 sdiff sed grep egrep fgrep gawk awk tar gzip gunzip zcat bzip2 xz
make patch file
"""
PYTHON_TOOLS = ("pip", "hypothesis", "pytest", "pytest-timeout")

# This Python's own packages are not those of the build, wherever its distribution keeps them.
SITE = """import sys
own = [path for path in sys.path if not path.endswith(("site-packages", "dist-packages"))]
sys.path[:] = own + [path for path in sys.path if path.startswith(("/tools/", "/build/"))]
"""

# Debian's Python would install below local/.
BUILD = r"""
set -eu
export DEB_PYTHON_INSTALL_LAYOUT=deb_system
cp -r /tools/source /build/source
chmod -R u+w /build/source
cd /build/source/driver
python3 -m pip install --quiet --no-deps --no-build-isolation --no-index --no-cache-dir \
  --disable-pip-version-check --prefix /build/out .
export PYTHONPATH=$(echo /build/out/lib/python3*/*-packages):$PYTHONPATH
cd ..
"""


def closure(names):
    """The distributions that these need, themselves among them."""
    found, waiting = {}, [Requirement(name) for name in names]
    while waiting:
        wanted = waiting.pop()
        if wanted.name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found[wanted.name] = metadata.distribution(wanted.name)
        has = found[wanted.name].version
        if not wanted.specifier.contains(has, prereleases=True):
            pytest.skip(
                f"This Python has {wanted.name} {has}, and a build needs {wanted}; run "
                "'.venv/bin/pip install --upgrade setuptools'."
            )
        waiting += map(Requirement, found[wanted.name].requires or [])
    return found.values()


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """A folder with the builder's programs, Python's packages and the package's source."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "bin").mkdir()
    for name in _TOOLS.split():
        found = shutil.which(name)
        if found:
            shutil.copy(found, folder / "bin" / name)
    shutil.copy(folder / "bin" / "bash", folder / "bin" / "sh")
    for name in ("python3", "python"):
        (folder / "bin" / name).symlink_to(Path(sys.executable).resolve())
    packages = folder / "site-packages"
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(SITE)
    pyproject = tomllib.loads((CHECKOUT / "driver/pyproject.toml").read_text("utf-8"))
    builder = pyproject["build-system"]["requires"]
    for distribution in closure([*pyproject["project"]["dependencies"], *builder, *PYTHON_TOOLS]):
        for file in distribution.files or []:
            top = Path(file).parts[0]
            if top not in {"..", "__pycache__"} and not (packages / top).exists():
                (packages / top).symlink_to(distribution.locate_file(top))
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SOURCE["files"]],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        copy = folder / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, copy, follow_symlinks=False)
    return folder


@pytest.fixture
def build(tools, tmp_path):
    """Run a script of the builder's shell in the root of a build."""
    python = Path(sys.executable).resolve()
    base = Path(sys.base_prefix)
    shown = {*filter(os.path.isdir, LIBRARIES), sysconfig.get_path("purelib")}
    # Debian's pip reads its system's certificates when it is imported.
    shown |= {*filter(os.path.isdir, ["/etc/ssl/certs"])}
    shown |= {str(python), sysconfig.get_path("stdlib")} if base == Path("/usr") else {str(base)}
    namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child"]
    if os.getuid() != 0:
        namespaces = ["--user", "--map-root-user", *namespaces]
    enter = ["unshare", *namespaces, "sh", str(ENTER), str(tmp_path), str(tools), *sorted(shown)]

    def run(script):
        variables = ["PYTHONPATH=/tools/site-packages", "PYTHONDONTWRITEBYTECODE=1"]
        command = [*enter, "--", *variables, "bash", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=2300, check=False)

    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("the root of a build needs 'unshare' and 'ip'")
    tried = run("true")
    if tried.returncode != 0:
        pytest.skip(f"this machine refuses the root of a build: {tried.stderr.strip()}")
    return run


def test_there_is_no_more_in_the_root_than_in_a_build(build):
    done = build(
        "echo /bin/* /usr/bin/*; [ ! -e $HOME ] && [ ! -e /sys/class ] && id -u; "
        "python3 -c 'import socket; print(socket.if_nameindex())'"
    )
    python = os.path.realpath(sys.executable)
    own = python if python.startswith("/usr/bin/") else "/usr/bin/*"
    assert done.stdout == f"/bin/sh {own}\n1000\n[(1, 'lo')]\n"


@pytest.mark.timeout(2400)  # 6 min alone, more than 13 where others work
def test_the_package_is_built_and_its_check_phase_passes(build):
    marks = " and ".join(f"not ({mark})" for mark in SOURCE["without_marks"])
    left_out = " ".join(f"--ignore-glob={module}" for module in SOURCE["without"])
    flags = " ".join(SOURCE["flags"])
    # All examples are tried outside of the build; here it is what a test finds that may be absent.
    few = "--hypothesis-profile few-examples"
    pytest_ = f"python3 -m pytest {SOURCE['tests']} {flags} {few} {left_out} -m '{marks}'"
    outside = """cd "$(mktemp -d)"
      PATH=/build/out/bin:$PATH
      nixwulf preflight --cluster lab --only file
      nixwulf bench smoke --cluster framework-2 --dry-run
      nixwulf predict --cluster framework-2 --model gpt-oss-120b"""
    done = build(f"{BUILD}\n{pytest_} -p no:cacheprovider\n({outside})")
    print(done.stdout[-20000:])
    assert done.returncode == 0, done.stderr[-4000:]
    assert " passed" in done.stdout
