"""GGUF files of random weights: the same everywhere, whole or absent, readable."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import NixwulfError
from nixwulf.llm import gguf
from nixwulf.llm.gguf import ensure, write
from nixwulf.llm.random_model import FIRST_WORD, RandomModel, word

SMALL = RandomModel(layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96, vocabulary=400)
SMALL_MOE = dataclasses.replace(SMALL, architecture="qwen3moe", experts=3, experts_used=2)


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_bytes_are_the_same_on_every_machine(tmp_path):
    write(SMALL, tmp_path / "a.gguf")
    assert _sha256(tmp_path / "a.gguf") == (
        "f48d1c0d1cb5b6197e2d896ac6ebf96f8e017d2408b6b03126245fdb8c1f1708"
    )


@pytest.mark.parametrize("model", [SMALL, SMALL_MOE, dataclasses.replace(SMALL, weights="q8_0")])
def test_the_same_seed_gives_the_same_file_and_another_seed_another(tmp_path, model):
    write(model, tmp_path / "a.gguf")
    write(model, tmp_path / "b.gguf")
    write(dataclasses.replace(model, seed=1), tmp_path / "c.gguf")
    assert _sha256(tmp_path / "a.gguf") == _sha256(tmp_path / "b.gguf")
    assert _sha256(tmp_path / "a.gguf") != _sha256(tmp_path / "c.gguf")


@pytest.mark.parametrize("weights", ["f16", "q8_0"])
@pytest.mark.parametrize("model", [SMALL, SMALL_MOE])
def test_the_file_holds_the_tensors_that_the_model_states(tmp_path, model, weights):
    model = dataclasses.replace(model, weights=weights)
    write(model, tmp_path / "a.gguf")
    tensors = GGUFReader(tmp_path / "a.gguf").tensors
    assert [t.name for t in tensors] == [t.name for t in model.tensors()]
    assert sum(int(t.n_elements) for t in tensors) == model.parameters
    matrix = next(t for t in tensors if t.name == "blk.0.attn_q.weight")
    assert matrix.tensor_type == GGMLQuantizationType[weights.upper()]


def test_weights_have_the_spread_that_the_model_states(tmp_path):
    write(SMALL, tmp_path / "a.gguf")
    tensors = {t.name: t.data for t in GGUFReader(tmp_path / "a.gguf").tensors}
    for tensor in SMALL.tensors():
        data = tensors[tensor.name].astype(np.float32)
        if tensor.spread is None:
            assert (data == 1).all()
        else:
            words = data[FIRST_WORD:] if tensor.name == "output.weight" else data
            assert float(words.std()) == pytest.approx(tensor.spread, rel=0.1)


def test_no_special_token_and_no_byte_can_win(tmp_path):
    write(SMALL, tmp_path / "a.gguf")
    tensors = {t.name: t.data for t in GGUFReader(tmp_path / "a.gguf").tensors}
    assert not tensors["output.weight"][:FIRST_WORD].any()


@given(st.lists(st.integers(0, 1 << 18), unique=True, min_size=2, max_size=50))
def test_words_are_printable_and_each_another_one(numbers):
    words = [word(number) for number in numbers]
    assert len(set(words)) == len(words)
    assert all(w.isprintable() and w.startswith("\N{LOWER ONE EIGHTH BLOCK}") for w in words)


def test_a_model_is_made_once_and_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = ensure(SMALL)
    made = path.stat()
    assert path == tmp_path / "nixwulf" / "models" / SMALL.file_name
    assert ensure(SMALL).stat().st_mtime_ns == made.st_mtime_ns
    assert ensure(dataclasses.replace(SMALL, seed=1)) != path


def test_an_interrupted_writer_leaves_no_file(tmp_path, monkeypatch):
    stored = gguf._stored

    def interrupted(tensor, model):
        if tensor.name == "output_norm.weight":
            raise KeyboardInterrupt
        return stored(tensor, model)

    monkeypatch.setattr(gguf, "_stored", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(SMALL, tmp_path / "a.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_model_larger_than_the_disk_is_refused_before_anything_is_written(tmp_path):
    huge = dataclasses.replace(SMALL, layers=10_000, hidden=16_384, feed_forward=32_768)
    with pytest.raises(NixwulfError, match=r"needs .* MB .* has .* MB free"):
        write(huge, tmp_path / "a.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NixwulfError, match="Cannot write the model"):
        write(SMALL, tmp_path / "file" / "a.gguf")
