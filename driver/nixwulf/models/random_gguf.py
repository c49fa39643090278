"""GGUF files of random weights: the same sizes and seed give the same bytes on every machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.errors import NixwulfError
from nixwulf.files import cache_dir
from nixwulf.models.random_model import (
    BYTE_TOKENS,
    FIRST_WORD,
    SPECIAL_TOKENS,
    RandomModel,
    Tensor,
)

_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwyz" for vowel in "aeiou"]

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFWriter


def ensure(model: RandomModel) -> Path:
    """The model's file in the user's cache, written now unless it is there."""
    path = cache_dir() / "models" / model.file_name
    if not path.is_file():
        write(model, path)
    return path


def write(model: RandomModel, path: Path) -> None:
    """Write the whole file or nothing; raises NixwulfError when it does not fit on the device."""
    needed = sum(_stored_bytes(tensor, model) for tensor in model.tensors())
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if needed > free:
            raise NixwulfError(
                f"The model {path.name!r} needs {needed / 1e6:.0f} MB and {str(path.parent)!r} has "
                f"{free / 1e6:.0f} MB free; free some space or set XDG_CACHE_HOME to another disk."
            )
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".gguf")
        os.close(handle)
        temporary = Path(name)
        _write(model, temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise NixwulfError(
            f"Cannot write the model {str(path)!r}: {error.strerror}; free some space or set "
            "XDG_CACHE_HOME to another disk."
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _write(model: RandomModel, path: Path) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, model.architecture)
    try:
        _add_sizes(writer, model)
        _add_vocabulary(writer, model.vocabulary)
        for tensor in model.tensors():
            kind = _kind(tensor, model)
            writer.add_tensor_info(
                tensor.name,
                tensor.shape,
                np.dtype(np.float16 if kind == "f16" else np.float32),
                _stored_bytes(tensor, model),
                GGMLQuantizationType[kind.upper()],
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in model.tensors():  # one at a time, so a large model needs little memory
            writer.write_tensor_data(_stored(tensor, model))
    finally:
        writer.close()


def _add_sizes(writer: GGUFWriter, model: RandomModel) -> None:
    from gguf import LlamaFileType

    writer.add_name(model.file_name)
    writer.add_file_type(LlamaFileType[f"MOSTLY_{model.weights.upper()}"])
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
    names = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(BYTE_TOKENS))]
    names += [word(number) for number in range(size - FIRST_WORD)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(names)
    writer.add_token_scores([0.0] * FIRST_WORD + [-float(n) for n in range(size - FIRST_WORD)])
    writer.add_token_types(
        special + [TokenType.BYTE] * BYTE_TOKENS + [TokenType.NORMAL] * (size - FIRST_WORD)
    )
    writer.add_bos_token_id(SPECIAL_TOKENS.index("<s>"))
    writer.add_eos_token_id(SPECIAL_TOKENS.index("</s>"))
    writer.add_unk_token_id(SPECIAL_TOKENS.index("<unk>"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def word(number: int) -> str:
    """The number-th word (from 0): a space mark and syllables, each word another one."""
    syllables = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, len(_SYLLABLES))
        syllables = _SYLLABLES[digit] + syllables
    return "\N{LOWER ONE EIGHTH BLOCK}" + syllables


def _kind(tensor: Tensor, model: RandomModel) -> str:
    return "f32" if tensor.spread is None or tensor.exact else model.weights


def _stored_bytes(tensor: Tensor, model: RandomModel) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[_kind(tensor, model).upper()]]
    return tensor.size // block * block_bytes


def _stored(tensor: Tensor, model: RandomModel) -> np.ndarray[Any, Any]:
    """The tensor's weights as the file holds them.

    Uniform weights, because they need no libm: a normal distribution's last bit may differ between
    machines. Each tensor has a stream of its own, so that it depends on nothing written before it.
    """
    import numpy as np
    from gguf import GGMLQuantizationType, quantize

    if tensor.spread is None:
        return np.ones(tensor.shape, dtype=np.float32)
    stream = np.random.Generator(np.random.PCG64([model.seed, zlib.crc32(tensor.name.encode())]))
    weights = stream.random(tensor.shape, dtype=np.float32) - np.float32(0.5)
    weights *= np.float32(tensor.spread * 12**0.5)
    if tensor.name == "output.weight":
        weights[:FIRST_WORD] = 0  # greedy text is words only: no end, no half of a UTF-8 character
    return quantize(weights, GGMLQuantizationType[_kind(tensor, model).upper()])
