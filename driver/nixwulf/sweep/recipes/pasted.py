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
from nixwulf.outputs.runs import rewritten
from nixwulf.sweep.recipes import MOST_TEXT, Omission, Start
from nixwulf.sweep.recipes.command_lines import (
    ShellCommand,
    ShellError,
    commands,
    find,
    of_image,
    refusal,
)

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_GIVEN = re.compile(r"[A-Z_][A-Z0-9_]*=(?!=)")
_NAMED = re.compile(r"[A-Z_][A-Z0-9_]*(?:=|$)|\w+=")
_QUOTE = re.compile(r"^[ \t]*>(?:[ \t]|$)", re.MULTILINE)
_UNQUOTED = re.compile(r"^[ \t]*[^>\s]", re.MULTILINE)
_DRIVE = re.compile(r"(?:\b[A-Za-z]:|(?<![\w.])\.)\\[^\s\"'`]*")
_SET = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)=(['\"]?)([^\s'\"$`]+)\2[ \t]*$", re.MULTILINE)
# What a container is given by its caller's shell: a variable, folders and ports.
_CONTAINER = re.compile(r"\b(?:docker|podman|nerdctl)\b")
_MOUNTED = re.compile(
    r"(?:-v|--volume|-p|--publish|--mount|-u|--user|-w|--name)[ =](?:\$\([^)\n]*\)|[^\s$]|\$)+"
)
_ENDS = re.compile(r"(?<!\\)\n")
_EXPORT = re.compile(r"[ \t]*export[ \t]+\w+=[^$`;|&]*$")
_ALIAS = re.compile(r"^[ \t]*alias[ \t]+([\w.-]+)=(['\"])([^\n'\"]*)\2[ \t]*$", re.MULTILINE)
# A loop over values that are written out, without a loop in it.
_LOOP = re.compile(
    r"^[ \t]*for[ \t]+(\w+)[ \t]+in[ \t]+([^;\n$`*?{}()|&<>]{1,500}?)[ \t]*(?:;[ \t]*|\n[ \t]*)do\b"
    r"((?:(?!\b(?:for|while|until)[ \t]|\bdone\b).){1,4000})\bdone\b",
    re.MULTILINE | re.DOTALL,
)
_MOST_ROUNDS = 64
_DEEPEST_LOOPS = 3
_LONGEST_BEGIN = 4  # words
_SHELLS = ("bash", "sh", "zsh")
_ENTER = ("C-m", "C-M", "Enter", "ENTER", "^M")  # of tmux send-keys, behind the text that is typed
_IN_TOOLBOX = "the parameter toolbox takes an image, else the engine on PATH of each node"
_OTHER_NODE = "the driver starts the other nodes"
_CLIENT = "the benchmark of the sweep asks; import its command alone to have its lengths"
_NOT_RUN = "commands of a shell are never run here"


@cache
def _wrappers() -> dict[str, Any]:
    return read_toml(DATA / "wrappers.toml")


def recognises(text: str) -> bool:
    """Whether a command of a text starts an engine; also where a shell would have more to do."""
    return any(map(_known, _statements(_plain(text))))


def read(text: str, source: str) -> list[Start]:
    """What each command of a text starts; raises InputError for a shell's work, with its line.

    Where one starts an engine, the others are left out by name.
    """
    plain = _plain(text)
    found: list[Start] = []
    problem: ShellError | None = None
    # Of a page or a script what starts an engine may still be a plain command.
    for attempt in (starts, _own_starts):
        try:
            here = attempt(plain)
        except ShellError as error:
            problem = problem or error
            continue
        found = found or here
        engines = [one for one in here if find(one.words)]
        if engines:
            rest = [" ".join(one.words) for one in here if one not in engines and one.words]
            left = (*(Omission(one, _NOT_RUN) for one in rest), *engines[0].left_out)
            return without_workers([replace(engines[0], left_out=left), *engines[1:]])
    known = [one for one in map(_known, _statements(plain)) if one]
    if known and not any(map(find, known)):
        line = plain.count("\n", 0, plain.find(known[0][0])) + 1
        raise InputError(
            f"{source}: line {line}: {quoted(known[0][0])} is no engine that nixwulf starts; "
            "start it yourself, and measure it with the engine 'endpoint' and its url."
        )
    if problem:
        raise refusal(problem, plain.split("\n")[problem.line - 1], problem.line, source)
    return found


def _statements(text: str) -> list[str]:
    """The lines of a text, each with those that it goes on in; && joins several in one."""
    return _ENDS.split(re.sub(r"&&(?=\s)", "\n", text))


def _own_starts(plain: str) -> list[Start]:
    """What statements of engines start, and every other as left out; raises ShellError."""
    every = _statements(plain)
    own = [bool(_EXPORT.match(one) or _known(one)) for one in every]
    lines = (one if mine else "\n" * one.count("\n") for one, mine in zip(every, own, strict=True))
    first, *more = starts("\n".join(lines)) or [Start(())]
    rest = [one.strip() for one, mine in zip(every, own, strict=True) if one.strip() and not mine]
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


def _known(statement: str) -> Sequence[str]:
    """The words of an engine, or of another program that serves a model; empty where none is."""
    try:
        found = [one.words for each in commands(statement) for one in split_start(each)]
    except ShellError:
        words = tuple(statement.replace("\\\n", " ").split())
        wrapped = PurePosixPath((*words, "")[0]).name in _wrappers()["wrappers"]
        found = [
            words[n:] if wrapped or find(words[n : n + _LONGEST_BEGIN]) else ()
            for n in range(len(words))
            if find(words[n : n + _LONGEST_BEGIN]) or _is_other(words[n])
        ]
    return next((one for one in found if find(one) or _is_other((*one, "")[0])), ())


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
    words = _of_package(words[at:])
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


def _of_package(words: tuple[str, ...]) -> tuple[str, ...]:
    """The program and its arguments behind `nix run FLAKE#PACKAGE --`; else the words."""
    if words[:2] != ("nix", "run") or "--" not in words:
        return words
    end = words.index("--")
    package = next((one for one in words[2:end] if "#" in one), "").rpartition("#")[2]
    program = _wrappers()["main_programs"].get(package, package)
    inside = (program, *words[end + 1 :])
    return inside if find(inside) else words


def _unwrapped(words: Sequence[str], program: str) -> list[Start]:
    """What a wrapper starts, with the variables that it gives and itself as left out."""
    before, found = _inside(words)
    environment: dict[str, str | None] = {}
    for name, value in zip(before, (*before[1:], ""), strict=False):
        option, _, joined = name.partition("=")
        if option in _wrappers()["variables"] and _NAMED.match(joined or value):
            environment |= dict([_pair(joined or value)])
        elif _GIVEN.match(name) and not _CONTAINER.fullmatch(program):
            environment |= dict([_pair(name)])
    shown = " ".join(one for one in before if one != "--")
    around = [] if not before or program in _wrappers()["plain"] else [Omission(shown, _IN_TOOLBOX)]
    return [
        replace(
            one, environment={**environment, **one.environment}, left_out=(*around, *one.left_out)
        )
        for one in found
    ]


def _inside(words: Sequence[str]) -> tuple[Sequence[str], list[Start]]:
    """The words of a wrapper, and the engine, the text for a shell or the image in it."""
    typed = next((n for n in range(len(words), 1, -1) if words[n - 1] not in _ENTER), 1)
    words = words[:typed]
    places = range(1, len(words))
    for known in (lambda n: find(words[n : n + _LONGEST_BEGIN]), lambda n: _is_other(words[n])):
        if inside := next(filter(known, places), 0):
            return words[:inside], [Start(tuple(words[inside:]))]
    image = next((n for n in places if of_image(words[n], ())), 0)
    shell = next((n for n in places[:-1] if PurePosixPath(words[n]).name in _SHELLS), 0)
    shell = shell if len(words) > shell + 2 else 0
    if shell or (not image and " " in words[-1]):  # bash -c TEXT
        texts = commands(words[-1])
        return words[: shell or -1] or words[:1], [
            one for each in texts for one in split_start(each)
        ]
    if image:
        return words[: image + 1], [Start(of_image(words[image], words[image + 1 :]))]
    return (), [Start(tuple(words))]


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

    Lines go on as a shell has them. A variable that the text itself sets, and the default of one
    that it does not, stand for it; so does the text of an alias. A loop over values that are
    written out is its commands, once for each value.
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    plain = plain if _UNQUOTED.search(plain) else _QUOTE.sub("", plain)
    plain = rewritten(plain, DATA / "wrappers.toml")
    plain = _DRIVE.sub(lambda one: one[0].replace("\\", "/"), plain)
    if _CONTAINER.search(plain):
        plain = _MOUNTED.sub(lambda one: re.sub(r"[$(){}~]", "", one[0]), plain)
    for name, _, value in _SET.findall(plain):
        use = rf"\$(?:\{{{name}\}}|{name}\b)"
        plain = _instead(plain, rf"^[ \t]*{name}=[^\n]*$", use, value)
    for _ in range(_DEEPEST_LOOPS):
        plain = _LOOP.sub(_rounds, plain)
    for name, _, value in _ALIAS.findall(plain):
        use = rf"^[ \t]*{name}(?=[ \t])"
        plain = _instead(plain, rf"^[ \t]*alias[ \t]+{name}=[^\n]*$", use, value)
    return plain


def _rounds(loop: re.Match[str]) -> str:
    """The commands of a loop: the first round on its own lines, the others on the last of them."""
    name, values, body = loop[1], loop[2].split(), loop[3].rstrip().removesuffix(";")
    use = re.compile(rf"\$(?:\{{{name}\}}|{name}\b)")
    if not 0 < len(values) <= _MOST_ROUNDS or "#" in body or len(loop[0]) * len(values) > MOST_TEXT:
        return loop[0]
    values = values if use.search(body) else values[:1]
    head, tail = (
        loop[0][: loop.start(3) - loop.start()],
        loop[0][loop.start(3) - loop.start() + len(body) :],
    )
    rounds = [use.sub(lambda _, value=value: value, body) for value in values]
    one_line = [re.sub(r"\\\n", " ", one).strip() for one in rounds[1:]]
    more = [re.sub(r"[ \t]*\n\s*", " && ", one) for one in one_line]
    return "\n" * head.count("\n") + " && ".join([rounds[0], *more]) + "\n" * tail.count("\n")


def _instead(text: str, definition: str, use: str, value: str) -> str:
    """A text with a value where it is used, if it is, and then without its definition."""
    if not re.search(use, text, re.MULTILINE):
        return text
    text = re.sub(definition, "", text, flags=re.MULTILINE)
    return re.sub(use, lambda _: value, text, flags=re.MULTILINE)
