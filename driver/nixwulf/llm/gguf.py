"""GGUF: the header of a file, its keys and tensors, and the facts that they give; random weights.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Of random weights the same sizes and seed
give the same bytes on every machine.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from nixwulf.core.files import DATA, read_toml
from nixwulf.llm import model_facts, random_model
from nixwulf.llm.model_facts import FirstBytes, Header, Part, Sizes, TensorSize
from nixwulf.llm.random_model import FIRST_WORD, SPECIAL_TOKENS, RandomModel, Tensor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from gguf import GGMLQuantizationType, GGUFWriter

# A header is as long as its vocabulary: 6 MB for 150 thousand tokens.
_STEPS = (1 << 20, 1 << 23, 1 << 26)
_VERSIONS = {2, 3}
# Types of values (gguf_metadata_value_type) as forms of the struct module.
_SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_LONG = 1024  # more values than a model has layers
# A file of somebody else may claim any count; GGML_MAX_DIMS is 4, and a vocabulary of 200 thousand
# words has 450 thousand merges.
_MOST_DIMENSIONS, _MOST_FIELDS, _MOST_TENSORS, _MOST_TEXTS = 8, 1 << 14, 1 << 18, 1 << 21
_SPLIT = re.compile(r"(.*)-00001-of-(\d{5})\.gguf")
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)")
_STATE = ("ssm_", "shortconv")
_WINDOWS = read_toml(DATA / "model" / "sliding_windows.toml")


def read(path: str, first_bytes: FirstBytes) -> Header:
    """Read the header of a file, or of a split model by its first; raises one of NOT_OF_A_MODEL."""
    split = _SPLIT.fullmatch(path)
    count = int(split[2]) if split else 1
    paths = [path]
    if split:
        paths = [f"{split[1]}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)]
    fields: dict[str, object] = {}
    tensors: dict[str, TensorSize] = {}
    for part in paths:
        own, found = _parsed(part, first_bytes)
        fields = {**own, **fields}
        tensors |= found
    return interpret(fields, tensors)


def _parsed(path: str, first_bytes: FirstBytes) -> tuple[dict[str, object], dict[str, TensorSize]]:
    for step in _STEPS:
        start = first_bytes(path, step)
        with suppress(EOFError):
            return parse(start)
        if len(start) < step:
            break
    raise ValueError("cut short")


def parse(start: bytes) -> tuple[dict[str, object], dict[str, TensorSize]]:
    """Fields that are no long arrays, and tensors by name; raises EOFError when it is cut short.

    By hand, because the reader of the gguf package wants the whole file and makes an array of each
    word: it took 3.5 s for 32 thousand words, and this takes 0.1 s.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    reader = _Reader(start)
    if reader.take(4) != b"GGUF" or reader.number("I") not in _VERSIONS:
        raise ValueError("no GGUF of a known version")
    tensor_count = reader.count("Q", _MOST_TENSORS)
    field_count = reader.count("Q", _MOST_FIELDS)
    fields = {reader.text(): reader.value(reader.number("I")) for _ in range(field_count)}
    tensors = {}
    for _ in range(tensor_count):
        name = reader.text()
        weights = prod(reader.number("Q") for _ in range(reader.count("I", _MOST_DIMENSIONS)))
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(reader.number("I"))]
        reader.take(8)
        tensors[name] = TensorSize(weights // block * size, weights)
    return fields, tensors


class _Reader:
    """A cursor over the little-endian values of a GGUF."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._texts = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise EOFError
        self._at += count
        return taken

    def scalar(self, form: str) -> float:
        number: float = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]
        return number

    def number(self, form: str) -> int:
        return int(self.scalar(form))

    def count(self, form: str, most: int) -> int:
        """A number of things; raises ValueError for more than a model has."""
        number = self.number(form)
        if number > most:
            raise ValueError(f"{number} is more than {most}")
        return number

    def text(self) -> str:
        return self.take(self.number("Q")).decode(errors="replace")

    def value(self, kind: int) -> object:
        """A value of a type; of a long array nothing but its place is passed."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, count = self.number("I"), self.number("Q")
        if item == _ARRAY:
            raise ValueError("an array of arrays")
        if item != _STRING and count > _LONG:
            self.take(count * struct.calcsize(f"<{_SCALARS[item]}"))
            return None
        self._texts += count
        if self._texts > _MOST_TEXTS:
            raise ValueError("more texts than a vocabulary has")
        if count > _LONG:
            self._skip_texts(count)
            return None
        return [self.value(item) for _ in range(count)]

    def _skip_texts(self, count: int) -> None:
        at, data = self._at, self._data
        try:
            for _ in range(count):
                at += 8 + _LENGTH.unpack_from(data, at)[0]
        except struct.error:
            raise EOFError from None
        self._at = at


def interpret(fields: Mapping[str, object], tensors: Mapping[str, TensorSize]) -> Header:
    """Read a model by llama.cpp's keys and tensor names; raises one of NOT_OF_A_MODEL.

    Layers with tensors of a state, or without heads of a cache, have a state; blocks without either
    (the networks of Nemotron-H) remember nothing. The last blocks may guess ahead (nextn).
    """
    architecture = str(fields["general.architecture"])

    def value(key: str, default: object = 0) -> object:
        return fields.get(f"{architecture}.{key}", default)

    def number(key: str, default: int = 0) -> int:
        return model_facts.integer(value(key, default))

    count, hidden = model_facts.layer_count(value("block_count")), number("embedding_length")
    all_heads = _each(value("attention.head_count", None), count)
    heads = max(all_heads)
    kv_heads = _each(value("attention.head_count_kv", all_heads), count)
    key = number("attention.key_length", hidden // max(1, heads))
    width = number("attention.value_length", key)
    # Files of before llama.cpp knew latent attention have the rank too, and keep every head.
    latent = number("attention.kv_lora_rank") if value("attention.key_length_mla") else 0
    if latent:
        key, width = latent + number("rope.dimension_count"), 0
    read = count - number("nextn_predict_layers")
    names: defaultdict[int, set[str]] = defaultdict(set)
    for block in filter(None, map(_BLOCK.match, tensors)):
        names[int(block[1])].add(block[2])
    kinds = [_kind(names[n], kv_heads[n]) for n in range(read)] + ["ahead"] * (count - read)
    cached = [
        (1 if latent else own) if kind == "attention" else 0
        for kind, own in zip(kinds, kv_heads, strict=True)
    ]
    window = model_facts.integer(value("attention.sliding_window") or 0)
    pattern = value("attention.sliding_window_pattern", _WINDOWS["periods"].get(architecture))
    windows = tuple(window * has_it for has_it in _windowed(pattern, architecture, count))
    windowed = number("attention.key_length_swa", key), number("attention.value_length_swa", width)
    widths = [windowed if one else (key, width) for one in windows]
    linear = kinds.count("state")
    used = number("expert_used_count")
    experts = used * number("expert_feed_forward_length")
    experts += number("expert_shared_feed_forward_length")
    tied = "output.weight" not in tensors
    parts = tuple(_part(name, size, read, tied) for name, size in tensors.items())
    sizes = Sizes(
        *model_facts.bytes_by_place(parts, count),
        tied=tensors["token_embd.weight"].bytes if tied else 0,
        vocabulary=tensors["token_embd.weight"].weights // hidden,
        cache_widths=tuple((k * n, v * n) for (k, v), n in zip(widths, cached, strict=True)),
        windows=windows,
        hidden=hidden,
        feed_forward=max(experts, *_each(value("feed_forward_length"), count)),
        heads=heads,
        kv_heads=1 if latent else max(kv_heads),
    )
    return Header(
        sizes.possible(),
        parts,
        linear_layers=linear,
        state_width=linear * number("ssm.inner_size") * number("ssm.state_size"),
        head_dim=latent or key,
        experts=number("expert_count"),
        experts_used=used,
        assumptions=(model_facts.WINDOW_LAYERS_UNKNOWN,) if window and pattern is None else (),
    )


def _part(name: str, size: TensorSize, read: int, tied: bool) -> Part:
    block = _BLOCK.match(name)
    if block:
        return Part(size, int(block[1]), "_exps." in name, int(block[1]) >= read)
    unread = name == "per_layer_token_embd.weight" or (name == "token_embd.weight" and not tied)
    return Part(size, "input" if "token_embd" in name else "output", unread=unread)


def _windowed(pattern: object, architecture: str, count: int) -> Iterable[bool]:
    """Tell which of COUNT layers look at a window alone, by a list of them or their period."""
    if not isinstance(pattern, int):
        return pattern if isinstance(pattern, list) and pattern else [False] * count
    full = 0 if architecture in _WINDOWS["full_first"] else pattern - 1
    return (pattern == 0 or n % pattern != full for n in range(count))


def _kind(parts: set[str], kv_heads: int) -> str:
    """Name a block's memory: attention, a state, or nothing (a network alone)."""
    state = any(part.startswith(_STATE) for part in parts)
    if parts and not state and not any(part.startswith(("attn_q", "attn_k")) for part in parts):
        return "network"
    return "attention" if kv_heads and not state else "state"


def _each(value: object, count: int) -> list[int]:
    values = value if isinstance(value, list) else [value] * count
    return [model_facts.integer(one) for one in values]


def ensure(model: RandomModel) -> Path:
    """The model's file in the user's cache, written now unless it is there."""
    return random_model.cached(model.file_name, model, write)


def write(model: RandomModel, path: Path) -> None:
    """Write the whole file or nothing; raises NixwulfError when it does not fit on the device."""
    needed = sum(_stored_bytes(tensor, model) for tensor in model.tensors())
    with random_model.whole(path, needed) as place:
        _write(model, place)


def _write(model: RandomModel, path: Path) -> None:
    import numpy as np
    from gguf import GGUFWriter

    with closing(GGUFWriter(path, model.architecture)) as writer:
        _add_sizes(writer, model)
        _add_vocabulary(writer, model.vocabulary)
        for tensor in model.tensors():
            kind = _quantization_type(tensor, model)
            writer.add_tensor_info(
                tensor.name,
                tensor.shape,
                np.dtype(np.float16 if kind.name == "F16" else np.float32),
                _stored_bytes(tensor, model),
                kind,
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in model.tensors():  # one at a time, so a large model needs little memory
            writer.write_tensor_data(_stored(tensor, model))


def _add_sizes(writer: GGUFWriter, model: RandomModel) -> None:
    from gguf import LlamaFileType

    writer.add_name(model.file_name)
    kind = "ALL_F32" if model.weights == "f32" else f"MOSTLY_{model.weights.upper()}"
    writer.add_file_type(LlamaFileType[kind])
    writer.add_block_count(model.layers)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.feed_forward)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_size)
    writer.add_value_length(model.head_size)
    writer.add_rope_dimension_count(model.head_size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(model.vocabulary)
    if model.experts:
        writer.add_expert_count(model.experts)
        writer.add_expert_used_count(model.experts_used)
        writer.add_expert_feed_forward_length(model.feed_forward)


def _add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """A SentencePiece vocabulary. Text is tokenized to its bytes: nothing builds words of them."""
    from gguf import TokenType

    special = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(random_model.vocabulary(size))
    writer.add_token_scores([0.0] * FIRST_WORD + [-float(n) for n in range(size - FIRST_WORD)])
    writer.add_token_types(
        special
        + [TokenType.BYTE] * random_model.BYTE_TOKENS
        + [TokenType.NORMAL] * (size - FIRST_WORD)
    )
    writer.add_bos_token_id(SPECIAL_TOKENS.index("<s>"))
    writer.add_eos_token_id(SPECIAL_TOKENS.index("</s>"))
    writer.add_unk_token_id(SPECIAL_TOKENS.index("<unk>"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def _quantization_type(tensor: Tensor, model: RandomModel) -> GGMLQuantizationType:
    from gguf import GGMLQuantizationType

    exact = tensor.spread is None or tensor.exact
    return GGMLQuantizationType["F32" if exact else model.weights.upper()]


def _stored_bytes(tensor: Tensor, model: RandomModel) -> int:
    from gguf import GGML_QUANT_SIZES

    block, block_bytes = GGML_QUANT_SIZES[_quantization_type(tensor, model)]
    return tensor.size // block * block_bytes


def _stored(tensor: Tensor, model: RandomModel) -> npt.NDArray[np.generic]:
    from gguf import quantize

    return quantize(random_model.values(tensor, model), _quantization_type(tensor, model))
