"""The model that is asked about: a known name, a table of facts, a GGUF, or a folder of weights."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.errors import InputError
from nixwulf.files import read_json
from nixwulf.model.catalog import find, parse, table
from nixwulf.model.facts import ModelFacts, Weights
from nixwulf.model.headers import of_gguf, of_safetensors
from nixwulf.model.quantization import weights_of
from nixwulf.models.header import (
    Sizes,
    Tensor,
    gguf_sizes,
    parse_gguf,
    parse_safetensors,
    safetensors_sizes,
)

_STEPS = (1 << 20, 1 << 23, 1 << 26)
_SPLIT = re.compile(r"(.*)-00001-of-(\d{5})\.gguf")
_LENGTH_BYTES = 8
_NATIVE = 16.0
_WORD = 4


@dataclass(frozen=True)
class Model:
    """Its name as shown, its facts, and its sizes by layer where its files were read."""

    name: str
    facts: ModelFacts
    sizes: Sizes | None = None


def read_model(name: str, quant: str = "", size_gib: float = 0.0) -> Model:
    """The model of a name or path; quant and size_gib of its files tell the bits of a weight.

    Raises InputError for what is not known or cannot be read, with what to give instead.
    """
    path = Path(name)
    if path.suffix == ".gguf" or path.is_dir():
        if quant or size_gib:
            raise InputError(
                f"{name!r} has its quantization in its header; leave --quant and --size-gib out."
            )
        return _of_gguf(path) if path.suffix == ".gguf" else _of_folder(path)
    facts = parse(_only(path)) if path.suffix == ".toml" else find(name)
    said = quant or name
    # A model that was published in few bits is whole without a quantization in its name.
    if not size_gib and facts.weights.routed_bits < _NATIVE and not quant:
        bits = facts.weights.routed_bits
        weights = Weights(bits, facts.weights.other_bits, (f"{bits:g} bits, as first published",))
        return Model(facts.name, facts.quantized(weights))
    try:
        weights = weights_of(said, facts, size_gib)
    except InputError:
        if quant:
            raise
        raise InputError(
            f"Model {name!r} does not say its quantization; give --quant such as Q4_K_M or FP8, "
            "or --size-gib, the size of its files."
        ) from None
    more = f" {quant}" if quant else f" of {size_gib:g} GiB" if size_gib else ""
    shown = f"{facts.name}{more}" if more else name
    return Model(shown, facts.quantized(weights))


def _only(path: Path) -> Mapping[str, Any]:
    models = table(path)
    if len(models) != 1:
        raise InputError(
            f"{path}: has {len(models)} [[models]], expected one; give a file with one."
        )
    return models[0]


def _of_gguf(path: Path) -> Model:
    split = _SPLIT.fullmatch(str(path))
    count = int(split[2]) if split else 1
    parts = [path]
    if split:
        parts = [Path(f"{split[1]}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    fields: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    try:
        for part in parts:
            own, found = _gguf_header(part)
            tensors |= found
            fields = {**own, **fields}
        return Model(path.stem, of_gguf(path.stem, fields, tensors), gguf_sizes(fields, tensors))
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError, struct.error):
        raise InputError(
            f"{str(path)!r} is no GGUF of a language model, or is cut short; give another file, "
            "or the model's name and --quant."
        ) from None


def _gguf_header(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    for step in _STEPS:
        start = _first_bytes(path, step)
        try:
            return parse_gguf(start)
        except EOFError:
            if len(start) < step:
                break
    raise ValueError("cut short")


def _of_folder(folder: Path) -> Model:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise InputError(
            f"{str(folder)!r} holds no *.safetensors; give a folder with them and config.json, or "
            "a GGUF."
        )
    config = read_json(folder / "config.json")
    try:
        tensors: dict[str, Tensor] = {}
        for path in paths:
            length = int.from_bytes(_first_bytes(path, _LENGTH_BYTES), "little")
            tensors |= parse_safetensors(_first_bytes(path, _LENGTH_BYTES + length))
        text = config.get("text_config", config)
        sizes = safetensors_sizes(text, tensors)
        unpacked = _unpacked(tensors, _quantized_bits(config))
        facts = of_safetensors(folder.resolve().name, config, unpacked)
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError, AttributeError):
        raise InputError(
            f"{str(folder)!r} is no folder of a language model that can be read; give the model's "
            "name and --quant."
        ) from None
    return Model(facts.name, facts, sizes)


def _quantized_bits(config: Mapping[str, Any]) -> int:
    """Bits of packed weights by config.json, 0 where nothing is packed."""
    packed = config.get("quantization_config") or config.get("quantization") or {}
    return int(packed.get("bits", 0))


def _unpacked(tensors: Mapping[str, Tensor], bits: int) -> dict[str, Tensor]:
    """Packed weights are words of several: one of 32 bits has eight of four bits."""
    return {
        key: one._replace(weights=one.weights * 32 // bits)
        if 0 < bits < _NATIVE and one.bytes == _WORD * one.weights
        else one
        for key, one in tensors.items()
    }


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; give a GGUF, a folder of safetensors, or the name of a "
            "known model."
        ) from None
