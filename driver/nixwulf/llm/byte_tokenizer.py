"""A tokenizer for clients of the random models' servers: of the same lengths, byte by byte."""

from __future__ import annotations

from typing import Any

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Bytes that GPT-2 writes as themselves; it writes the others, in order, as characters from 256 on
# (https://github.com/openai/gpt-2/blob/master/src/encoder.py).
_PRINTED = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def tokenizer() -> dict[str, Any]:
    """A tokenizer.json, in which a space has the three bytes of llama.cpp's sign for it.

    The one of a random model's folder turns every byte of a text into a character of its own where
    the text begins inside such a sign; a client that cuts texts from a book gets them whole here.
    """
    others = [byte for byte in range(256) if byte not in _PRINTED]
    written = [chr(byte) for byte in sorted(_PRINTED)] + [chr(256 + n) for n in range(len(others))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    level |= {"trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                level,
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: number for number, text in enumerate(written)},
            "merges": [],
        },
    }
