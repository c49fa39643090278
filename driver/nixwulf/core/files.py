"""Files: reading the input formats with errors that name file and line, and atomic writing."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import stat
import tempfile
import tomllib
from collections.abc import Hashable, Mapping
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from nixwulf.core import names
from nixwulf.core.errors import InputError, quoted
from nixwulf.core.text import did_you_mean

_NEAR = 20
_MOST_BYTES = 1 << 24
_MOST_JSON, _MOST_SIGNS = 1 << 26, 1 << 22  # a value takes up to a hundred times its text
_MOST_TOML, _MOST_YAML = 1 << 20, 1 << 18  # written by hand, and read slowly
_MOST_LEVELS = 64
_BRANCHES = (dict, list)  # to join the two anew for each value takes longer than to look
_MOST_PARTS = 32
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w.-]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS}}}")

PACKAGE = Path(str(resources.files("nixwulf")))
DATA = PACKAGE / "data"
"""What is shipped beside the code: tables, schemas, texts."""


def shipped_text(path: str) -> str:
    """A text of the package, such as 'nodes/process.sh'."""
    return (PACKAGE / path).read_text("utf-8")


@cache
def shipped_table(name: str) -> dict[str, Any]:
    """A table of data/ by its name, read once: nobody may change what it returns."""
    return read_toml(DATA / f"{name}.toml")


def cache_dir() -> Path:
    """Return the folder of built engines and models: nixwulf in $XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nixwulf"


def sha256_of(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inside(folder: Path, name: str) -> Path:
    """The path of somebody else's name in a folder; raises InputError where it leads elsewhere."""
    try:
        return names.join(folder, name)
    except names.Refusal as error:
        raise InputError(f"{error}.") from None


def require_no_links(folder: Path) -> None:
    """Raise InputError for a link in a folder that is written to, which may lead out of it."""
    if link := next((path for path in folder.rglob("*") if path.is_symlink()), None):
        raise InputError(
            f"{str(link)!r} is a link, and what a run writes stays in its folder; remove it by "
            f"'rm {shlex.quote(str(link))}', or put there what it leads to."
        )


def runtime_dir() -> Path | None:
    """$XDG_RUNTIME_DIR; None where it is not only ours, or not plain enough for ssh's options.

    Its owner could swap what is in it, as with 'sudo -E'; ssh expands '%' and splits at blanks.
    """
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    try:
        status = path.stat()
    except OSError:
        return None
    ours = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return path if ours and path.is_dir() and re.fullmatch(r"/[\w./+@,:-]*", str(path)) else None


def find_input(name_or_path: str, folder: str, suffix: str, writer: str = "") -> Path:
    """The file of a path, or of a name in a folder here or in what came with the driver.

    name_or_path: a path, or one below the folder without its suffix, such as 'smoke' or 'lab/demo'.
    writer: the command that writes such a file, up to the file's path.

    Raises InputError: there is none, with the names there are and that command.
    """
    path = Path(name_or_path)
    is_path = path.suffix == suffix or path.is_absolute()
    for place in () if is_path else _places(folder):
        named = place / f"{name_or_path}{suffix}"
        if is_there(named):
            return named
    if is_there(path) and (is_path or not path.is_dir()):
        return path
    missing = path if is_path else Path(folder) / f"{name_or_path}{suffix}"
    own = f" Write your own by '{writer} {shlex.quote(str(missing))}'." if writer else ""
    meant = did_you_mean(path.stem if is_path else name_or_path, known_inputs(folder, suffix))
    raise InputError(f"No {missing}; {meant}{own}")


def known_inputs(folder: str, suffix: str) -> list[str]:
    """The names that find_input knows in a folder, sorted."""
    files = [(place, file) for place in _places(folder) for file in place.rglob(f"*{suffix}")]
    return sorted({file.relative_to(place).with_suffix("").as_posix() for place, file in files})


def _places(folder: str) -> tuple[Path, ...]:
    return Path(folder), DATA / folder


def is_there(path: Path) -> bool:
    """Tell whether there may be a file: of one that cannot be looked at, reading it says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def find_results(path: Path) -> Path:
    """Find a path here, else among what came with the driver, else return it as it is."""
    own = DATA / path
    return own if path.parts[:1] == ("results",) and not path.exists() and own.exists() else path


def first_bytes(path: Path, count: int) -> bytes:
    """Read a regular file's first bytes, at most COUNT; raises InputError."""
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a FIFO would be waited for
            raise InputError(f"{path}: not a file.")
        with open(path, "rb", opener=_open_at_once) as file:
            return file.read(count) or b""
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}.") from None
    except ValueError as error:  # a NUL in the path
        raise InputError(f"{path}: {error}.") from None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: some of /proc wait for more, and a path may become a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The content of a regular file of at most so many bytes; raises InputError."""
    content = first_bytes(path, most + 1)
    if len(content) > most:
        raise InputError(
            f"{path}: more than {most / 2**20:g} MiB, the most that is read of such a file; keep "
            "the part that matters."
        )
    return content


def read_text(path: Path, most: int = _MOST_BYTES) -> str:
    """Text of a file; raises InputError when it is missing, no file, too long, or not UTF-8."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")  # editors of Windows write a mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file; raises InputError with the line."""
    text = read_text(path, _MOST_TOML)
    if long := _LONG_KEY.search(text):  # tomllib takes the square of a key's parts
        line = text.count("\n", 0, long.start()) + 1
        raise InputError(f"{path}: line {line}: a key of more than {_MOST_PARTS} parts.")
    try:
        document = tomllib.loads(text, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not TOML: {error}.") from None
    require_shallow(document, path)
    return document


def _finite(text: str) -> float:
    """TOML knows nan and inf; no file of ours has a use for them."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is no finite number")
    return value


def require_shallow(document: object, path: Path | str, *, numbers: bool = True) -> None:
    """Raise InputError for what functions that call themselves, or JSON's numbers, cannot hold.

    numbers: look at them too; of JSON no other can be read.
    """
    level: list[Any] = [[document]]
    for _ in range(_MOST_LEVELS):
        inner = [*chain.from_iterable(one.values() if type(one) is dict else one for one in level)]
        for value in inner if numbers else ():
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
                raise InputError(f"{path}: a number of more than 64 bits.")
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{path}: {value} is no finite number.")
        level = [value for value in inner if type(value) in _BRANCHES]
        if not level:
            return
    raise InputError(f"{path}: nested deeper than {_MOST_LEVELS} levels.")


# What Python's functions raise for a value that is not of its tag, such as 9999-99-99.
_NOT_OF_ITS_TAG = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError)

_MOST_SHARED = 1 << 14


class _PlainLoader(yaml.SafeLoader):
    """YAML as a tree of text keys: no aliases, which a few lines make endless, and no merges."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"the alias *{event.anchor}; write out what it stands for",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            return super().construct_object(node, deep)
        except _NOT_OF_ITS_TAG:
            problem = f"{quoted(node.value)} is no {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            problem = None
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key is a list or a table; it has to be text"
            elif key.tag != "tag:yaml.org,2002:str":
                problem = f"the key {quoted(key.value)} is no text; put it in quotes"
            elif key.value in keys:
                problem = f"the key {quoted(key.value)} is there twice"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


class _SharingLoader(_PlainLoader):
    """The same with aliases and merges, as compose files have, each as large as its anchor."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self.get_event()  # type: ignore[no-untyped-call]
            node = self.anchors.get(event.anchor)
        else:
            node = super().compose_node(parent, index)
            items = node.value if isinstance(node, yaml.CollectionNode) else ()
            inner = chain(*items) if isinstance(node, yaml.MappingNode) else items
            self._sizes[id(node)] = 1 + sum(self._sizes[id(one)] for one in inner)
        if not 0 < self._sizes.get(id(node), 0) <= _MOST_SHARED:
            problem = f"an alias of itself, of nothing, or of more than {_MOST_SHARED} values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            self.flatten_mapping(node)
            node.value = [*{key.value: (key, value) for key, value in node.value}.values()]
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, *, aliases: bool = False) -> Any:
    """Read a YAML file, with aliases and merges only if asked; raises InputError with the line."""
    return parse_yaml(read_text(path, _MOST_YAML), path, aliases=aliases)


def parse_yaml(text: str, path: Path | str, *, aliases: bool = False) -> Any:
    """The same of a text; path: where it is from, for the message."""
    try:
        loader = _SharingLoader if aliases else _PlainLoader
        document = yaml.load(text, loader)  # noqa: S506 - it is a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}:" if mark else ""
        raise InputError(f"{path}:{line} not YAML: {error.problem}.") from None
    except (yaml.YAMLError, *_NOT_OF_ITS_TAG, RecursionError) as error:
        raise InputError(f"{path}: not YAML: {error}.") from None
    require_shallow(document, path)
    return document


def read_json(path: Path) -> Any:
    """The document of a JSON file; raises InputError with the line.

    Strict where the standard library is not: no NaN, no number beyond 64 bits, no half of a
    character, no bottomless nesting.
    """
    return parse_json(read_text(path, _MOST_JSON), path)


def parse_json(text: str, source: Path | str) -> Any:
    """The same of a text; source: where it is from, for the message."""
    import orjson

    if len(text) > _MOST_JSON or sum(map(text.count, ",:[{")) > _MOST_SIGNS:
        raise InputError(
            f"{source}: more than {_MOST_JSON >> 20} MiB, or {_MOST_SIGNS >> 20} million values "
            "and keys."
        )
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        near = text[error.pos : error.pos + _NEAR].split("\n", maxsplit=1)[0]
        at = f" at {near!r}" if near else ""
        raise InputError(f"{source}: line {error.lineno}: not JSON: {error.msg}{at}.") from None
    require_shallow(document, source, numbers=False)
    return document


ELSEWHERE = "free some space or choose another folder with --out"


def write_atomically(path: Path, content: str | bytes, remedy: str = ELSEWHERE) -> None:
    """Write a whole UTF-8 file or nothing: no reader sees a part; raises InputError."""
    data = content.encode() if isinstance(content, str) else content
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(f"Cannot write {str(path)!r}: {error.strerror}; {remedy}.") from None


def write_json(path: Path, document: object) -> None:
    """Write a JSON document atomically, keys in the order given."""
    write_atomically(path, as_json(document))


def titled(kind: str, body: Mapping[str, object]) -> dict[str, object]:
    """A command's own JSON document: its version, what it is, and what it holds, in that order."""
    return {"schema_version": "1.0", "kind": kind, **body}


def as_json(document: object) -> str:
    """The text of a JSON document, keys in the order given."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
