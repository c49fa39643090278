"""Headers of model files that somebody made to stop or fill their reader."""

import json
import os
import resource
import struct
import time

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import dllama, gguf, sizes_on
from nixwulf.llm.model_facts import NOT_OF_A_MODEL
from nixwulf.nodes.ssh import Connection


class Here(Connection):
    """This machine in the place of a node: its commands run without ssh."""

    def argv(self, command=()):
        return list(command)


HERE = Here(load_cluster("lab").nodes[0], ())


def _gguf(tensors=0, fields=(), rest=b""):
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(fields))
    return head + b"".join(_text(name) + value for name, value in fields) + rest


def _text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def _array(item, count, content):
    return struct.pack("<IIQ", 9, item, count) + content


_TEXTS = _array(8, 5 << 20, struct.pack("<Q", 0) * (5 << 20))
_NESTED = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000
_DIMENSIONS = _text("t") + struct.pack("<I", 80_000) + struct.pack("<Q", 2**64 - 1) * 80_000
_GGUF = {
    "80000 dimensions": _gguf(1, rest=_DIMENSIONS + bytes(12)),
    "5 million texts": _gguf(0, [("a", _TEXTS)]),
    "arrays in arrays": _gguf(0, [("a", _NESTED)]),
    "as many fields as fit": b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 22) + bytes(1 << 26),
    "as many tensors as fit": b"GGUF" + struct.pack("<IQQ", 3, 1 << 22, 0) + bytes(1 << 26),
}


@pytest.mark.parametrize("name", _GGUF)
def test_a_gguf_of_counts_that_no_model_has_is_refused_at_once(name):
    began = time.process_time()
    with pytest.raises(NOT_OF_A_MODEL):
        gguf.parse(_GGUF[name])
    assert time.process_time() - began < 2


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count"])
def test_a_gguf_of_an_infinite_number_has_no_sizes(tmp_path, key):
    names = ["block_count", "embedding_length", "attention.head_count"]
    fields = [("general.architecture", struct.pack("<I", 8) + _text("llama"))] + [
        (f"llama.{n}", struct.pack("<If", 6, float("inf") if n == key else 4.0)) for n in names
    ]
    (tmp_path / "m.gguf").write_bytes(_gguf(0, fields))
    assert sizes_on(HERE, str(tmp_path / "m.gguf")) is None


@pytest.mark.parametrize("layers", [10**8, 2**31 - 1, -1])
def test_a_dllama_model_of_millions_of_layers_takes_no_memory(layers):
    sizes = {"hidden": 64, "feed_forward": 64, "layers": layers, "heads": 4, "kv_heads": 4}
    pairs = [(dllama.KEYS[key], value) for key, value in (sizes | {"vocabulary": 99}).items()]
    body = b"".join(struct.pack("<ii", *pair) for pair in pairs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NOT_OF_A_MODEL):
        dllama.parse(struct.pack("<II", dllama.MAGIC, 8 + len(body)) + body)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


_CONFIG = {"num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 2}


@pytest.mark.parametrize(
    "header",
    [
        b"[" + b"[]," * (40 << 20) + b"[]]",
        b"[" * 5000,
        b"[]",
        json.dumps({"a": {"shape": [9**9] * 80_000, "data_offsets": [0, 1]}}).encode(),
        json.dumps({"a": {"shape": ["9" * 6000], "data_offsets": [0, 1]}}).encode(),
    ],
    ids=["120 MB", "deep", "a list", "80000 dimensions", "6000 digits"],
)
def test_safetensors_that_are_hostile_have_no_sizes(tmp_path, header):
    (tmp_path / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    began = time.process_time()
    assert sizes_on(HERE, str(tmp_path)) is None
    assert time.process_time() - began < 2


@pytest.mark.parametrize("pattern", [10**9, "L" * 10**5], ids=["a length", "a word"])
def test_a_pattern_of_layers_takes_no_more_memory_than_the_layers(tmp_path, pattern):
    config = {**_CONFIG, "num_hidden_layers": 9999, "sliding_window_pattern": pattern}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensor = {"dtype": "F16", "shape": [9, 4], "data_offsets": [0, 72]}
    header = json.dumps({"model.embed_tokens.weight": tensor}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = sizes_on(HERE, str(tmp_path))
    assert sizes is not None
    assert len(sizes.layers) == 9999
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("config", ["[]", "[" * 50_000, "3", "{}", '{"text_config": [1]}'])
def test_a_config_that_is_no_table_has_no_sizes(tmp_path, config):
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert sizes_on(HERE, str(tmp_path)) is None


def test_a_fifo_among_the_files_of_a_model_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m.safetensors")
    os.mkfifo(tmp_path / "m.gguf")
    (tmp_path / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    assert sizes_on(HERE, str(tmp_path)) is None
    assert sizes_on(HERE, str(tmp_path / "m.gguf")) is None
