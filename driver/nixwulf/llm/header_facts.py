"""Facts of a language model from the headers of its own files, with the exact bits of each part.

models/header.py reads the headers: parse_gguf gives fields and tensors, parse_safetensors tensors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from nixwulf.llm.model_facts import ModelFacts, Weights
from nixwulf.llm.sizes import TensorSize

_GGUF_EXPERTS = re.compile(r"_exps\.")
_GGUF_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)")
_GGUF_STATE = ("ssm_", "shortconv")
_HF_EXPERTS = re.compile(r"\.experts\.")
_HF_EMBEDDING = re.compile(r"(embed_tokens|(^|\.)embeddings)\.weight$")
# Rows of a table for each layer, and what decoding does not touch: vision, sound, guesses ahead.
_HF_UNREAD = re.compile(
    r"embed_tokens_per_layer\.|(^|\.)(visual|vision_\w+|audio_\w+|multi_modal_projector|mtp)\."
)
_HF_KINDS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
_HF_LINEAR = {"linear_attention", "conv", "mamba"}
_HF_ALONE = {"moe", "mlp"}  # feed-forward networks that are layers of their own
_WINDOW = (
    "which layers look back a window only is not in the header: all are taken to keep everything"
)


def of_gguf(name: str, fields: Mapping[str, Any], tensors: Mapping[str, TensorSize]) -> ModelFacts:
    """By the keys and the names of tensors of llama.cpp; raises KeyError for those of no model.

    Layers with tensors of a state, or without heads of a cache, have a state; blocks without either
    (the networks of Nemotron-H) are not counted. The last blocks may guess ahead (nextn).
    """
    architecture = fields["general.architecture"]

    def value(key: str, default: Any = 0) -> Any:
        return fields.get(f"{architecture}.{key}", default)

    blocks, hidden = int(value("block_count")), int(value("embedding_length"))
    heads = max(_each(value("attention.head_count"), blocks))
    cached = _each(value("attention.head_count_kv", heads), blocks)
    key = int(value("attention.key_length", hidden // max(1, heads)))
    width = key + int(value("attention.value_length", key))
    latent = int(value("attention.kv_lora_rank"))
    if latent:
        width = latent + int(value("rope.dimension_count"))
    read = blocks - int(value("nextn_predict_layers"))
    kinds = [_kind(_parts(tensors, index), cached[index]) for index in range(read)]
    growing = [one for one, kind in zip(cached[:read], kinds, strict=True) if kind == "attention"]
    linear = kinds.count("state")
    state = int(value("ssm.inner_size")) * int(value("ssm.state_size"))
    return _facts(
        name,
        tensors,
        routed=_GGUF_EXPERTS,
        unread={
            tensor
            for tensor in tensors
            if tensor == "per_layer_token_embd.weight"
            or (tensor == "token_embd.weight" and "output.weight" in tensors)
            or ((block := _GGUF_BLOCK.match(tensor)) and int(block[1]) >= read)
        },
        vocabulary=tensors["token_embd.weight"].weights // hidden,
        layers=len(growing) + linear,
        hidden=hidden,
        experts=int(value("expert_count")),
        experts_used=int(value("expert_used_count")),
        heads=heads,
        head_dim=latent or key,
        kv_heads=1 if latent else max(cached),
        cache_width=float(sum(width * (1 if latent else one) for one in growing)),
        linear_layers=linear,
        state_width=float(state * linear),
        assumptions=(_WINDOW,) if value("attention.sliding_window") else (),
    )


def of_safetensors(
    name: str, config: Mapping[str, Any], tensors: Mapping[str, TensorSize]
) -> ModelFacts:
    """By a config.json of Hugging Face and the tensors of all files; raises KeyError as of_gguf.

    Packed weights (AWQ, GPTQ: several in an integer) hide how many they are; give such a model by
    the table's facts and the size of its files.
    """
    config = config.get("text_config", config)

    def first(*keys: str) -> int:
        return next((int(config[key]) for key in keys if config.get(key)), 0)

    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    head_dim = first("head_dim") or hidden // heads
    kv_heads = first("num_key_value_heads") or heads
    latent = first("kv_lora_rank")
    width = latent + first("qk_rope_head_dim") if latent else 2 * kv_heads * head_dim
    kinds = config.get("layer_types") or config.get("layers_block_type")
    kinds = kinds or [_HF_KINDS[one] for one in config.get("hybrid_override_pattern", "")]
    linear = sum(kind in _HF_LINEAR for kind in kinds)
    layers = int(config["num_hidden_layers"]) - sum(kind in _HF_ALONE for kind in kinds)
    state = first("mamba_num_heads") * first("mamba_head_dim") * first("ssm_state_size")
    values, keys = first("linear_value_head_dim"), first("linear_key_head_dim")
    state = state or first("linear_num_value_heads") * values * keys
    tied = not any(key.endswith("lm_head.weight") for key in tensors)
    return _facts(
        name,
        tensors,
        routed=_HF_EXPERTS,
        unread={
            tensor
            for tensor in tensors
            if _HF_UNREAD.search(tensor) or (not tied and _HF_EMBEDDING.search(tensor))
        },
        vocabulary=first("vocab_size"),
        layers=layers,
        hidden=hidden,
        experts=first("num_experts", "num_local_experts", "n_routed_experts"),
        experts_used=first("num_experts_per_tok", "top_k_experts"),
        heads=heads,
        head_dim=latent or head_dim,
        kv_heads=1 if latent else kv_heads,
        cache_width=float(width * (layers - linear)),
        linear_layers=linear,
        state_width=float(state * linear),
        assumptions=(_WINDOW,) if config.get("sliding_window") else (),
    )


def _facts(
    name: str,
    tensors: Mapping[str, TensorSize],
    *,
    routed: re.Pattern[str],
    unread: set[str],
    **others: Any,
) -> ModelFacts:
    """routed are names of experts; unread those of which decoding reads a row, or nothing."""
    chosen = [one for key, one in tensors.items() if routed.search(key) and key not in unread]
    skipped = [tensors[key] for key in unread]
    total, experts, rest = (
        float(sum(one.weights for one in group)) for group in (tensors.values(), chosen, skipped)
    )
    size, of_experts, of_rest = (
        sum(one.bytes for one in group) for group in (tensors.values(), chosen, skipped)
    )
    bits = 8 * (size - of_experts - of_rest) / max(1.0, total - experts - rest)
    return ModelFacts(
        name=name,
        parameters=total,
        weights=Weights(8 * of_experts / experts if experts else bits, bits),
        unread=rest,
        routed=experts,
        **others,
    )


def _parts(tensors: Mapping[str, TensorSize], index: int) -> set[str]:
    """Names of the tensors of a block, without what they are of it."""
    found = (_GGUF_BLOCK.match(tensor) for tensor in tensors)
    return {block[2] for block in found if block and int(block[1]) == index}


def _kind(parts: Collection[str], kv_heads: int) -> str:
    """What a block has to remember by: attention, a state, or nothing (a network alone)."""
    state = any(part.startswith(_GGUF_STATE) for part in parts)
    if parts and not state and not any(part.startswith(("attn_q", "attn_k")) for part in parts):
        return "network"
    return "attention" if kv_heads and not state else "state"


def _each(value: Any, count: int) -> list[int]:
    """A value that holds for all layers, or one a layer."""
    return [int(one) for one in value] if isinstance(value, list) else [int(value)] * count
