"""Facts of a language model from the headers of its own files, with the exact bits of each part.

models/header.py reads the headers: parse_gguf gives fields and tensors, parse_safetensors tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.model.facts import ModelFacts, Weights
from nixwulf.models.header import Tensor

_GGUF_EXPERTS = re.compile(r"_exps\.")
_HF_EXPERTS = re.compile(r"\.experts\.")
_WINDOW = (
    "which layers look back a window only is not in the header: all are taken to keep everything"
)


def of_gguf(name: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ModelFacts:
    """By the keys and the names of tensors of llama.cpp; raises KeyError for those of no model.

    Layers without heads of a cache have a state instead.
    """
    architecture = fields["general.architecture"]

    def value(key: str, default: Any = 0) -> Any:
        return fields.get(f"{architecture}.{key}", default)

    layers, hidden = int(value("block_count")), int(value("embedding_length"))
    heads = max(_each(value("attention.head_count"), layers))
    cached = _each(value("attention.head_count_kv", heads), layers)
    key = int(value("attention.key_length", hidden // max(1, heads)))
    width = key + int(value("attention.value_length", key))
    latent = int(value("attention.kv_lora_rank"))
    if latent:
        width = latent + int(value("rope.dimension_count"))
    return _facts(
        name,
        tensors,
        routed=[one for tensor, one in tensors.items() if _GGUF_EXPERTS.search(tensor)],
        embedding=tensors.get("token_embd.weight") if "output.weight" in tensors else None,
        vocabulary=tensors["token_embd.weight"].weights // hidden,
        layers=layers,
        hidden=hidden,
        experts=int(value("expert_count")),
        experts_used=int(value("expert_used_count")),
        heads=heads,
        head_dim=latent or key,
        kv_heads=1 if latent else max(cached),
        cache_width=float(sum(width * (bool(one) if latent else one) for one in cached)),
        linear_layers=cached.count(0),
        assumptions=(_WINDOW,) if value("attention.sliding_window") else (),
    )


def of_safetensors(
    name: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> ModelFacts:
    """By a config.json of Hugging Face and the tensors of all files; raises KeyError as of_gguf.

    Packed weights (AWQ, GPTQ: several in an integer) hide how many they are; give such a model by
    the table's facts and the size of its files.
    """
    config = config.get("text_config", config)
    layers, hidden = int(config["num_hidden_layers"]), int(config["hidden_size"])
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or hidden // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    latent = int(config.get("kv_lora_rank") or 0)
    width = latent + int(config.get("qk_rope_head_dim") or 0) if latent else 2 * kv_heads * head_dim
    linear = list(config.get("layer_types", ())).count("linear_attention")
    tied = not any(key.endswith("lm_head.weight") for key in tensors)
    embedding = next((one for key, one in tensors.items() if "embed_tokens" in key), None)
    counts = ("num_experts", "num_local_experts", "n_routed_experts")
    return _facts(
        name,
        tensors,
        routed=[one for tensor, one in tensors.items() if _HF_EXPERTS.search(tensor)],
        embedding=None if tied else embedding,
        vocabulary=int(config.get("vocab_size") or 0),
        layers=layers,
        hidden=hidden,
        experts=next((int(config[key]) for key in counts if config.get(key)), 0),
        experts_used=int(config.get("num_experts_per_tok") or 0),
        heads=heads,
        head_dim=latent or head_dim,
        kv_heads=1 if latent else kv_heads,
        cache_width=float(width * (layers - linear)),
        linear_layers=linear,
        assumptions=(_WINDOW,) if config.get("sliding_window") else (),
    )


def _facts(
    name: str,
    tensors: Mapping[str, Tensor],
    *,
    routed: Sequence[Tensor],
    embedding: Tensor | None,
    **others: Any,
) -> ModelFacts:
    """embedding is that of which a token reads a row; none where it is the output's matrix too."""
    every, total = list(tensors.values()), float(sum(one.weights for one in tensors.values()))
    unread = float(embedding.weights) if embedding else 0.0
    chosen = float(sum(one.weights for one in routed))
    always = max(1.0, total - chosen - unread)
    size = sum(one.bytes for one in every) - sum(one.bytes for one in routed)
    bits = 8 * (size - (embedding.bytes if embedding else 0)) / always
    of_routed = 8 * sum(one.bytes for one in routed) / chosen if routed else bits
    return ModelFacts(
        name=name,
        parameters=total,
        weights=Weights(of_routed, bits),
        unread=unread,
        routed=chosen,
        **others,
    )


def _each(value: Any, count: int) -> list[int]:
    """A value that holds for all layers, or one a layer."""
    return [int(one) for one in value] if isinstance(value, list) else [int(value)] * count
