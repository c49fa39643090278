"""The header of a model of distributed-llama (.m): pairs of numbers, then the weights in order.

https://github.com/b4rtaz/distributed-llama/blob/8d624a7/src/llm.hpp
"""

from __future__ import annotations

import struct

from nixwulf.core.files import DATA, read_toml
from nixwulf.llm.model_facts import Sizes, layer_count

MAGIC = 0xA00ABCD
TOKENIZER_MAGIC = 0x567124
KEYS: dict[str, int] = read_toml(DATA / "dllama_keys.toml")
HEADER_BYTES = 4096
_F32 = 4
# Weights of a block and its bytes, by the number of the type: f32, f16, q40, q80.
_BLOCKS = ((1, 4), (1, 2), (32, 18), (32, 34))


def parse(start: bytes) -> Sizes:
    """The sizes by the first bytes of a file; raises one of NOT_OF_A_MODEL."""
    magic, size = struct.unpack_from("<II", start)
    if magic != MAGIC:
        raise ValueError("no model of distributed-llama")
    numbers = struct.unpack_from(f"<{(size - 8) // 8 * 2}i", start, 8)
    found = dict(zip(numbers[::2], numbers[1::2], strict=True))

    def value(name: str, default: int | None = None) -> int:
        number = found[KEYS[name]] if default is None else found.get(KEYS[name], default)
        return number or default or 0

    layers = layer_count(value("layers"))
    hidden, heads, vocabulary = value("hidden"), value("heads"), value("vocabulary")
    head = value("head_size", hidden // heads)
    width = head * value("kv_heads")
    experts = value("experts", 0)
    narrow = value("expert_feed_forward", value("feed_forward")) if experts else 0
    block, size = _BLOCKS[value("weights", 0)]
    matrices = 2 * hidden * (head * heads + width)
    matrices += 3 * hidden * (narrow * experts if experts else value("feed_forward"))
    layer = matrices // block * size + _F32 * hidden * (2 + experts)
    sizes = Sizes(
        layers=(layer,) * layers,
        embedding=_F32 * vocabulary * hidden,
        output=vocabulary * hidden // block * size + _F32 * hidden,
        tied=0,
        vocabulary=vocabulary,
        cache_widths=((width, width),) * layers,
        windows=(0,) * layers,
        hidden=hidden,
        feed_forward=narrow * value("experts_used", 0) or value("feed_forward"),
        heads=heads,
        kv_heads=value("kv_heads"),
    )
    return sizes.possible()
