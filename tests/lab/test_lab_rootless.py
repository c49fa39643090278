"""A lab of an ordinary user: no root, no set-user-ID helper, only user namespaces."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nixwulf.core.files import cache_dir

PROGRAM = """
import json
from lab_under_test import Running, cluster_of, processes_of
from nixwulf.nodes import lab
from nixwulf.inventory.cluster import Shape
cluster = cluster_of(2, plain=Shape(rate_gbps=5), slow=Shape(delay_us=1000))
running = Running(lab.up(cluster, name="r"))
try:
    report = {
        "hosts": [running.out(node, "hostname") for node in ("n1", "n2")],
        "user": running.out("n1", "id -un"),
        "home": running.out("n1", "touch ~/mine; ls ~"),
        "by name": running.out("n1", "ssh n2 hostname"),
        "plain": running.rtt_us("plain"),
        "slow": running.rtt_us("slow"),
        "link down": running.out("n1", "ip link set plain down; ip -o link show plain"),
    }
    running.lab.set_shape("slow", Shape(delay_us=4000))
    report["slower"] = running.rtt_us("slow")
finally:
    running.lab.down()
report["left"] = [str(path) for path in running.lab.state.parent.glob("*")]
print(json.dumps(report))
"""


@dataclass(frozen=True)
class User:
    """An ordinary user: how to run a program as it, and a Python that it can use."""

    name: str
    prefix: list[str]
    python: str
    environment: dict[str, str]

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program as this user."""
        return subprocess.run(
            [*self.prefix, self.python, "-c", program],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    here = pwd.getpwuid(os.getuid())
    entry = here if os.getuid() != 0 else pwd.getpwnam("nobody")
    prefix = []
    if os.getuid() == 0:
        ids = [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
        prefix = ["setpriv", *ids, "--inh-caps=-all"]
    home = Path(tempfile.mkdtemp(prefix="nw"))
    unpacked = cache_dir() / "openssh"
    if unpacked.is_dir():
        shutil.copytree(unpacked, home / "nixwulf" / "openssh", symlinks=True)
    for path in (home, *home.rglob("*")):
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    # This session's Python may lie in root's home; the system's of the same version will do.
    imported = [path for path in sys.path if path and Path(path).is_dir()]
    imported += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "driver")]
    environment = {
        # As on Debian, where tc and sshd are not on an ordinary user's PATH.
        "PATH": ":".join(p for p in os.environ["PATH"].split(":") if not p.endswith("sbin")),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "PYTHONPATH": ":".join(imported),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Started by itself once more: setpriv can start what its user cannot.
    probe = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {}]))"
    probe = probe.format(repr("import lab_under_test, nixwulf.nodes.lab"))
    version = f"python3.{sys.version_info.minor}"
    system = [f"{folder}/{version}" for folder in ("/usr/bin", "/usr/local/bin")]
    try:
        for python in [sys.executable, *system]:
            candidate = User(entry.pw_name, prefix, python, environment)
            try:
                usable = candidate.run(probe).returncode == 0
            except OSError:
                continue
            if usable:
                yield candidate
                return
        pytest.skip(f"no {version} here that the user {entry.pw_name!r} can read with its modules")
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def report(user: User) -> dict[str, object]:
    import json

    done = user.run(PROGRAM)
    refused = "This machine refuses the namespaces"
    if refused in done.stderr:
        pytest.skip(next(line for line in done.stderr.splitlines() if refused in line))
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_an_ordinary_user_has_nodes_with_names_and_a_home(
    report: dict[str, object], user: User
) -> None:
    assert report["hosts"] == ["n1", "n2"]
    assert report["user"] == user.name
    assert report["home"] == "mine"
    assert report["by name"] == "n2"


def test_an_ordinary_user_has_shaped_links(report: dict[str, float]) -> None:
    assert report["plain"] < report["slow"] < report["slower"]
    assert report["slow"] >= 2 * 1000 * 0.9


def test_an_ordinary_user_rules_over_the_nodes_links(report: dict[str, str]) -> None:
    assert "state DOWN" in report["link down"]


def test_an_ordinary_users_lab_leaves_nothing(report: dict[str, object]) -> None:
    assert report["left"] == []
