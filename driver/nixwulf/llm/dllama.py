"""Models of distributed-llama (.m): a header of pairs of numbers, then the weights in order.

https://github.com/b4rtaz/distributed-llama/blob/8d624a7/src/llm.hpp. Also random weights as it
reads them, the model of the GGUF, with a tokenizer: in the layout of its converter and of its
readers (https://github.com/b4rtaz/distributed-llama/tree/main/converter).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.llm import random_model
from nixwulf.llm.model_facts import Sizes, layer_count
from nixwulf.llm.random_model import BYTE_TOKENS, SPECIAL_TOKENS, RandomModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = 0xA00ABCD
TOKENIZER_MAGIC = 0x567124
_KEYS = read_toml(DATA / "dllama_keys.toml")
KEYS: dict[str, int] = _KEYS["model"]
HEADER_BYTES = 4096
_F32 = 4
# Weights of a block and its bytes, by the number of the type: f32, f16, q40, q80.
_BLOCKS = ((1, 4), (1, 2), (32, 18), (32, 34))


def parse(start: bytes) -> Sizes:
    """The sizes by the first bytes of a file; raises one of NOT_OF_A_MODEL."""
    magic, size = struct.unpack_from("<II", start)
    if magic != MAGIC:
        raise ValueError("no model of distributed-llama")
    numbers = struct.unpack_from(f"<{(size - 8) // 8 * 2}i", start, 8)
    found = dict(zip(numbers[::2], numbers[1::2], strict=True))

    def value(name: str, default: int | None = None) -> int:
        number = found[KEYS[name]] if default is None else found.get(KEYS[name], default)
        return number or default or 0

    layers = layer_count(value("layers"))
    hidden, heads, vocabulary = value("hidden"), value("heads"), value("vocabulary")
    head = value("head_size", hidden // heads)
    width = head * value("kv_heads")
    experts = value("experts", 0)
    narrow = value("expert_feed_forward", value("feed_forward")) if experts else 0
    block, size = _BLOCKS[value("weights", 0)]
    matrices = 2 * hidden * (head * heads + width)
    matrices += 3 * hidden * (narrow * experts if experts else value("feed_forward"))
    layer = matrices // block * size + _F32 * hidden * (2 + experts)
    sizes = Sizes(
        layers=(layer,) * layers,
        embedding=_F32 * vocabulary * hidden,
        output=vocabulary * hidden // block * size + _F32 * hidden,
        tied=0,
        vocabulary=vocabulary,
        cache_widths=((width, width),) * layers,
        windows=(0,) * layers,
        hidden=hidden,
        feed_forward=narrow * value("experts_used", 0) or value("feed_forward"),
        heads=heads,
        kv_heads=value("kv_heads"),
    )
    return sizes.possible()


MODEL, TOKENIZER = "model.m", "tokenizer.t"
_LAYOUT = 1  # raise it with any change of what the folder holds, so that cached ones are made anew
_LLAMA, _SILU, _OF_F32 = 0xABCD00, 1, 0
_EPSILON = 5  # the exponent of 1e-5
_OF_LAYER = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up")
_NORMS = ("attn_norm", "ffn_norm")
# It knows four templates by a word in them; of Llama 3's it takes the roles' marks only.
_TEMPLATE = b"<|start_header_id|>"
# From the beginning's number on, tokens are special ones.
_SPECIAL = ("<s>", "</s>", "<unk>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def ensure(model: RandomModel) -> Path:
    """The folder in the user's cache with model and tokenizer, written now unless it is there."""
    return random_model.cached(f"{Path(model.file_name).stem}-dllama{_LAYOUT}", model, write)


def problem(model: RandomModel) -> str | None:
    """Say why the format cannot hold a model, or None."""
    if (model.architecture, model.weights) == ("llama", "f32"):
        return None
    return (
        f"distributed-llama's random models are llama in f32, not {model.architecture} in "
        f"{model.weights}"
    )


def write(model: RandomModel, folder: Path) -> None:
    """Write the whole folder or nothing; raises InputError, NixwulfError when it does not fit."""
    wrong = problem(model)
    if wrong:
        raise InputError(f"{wrong}; give it architecture: llama and weights: f32.")
    with random_model.whole(folder, 4 * model.parameters) as place:
        place.mkdir()
        (place / TOKENIZER).write_bytes(tokenizer(model.vocabulary))
        with (place / MODEL).open("wb") as file:
            file.write(_model_header(model))
            for weights in _weights(model):
                file.write(weights.astype("<f4").tobytes())


def _header(magic: int, keys: Mapping[str, int], given: Mapping[str, int]) -> bytes:
    pairs = b"".join(struct.pack("<ii", keys[name], value) for name, value in given.items())
    return struct.pack("<ii", magic, 8 + len(pairs)) + pairs


def _model_header(model: RandomModel) -> bytes:
    given = {
        "version": 0,
        "architecture": _LLAMA,
        "activation": _SILU,
        **{
            key: getattr(model, key)
            for key in ("hidden", "feed_forward", "layers", "heads", "kv_heads", "vocabulary")
        },
        "weights": _OF_F32,
        "context": model.context,
        "experts": 0,
        "experts_used": 0,
        "rope_theta": 10000,
        "head_size": model.head_size,
        "epsilon": _EPSILON,
    }
    return _header(MAGIC, KEYS, given)


def _weights(model: RandomModel) -> Iterator[npt.NDArray[np.float32]]:
    """Tensors in the order of the file; rotated pairs are neighbours, as in a GGUF."""
    tensors = {tensor.name.removesuffix(".weight"): tensor for tensor in model.tensors()}
    yield _words_first(random_model.values(tensors["token_embd"], model))
    for layer in range(model.layers):
        for part in (*_OF_LAYER, *_NORMS):
            yield random_model.values(tensors[f"blk.{layer}.{part}"], model)
    yield random_model.values(tensors["output_norm"], model)
    yield _words_first(random_model.values(tensors["output"], model))


def _words_first(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Rows of tokens in the tokenizer's order: bytes, words, then special ones."""
    import numpy as np

    first = [SPECIAL_TOKENS.index(name) for name in _SPECIAL]
    return np.concatenate([rows[len(first) :], rows[first]])


def tokenizer(size: int) -> bytes:
    """The vocabulary of the GGUF. Text is tokenized to its bytes: nothing builds words of them."""
    count = len(SPECIAL_TOKENS)
    words = [
        text.replace(_SPACE, " ").encode()
        for text in random_model.vocabulary(size)[count + BYTE_TOKENS :]
    ]
    special = [name.encode() for name in _SPECIAL]
    tokens = [*(bytes([byte]) for byte in range(BYTE_TOKENS)), *words, *special]
    given = {
        "beginning": size - count,
        "version": 1,
        "vocabulary": size,
        "longest": max(map(len, tokens)),
        "template": len(_TEMPLATE),
        "ends": 1,
        "add_beginning": 1,
    }
    start = _header(TOKENIZER_MAGIC, _KEYS["tokenizer"], given) + _TEMPLATE
    start += struct.pack("<i", tokens.index(b"</s>"))
    return start + b"".join(struct.pack("<fI", 0.0, len(one)) + one for one in tokens)
