"""Hugging Face folders of random weights: the same everywhere, whole or absent, readable."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.llm import safetensors
from nixwulf.llm.random_model import FIRST_WORD, RandomModel, values
from nixwulf.llm.safetensors import ensure, write

SMALL = RandomModel(layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96, vocabulary=400)
SMALL_MOE = dataclasses.replace(SMALL, architecture="qwen3moe", experts=3, experts_used=2)
TYPES = {"F16": np.float16, "F32": np.float32}


def read(folder):
    """The tensors of a safetensors file, as its format is published."""
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0, "the data is not aligned"
    body, tensors, end = data[8 + size :], {}, 0
    for name, entry in json.loads(data[8 : 8 + size]).items():
        first, last = entry["data_offsets"]
        assert first == end, "tensors leave no gap"
        end = last
        flat = np.frombuffer(body[first:last], TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    assert end == len(body)
    return tensors


def test_the_bytes_are_the_same_on_every_machine(tmp_path):
    write(SMALL, tmp_path / "a")
    assert hashlib.sha256((tmp_path / "a" / "model.safetensors").read_bytes()).hexdigest() == (
        "1879667b69833d4d6f56027b3e0d6d7d89ca8803b9f640be5e2e09df097ae5d9"
    )


@pytest.mark.parametrize("weights", ["f16", "f32"])
@pytest.mark.parametrize("model", [SMALL, SMALL_MOE])
def test_the_file_holds_the_weights_that_the_model_states(tmp_path, model, weights):
    model = dataclasses.replace(model, weights=weights)
    write(model, tmp_path / "a")
    tensors = read(tmp_path / "a")
    assert sum(tensor.size for tensor in tensors.values()) == model.parameters
    assert tensors["model.layers.0.self_attn.q_proj.weight"].dtype == TYPES[weights.upper()]
    assert tensors["lm_head.weight"].dtype == np.float32
    assert not tensors["lm_head.weight"][:FIRST_WORD].any()
    index = json.loads((tmp_path / "a" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == tensors.keys()
    experts = [name for name in tensors if ".experts." in name]
    assert len(experts) == (2 * 3 * 3 if model is not SMALL and model.experts else 0)
    if experts:
        assert tensors["model.layers.1.mlp.experts.2.down_proj.weight"].shape == (64, 96)


def test_rotated_pairs_of_a_llama_are_the_halves_of_a_head(tmp_path):
    model = dataclasses.replace(SMALL, weights="f32")
    write(model, tmp_path / "a")
    here = read(tmp_path / "a")["model.layers.0.self_attn.q_proj.weight"]
    tensor = next(t for t in model.tensors() if t.name == "blk.0.attn_q.weight")
    gguf = values(tensor, model)
    half = model.head_size // 2
    for head in range(model.heads):
        first = head * model.head_size
        for pair in range(half):
            assert (here[first + pair] == gguf[first + 2 * pair]).all()
            assert (here[first + half + pair] == gguf[first + 2 * pair + 1]).all()


def test_the_configuration_names_what_transformers_calls_the_architecture(tmp_path):
    write(SMALL_MOE, tmp_path / "a")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["model_type"] == "qwen3_moe"
    assert (config["num_experts"], config["num_experts_per_tok"]) == (3, 2)
    vocabulary = json.loads((tmp_path / "a" / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))


def test_a_model_is_made_once_and_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = ensure(SMALL)
    made = (folder / "model.safetensors").stat()
    assert folder.parent == tmp_path / "nixwulf" / "models"
    assert (ensure(SMALL) / "model.safetensors").stat().st_mtime_ns == made.st_mtime_ns
    assert ensure(dataclasses.replace(SMALL, seed=1)) != folder


def test_a_format_of_llama_cpp_is_refused(tmp_path):
    with pytest.raises(InputError, match="weights is 'q8_0', a format of llama.cpp"):
        write(dataclasses.replace(SMALL, weights="q8_0"), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_writer_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(tensor, model):
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors, "_stored", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(SMALL, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_model_larger_than_the_disk_is_refused_before_anything_is_written(tmp_path):
    huge = dataclasses.replace(SMALL, layers=10_000, hidden=4096, feed_forward=32_768)
    with pytest.raises(NixwulfError, match=r"needs .* MB .* has .* MB free"):
        write(huge, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
