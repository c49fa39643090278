"""Models of which it is known whether their text is right: whole, near-tied, and damaged ones.

All begin as the lab's random weights in f32. `near-tied` ones have two tokens in each of which the
likeliest differ by less than roundings do; `sharp` ones attend to few tokens, as trained ones do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, dequantize, quantize

from nixwulf.llm import gguf
from nixwulf.llm.random_model import FIRST_WORD, RandomModel

WEIGHTS = ("f16", "bf16", "q8_0", "q4_0")
KINDS = ("random", "near-tied", "sharp")
# Whole heads and parts of 128 in the feed-forward block divide over two nodes.
SIZES = {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 8, "feed_forward": 1024}
SMALL = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 4, "feed_forward": 512}
CONTEXT = 17_408
# Of keys and queries: scores of attention vary by so much more that one token has most of it.
SHARPNESS = 3.0
# Relative to a row of the output matrix: logits of a pair differ by 1e-4 or so.
NEARNESS = 1e-5

Array = np.ndarray[Any, Any]
Change = Callable[[str, Array], Array]


@dataclass(frozen=True)
class Damage:
    """Something wrong with the weights: its name, and what it makes of a tensor of a name."""

    name: str
    change: Change


def nothing(name: str, values: Array) -> Array:
    """No damage."""
    del name
    return values


def kind_of(kind: str, seed: int) -> Change:
    """What makes the random weights those of a kind."""

    def change(name: str, values: Array) -> Array:
        if kind == "sharp" and re.search(r"attn_[qk]\.weight", name):
            return values * np.float32(SHARPNESS)
        if kind == "near-tied" and name == "output.weight":
            near = values.copy()
            rng = np.random.default_rng(seed)
            count = (len(near) - FIRST_WORD) // 2
            odd = near[FIRST_WORD + 1 :: 2][:count]
            noise = rng.standard_normal(odd.shape, dtype=np.float32) * odd.std()
            near[FIRST_WORD + 1 :: 2][:count] = near[FIRST_WORD::2][:count] + noise * np.float32(
                NEARNESS
            )
            return near
        return values

    return change


def tensor_damages() -> tuple[Damage, ...]:
    """A tensor zeroed, half lost, without its sign, or its rows in another order."""

    def half(values: Array) -> Array:
        values[..., : values.shape[-1] // 2] = 0
        return values

    hows: tuple[tuple[str, Callable[[Array], Array]], ...] = (
        ("zeroed", np.zeros_like),
        ("half lost", half),
        ("without sign", np.abs),
        ("rows moved by one", lambda values: np.roll(values, 1, axis=0)),
    )
    tensors = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return tuple(
        Damage(f"{tensor} of layer {layer} {how}", _of((tensor,), (layer,), change))
        for number, tensor in enumerate(tensors)
        for layer, (how, change) in enumerate(hows[number % 4 :] + hows[: number % 4])
    )


def cache_damages() -> tuple[Damage, ...]:
    """Keys or values of the cache read with the scale of another block.

    A block of a quantized cache is 32 values, here those of a head: so the rows of a head's matrix
    are as much too large or too small as its cache would be.
    """
    layers = tuple(range(SIZES["layers"]))

    def rescaled(values: Array) -> Array:
        heads = values.reshape(SIZES["heads"], -1, values.shape[-1])
        heads[::2] *= 4
        heads[1::2] /= 4
        return heads.reshape(values.shape)

    return tuple(
        Damage(f"cache of {words} with wrong scales", _of(tensors, layers, rescaled))
        for words, tensors in (
            ("keys", ("attn_k",)),
            ("values", ("attn_v",)),
            ("keys and values", ("attn_k", "attn_v")),
        )
    )


def _of(
    tensors: tuple[str, ...], layers: tuple[int, ...], change: Callable[[Array], Array]
) -> Change:
    names = {f"blk.{layer}.{tensor}.weight" for layer in layers for tensor in tensors}
    return lambda name, values: change(values.copy()) if name in names else values


def write(
    folder: Path,
    kind: str,
    weights: str,
    seed: int,
    damage: Damage | None = None,
    swapped: tuple[int, int] | None = None,
    sizes: Mapping[str, int] = SIZES,
) -> Path:
    """A model's file, which is kept.

    Args:
        folder: where.
        kind: of KINDS.
        weights: of WEIGHTS.
        seed: of the random weights.
        damage: what is wrong with them.
        swapped: two layers in each other's place.
        sizes: keys of a random model.
    """
    name = f"{kind}-{weights}-{seed}-{sizes['hidden']}"
    if damage or swapped:
        name += "-" + (damage.name if damage else "layers {} and {}".format(*(swapped or ())))
    path = folder / f"{name.replace(' ', '_')}.gguf"
    if path.exists():
        return path
    model = RandomModel(**sizes, context=CONTEXT, weights="f32", seed=seed)
    source = gguf.ensure(model)
    _rewrite(source, path, model, weights, kind_of(kind, seed), damage, swapped)
    return path


def stored_in_f32(path: Path) -> Path:
    """The same values as those of a model's file, without their quantization."""
    target = path.with_name(f"{path.stem}-in-f32.gguf")
    reader = GGUFReader(path)
    writer = GGUFWriter(target, "llama")
    model = RandomModel(**SIZES, context=CONTEXT, weights="f32", seed=0)
    gguf._add_sizes(writer, model)
    gguf._add_vocabulary(writer, model.vocabulary)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _rewrite(
    source: Path,
    target: Path,
    model: RandomModel,
    weights: str,
    made: Change,
    damage: Damage | None,
    swapped: tuple[int, int] | None,
) -> None:
    stored = GGMLQuantizationType[weights.upper()]
    writer = GGUFWriter(target, model.architecture)
    gguf._add_sizes(writer, model)
    writer.kv_data[0].pop("general.file_type")
    writer.add_file_type(LlamaFileType[f"MOSTLY_{weights.upper()}"])
    gguf._add_vocabulary(writer, model.vocabulary)
    for tensor in GGUFReader(source).tensors:
        values = made(tensor.name, np.asarray(tensor.data, dtype=np.float32))
        values = (damage.change if damage else nothing)(tensor.name, values)
        exact = values.ndim == 1 or tensor.name == "output.weight"
        kind = GGMLQuantizationType.F32 if exact else stored
        data = quantize(values, kind)
        raw = None if kind.name in {"F32", "F16"} else kind
        writer.add_tensor(_moved(tensor.name, swapped), data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _moved(name: str, swapped: tuple[int, int] | None) -> str:
    for one, other in (swapped, swapped[::-1]) if swapped else ():
        if name.startswith(f"blk.{one}."):
            return name.replace(f"blk.{one}.", f"blk.{other}.", 1)
    return name
