"""The model that is to be run: where the nodes have it, and its facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.llm import Model, parse_model, random_gguf
from nixwulf.llm.random_model import RandomModel
from nixwulf.perf.scenarios.source import ModelDescription, read_model
from nixwulf.plugins import engines

RANDOM = "random"
_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST = 40  # characters of a name in a sweep


@dataclass(frozen=True)
class ModelChoice:
    """A model: its name in the sweep, its entry there, its facts, and the engines that read it."""

    name: str
    entry: Mapping[str, Any]
    model: ModelDescription
    engines: tuple[str, ...]

    @property
    def definition(self) -> Model:
        """As a sweep that names it defines it."""
        return parse_model(self.name, dict(self.entry), "nixwulf tune")


def read_subject(
    text: str, facts_of: str = "", quant: str = "", size_gib: float = 0.0, tokenizer: str = ""
) -> ModelChoice:
    """The model of a command line.

    Args:
        text: a path on the nodes, a name on Hugging Face, or 'random'.
        facts_of: where its facts are; empty: in the file if this machine has it, else by its name.
        quant: quantization where the name does not give it; may be empty.
        size_gib: of all its files, GiB; 0: unknown.
        tokenizer: path on the head of a model that has it in another file; else empty.

    Raises:
        InputError: for what no engine reads, and for unknown facts.
    """
    known = {name: one for name, one in engines.all_engines().items() if not one.elsewhere}
    path = PurePosixPath(text)
    readers = tuple(name for name, one in known.items() if path.suffix in one.model_suffixes)
    apart = any(known[name].tokenizer_apart for name in readers)
    if tokenizer and not apart:
        takers = (one for one in known.values() if one.tokenizer_apart)
        which = " or ".join(f"{one.name} ({', '.join(one.model_suffixes)})" for one in takers)
        raise InputError(
            f"--tokenizer goes with a model of {which}, not {quoted(text)}; leave it out."
        )
    if text == RANDOM:
        if facts_of or quant or size_gib:
            raise InputError(
                "The model 'random' has its own facts; leave --facts-of, --quant and --size-gib "
                "out."
            )
        file = random_gguf.ensure(RandomModel())
        model = replace(read_model(str(file)), name="a random llama of 8 layers")
        return ModelChoice(RANDOM, {"random": {}}, model, tuple(known))
    if not path.is_absolute() and not _HUB.fullmatch(text):
        raise InputError(
            f"--model {quoted(text)} is neither 'random', nor a path on the nodes that begins with "
            "'/', nor a name on Hugging Face such as openai/gpt-oss-120b; with --facts-of NAME the "
            "facts of a model come from elsewhere."
        )
    if apart and not tokenizer:
        raise InputError(
            f"--model {quoted(text)} has its tokenizer in a file of its own; give --tokenizer "
            "/path/to/file.t."
        )
    entry = {"path": text} if path.is_absolute() else {"id": text}
    entry |= {"tokenizer": tokenizer} if tokenizer else {}
    is_file = path.is_absolute() and bool(readers)
    folders = tuple(name for name, one in known.items() if not one.model_suffixes)
    return ModelChoice(
        re.sub(r"[^A-Za-z0-9._-]", "-", path.stem if is_file else path.name)[:_MOST],
        entry,
        _facts(text, facts_of, quant, size_gib),
        readers if is_file else folders,
    )


def _facts(text: str, facts_of: str, quant: str, size_gib: float) -> ModelDescription:
    if facts_of:
        return read_model(facts_of, quant, size_gib)
    path = Path(text)
    if path.is_absolute() and path.exists():
        return read_model(text, quant, size_gib)
    try:
        return read_model(path.stem if path.suffix == ".gguf" else path.name, quant, size_gib)
    except InputError as error:
        raise InputError(
            f"{error.message} The file {quoted(text)} is not on this machine: its facts can come "
            "from elsewhere by --facts-of NAME|FILE."
        ) from None


def engines_for(subject: ModelChoice, asked: tuple[str, ...], *, is_lab: bool) -> tuple[str, ...]:
    """The engines to choose from: those asked for, else all that read the model.

    Args:
        asked: names of engines; empty: all.
        is_lab: whether only those of this machine count.

    Raises:
        InputError: for an engine that does not read the model.
    """
    for name in asked:
        engines.find(name, "--engine")
        if name not in subject.engines:
            raise InputError(
                f"--engine {name!r} does not read {subject.model.name!r}; those that do: "
                f"{', '.join(subject.engines)}."
            )
    if asked:
        return tuple(dict.fromkeys(asked))
    here = [
        name
        for name in subject.engines
        if not is_lab or name == engines.DEFAULT or engines.find(name).find_local()
    ]
    return tuple(here)
