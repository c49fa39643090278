"""Labs for the tests, in a folder of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import Running, Traces, namespaces_of, processes_of

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Cluster, load_cluster
from nixwulf.nodes import lab
from nixwulf.nodes.ssh import connections


@pytest.fixture
def nodes(lab):
    """Connections to the nodes of a file's own lab."""
    found = connections(lab.cluster, lab.ssh_config)
    yield found
    for node in found.values():
        node.close()


@pytest.fixture(scope="session", autouse=True)
def state_base() -> Iterator[Path]:
    """Labs of the tests are not among the user's, and their sockets' paths are short."""
    folder = Path(tempfile.mkdtemp(prefix="nw"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    yield folder
    for left in lab.labs():
        left.down()
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def bring_up() -> Callable[..., Running]:
    """`lab.up`, which skips on a machine that cannot have a lab and says why."""

    def up(cluster: Cluster, name: str, **options: Any) -> Running:
        try:
            return Running(lab.up(cluster, name=name, **options))
        except InputError as error:
            if error.message.startswith(("No ", "This machine refuses")):
                pytest.skip(error.message)
            raise

    return up


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """The lab as it comes."""
    return load_cluster("lab")


@pytest.fixture
def traces() -> Callable[[lab.Lab], Traces]:
    """The traces of a lab that is up; a test that sees too few of them would prove nothing."""

    def take(running: lab.Lab) -> Traces:
        members = processes_of(running)
        found = Traces(members, namespaces_of(members), running.state)
        nodes = len(running.cluster.nodes)
        assert (
            len(members) >= 2 + 2 * nodes
        )  # supervisor and its parent, an init and an sshd a node
        assert len(found.namespaces) >= 4 + 5 * nodes
        assert found.left()
        return found

    return take
