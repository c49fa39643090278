"""Known names: facts of a language model by its own, bits of a weight by its quantization's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from nixwulf.core.errors import InputError
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.schema import check
from nixwulf.core.text import did_you_mean
from nixwulf.llm.model_facts import ModelFacts, Weights

FILE = DATA / "model" / "models.toml"
NEEDED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "parameters_b")
_BILLION = 1e9
_NEAR = 5
_GIB_BITS = 8 * 2**30
_FINER = 2.0
_FINEST = 8.5
_ABOUT = 0.15  # of a size in a name, which is rounded and may count embeddings or not
_SIZE = re.compile(r"a?(\d+(?:\.\d+)?)b")
# Words that make another model of a name, and those that leave it the model that it is: what it
# was trained for, formats of files and quantizations, dates, versions and parts.
_ANOTHER = re.compile(r"reap\w*|prun\w+|draft\w*|distill?\w*|eagle\d?|dflash\d?|tiny|half|merge\w*")
_KNOWN_WORD = re.compile(
    r"it|instruct|chat|base|thinking|reasoning|coder|vision|exp|preview|hf|model|models|total|qat"
    r"|gguf|ggml|mlx|exl\d|awq|gptq|autoround|int\d|w\d+a\d+|[bm]?n?v?m?x?fp?\d+|bf16|f16|f32|g\d+"
    r"|ud|i?q\d|[0-9k]|k|xx?s|xl|[sml]|nl|bit|\d+bit|bpw|[\d.]+bpw|own|requant|native|class|not"
    r"|stated|of|nvidia|unsloth|omni|cascade|v?\d+(\.\d+)*|r\d|hermes|mxfp4|moe|dynamic|imatrix"
)
_LEAST = 1.0
# Patterns of names, bits of a weight of experts, and of the rest. The first that is found counts.
# Blocks of llama.cpp: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h
# (a block of Q4_0 has 32 weights in 18 bytes: 4.5 bits). A mix such as Q4_K_M has some tensors in
# finer blocks, and the figures here are what whole files come to.
_NAMES: tuple[tuple[str, float, float], ...] = (
    (r"INT4 ?\+ ?BF16", 4.25, 16.0),
    (r"NVFP4", 4.5, 16.0),
    (r"MXFP4", 4.25, 8.5),
    (r"AWQ.?8", 8.25, 8.25),
    (r"AWQ|GPTQ|W4A16", 4.25, 4.25),
    (r"OWN REQUANT|INT4-G32", 4.5, 4.5),
    (r"INT4|NATIVE 4", 4.25, 4.25),
    (r"FP8", 8.0, 8.0),
    (r"BF16|F16|FP16", 16.0, 16.0),
    (r"F32", 32.0, 32.0),
    (r"IQ1|Q1", 2.0, 5.0),
    (r"Q2_K|IQ2", 2.9, 4.9),
    (r"Q3_K|IQ3", 3.6, 5.6),
    (r"Q4_K|IQ4|Q4 CLASS|Q4$|Q4 ", 4.8, 6.0),
    (r"Q4_?[01]|Q4", 4.5, 4.5),
    (r"Q5", 5.7, 6.6),
    (r"6.?BIT", 6.5, 6.5),
    (r"Q6", 6.6, 6.6),
    (r"Q8|8.?BIT", 8.5, 8.5),
    (r"4.?BIT", 4.5, 4.5),
)
# Files for vLLM: all linear layers have few bits, the output matrix has 16 (what is left out is
# lm_head: https://github.com/vllm-project/llm-compressor/blob/main/examples/awq/README.md).
_OUTPUT_WHOLE = re.compile(r"AWQ|GPTQ|W4A16|INT4|FP8|NVFP4", re.IGNORECASE)
_WHOLE = 16.0
_FORMS = (("nvfp4", r"NVFP4"), ("mxfp4", r"MXFP4"), ("int4", r"AWQ(?!.?8)|GPTQ|W4A16|INT4"))
_MXFP4 = (4.0, 4.6)  # bits of experts that stay as published in whatever file they are


@cache
def table(path: Path = FILE) -> tuple[Mapping[str, Any], ...]:
    """The models of a table; raises InputError, naming the key and what was expected."""
    document = read_toml(path)
    if path != FILE:  # a test holds that of the package against the schema
        check(document, "models", str(path))
    return tuple(document["models"])


def only(path: Path) -> ModelFacts:
    """The model of a file that has one; raises InputError."""
    models = table(path)
    if len(models) != 1:
        raise InputError(
            f"{path}: has {len(models)} [[models]], expected one; give a file with one."
        )
    facts = parse(models[0])
    if facts.routed + facts.unread > facts.parameters:
        raise InputError(
            f"{path}: of {facts.parameters / _BILLION:.3g} billion parameters the experts of "
            f"{facts.name!r} have {facts.routed / _BILLION:.3g} billion and the embedding, with "
            f"unread_b, {facts.unread / _BILLION:.3g}; look at parameters_b and the widths."
        )
    if facts.linear_layers + facts.window_layers > facts.layers:
        raise InputError(
            f"{path}: linear_layers and window_layers are more than {facts.layers} layers."
        )
    return facts


def is_known(name: str) -> bool:
    """Whether the table has the model of a name."""
    try:
        return bool(find(name))
    except InputError:
        return False


def find(name: str, path: Path = FILE) -> ModelFacts:
    """The model that a name is about, as first published: 'MiniMax-M2-UD-Q6_K_XL' is MiniMax-M2.

    The longest alias in the name counts, and no letter or digit may follow it: GLM-4.6V is another
    model than GLM-4.6. What is left of the name and is not known is named in the assumptions.

    Raises InputError: a name that is not known, with the facts that are needed and where they go,
    or that has a word or a size of another model, as MiniMax-M2-REAP has.
    """
    found = [
        (len(alias), model, seen)
        for model in table(path)
        for alias in (*model.get("aliases", ()), _plain(model["name"]))
        if (seen := re.search(r"[^a-z0-9]*".join(alias) + r"(?![a-z0-9])", name.lower()))
    ]
    if not found:
        known = [str(model["name"]) for model in table(path)]
        raise InputError(
            f"Model {name!r} is not known; {did_you_mean(name, known, _NEAR)} Of another, give a "
            "GGUF file, or its facts in a TOML file as [[models]] with name, "
            f"{', '.join(NEEDED)}, and for experts: experts, experts_used, expert_width, "
            "moe_layers (all in its config.json)."
        )
    _, model, seen = max(found, key=lambda one: one[0])
    facts = parse(model)
    # Folders and makers stand before the last slash.
    before, after = name[: seen.start()].lower(), name[seen.end() :].lower()
    left = f"{before.rpartition('/')[2]} {after.removesuffix('.gguf')}"
    unknown = [word for word in re.findall(r"[a-z0-9.]+", left) if not _KNOWN_WORD.fullmatch(word)]
    sizes = (facts.parameters / _BILLION, facts.active / _BILLION, model.get("active_b", 0.0))
    for word in unknown:
        size = _SIZE.fullmatch(word)
        fits = size and any(abs(float(size[1]) - one) <= _ABOUT * one for one in sizes)
        if _ANOTHER.fullmatch(word) or (size and not fits):
            raise InputError(
                f"{name!r} is another model than {facts.name}: {word!r} in its name; give its "
                "GGUF or folder, its name on the hub (ORG/REPO), or a TOML file of its facts."
            )
    unknown = [word for word in unknown if not _SIZE.fullmatch(word)]
    if not unknown:
        return facts
    words = ", ".join(map(repr, dict.fromkeys(unknown)))
    assumption = f"taken for {facts.name}; what {words} in {name!r} stands for is not known"
    return replace(facts, assumptions=(assumption,))


def parse(model: Mapping[str, Any]) -> ModelFacts:
    """The facts of an entry of a table."""
    layers, hidden, vocabulary = model["layers"], model["hidden"], model["vocabulary"]
    linear, looking = model.get("linear_layers", 0), model.get("window_layers", 0)
    width = model.get("latent_width") or 2 * model["kv_heads"] * model["head_dim"]
    growing = layers - linear - looking
    limit = model.get("cache_limit", 0)
    embedding = 0 if model.get("tied") else vocabulary * hidden
    matrices = 3.0 if model.get("gated", True) else 2.0
    return ModelFacts(
        name=model["name"],
        layers=layers,
        hidden=hidden,
        parameters=model["parameters_b"] * _BILLION,
        weights=Weights(model.get("routed_bits", 16.0), model.get("other_bits", 16.0)),
        nvfp4_bits=model.get("nvfp4_bits", 16.0),
        vocabulary=vocabulary,
        unread=embedding + model.get("unread_b", 0.0) * _BILLION,
        experts=model.get("experts", 0),
        experts_used=model.get("experts_used", 0),
        routed=matrices
        * model.get("moe_layers", 0)
        * model.get("experts", 0)
        * model.get("expert_input", hidden)
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
        state_width=float(model.get("state_width", 0) * linear),
        streams=model.get("streams", 1),
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def weights_of(name: str, model: ModelFacts, size_gib: float = 0.0) -> Weights:
    """Weights of a model by the name of its quantization.

    A size gives the mean. In a file of mixed blocks the tensors that are no experts have about two
    bits more than the mean, up to Q8_0 (llama_tensor_get_type of llama.cpp; Unsloth's mixes more
    so).

    name: such as 'Q4_K_M'; size_gib: of all of its files, 0 where it is not known. Raises
    InputError for a name that is not known, without a size.
    """
    found = next(((r, o) for p, r, o in _NAMES if re.search(p, name, re.IGNORECASE)), None)
    form = next((form for form, pattern in _FORMS if re.search(pattern, name, re.IGNORECASE)), "")
    native = model.weights.routed_bits
    whole = found is not None and _OUTPUT_WHOLE.search(name) is not None
    if size_gib > 0:
        experts = min(found[0], native) if whole and found else None
        return _by_size(model, size_gib * _GIB_BITS / model.parameters, form, experts)
    if found is None:
        raise InputError(
            f"Quantization {name!r} is not known and there is no size of the files; give one such "
            "as 'Q4_K_M' or 'FP8', or the size of the model's files in GiB."
        )
    routed, other = found
    routed = min(routed, native)
    if form == "nvfp4":
        other = model.nvfp4_bits
    if not model.routed:
        # What is left finer in a mixture (output, attention) is a small part of a dense model.
        other = routed
    stated = form == "nvfp4" and model.routed  # nvfp4_bits have the output in them
    if whole and not stated and other < _WHOLE and native == _WHOLE:
        output = min(1.0, model.vocabulary * model.hidden / max(model.always, 1.0))
        other += (_WHOLE - other) * output
    assumption = f"{routed:g} bits a weight, the usual of {name!r}"
    return Weights(routed, other, (assumption,), form or _native_form(native, routed))


def _by_size(model: ModelFacts, mean: float, form: str, experts: float | None) -> Weights:
    """Weights of a mean of bits; experts: bits of a format's experts, all else has the rest."""
    if not model.routed or mean >= _FINEST:
        return Weights(mean, mean, form=form)
    rest = model.parameters - model.routed
    other = min(_FINEST, mean + _FINER)
    if experts is not None:
        other = (mean * model.parameters - experts * model.routed) / rest
        other = min(_WHOLE, max(experts, other))
    routed = max(_LEAST, (mean * model.parameters - other * rest) / model.routed)
    return Weights(routed, other, form=form or _native_form(model.weights.routed_bits, routed))


def _native_form(native: float, routed: float) -> str:
    """Of experts that were published in MXFP4 and are left so."""
    least, most = _MXFP4
    return "mxfp4" if native < most and least <= routed <= most else ""
