"""Models of random weights: their sizes and tensors, and what all formats share.

Weights and words are the same in every file format and on every machine. A tokenizer for clients of
the models' servers gives the same lengths, byte by byte.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import cache_dir, shipped_text
from nixwulf.core.text import fingerprint
from nixwulf.llm.model_facts import ModelShape

# Bytes that GPT-2 writes as themselves; it writes the others, in order, as characters from 256 on
# (https://github.com/openai/gpt-2/blob/master/src/encoder.py).
_PRINTED = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def tokenizer() -> dict[str, object]:
    """A tokenizer.json, in which a space has the three bytes of llama.cpp's sign for it.

    The one of a random model's folder turns every byte of a text into a character of its own where
    the text begins inside such a sign; a client that cuts texts from a book gets them whole here.
    """
    others = [byte for byte in range(256) if byte not in _PRINTED]
    written = [chr(byte) for byte in sorted(_PRINTED)] + [chr(256 + n) for n in range(len(others))]
    return with_words("byte_tokenizer.json", written)


def with_words(name: str, words: Sequence[str]) -> dict[str, object]:
    """A tokenizer.json of data/random_models with a vocabulary."""
    document: dict[str, Any] = json.loads(shipped_text(f"data/random_models/{name}"))
    document["model"]["vocab"] = {text: number for number, text in enumerate(words)}
    return document


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Architecture = Literal["llama", "qwen3moe"]
Weights = Literal["f32", "f16", "q8_0"]

Q8_0_BLOCK = 32
SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")
BYTE_TOKENS = 256
FIRST_WORD = len(SPECIAL_TOKENS) + BYTE_TOKENS
MIN_WORDS = 64
MAX_VOCABULARY = 1 << 18
MAX_SEED = (1 << 32) - 1
MAX_LAYERS = 10_000
MAX_SIZE = 1 << 24
MAX_EXPERTS = 512  # LLAMA_MAX_EXPERTS of llama.cpp

# The recipe of the weights; raise RECIPE with any change, so that cached files are made anew.
#
# Greedy tokens must be the same however the model is split, and must change when something is
# computed wrongly. Splitting changes the order of sums, hence roundings. Measured with llama.cpp
# 0c1e570 on 1 node and 1 and 3 RPC servers, layer and tensor, logits of standard deviation 8: at
# GAIN 0.25 they moved by 2e-3 (f16) and 3e-2 (q8_0) at most and no token of 50 runs differed, while
# each of 30 damaged tensors (zeroed, half lost, sign lost) changed a token within 32. At GAIN 1,
# sharper attention and an f16 output matrix they moved by 2e-2 and 2, and 1 run of 22 differed.
RECIPE = 1
GAIN = 0.25  # what all blocks together add to the residual stream, relative to the embedding
ROUTER_SPREAD = 2.0  # of the router's scores: clear choices of experts
LOGIT_SPREAD = 8.0
_SILU_PRODUCT_SPREAD = 0.6  # of silu(x) * y, x and y of unit variance
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwyz" for vowel in "aeiou"]


@dataclass(frozen=True)
class Tensor:
    """One weight tensor.

    shape: rows first, the length of a row last (GGUF prints it the other way round); spread: the
    standard deviation of its weights, or None for a norm, whose weights are all one; exact: stored
    as f32 whatever the type of the model's matrices.
    """

    name: str
    shape: tuple[int, ...]
    spread: float | None
    exact: bool = False

    @property
    def size(self) -> int:
        """Weights of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class RandomModel:
    """A decoder-only transformer, dense (`llama`) or mixture-of-experts (`qwen3moe`).

    layers, heads, kv_heads, experts, experts_used: counts; hidden: width of the residual stream;
    feed_forward: width of the feed-forward block, for `qwen3moe` of each expert; vocabulary and
    context: tokens; weights: the type of the matrices. A `llama` has no experts. Raises InputError,
    naming the key, when the sizes do not fit together.

    The defaults divide evenly over 2, 3 and 4 nodes: llama.cpp hands out whole heads and multiples
    of 128 of the feed-forward block.
    """

    architecture: Architecture = "llama"
    layers: int = 8
    hidden: int = 384
    heads: int = 12
    kv_heads: int = 12
    feed_forward: int = 1536
    vocabulary: int = 1024
    context: int = 2048
    experts: int = 0
    experts_used: int = 0
    weights: Weights = "f16"
    seed: int = 0

    @property
    def shape(self) -> ModelShape:
        """The counts that decide how it splits."""
        return ModelShape(self.layers, self.heads, self.kv_heads)

    def __post_init__(self) -> None:
        self._require_known("architecture", get_args(Architecture))
        self._require_known("weights", get_args(Weights))
        for key in ("layers", "hidden", "heads", "kv_heads", "feed_forward", "context"):
            known = 1 <= getattr(self, key) <= MAX_SIZE
            self._require(key, known, f"1 to {MAX_SIZE}")
        self._require("layers", self.layers <= MAX_LAYERS, f"1 to {MAX_LAYERS}")
        heads, smallest = self.heads, FIRST_WORD + MIN_WORDS
        self._require("seed", 0 <= self.seed <= MAX_SEED, f"0 to {MAX_SEED}")
        self._require("hidden", self.hidden % heads == 0, f"a multiple of heads ({heads})")
        self._require(
            "hidden",
            self.head_size % 2 == 0,
            f"a multiple of twice the heads ({2 * heads}): rotary positions pair values",
        )
        self._require("kv_heads", heads % self.kv_heads == 0, f"a divisor of heads ({heads})")
        self._require(
            "vocabulary",
            smallest <= self.vocabulary <= MAX_VOCABULARY,
            f"{smallest} to {MAX_VOCABULARY} (the first {FIRST_WORD} are special and byte tokens)",
        )
        if self.weights == "q8_0":
            for key in ("hidden", "feed_forward"):
                fits = getattr(self, key) % Q8_0_BLOCK == 0
                self._require(key, fits, f"a multiple of {Q8_0_BLOCK}, the block of q8_0")
        if self.architecture == "llama":
            for key in ("experts", "experts_used"):
                self._require(key, getattr(self, key) == 0, "0 for the dense architecture 'llama'")
        else:
            self._require("experts", 1 <= self.experts <= MAX_EXPERTS, f"1 to {MAX_EXPERTS}")
            used = 1 <= self.experts_used <= self.experts
            self._require("experts_used", used, f"1 to experts ({self.experts})")

    @property
    def head_size(self) -> int:
        """Values of one attention head."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """Weights in the file."""
        return sum(tensor.size for tensor in self.tensors())

    @property
    def active_parameters(self) -> int:
        """Count the weights in one token: of the experts those used, of the embedding none."""
        return sum(
            tensor.size * self.experts_used // self.experts
            if "_exps." in tensor.name
            else tensor.size
            for tensor in self.tensors()
            if tensor.name != "token_embd.weight"
        )

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that differ when any size, the seed or the recipe differs."""
        return fingerprint({"recipe": RECIPE, **asdict(self)})[:12]

    @property
    def file_name(self) -> str:
        """The name under which the model is kept in the cache."""
        return f"{self.architecture}-{self.layers}x{self.hidden}-{self.weights}-{self.digest}.gguf"

    def tensors(self) -> Iterator[Tensor]:
        """List the tensors in the order of the file, named as llama.cpp names them."""
        hidden, narrow = self.hidden, self.kv_heads * self.head_size
        # Each block reads a normalised stream, so a spread of 1/sqrt(row) keeps values near one.
        reading = hidden**-0.5
        # Each of the 2 blocks of a layer adds the same variance, together GAIN squared.
        adding = GAIN * (2 * self.layers) ** -0.5
        yield Tensor("token_embd.weight", (self.vocabulary, hidden), 1.0)
        for layer in range(self.layers):
            prefix = f"blk.{layer}."
            yield Tensor(prefix + "attn_norm.weight", (hidden,), None)
            yield Tensor(prefix + "attn_q.weight", (hidden, hidden), reading)
            yield Tensor(prefix + "attn_k.weight", (narrow, hidden), reading)
            yield Tensor(prefix + "attn_v.weight", (narrow, hidden), reading)
            yield Tensor(prefix + "attn_output.weight", (hidden, hidden), 2 * adding * reading)
            if self.architecture == "qwen3moe":
                yield Tensor(prefix + "attn_q_norm.weight", (self.head_size,), None)
                yield Tensor(prefix + "attn_k_norm.weight", (self.head_size,), None)
            yield Tensor(prefix + "ffn_norm.weight", (hidden,), None)
            yield from self._feed_forward(prefix, reading, adding)
        yield Tensor("output_norm.weight", (hidden,), None)
        logits = LOGIT_SPREAD * reading
        yield Tensor("output.weight", (self.vocabulary, hidden), logits, exact=True)

    def _feed_forward(self, prefix: str, reading: float, adding: float) -> Iterator[Tensor]:
        down = adding / _SILU_PRODUCT_SPREAD * self.feed_forward**-0.5
        wide, narrow = (self.feed_forward, self.hidden), (self.hidden, self.feed_forward)
        kind = ""
        stack: tuple[int, ...] = ()
        if self.architecture == "qwen3moe":
            router = (self.experts, self.hidden)
            # llama.cpp's converters keep the router in f32: a rounding there changes the expert.
            yield Tensor(
                f"{prefix}ffn_gate_inp.weight", router, ROUTER_SPREAD * reading, exact=True
            )
            kind, stack = "_exps", (self.experts,)
        yield Tensor(f"{prefix}ffn_gate{kind}.weight", stack + wide, reading)
        yield Tensor(f"{prefix}ffn_up{kind}.weight", stack + wide, reading)
        yield Tensor(f"{prefix}ffn_down{kind}.weight", stack + narrow, down)

    def _require(self, key: str, holds: bool, expected: str) -> None:
        if not holds:
            raise InputError(f"{key} is {getattr(self, key)!r}, expected {expected}.")

    def _require_known(self, key: str, known: tuple[str, ...]) -> None:
        expected = "one of " + ", ".join(map(repr, known))
        self._require(key, getattr(self, key) in known, expected)


def parse_random_model(values: Mapping[str, Any], source: str) -> RandomModel:
    """The model of a sweep's entry that passed the schema; raises InputError that names the key."""
    try:
        return RandomModel(**values)
    except InputError as error:
        raise InputError(f"{source}.{error.message}") from None


def values(tensor: Tensor, model: RandomModel) -> npt.NDArray[np.float32]:
    """The tensor's weights, f32, in its shape.

    Uniform weights, because they need no libm: a normal distribution's last bit may differ between
    machines. Each tensor has a stream of its own, so that it depends on nothing written before it.
    """
    import numpy as np

    if tensor.spread is None:
        return np.ones(tensor.shape, dtype=np.float32)
    stream = np.random.Generator(np.random.PCG64([model.seed, zlib.crc32(tensor.name.encode())]))
    weights = stream.random(tensor.shape, dtype=np.float32) - np.float32(0.5)
    weights *= np.float32(tensor.spread * 12**0.5)
    if tensor.name == "output.weight":
        weights[:FIRST_WORD] = 0  # greedy text is words only: no end, no half of a UTF-8 character
    return weights


def vocabulary(size: int) -> list[str]:
    """The text of each token: special ones, one for each byte, then words."""
    names = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(BYTE_TOKENS))]
    return names + [word(number) for number in range(size - FIRST_WORD)]


def word(number: int) -> str:
    """The number-th word (from 0): a space mark and syllables, each word another one."""
    syllables = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, len(_SYLLABLES))
        syllables = _SYLLABLES[digit] + syllables
    return "\N{LOWER ONE EIGHTH BLOCK}" + syllables


def cached(name: str, model: RandomModel, write: Callable[[RandomModel, Path], None]) -> Path:
    """The file or folder of that name in the user's cache, written now unless it is there."""
    path = cache_dir() / "models" / name
    if not path.exists():
        write(model, path)
    return path


@contextmanager
def whole(path: Path, needed: int) -> Iterator[Path]:
    """Write to a place that becomes PATH at the block's end; needed: bytes; raises NixwulfError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if needed > free:
            raise NixwulfError(
                f"The model {path.name!r} needs {needed / 1e6:.0f} MB and {str(path.parent)!r} has "
                f"{free / 1e6:.0f} MB free; free some space or set XDG_CACHE_HOME to another disk."
            )
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            place = Path(folder) / path.name
            yield place
            if not path.is_dir():  # another driver was faster: a folder cannot be replaced
                place.replace(path)
    except OSError as error:
        raise NixwulfError(
            f"Cannot write the model {str(path)!r}: {error.strerror}; free some space or set "
            "XDG_CACHE_HOME to another disk."
        ) from None
