import os
import time
from types import SimpleNamespace

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Node
from nixwulf.nodes import transfer
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.engines import install
from stand_in import put

MEGABYTE = 1_000_000
ENGINE = SimpleNamespace(name="llama.cpp")


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy between two nodes, each an ssh that does something else."""

    def between(sends, takes):
        put(tmp_path / "bin", "ssh", f'case "$*" in *"-T one "*) {sends};; *) {takes};; esac')
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setattr(transfer, "_STILL_S", 1.0)
        ends = (Connection(Node(name, "lab", name, {}), ()) for name in ("one", "two"))
        install._copy(*ends, ENGINE)

    return between


def test_a_copy_arrives_whole(copy, tmp_path):
    copy(f"head -c {20 * MEGABYTE} /dev/zero", f"exec cat >{tmp_path / 'there'}")
    assert (tmp_path / "there").stat().st_size == 20 * MEGABYTE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sends", "takes", "words"),
    [
        ("kill -STOP $$", "exec cat >/dev/null", "nothing more was sent for 1 s"),
        ("exec cat /dev/zero", "kill -STOP $$", "nothing more was taken for 1 s"),
        ("echo all", "cat >/dev/null; kill -STOP $$", "its end did not come in 1 s"),
        ("echo half; exit 3", "exec cat >/dev/null", "'one' sent no whole copy"),
        ("echo all", "echo 'disk full' >&2; exit 1", "disk full"),
    ],
)
def test_a_copy_that_stands_still_or_fails_ends_and_says_why(copy, sends, takes, words):
    begin = time.monotonic()
    with pytest.raises(NixwulfError, match="Node 'two' got no copy of llama.cpp") as caught:
        copy(sends, takes)
    assert caught.value.message.endswith(words)
    assert time.monotonic() - begin < 30
