"""What a node prints of its models is held against a schema before anything is done with it."""

import subprocess
from types import SimpleNamespace

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.ops.models.push import on_node


class Node:
    """A node that is this machine, or prints what it is told to."""

    node = SimpleNamespace(name="n1")

    def __init__(self, printed=None):
        self.printed = printed

    def run(self, argv, timeout_s):
        if self.printed is None:
            return subprocess.run(
                argv, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        return subprocess.CompletedProcess(argv, 0, self.printed, "")


def test_what_the_program_prints_is_taken(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"weights")
    of = {"folder": str(tmp_path), "name": "m.gguf"}
    node = Node()
    assert [one["state"] for one in on_node(node, "list", folder=str(tmp_path))["models"]] == [
        "unread"
    ]
    assert on_node(node, "verify", **of)["first"]
    assert on_node(node, "index", **of)["bytes"] == 7
    assert on_node(node, "list", folder=str(tmp_path))["models"][0]["state"] == "complete"
    (tmp_path / "m.gguf").write_bytes(b"WEIGHTS")
    assert on_node(node, "verify", **of)["damaged"] == {"m.gguf": [0]}
    assert on_node(node, "remove", **of)["bytes"] == 7
    with pytest.raises(NixwulfError, match="n1.*m.gguf"):
        on_node(node, "verify", **of)


# hand-made: what a node that lies may print (form: ops/models/store.py, list)
LISTED = '{"folder": "/m", "free": 1, "writable": true, "models": []}'


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("list", LISTED.replace("1,", "1e999,")),
        ("list", LISTED.replace("1,", "-1,")),
        ("list", LISTED.replace("1,", '"1",')),
        ("list", LISTED.replace("[]", "{}")),
        ("list", LISTED.replace("[]", '[{"name": "m", "bytes": 1, "present": 1}]')),
        (
            "list",
            LISTED.replace("[]", '[{"name": "m", "bytes": 1, "present": 1, "state": "complete"}]'),
        ),
        ("index", LISTED),
        ("verify", '{"name": "m", "bytes": 1, "sha256": "x", "damaged": {}, "first": true}'),
        ("remove", '{"name": "m"}'),
        ("list", "5"),
        ("list", "null"),
        ("list", '["error"]'),
        ("list", '{"error": {}}'),
        ("list", ""),
        ("list", "[" * 100_000),
    ],
)
def test_what_it_cannot_have_printed_is_refused_with_what_to_look_at(command, printed):
    with pytest.raises(NixwulfError) as raised:
        on_node(Node(printed), command)
    assert "'n1'" in raised.value.message
    assert "nixwulf nodes exec --node n1" in raised.value.message
    assert len(raised.value.message) < 1000
