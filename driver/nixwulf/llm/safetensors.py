"""A folder of Hugging Face: facts of its config.json and the headers of its safetensors.

https://github.com/huggingface/safetensors. Also folders of random weights: the model of the GGUF,
as MLX and others read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import cycle, islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml, shipped_text
from nixwulf.llm import model_facts, random_model
from nixwulf.llm.model_facts import FirstBytes, Header, Part, Sizes, TensorSize, integer
from nixwulf.llm.random_model import RandomModel, Tensor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LENGTH_BYTES = 8
_NO_TENSOR = TensorSize(0, 0)
# The form allows 100 MB, which take gigabytes to read; 40 thousand tensors have 5 MB.
_LONGEST_HEADER = 1 << 24
_MOST_DIMENSIONS = 8
_WORD_BITS = 32
_WORDS = {"I32", "U32"}
_NATIVE_BITS = 16
_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d+)\.")
_EMBEDDING = re.compile(r"(embed_tokens|(^|\.)embeddings)\.weight$")
_OUTPUT = re.compile(r"(^|\.)lm_head\.(q?weight|weight_packed)$")
# What decoding does not touch: vision, sound, guesses ahead. Its layers are not those of the text.
_ASIDE = re.compile(r"(^|\.)(visual|vision_\w+|audio_\w+|multi_modal_projector|mtp)\.")
_KINDS = {
    **{"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"},
    **{"L": "sliding_attention", "G": "attention"},
}
_LINEAR = {"linear_attention", "conv", "mamba"}
_ALONE = {"moe", "mlp"}  # feed-forward networks that are layers of their own
_WINDOWED = {"sliding_attention", "chunked_attention"}


def read(paths: Iterable[str], config: Mapping[str, object], first_bytes: FirstBytes) -> Header:
    """Read a folder's header by its files and config.json; raises one of NOT_OF_A_MODEL."""
    packed = config.get("quantization_config") or config.get("quantization")
    bits = integer(packed.get("bits") or 0) if isinstance(packed, dict) else 0
    tensors: dict[str, TensorSize] = {}
    for path in paths:
        tensors |= parse(header(path, first_bytes), bits)
    if not tensors:
        raise ValueError("no tensors")
    of_text = config.get("text_config")
    return interpret(of_text if isinstance(of_text, dict) else config, tensors)


def header(path: str, first_bytes: FirstBytes) -> bytes:
    """The header of a file: 8 bytes of length, then JSON; raises ValueError where it has none."""
    length = int.from_bytes(first_bytes(path, _LENGTH_BYTES), "little")
    if not 0 < length <= _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    return first_bytes(path, _LENGTH_BYTES + length)


def parse(start: bytes, bits: int = 0) -> dict[str, TensorSize]:
    """Tensors of a file: 8 bytes of length, then JSON.

    bits: of each weight where several are packed in a word of 32 (eight of four bits), else 0.
    """
    return {
        name: TensorSize(
            entry["data_offsets"][1] - entry["data_offsets"][0],
            _weights(entry["shape"]) * _WORD_BITS // bits
            if 0 < bits < _NATIVE_BITS and entry["dtype"] in _WORDS
            else _weights(entry["shape"]),
        )
        for name, entry in json.loads(start[_LENGTH_BYTES:]).items()
        if name != "__metadata__"
    }


def _weights(shape: list[int]) -> int:
    if len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"a tensor of {len(shape)} dimensions")
    return prod(map(int, shape))


def interpret(config: Mapping[str, object], tensors: Mapping[str, TensorSize]) -> Header:
    """Read a model by its config.json and all tensors; raises one of NOT_OF_A_MODEL.

    Packed weights are counted one by one only where config.json has their bits; give another such
    model by the table's facts and the size of its files.
    """

    def first(*keys: str) -> int:
        return next((integer(config[key]) for key in keys if config.get(key)), 0)

    count = model_facts.layer_count(config["num_hidden_layers"])
    hidden, heads = integer(config["hidden_size"]), integer(config["num_attention_heads"])
    head_dim = first("head_dim") or hidden // heads
    kv_heads = first("num_key_value_heads") or heads
    latent = first("kv_lora_rank")
    kept = (kv_heads * head_dim, kv_heads * head_dim)
    if latent:
        kept = (latent + first("qk_rope_head_dim"), 0)
    listed = _listed_kinds(config, count)
    kinds = [*listed, *["attention"] * count][:count]
    linear = sum(kind in _LINEAR for kind in kinds)
    state = first("mamba_num_heads") * first("mamba_head_dim") * first("ssm_state_size")
    values, keys = first("linear_value_head_dim"), first("linear_key_head_dim")
    state = state or first("linear_num_value_heads") * values * keys
    used = first("num_experts_per_tok", "top_k_experts")
    network = first("moe_intermediate_size", "intermediate_size")
    looking_back = config.get("use_sliding_window", True)
    window = first("sliding_window", "attention_chunk_size") if looking_back else 0
    tied = not any(map(_OUTPUT.search, tensors))
    rows = next((size for name, size in tensors.items() if _EMBEDDING.search(name)), _NO_TENSOR)
    parts = tuple(_part(name, size, count, tied) for name, size in tensors.items())
    sizes = Sizes(
        *model_facts.bytes_by_place(parts, count),
        tied=rows.bytes if tied else 0,
        vocabulary=first("vocab_size") or rows.weights // hidden,
        cache_widths=tuple((0, 0) if kind in _LINEAR | _ALONE else kept for kind in kinds),
        windows=tuple(window if kind in _WINDOWED else 0 for kind in kinds),
        hidden=hidden,
        feed_forward=max(used * network, first("intermediate_size")),
        heads=heads,
        kv_heads=1 if latent else kv_heads,
    )
    return Header(
        sizes.possible(),
        parts,
        linear_layers=linear,
        state_width=linear * state,
        head_dim=latent or head_dim,
        experts=first("num_experts", "num_local_experts", "n_routed_experts"),
        experts_used=used,
        assumptions=(model_facts.WINDOW_LAYERS_UNKNOWN,) if window and not listed else (),
    )


def _listed_kinds(config: Mapping[str, object], count: int) -> list[str]:
    """The kind of each layer; empty where config.json leaves it to the code of the architecture.

    A sliding_window_pattern is a word such as 'LLLG', repeated, or its length (Gemma 3, Cohere 2).
    """
    kinds = config.get("layer_types") or config.get("layers_block_type")
    pattern = config.get("sliding_window_pattern") or ""
    if isinstance(pattern, int):
        repeated = ["G" if n % pattern == pattern - 1 else "L" for n in range(count)]
    else:
        repeated = list(islice(cycle(str(pattern)), count))
    letters = str(config.get("hybrid_override_pattern") or "") or repeated
    return kinds if isinstance(kinds, list) and kinds else [_KINDS[one] for one in letters]


def _part(name: str, size: TensorSize, count: int, tied: bool) -> Part:
    routed = ".experts." in name
    if _ASIDE.search(name):
        return Part(size, "output", routed, unread=True)
    layer = _LAYER.match(name)
    if layer:  # what follows the last layer only guesses ahead
        return Part(size, int(layer[1]), routed, int(layer[1]) >= count)
    embedding = bool(_EMBEDDING.search(name))
    unread = "embed_tokens_per_layer." in name or (embedding and not tied)
    is_input = embedding or "embed_tokens" in name
    return Part(size, "input" if is_input else "output", routed, unread)


_NUMPY_TYPES = {"f16": "float16", "f32": "float32"}
_LAYOUT = 1  # raise it with any change of what the folder holds, so that cached ones are made anew
_WEIGHTS = "model.safetensors"
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_OF_LAYER = read_toml(DATA / "safetensors_names.toml")


def ensure(model: RandomModel) -> Path:
    """The model's folder in the user's cache, written now unless it is there."""
    return random_model.cached(f"{Path(model.file_name).stem}-hf{_LAYOUT}", model, write)


def write(model: RandomModel, folder: Path) -> None:
    """Write the whole folder or nothing; raises NixwulfError when it does not fit on the device."""
    if model.weights not in _NUMPY_TYPES:
        raise InputError(
            f"weights is {model.weights!r}, a format of llama.cpp; expected one of "
            f"{', '.join(map(repr, _NUMPY_TYPES))} for a model in safetensors."
        )
    header, size = _header(model)
    with random_model.whole(folder, size) as place:
        place.mkdir()
        _write_json(place / "config.json", _config(model))
        # The vocabulary of the GGUF; text is tokenized to its bytes: nothing builds words of them.
        words = random_model.with_words("tokenizer.json", random_model.vocabulary(model.vocabulary))
        _write_json(place / "tokenizer.json", words)
        config = json.loads(shipped_text("data/random_models/tokenizer_config.json"))
        config["model_max_length"] = model.context
        _write_json(place / "tokenizer_config.json", config)
        index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(header, _WEIGHTS)}
        _write_json(place / f"{_WEIGHTS}.index.json", index)
        with (place / _WEIGHTS).open("wb") as file:
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)  # the format wants the data aligned
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in model.tensors():  # one at a time, so a large model needs little memory
                file.write(_stored(tensor, model).tobytes())


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")


def _header(model: RandomModel) -> tuple[dict[str, object], int]:
    """Return each tensor's type, shape and place, experts one after another; and all bytes."""
    header: dict[str, object] = {}
    end = 0
    for tensor in model.tensors():
        kind = "F32" if tensor.exact else model.weights.upper()
        item = int(kind[1:]) // 8
        names = list(_names(tensor, model))
        shape = tensor.shape[1:] if len(names) > 1 or "experts" in names[0] else tensor.shape
        for name in names:
            begin, end = end, end + tensor.size * item // len(names)
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    return header, end


def _names(tensor: Tensor, model: RandomModel) -> Iterator[str]:
    name = tensor.name.removesuffix(".weight")
    if name in _TOP:
        yield f"{_TOP[name]}.weight"
        return
    layer, part = re.fullmatch(r"blk\.(\d+)\.(\w+)", name).groups()  # type: ignore[union-attr]
    pattern = f"model.layers.{layer}.{_OF_LAYER[part]}.weight"
    for expert in range(model.experts if part.endswith("_exps") else 1):
        yield pattern.format(expert)


def _stored(tensor: Tensor, model: RandomModel) -> npt.NDArray[np.generic]:
    """The tensor's weights as the file holds them.

    Norms are of the matrices' type too: MLX computes in the wider of two. In a llama the rotated
    pairs are the halves of a head here and neighbours in a GGUF, so rows move
    (https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py).
    """
    import numpy as np

    weights = random_model.values(tensor, model)
    if model.architecture == "llama" and tensor.name.endswith((".attn_q.weight", ".attn_k.weight")):
        rows, width = tensor.shape
        pairs = weights.reshape(rows // model.head_size, model.head_size // 2, 2, width)
        weights = np.ascontiguousarray(pairs.swapaxes(1, 2))
    return weights if tensor.exact else weights.astype(_NUMPY_TYPES[model.weights])


def _config(model: RandomModel) -> dict[str, object]:
    sizes = {**asdict(model), "head_size": model.head_size}
    form: dict[str, Any] = json.loads(shipped_text(f"data/random_models/{model.architecture}.json"))
    # null in the file: what a model has by its own name for it.
    form |= {key: sizes[size] for key, size in form.pop("sizes").items()}
    return form | {"dtype": _NUMPY_TYPES[model.weights]}
