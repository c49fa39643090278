"""Bits of a weight by the name of a quantization, or by the size of a file.

Blocks of llama.cpp: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h
(a block of Q4_0 has 32 weights in 18 bytes: 4.5 bits). A mix such as Q4_K_M has some tensors in
finer blocks, and the figures here are what whole files come to.
"""

from __future__ import annotations

import re

from nixwulf.core.errors import InputError
from nixwulf.llm.model_facts import ModelFacts, Weights

_GIB_BITS = 8 * 2**30
_FINER = 2.0
_FINEST = 8.5
# Patterns of names, bits of a weight of experts, and of the rest. The first that is found counts.
_NAMES: tuple[tuple[str, float, float], ...] = (
    (r"INT4 ?\+ ?BF16", 4.25, 16.0),
    (r"NVFP4", 4.5, 16.0),
    (r"MXFP4", 4.25, 8.5),
    (r"AWQ.?8", 8.25, 16.0),
    (r"AWQ|GPTQ|W4A16", 4.25, 16.0),
    (r"OWN REQUANT|INT4-G32", 4.5, 4.5),
    (r"INT4|NATIVE 4", 4.25, 16.0),
    (r"FP8", 8.0, 8.0),
    (r"BF16|F16|FP16", 16.0, 16.0),
    (r"F32", 32.0, 32.0),
    (r"IQ1|Q1", 2.0, 5.0),
    (r"Q2_K|IQ2", 2.9, 4.9),
    (r"Q3_K|IQ3", 3.6, 5.6),
    (r"Q4_K|IQ4|Q4 CLASS|Q4$|Q4 ", 4.8, 6.0),
    (r"Q4_?[01]|Q4", 4.5, 4.5),
    (r"Q5", 5.7, 6.6),
    (r"Q6", 6.6, 6.6),
    (r"Q8|8.?BIT", 8.5, 8.5),
    (r"4.?BIT", 4.5, 4.5),
)


def weights_of(name: str, model: ModelFacts, size_gib: float = 0.0) -> Weights:
    """Weights of a model by the name of its quantization and, where it is known, its size in GiB.

    A size says what the mean is. In a file of mixed blocks the tensors that are no experts have
    about two bits more than the mean, up to Q8_0 (llama_tensor_get_type of llama.cpp; Unsloth's
    mixes more so). Raises InputError for a name that is not known when there is no size.
    """
    found = next(((r, o) for p, r, o in _NAMES if re.search(p, name, re.IGNORECASE)), None)
    if size_gib > 0:
        mean = size_gib * _GIB_BITS / model.parameters
        if not model.routed or mean >= _FINEST:
            return Weights(mean, mean)
        other = min(_FINEST, mean + _FINER)
        rest = model.parameters - model.routed
        return Weights((mean * model.parameters - other * rest) / model.routed, other)
    if found is None:
        raise InputError(
            f"Quantization {name!r} is not known and there is no size of the files; give one such "
            "as 'Q4_K_M' or 'FP8', or the size of the model's files in GiB."
        )
    routed, other = found
    routed = min(routed, model.weights.routed_bits)
    if "NVFP4" in name.upper():
        other = model.nvfp4_bits
    if not model.routed:
        # What is left finer in a mixture (output, attention) is a small part of a dense model.
        other = routed
    return Weights(routed, other, (f"{routed:g} bits a weight, the usual of {name!r}",))
