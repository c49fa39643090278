"""Command lines that start an engine: what their flags are in a sweep.

data/command_lines has a table an engine. What a table does not have stays in `arguments`; flags
that the driver sets itself (reserved_arguments of the engine) are left out by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.schema import check
from nixwulf.core.text import did_you_mean
from nixwulf.sweep.recipes.recipe import Value

_FOLDER = DATA / "command_lines"
# vLLM's 32k is 32,000 and 32K 32,768 (https://docs.vllm.ai/en/latest/cli/serve/).
_NUMBER = re.compile(r"(-?\d{1,12})([kKmM]?)")
_TIMES = {"": 1, "k": 1000, "K": 1 << 10, "m": 1_000_000, "M": 1 << 20}
_LOOPBACK = ("127.", "localhost", "[::1]")
_LIKE_A_VALUE = re.compile(r"-[\d.,]+")


@dataclass(frozen=True)
class Flag:
    """What a flag is in a sweep.

    key: a parameter of the engine or the benchmark, a key of the sweep (seed, samples, warm_up),
    model, hub, nodes, parallelism, or empty. reads: how its value becomes one; by_value: or by a
    table, in which the empty text is the flag alone. parallelism: of the nodes that it gives. why:
    no value of it, or no other one, has a meaning.
    """

    key: str = ""
    reads: str = "text"
    by_value: Mapping[str, Value] = field(default_factory=dict)
    parallelism: str = ""
    why: str = ""

    @property
    def alone(self) -> bool:
        """Whether it may come without a value."""
        return "" in self.by_value

    def value(self, text: str) -> Value | None:
        """What a value stands for; None where a sweep has no such value."""
        if self.by_value:
            return self.by_value.get(text)
        if self.reads == "guess":
            return 2
        if self.reads == "count":
            return text.count(",") + 1
        if self.reads in ("peers", "workers"):
            # The head's own server on its loopback is no node more.
            return 1 + sum(not one.startswith(_LOOPBACK) for one in re.split(r"[ ,]+", text))
        if self.reads == "shares":
            return "even" if len(set(re.split("[,/]", text))) == 1 else None
        if self.reads == "percent":
            share = re.fullmatch(r"\d{0,3}\.?\d{0,9}", text)
            number = float(text) if share and text.strip(".") else 0
            return round(number * 100) if 0 < number <= 1 else None
        if self.reads in ("int", "context"):
            whole = _NUMBER.fullmatch(text)
            return int(whole[1]) * _TIMES[whole[2]] if whole else None
        return text


@dataclass(frozen=True)
class CommandLine:
    """One kind of command line of an engine.

    begins: the programs that it begins with, each as words apart. benchmark: what measures what it
    starts. several: whether values are lists, as of a benchmark's. model_first: whether the model
    is its first word. otherwise: parameters where no flag gives them; otherwise_on_several: and on
    several nodes. limits: seconds of a run. images: parts of the names of containers that start it.
    variables: flags of variables that say the same.
    """

    engine: str
    begins: tuple[str, ...]
    benchmark: str
    flags: Mapping[str, Flag]
    several: bool = False
    model_first: bool = False
    otherwise: Mapping[str, Value] = field(default_factory=dict)
    otherwise_on_several: Mapping[str, Value] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> Flag | None:
        """By its name, or by a beginning of that name, which argparse takes for it."""
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in self.flags:
            return self.flags[name]
        long = name.startswith("--") and len(name) > len("--xx")
        found = [flag for known, flag in self.flags.items() if long and known.startswith(name)]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class CommandTable:
    """The command lines of an engine, and how recipes name it.

    runtimes: names that recipes have for it. keys: flags of keys of a recipe's defaults that are
    called otherwise. config: the command whose flags a configuration file has as keys, or empty.
    """

    commands: tuple[CommandLine, ...]
    runtimes: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    config: str = ""


@cache
def tables() -> tuple[CommandTable, ...]:
    """Every table; raises InputError."""
    return tuple(map(_load, sorted(_FOLDER.glob("*.toml"))))


def _load(path: Path) -> CommandTable:
    document = read_toml(path)
    check(document, "command-lines", str(path))
    shared = _flags(document.get("flags", {}))
    lines = tuple(
        CommandLine(
            engine=document["engine"],
            begins=tuple(one["begins"]),
            benchmark=one["benchmark"],
            flags={**shared, **_flags(one.get("flags", {}))},
            several=one.get("several", False),
            model_first=one.get("model_first", False),
            otherwise=one.get("otherwise", {}),
            otherwise_on_several=one.get("otherwise_on_several", {}),
            limits=document["limits"],
            images=tuple(one.get("images", ())),
            variables=one.get("variables", {}),
        )
        for one in document["commands"]
    )
    runtimes, keys = tuple(document.get("runtimes", ())), document.get("keys", {})
    return CommandTable(lines, runtimes, keys, document.get("config", ""))


def _flags(rows: Mapping[str, Mapping[str, object]]) -> dict[str, Flag]:
    """Each name of each row with what it is."""
    return {
        name: Flag(
            key=str(row.get("key", "")),
            reads=str(row.get("as", "text")),
            by_value=row.get("values", {}),  # type: ignore[arg-type]
            parallelism=str(row.get("parallelism", "")),
            why=str(row.get("why", "")),
        )
        for names, row in rows.items()
        for name in names.split()
    }


def find(words: Sequence[str]) -> tuple[CommandLine, Sequence[str]] | None:
    """The kind of a command line and the words after its program, or None."""
    for line in (line for table in tables() for line in table.commands):
        for begins in (begin.split() for begin in line.begins):
            programs = [_program(word) for word in words[:1]]
            if [*programs, *words[1 : len(begins)]] == begins:
                return line, words[len(begins) :]
    return None


def _program(word: str) -> str:
    """A program without its folder; of Python without its version."""
    name = PurePosixPath(word.replace("\\", "/")).name.removesuffix(".exe")
    return re.sub(r"^python3?\.\d+$", "python3", name)


def of_image(image: str, words: Sequence[str]) -> tuple[str, ...]:
    """The command of a container whose image starts an engine by itself; else nothing."""
    for line in (line for table in tables() for line in table.commands):
        if any(one in image for one in line.images):
            return (*line.begins[0].split(), *words)
    return ()


def require(words: Sequence[str], source: str) -> tuple[CommandLine, Sequence[str]]:
    """The same; raises InputError where no engine is started so."""
    if found := find(words):
        return found
    known = [begin for table in tables() for line in table.commands for begin in line.begins]
    raise InputError(
        f"{source}: the command begins with {quoted(' '.join(words[:2]))}, which starts no engine "
        f"that is known; {did_you_mean(' '.join(words[:2]), known)}"
    )


def config_command() -> tuple[str, ...]:
    """The words of the command that takes a configuration file of flags."""
    return tuple(next(table.config for table in tables() if table.config).split())


def groups(words: Iterable[str]) -> list[list[str]]:
    """Each flag with the words up to the next one; first the words before the first flag."""
    found: list[list[str]] = [[]]
    for word in words:
        if len(word) > 1 and word.startswith("-") and not _LIKE_A_VALUE.fullmatch(word):
            found.append([word])
        else:
            found[-1].append(word)
    return found
