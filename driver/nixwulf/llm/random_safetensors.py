"""Hugging Face folders of random weights: the model of random_gguf, as MLX and others read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.llm.random_model import (
    SPECIAL_TOKENS,
    RandomModel,
    Tensor,
    cached,
    values,
    vocabulary,
    whole,
)

if TYPE_CHECKING:
    import numpy as np

_NUMPY_TYPES = {"f16": "float16", "f32": "float32"}
_LAYOUT = 1  # raise it with any change of what the folder holds, so that cached ones are made anew
_CLASSES = {"llama": "LlamaForCausalLM", "qwen3moe": "Qwen3MoeForCausalLM"}
_MODEL_TYPES = {"llama": "llama", "qwen3moe": "qwen3_moe"}
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_WEIGHTS = "model.safetensors"
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_OF_LAYER = read_toml(DATA / "safetensors_names.toml")


def ensure(model: RandomModel) -> Path:
    """The model's folder in the user's cache, written now unless it is there."""
    return cached(f"{Path(model.file_name).stem}-hf{_LAYOUT}", model, write)


def write(model: RandomModel, folder: Path) -> None:
    """Write the whole folder or nothing; raises NixwulfError when it does not fit on the device."""
    if model.weights not in _NUMPY_TYPES:
        raise InputError(
            f"weights is {model.weights!r}, a format of llama.cpp; expected one of "
            f"{', '.join(map(repr, _NUMPY_TYPES))} for a model in safetensors."
        )
    header, size = _header(model)
    with whole(folder, size) as place:
        place.mkdir()
        _write_json(place / "config.json", _config(model))
        _write_json(place / "tokenizer.json", _tokenizer(model.vocabulary))
        _write_json(place / "tokenizer_config.json", _tokenizer_config(model))
        index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(header, _WEIGHTS)}
        _write_json(place / f"{_WEIGHTS}.index.json", index)
        with (place / _WEIGHTS).open("wb") as file:
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)  # the format wants the data aligned
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in model.tensors():  # one at a time, so a large model needs little memory
                file.write(_stored(tensor, model).tobytes())


def _write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")


def _header(model: RandomModel) -> tuple[dict[str, Any], int]:
    """Each tensor's type, shape and place in the data, and the bytes of the data.

    Experts lie one after another, as they do in the model's tensor.
    """
    header: dict[str, Any] = {}
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
    """The names of a tensor, which for experts is one name each."""
    name = tensor.name.removesuffix(".weight")
    if name in _TOP:
        yield f"{_TOP[name]}.weight"
        return
    layer, part = re.fullmatch(r"blk\.(\d+)\.(\w+)", name).groups()  # type: ignore[union-attr]
    pattern = f"model.layers.{layer}.{_OF_LAYER[part]}.weight"
    for expert in range(model.experts if part.endswith("_exps") else 1):
        yield pattern.format(expert)


def _stored(tensor: Tensor, model: RandomModel) -> np.ndarray[Any, Any]:
    """The tensor's weights as the file holds them.

    Norms are of the matrices' type too: MLX computes in the wider of two. In a llama the rotated
    pairs are the halves of a head here and neighbours in a GGUF, so rows move
    (https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py).
    """
    import numpy as np

    weights = values(tensor, model)
    if model.architecture == "llama" and tensor.name.endswith((".attn_q.weight", ".attn_k.weight")):
        rows, width = tensor.shape
        pairs = weights.reshape(rows // model.head_size, model.head_size // 2, 2, width)
        weights = np.ascontiguousarray(pairs.swapaxes(1, 2))
    return weights if tensor.exact else weights.astype(_NUMPY_TYPES[model.weights])


def _config(model: RandomModel) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": [_CLASSES[model.architecture]],
        "model_type": _MODEL_TYPES[model.architecture],
        "dtype": _NUMPY_TYPES[model.weights],
        "vocab_size": model.vocabulary,
        "hidden_size": model.hidden,
        "intermediate_size": model.feed_forward,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_size,
        "max_position_embeddings": model.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": SPECIAL_TOKENS.index("<s>"),
        "eos_token_id": SPECIAL_TOKENS.index("</s>"),
    }
    if model.experts:
        config |= {
            "num_experts": model.experts,
            "num_experts_per_tok": model.experts_used,
            "moe_intermediate_size": model.feed_forward,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return config


def _tokenizer(size: int) -> dict[str, Any]:
    """The vocabulary of the GGUF. Text is tokenized to its bytes: nothing builds words of them."""
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": at}} for at, name in enumerate("AB"))
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **added, "special": True}
            for number, token in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": _SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first],
            "pair": [begin, first, second],
            "special_tokens": {
                "<s>": {"id": "<s>", "ids": [SPECIAL_TOKENS.index("<s>")], "tokens": ["<s>"]}
            },
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {text: number for number, text in enumerate(vocabulary(size))},
            "merges": [],
        },
    }


def _tokenizer_config(model: RandomModel) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.context,
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
