"""Facts of language models: a checked-in table, a file of its form, or the header of a GGUF."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nixwulf.errors import InputError
from nixwulf.files import read_toml
from nixwulf.model.facts import ModelFacts, Weights

FILE = Path(str(resources.files("nixwulf"))) / "data" / "model" / "models.toml"
NEEDED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "parameters_b")
_BILLION = 1e9


@cache
def table(path: Path = FILE) -> tuple[Mapping[str, Any], ...]:
    """The models of a table; raises InputError for one that lacks what every model needs."""
    models = read_toml(path).get("models", [])
    for model in models:
        missing = [key for key in ("name", *NEEDED) if key not in model]
        if missing:
            raise InputError(
                f"{path}: model {model.get('name', '?')!r} lacks {', '.join(missing)}; its "
                "config.json has them."
            )
    return tuple(models)


def find(name: str, path: Path = FILE) -> ModelFacts:
    """The model that a name is about, as first published: 'MiniMax-M2-UD-Q6_K_XL' is MiniMax-M2.

    Raises InputError that says which facts are needed and where they go.
    """
    plain = _plain(name)
    found = [
        (len(alias), model)
        for model in table(path)
        for alias in (*model.get("aliases", ()), _plain(model["name"]))
        if alias in plain
    ]
    if not found:
        known = ", ".join(str(model["name"]) for model in table(path))
        raise InputError(
            f"Model {name!r} is not known. Give its facts in a TOML file as [[models]] with name, "
            f"{', '.join(NEEDED)}, and for experts: experts, experts_used, expert_width, "
            f"moe_layers (all in its config.json), or a GGUF file; known are: {known}."
        )
    return parse(max(found, key=lambda one: one[0])[1])


def parse(model: Mapping[str, Any]) -> ModelFacts:
    """The facts of an entry of a table."""
    layers, hidden, vocabulary = model["layers"], model["hidden"], model["vocabulary"]
    linear, looking = model.get("linear_layers", 0), model.get("window_layers", 0)
    width = model.get("latent_width") or 2 * model["kv_heads"] * model["head_dim"]
    growing = layers - linear - looking
    limit = model.get("cache_limit", 0)
    embedding = 0 if model.get("tied") else vocabulary * hidden
    return ModelFacts(
        name=model["name"],
        layers=layers,
        hidden=hidden,
        parameters=model["parameters_b"] * _BILLION,
        weights=Weights(model.get("routed_bits", 16.0), 16.0),
        vocabulary=vocabulary,
        unread=embedding + model.get("unread_b", 0.0) * _BILLION,
        experts=model.get("experts", 0),
        experts_used=model.get("experts_used", 0),
        routed=3.0
        * model.get("moe_layers", 0)
        * model.get("experts", 0)
        * hidden
        * model.get("expert_width", 0),
        heads=model["heads"],
        head_dim=model.get("latent_width", model["head_dim"]),
        kv_heads=model["kv_heads"],
        # Sparse attention picks a limited number of tokens: it costs what a window of them does.
        cache_width=0.0 if limit else float(width * growing),
        window_width=float(
            model.get("window_width", width) * looking + (width * growing if limit else 0)
        ),
        window=limit or model.get("window", 0),
        window_layers=looking + (growing if limit else 0),
        linear_layers=linear,
        streams=model.get("streams", 1),
    )


def of_gguf(name: str, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> ModelFacts:
    """Facts by a GGUF's header, as models.header.parse_gguf gives it: exact bits of each part.

    The names of tensors are llama.cpp's: ffn_*_exps are the experts that a router chooses among.
    """
    architecture = fields["general.architecture"]

    def value(key: str, default: Any = 0) -> Any:
        found = fields.get(f"{architecture}.{key}", default)
        return max(found) if isinstance(found, list) else found

    layers, hidden = int(value("block_count")), int(value("embedding_length"))
    heads = int(value("attention.head_count"))
    kv_heads = int(value("attention.head_count_kv", heads))
    head_dim = int(value("attention.key_length", hidden // max(1, heads)))
    latent = int(value("attention.kv_lora_rank"))
    width = latent + int(value("rope.dimension_count")) if latent else 2 * kv_heads * head_dim
    routed = [tensor for key, tensor in tensors.items() if "_exps" in key]
    table_ = tensors.get("token_embd.weight")
    untied = table_ is not None and "output.weight" in tensors
    others = [
        tensor
        for key, tensor in tensors.items()
        if "_exps" not in key and not (untied and key == "token_embd.weight")
    ]
    total = sum(tensor.weights for tensor in tensors.values())
    return ModelFacts(
        name=name,
        layers=layers,
        hidden=hidden,
        parameters=float(total),
        weights=Weights(_bits(routed or others), _bits(others)),
        vocabulary=table_.weights // hidden if table_ is not None else 0,
        unread=float(table_.weights) if untied and table_ is not None else 0.0,
        experts=int(value("expert_count")),
        experts_used=int(value("expert_used_count")),
        routed=float(sum(tensor.weights for tensor in routed)),
        heads=heads,
        head_dim=width if latent else head_dim,
        kv_heads=1 if latent else kv_heads,
        cache_width=float(width * layers),
    )


def _bits(tensors: list[Any]) -> float:
    size: int = sum(tensor.bytes for tensor in tensors)
    weights: int = sum(tensor.weights for tensor in tensors)
    return 8 * size / weights


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
