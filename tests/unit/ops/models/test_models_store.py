"""The folder of models: what is one, where it may lie, what is found to be damaged."""

import ast
import hashlib
import os
import random
from pathlib import Path
from sys import stdlib_module_names

import pytest

from nixwulf.core import names
from nixwulf.core.names import Refusal
from nixwulf.ops.models import peer, store
from nixwulf.ops.models.store import Place

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def make(path, size=MIB, seed=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))  # noqa: S311
    return path


def states(folder):
    return {one["name"]: one["state"] for one in store.list_models(str(folder))["models"]}


@pytest.mark.parametrize("module", [names, store, peer])
def test_what_nodes_run_is_python_3_9_and_its_standard_library(module):
    tree = ast.parse(Path(module.__file__).read_text(), feature_version=(3, 9))
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    own = {"nixwulf.core.names", "nixwulf.ops.models.store"}
    assert {name.partition(".")[0] for name in imported - own} <= stdlib_module_names


@pytest.mark.parametrize(
    "name",
    ["../a.gguf", "/etc/a.gguf", "a/../../b.gguf", ".hidden", "a//b", "", "a\nb.gguf", "a/."],
)
def test_a_name_that_leads_elsewhere_is_refused(folder, name):
    with pytest.raises(Refusal, match="is no name"):
        Place(str(folder), name)


def test_a_link_that_leads_outside_is_neither_read_nor_removed(folder, tmp_path):
    kept = make(tmp_path / "outside" / "a.gguf")
    (folder / "link").symlink_to(tmp_path / "outside")
    for command in (store.index, store.verify, store.remove):
        with pytest.raises(Refusal, match="leads outside"):
            command(str(folder), "link/a.gguf")
    assert kept.exists()


def test_removing_a_link_to_a_file_leaves_the_file(folder, tmp_path):
    kept = make(tmp_path / "a.gguf")
    (folder / "a.gguf").symlink_to(kept)
    store.remove(str(folder), "a.gguf")
    assert kept.exists()
    assert not (folder / "a.gguf").is_symlink()


def test_what_is_no_model_is_not_removed(folder):
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("mine")
    with pytest.raises(Refusal, match="is no model"):
        store.remove(str(folder), "notes")
    assert states(folder) == {}


def test_all_parts_of_a_split_model_belong_to_it_and_a_missing_one_is_named(folder):
    for part in (1, 2, 3):
        make(folder / f"q/big-0000{part}-of-00003.gguf", seed=part)
    name = "q/big-00001-of-00003.gguf"
    assert store.index(str(folder), "q/big-00003-of-00003.gguf")["name"] == name
    assert states(folder) == {name: "complete"}
    (folder / "q/big-00002-of-00003.gguf").unlink()
    assert states(folder) == {name: "incomplete"}
    with pytest.raises(Refusal, match="'q/big-00002-of-00003.gguf' in .* is not there"):
        store.index(str(folder), name)


def test_the_sha256_is_the_files_or_that_of_the_lines_of_sha256sum(folder):
    one = make(folder / "one.gguf", 2 * MIB + 5)
    whole = hashlib.sha256(one.read_bytes()).hexdigest()
    assert store.index(str(folder), "one.gguf")["sha256"] == whole
    lines = ""
    for name in ("a.safetensors", "sub/b.json"):
        data = make(folder / "many" / name, 100).read_bytes()
        lines += f"{hashlib.sha256(data).hexdigest()}  {name}\n"
    (folder / "many" / ".cache").mkdir()
    (folder / "many" / ".cache" / "x").write_text("not of the model")
    expected = hashlib.sha256(lines.encode()).hexdigest()
    assert store.index(str(folder), "many")["sha256"] == expected


def test_a_model_is_read_once_until_it_changes(folder):
    path = make(folder / "a.gguf")
    first = store.index(str(folder), "a.gguf")
    stat = path.stat()
    path.write_bytes(bytes(MIB))  # whoever reads it now gets another sum
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert store.index(str(folder), "a.gguf") == first
    make(path, seed=2)
    assert states(folder) == {"a.gguf": "unread"}
    assert store.index(str(folder), "a.gguf")["sha256"] != first["sha256"]


def test_every_one_of_fifty_flipped_bits_is_found(folder):
    path = make(folder / "a.gguf", 3 * MIB + 100)
    store.index(str(folder), "a.gguf")
    stat = path.stat()
    choose = random.Random(7)  # noqa: S311
    for _ in range(50):
        bit = choose.randrange(8 * stat.st_size)
        _flip(path, bit, stat)
        found = store.verify(str(folder), "a.gguf")
        assert found["damaged"] == {"a.gguf": [bit // 8 // MIB]}
        assert states(folder) == {"a.gguf": "damaged"}
        _flip(path, bit, stat)
    assert store.verify(str(folder), "a.gguf")["damaged"] == {}
    assert states(folder) == {"a.gguf": "complete"}


def _flip(path, bit, stat):
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("size", [MIB, 3 * MIB])
def test_a_file_of_another_size_is_damaged(folder, size):
    path = make(folder / "a.gguf", 2 * MIB)
    store.index(str(folder), "a.gguf")
    make(path, size)
    assert "a.gguf" in store.verify(str(folder), "a.gguf")["damaged"]


def test_a_side_file_that_is_no_json_is_as_none(folder):
    make(folder / "a.gguf")
    store.index(str(folder), "a.gguf")
    (folder / store.SIDE / "a.gguf.json").write_text("{")
    assert states(folder) == {"a.gguf": "unread"}
    assert store.verify(str(folder), "a.gguf")["first"]
