"""The user's own ssh: what the driver waits for, and for how long."""

import os
import time

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import ssh
from stand_in import put


def test_closing_a_connection_whose_master_does_not_answer_ends(monkeypatch, tmp_path):
    put(tmp_path, "ssh", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ssh, "_CLOSE_S", 0.2)
    begin = time.monotonic()
    ssh.Connection(load_cluster("framework-2").nodes[0], ()).close()
    assert time.monotonic() - begin < 30
