"""Command lines as they are pasted from a page or a terminal, one or more in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA, read_toml
from nixwulf.sweep.recipes.command_lines import find, of_image
from nixwulf.sweep.recipes.recipe import Omission, Start
from nixwulf.sweep.recipes.shell import ShellCommand, ShellError, commands, refusal

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_NAMED = re.compile(r"[A-Z_][A-Z0-9_]*(?:=|$)|\w+=")
_PROMPT = re.compile(
    r"^[ \t]*(?:>[ \t])?(?:\$ |(?:\([\w.-]+\) ?)?\[?[\w.-]+@[\w.-]+[^\n$#]{0,80}[$#] )",
    re.MULTILINE,
)
_QUOTE = re.compile(r"^[ \t]*>(?:[ \t]|$)", re.MULTILINE)
_UNQUOTED = re.compile(r"^[ \t]*[^>\s]", re.MULTILINE)
_SHOWN = re.compile(r"[ \t]\^[ \t]*\n|\\[ \t]*\n[ \t]*>[ \t]|\\[ \t]+#[^\n]*\n")
# Whatever they are, the driver sets them.
_UNUSED = re.compile(
    r"(--(?:api-key|port|host|hf-token|token)[ =])([\"']?)\$\{?\w+\}?\2(?=[\s']|$)"
)
_DRIVE = re.compile(r"\b[A-Za-z]:\\[^\s\"']*")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_SET = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)=(['\"]?)([^\s'\"$`]+)\2[ \t]*$", re.MULTILINE)
_DEFAULT = re.compile(r"\$\{\w+:?-([^\s'\"$`{}]+)\}")
# What a container is given by its caller's shell: a variable, folders and ports.
_HANDED = re.compile(r"((?:-e|--env)[ =])(\w+)=[\"']?\$\{?\w+\}?[\"']?(?=\s|$)")
_CONTAINER = re.compile(r"\b(?:docker|podman|nerdctl)\b")
_MOUNTED = re.compile(
    r"(?:-v|--volume|-p|--publish|--mount|-u|--user|-w|--name)[ =](?:\$\([^)\n]*\)|[^\s$]|\$)+"
)
_CONTINUES = re.compile(r"\\[ \t]*$")
_SHELLS = ("bash", "sh", "zsh")
_IN_TOOLBOX = "the parameter toolbox takes an image, else the engine on PATH of each node"
_OTHER_NODE = "the driver starts the other nodes"
_CLIENT = "the benchmark of the sweep asks; import its command alone to have its lengths"
_NOT_RUN = "commands of a shell are never run here"


@cache
def _wrappers() -> dict[str, Any]:
    return read_toml(DATA / "wrappers.toml")


def recognises(text: str) -> bool:
    """Whether a command of a text starts an engine; also where a shell would have more to do."""
    return any(_begins(line) for line in _plain(text).splitlines())


def read(text: str, source: str) -> list[Start]:
    """What each command of a text starts; raises InputError for a shell's work, with its line.

    Where one starts an engine, the others are left out by name.
    """
    plain = _plain(text)
    problem: ShellError | None = None
    # Of a page or a script what starts an engine may still be a plain command.
    for attempt in (starts, _own_starts):
        try:
            found = attempt(plain)
        except ShellError as error:
            problem = problem or error
            continue
        engines = [one for one in found if find(one.words)]
        if engines:
            rest = [" ".join(one.words) for one in found if one not in engines and one.words]
            left = (*(Omission(one, _NOT_RUN) for one in rest), *engines[0].left_out)
            return without_workers([replace(engines[0], left_out=left), *engines[1:]])
    if problem:
        raise refusal(problem, plain.split("\n")[problem.line - 1], problem.line, source)
    if other := next((one for one in found if _is_other((*one.words, "")[0])), None):
        raise InputError(
            f"{source}: line {other.line}: {quoted(other.words[0])} is no engine that nixwulf "
            "starts; start it yourself, and measure it with the engine 'endpoint' and its url."
        )
    return found


def _own_starts(plain: str) -> list[Start]:
    """What the lines of engines start, and every other line as left out; raises ShellError."""
    own, lines = _own_lines(plain), _apart(plain)
    first, *more = starts("\n".join(one * (n in own) for n, one in enumerate(lines, 1))) or [
        Start(())
    ]
    rest = [one.strip() for n, one in enumerate(lines, 1) if one.strip() and n not in own]
    left = tuple(Omission(one, _NOT_RUN) for one in rest)
    return [replace(first, left_out=(*left, *first.left_out)), *more]


def without_workers(found: Sequence[Start]) -> list[Start]:
    """Without the commands of other nodes, which are the head's with another rank."""
    kept = [one for one in found if not _is_worker(one.words)]
    left = [
        Omission(" ".join(one.words), _CLIENT if "bench" in one.words else _OTHER_NODE)
        for one in found
        if one not in kept
    ]
    if not kept:
        return list(found)
    return [replace(kept[0], left_out=(*kept[0].left_out, *left)), *kept[1:]]


def _is_worker(words: Sequence[str]) -> bool:
    text = " ".join(words)
    rank = re.search(r"--node-rank[ =](\d+)", text)
    return bool(
        (rank and int(rank[1])) or "--headless" in words or words[1:2] in (("worker",), ("bench",))
    )


def _apart(text: str) -> list[str]:
    """The lines of a text, with each command that && joins to others in one of its own."""
    return re.sub(r"&&(?=\s)", "\n", text).split("\n")


def _own_lines(text: str) -> set[int]:
    """The numbers of the lines that are commands of an engine, with those that they go on in."""
    found: set[int] = set()
    lines = _apart(text)
    for number, line in enumerate(lines, 1):
        goes_on = number - 1 in found and _CONTINUES.search(lines[number - 2])
        if goes_on or _begins(line):
            found.add(number)
    return found


def _begins(line: str) -> bool:
    try:
        found = [one for each in commands(_CONTINUES.sub("", line)) for one in split_start(each)]
    except ShellError:
        words = tuple(line.split())
        at = next((n for n in range(len(words)) if find(words[n:])), 0)
        found = [Start(words[at:])]
    return any(find(one.words) or _is_other((*one.words, "")[0]) for one in found)


def _is_other(word: str) -> bool:
    """Whether a word is a program that serves a model and that no engine is."""
    return PurePosixPath(word).name in _wrappers()["others"]


def starts(text: str) -> list[Start]:
    """The same of a text without prompts and fences; raises ShellError.

    Variables that it exports are of the commands after them.
    """
    found: list[Start] = []
    exported: dict[str, str | None] = {}
    for start in (one for command in commands(text) for one in split_start(command)):
        if start.words[:1] in ((), ("export",)):
            exported |= start.environment
            exported |= {name: value for word in start.words[1:] for name, value in [_pair(word)]}
        else:
            found.append(replace(start, environment={**exported, **start.environment}))
    return found


def split_start(command: ShellCommand) -> list[Start]:
    """The variables before a program, and the program, without what it runs in; raises ShellError.

    Of a shell's -c each command of its text.
    """
    words, at = command.words, 0
    environment: dict[str, str | None] = {}
    while at < len(words) and (_ASSIGNED.match(words[at]) or words[at] == "env"):
        environment |= dict([_pair(words[at])]) if "=" in words[at] else {}
        at += 1
    words = words[at:]
    program = PurePosixPath(words[0]).name if words else ""
    if program in _wrappers()["launchers"]:
        found = [_launched(words)]
    else:
        found = _unwrapped(words, program) if program in _wrappers()["wrappers"] else [Start(words)]
    left = tuple(Omission(one, _NOT_RUN) for one in command.dropped)
    return [
        replace(
            one,
            environment={**environment, **one.environment},
            line=command.line,
            left_out=(*left, *one.left_out),
        )
        for one in found
    ]


def _unwrapped(words: Sequence[str], program: str) -> list[Start]:
    """What a wrapper starts: an engine, a text for a shell, or what an image starts by itself."""
    places = range(1, len(words))
    inside = next((n for n in places if find(words[n:])), 0)
    inside = inside or next((n for n in places if _is_other(words[n])), 0)
    shells = [n for n, word in enumerate(words[:-2]) if PurePosixPath(word).name in _SHELLS]
    image = next((n for n in places if of_image(words[n], words[n + 1 :])), 0)
    before, found = words[:inside], [Start(tuple(words[inside:]))]
    if not inside and (shells or (not image and " " in words[-1])):  # bash -c TEXT
        before = words[: shells[0] if shells else -1] or words[:1]
        found = [one for inner in commands(words[-1]) for one in split_start(inner)]
    elif not inside and image:
        before = words[: image + 1]
        found = [Start(of_image(words[image], words[image + 1 :]))]
    environment: dict[str, str | None] = {}
    for name, value in zip(before, (*before[1:], ""), strict=False):
        option, _, joined = name.partition("=")
        if option in _wrappers()["variables"] and _NAMED.match(joined or value):
            environment |= dict([_pair(joined or value)])
        elif _ASSIGNED.match(name) and not _CONTAINER.fullmatch(program):
            environment |= dict([_pair(name)])
    shown = " ".join(one for one in before if one != "--")
    around = [] if not before or program in _wrappers()["plain"] else [Omission(shown, _IN_TOOLBOX)]
    return [
        replace(
            one,
            environment={**environment, **one.environment},
            left_out=(*around, *one.left_out),
        )
        for one in found
    ]


def _launched(words: Sequence[str]) -> Start:
    """Of a launcher its options and those of the program that it starts on each node."""
    kept: list[str] = []
    left: list[Omission] = []
    environment: dict[str, str | None] = {}
    given = iter(words)
    for word in given:
        option, _, joined = word.partition("=")
        python = left and left[-1].what.rpartition("/")[2].startswith("python")
        if option in _wrappers()["variables"]:
            environment |= dict([_pair(joined or next(given, ""))])
        elif kept and re.fullmatch(_wrappers()["launched"], PurePosixPath(word).name):
            left.append(Omission(word, "the driver starts the engine's own program"))
        elif word != "--" and not (word == "-m" and python):
            kept.append(word)
    return Start(tuple(kept), environment, left_out=tuple(left))


def _pair(word: str) -> tuple[str, str | None]:
    """NAME=VALUE; of a name alone the driver's own value."""
    name, equals, value = word.partition("=")
    return name, value if equals else None


def _plain(text: str) -> str:
    """Without a byte order mark, quotes, prompts and fences; each line stays where it is.

    Lines go on as in cmd (^) too, as a shell shows it, and with a comment behind the backslash; a
    drive's path has slashes. A variable that the text itself sets, and the default of one that it
    does not, stand for it.
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    plain = plain if _UNQUOTED.search(plain) else _QUOTE.sub("", plain)
    plain = _SHOWN.sub("\\\\\n", _FENCE.sub("", _PROMPT.sub("", plain)))
    plain = _DRIVE.sub(lambda one: one[0].replace("\\", "/"), plain)
    plain = _UNUSED.sub(r"\1...", _DEFAULT.sub(r"\1", plain).replace('"$@"', "$@"))
    if _CONTAINER.search(plain):
        plain = _MOUNTED.sub(
            lambda one: re.sub(r"[$(){}~]", "", one[0]), _HANDED.sub(r"\1\2", plain)
        )
    for name, _, value in _SET.findall(plain):
        named = re.compile(rf"\$(?:\{{{name}\}}|{name}\b)")
        if named.search(plain):
            plain = re.sub(rf"^[ \t]*{name}=[^\n]*$", "", plain, flags=re.MULTILINE)
            plain = named.sub(lambda _, value=value: value, plain)  # type: ignore[misc]
    return plain
