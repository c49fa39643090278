"""GGUF files of random weights: the same sizes and seed give the same bytes on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nixwulf.llm.random_model import (
    BYTE_TOKENS,
    FIRST_WORD,
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
    from gguf import GGMLQuantizationType, GGUFWriter


def ensure(model: RandomModel) -> Path:
    """The model's file in the user's cache, written now unless it is there."""
    return cached(model.file_name, model, write)


def write(model: RandomModel, path: Path) -> None:
    """Write the whole file or nothing; raises NixwulfError when it does not fit on the device."""
    needed = sum(_stored_bytes(tensor, model) for tensor in model.tensors())
    with whole(path, needed) as place:
        _write(model, place)


def _write(model: RandomModel, path: Path) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(path, model.architecture)
    try:
        _add_sizes(writer, model)
        _add_vocabulary(writer, model.vocabulary)
        for tensor in model.tensors():
            kind = _kind(tensor, model)
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
    finally:
        writer.close()


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
    writer.add_token_list(vocabulary(size))
    writer.add_token_scores([0.0] * FIRST_WORD + [-float(n) for n in range(size - FIRST_WORD)])
    writer.add_token_types(
        special + [TokenType.BYTE] * BYTE_TOKENS + [TokenType.NORMAL] * (size - FIRST_WORD)
    )
    writer.add_bos_token_id(SPECIAL_TOKENS.index("<s>"))
    writer.add_eos_token_id(SPECIAL_TOKENS.index("</s>"))
    writer.add_unk_token_id(SPECIAL_TOKENS.index("<unk>"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def _kind(tensor: Tensor, model: RandomModel) -> GGMLQuantizationType:
    from gguf import GGMLQuantizationType

    exact = tensor.spread is None or tensor.exact
    return GGMLQuantizationType["F32" if exact else model.weights.upper()]


def _stored_bytes(tensor: Tensor, model: RandomModel) -> int:
    from gguf import GGML_QUANT_SIZES

    block, block_bytes = GGML_QUANT_SIZES[_kind(tensor, model)]
    return tensor.size // block * block_bytes


def _stored(tensor: Tensor, model: RandomModel) -> np.ndarray[Any, Any]:
    """The tensor's weights as the file holds them."""
    from gguf import quantize

    return quantize(values(tensor, model), _kind(tensor, model))
