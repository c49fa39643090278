"""Random models as distributed-llama reads them: the same everywhere, and those of the GGUF."""

import dataclasses
import hashlib
import struct

import numpy as np
import pytest

from nixwulf.core.errors import InputError
from nixwulf.llm import dllama
from nixwulf.llm.dllama import MODEL, TOKENIZER, ensure, tokenizer, write
from nixwulf.llm.random_model import FIRST_WORD, RandomModel, values, vocabulary

SMALL = RandomModel(
    layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96, vocabulary=400, weights="f32"
)


def header(data):
    magic, size = struct.unpack_from("<II", data)
    numbers = struct.unpack_from(f"<{(size - 8) // 4}i", data, 8)
    return magic, size, dict(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.fixture
def folder(tmp_path):
    write(SMALL, tmp_path / "model")
    return tmp_path / "model"


def test_the_header_says_the_sizes_by_the_formats_numbers(folder):
    magic, _, keys = header((folder / MODEL).read_bytes())
    assert magic == 0xA00ABCD
    assert [keys[key] for key in (2, 3, 4, 5, 6, 9, 10)] == [64, 96, 2, 4, 2, 400, 2048]
    assert (keys[1], keys[13], keys[19], keys[20]) == (0xABCD00, 0, 16, 5)


def test_the_sizes_in_the_header_are_those_of_the_file(folder):
    data = (folder / MODEL).read_bytes()
    sizes = dllama.parse(data[:4096])
    assert sum(sizes.layers) + sizes.embedding + sizes.output == len(data) - header(data)[1]
    assert (len(sizes.layers), sizes.hidden, sizes.feed_forward, sizes.heads) == (2, 64, 96, 4)
    assert sizes.cache_widths == ((32, 32), (32, 32))


def test_the_weights_are_those_of_the_gguf_with_special_tokens_last(folder):
    data = (folder / MODEL).read_bytes()
    start = header(data)[1]
    assert len(data) == start + 4 * SMALL.parameters
    tensors = {tensor.name: values(tensor, SMALL) for tensor in SMALL.tensors()}
    rows = np.frombuffer(data[start:], "<f4", count=400 * 64).reshape(400, 64)
    embedding = tensors["token_embd.weight"]
    assert np.array_equal(rows[:397], embedding[3:])
    assert np.array_equal(rows[397:], embedding[[1, 2, 0]])
    query = np.frombuffer(data[start + rows.nbytes :], "<f4", count=64 * 64)
    assert np.array_equal(query, tensors["blk.0.attn_q.weight"].ravel())
    last = np.frombuffer(data[-rows.nbytes :], "<f4").reshape(400, 64)
    assert np.array_equal(last[256:397], tensors["output.weight"][FIRST_WORD:])


def test_the_tokenizer_has_bytes_then_words_then_special_tokens():
    data = tokenizer(400)
    magic, size, keys = header(data)
    assert magic == 0x567124
    assert (keys[1], keys[3], keys[9], keys[10]) == (400, 397, 1, 1)
    at = size + keys[7]
    (end,) = struct.unpack_from("<i", data, at)
    at += 4
    tokens = []
    while at < len(data):
        _, length = struct.unpack_from("<fI", data, at)
        tokens.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    assert len(tokens) == 400
    assert tokens[:256] == [bytes([byte]) for byte in range(256)]
    assert tokens[256] == b" " + vocabulary(400)[FIRST_WORD][1:].encode()
    assert tokens[397:] == [b"<s>", b"</s>", b"<unk>"]
    assert tokens[end] == b"</s>"
    assert max(map(len, tokens)) == keys[2]


def test_the_bytes_are_the_same_on_every_machine(folder):
    digest = hashlib.sha256((folder / MODEL).read_bytes() + (folder / TOKENIZER).read_bytes())
    assert digest.hexdigest()[:16] == "ba718159b61466e8"


def test_a_model_that_the_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match=r"not llama in f16; give it architecture: llama and"):
        write(dataclasses.replace(SMALL, weights="f16"), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_it_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = ensure(SMALL)
    (first / "mark").touch()
    assert (ensure(SMALL) / "mark").exists()
