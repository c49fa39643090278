"""The model that is asked about: a known name, a table of facts, a GGUF, or a folder of weights."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.core.files import cache_dir, first_bytes, inside, read_json
from nixwulf.core.text import GIB
from nixwulf.llm import gguf, hub, safetensors
from nixwulf.llm.catalog import find, is_known, only, weights_of
from nixwulf.llm.model_facts import NOT_OF_A_MODEL, ModelFacts, Sizes, Weights

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_MOST_SHARDS = 400
_MOST_BYTES = 64 << 20  # of a config.json or a header
_NATIVE = 16.0
_FEW_BITS = "MXFP4"  # gpt-oss, with what is no expert in eight bits, as its GGUF has it
_LEAST_BITS, _MOST_BITS = 0.5, 40.0
_IMPOSSIBLE = 1e15


@dataclass(frozen=True)
class ModelDescription:
    """Its name as shown, its facts, and its sizes by layer where its files were read."""

    name: str
    facts: ModelFacts
    sizes: Sizes | None = None


def read_model(name: str, quant: str = "", size_gib: float = 0.0) -> ModelDescription:
    """The model of a name or path.

    name: of a known model, of a GGUF, a TOML file of facts, or a folder of safetensors. quant: may
    be empty where the name gives it. size_gib: of all its files, GiB; 0: unknown.

    Raises InputError: for what is not known or cannot be read, with what to give instead.
    """
    if not name.strip():
        raise InputError("The name of the model is empty; give one such as gpt-oss-20b, or a GGUF.")
    path = Path(name)
    if path.suffix == ".gguf" or path.is_dir():
        if quant or size_gib:
            raise InputError(
                f"{name!r} has its quantization in its header; leave --quant and --size-gib out."
            )
        return _of_gguf(path) if path.suffix == ".gguf" else _of_folder(path)
    if path.is_file() and path.suffix != ".toml":
        raise InputError(
            f"{name!r} is no GGUF and no TOML file of facts; give one, or the folder of the model."
        )
    if path.suffix != ".toml" and (known := _of_hub(name, quant, size_gib)):
        return known
    facts = only(path) if path.suffix == ".toml" else find(name)
    more = f" {quant}" if quant else f" of {size_gib:g} GiB" if size_gib else ""
    weights = _weights(name, facts, quant, size_gib)
    return ModelDescription(f"{facts.name}{more}" if more else name, facts.quantized(weights))


def _weights(name: str, facts: ModelFacts, quant: str, size_gib: float) -> Weights:
    if size_gib:
        bits = 8 * size_gib * GIB / facts.parameters
        if not _LEAST_BITS <= bits <= _MOST_BITS:
            raise InputError(
                f"--size-gib {size_gib:g} are {bits:.3g} bits for each of the weights of "
                f"{facts.name!r}; give the size of all of its files, in GiB."
            )
    try:
        return weights_of(quant or name, facts, size_gib)
    except InputError:
        if quant:
            raise
    # A model that was published in few bits is whole without a quantization in its name.
    own = facts.weights
    if own.other_bits < _NATIVE:
        assumption = f"{own.routed_bits:g} and {own.other_bits:g} bits a weight, as first published"
        return replace(own, assumptions=(assumption,))
    if own.routed_bits < _NATIVE:
        return weights_of(_FEW_BITS, facts)
    raise InputError(
        f"Model {name!r} names no quantization; give --quant such as Q4_K_M or FP8, "
        "or --size-gib, the size of its files."
    )


def _of_gguf(path: Path) -> ModelDescription:
    try:
        header = gguf.read(str(path), _first_bytes)
        return ModelDescription(path.stem, _possible(header.facts(path.stem)), header.sizes)
    except NOT_OF_A_MODEL:
        raise InputError(
            f"{str(path)!r} is no GGUF of a language model, or is cut short; give another file, "
            "or the model's name and --quant."
        ) from None


def _of_folder(folder: Path) -> ModelDescription:
    paths = sorted(map(str, folder.glob("*.safetensors")))
    if not paths:
        raise InputError(
            f"{str(folder)!r} holds no *.safetensors; give a folder with them and config.json, or "
            "a GGUF."
        )
    name = folder.resolve().name
    try:
        header = safetensors.read(paths, read_json(folder / "config.json"), _first_bytes)
        return ModelDescription(name, _possible(header.facts(name)), header.sizes)
    except NOT_OF_A_MODEL:
        raise InputError(
            f"{str(folder)!r} is no folder of a language model that can be read; give the model's "
            "name and --quant."
        ) from None


def _of_hub(name: str, quant: str, size_gib: float) -> ModelDescription | None:
    """A repository of the hub that no known name stands for; None for what is no ORG/REPO.

    Its config.json and the headers of its weights are kept, so that it is asked for them once.
    """
    if not _REPOSITORY.fullmatch(name) or is_known(name):
        return None
    try:
        folder = inside(cache_dir() / "headers", name)
        if not folder.is_dir():
            _keep(name, folder)
        found = replace(_of_folder(folder), name=name)
    except (OSError, NixwulfError, *NOT_OF_A_MODEL):
        raise InputError(
            f"Model {name!r} is not known, and the hub gave no config.json and headers of it; "
            "give a GGUF, a folder with config.json and *.safetensors, or a TOML file of its facts."
        ) from None
    if quant or size_gib:
        weights = _weights(name, found.facts, quant, size_gib)
        return ModelDescription(name, found.facts.quantized(weights))
    return found


def _keep(name: str, folder: Path) -> None:
    """Put config.json and the headers alone of a repository's *.safetensors into a new folder."""
    found = hub.look(name)
    files = sorted(file.name for file in found.files)
    shards = [one for one in files if one.endswith(".safetensors") and "/" not in one]

    def first(url: str, count: int) -> bytes:
        return hub.read(url, _MOST_BYTES, first=count)

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as new:
        (Path(new) / "config.json").write_bytes(hub.read(found.url("config.json"), _MOST_BYTES))
        for number, shard in enumerate(shards[:_MOST_SHARDS], 1):
            header = safetensors.header(found.url(shard), first)
            (Path(new) / f"{number:05}.safetensors").write_bytes(header)
        _of_folder(Path(new))  # what cannot be read is not kept
        Path(new).rename(folder)
        Path(new).mkdir()  # to be removed in its place


def _possible(facts: ModelFacts) -> ModelFacts:
    """The same; raises ValueError for counts that no model has, as bytes that were lost give."""
    counts = [getattr(facts, one.name) for one in fields(facts)]
    if not all(0 <= one < _IMPOSSIBLE for one in counts if isinstance(one, int | float)):
        raise ValueError("no model")
    return facts


def _first_bytes(path: str, count: int) -> bytes:
    try:
        return first_bytes(Path(path), count)
    except InputError as error:
        raise InputError(
            f"{error.message.removesuffix('.')}; give a GGUF, a folder of safetensors, or the name "
            "of a known model."
        ) from None
