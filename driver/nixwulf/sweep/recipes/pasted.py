"""Command lines as they are pasted from a page or a terminal, one or more in a text.

A text is read from its beginning to its end and never run: in a command a variable has the value
that the text gave it last. What only a shell could tell is left out by name, or refused by its
line where no command is left.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, dropwhile
from pathlib import PurePosixPath

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA
from nixwulf.core.secrets import is_secret
from nixwulf.outputs.runs import rewritten
from nixwulf.sweep.recipes import Omission, RecipeFile, Start
from nixwulf.sweep.recipes.command_lines import (
    RE,
    ShellCommand,
    ShellError,
    commands,
    find,
    lines,
    of_entrypoint,
    of_image,
    of_just,
    of_make,
    of_package,
    of_request,
    pair,
    placeholder,
    refusal,
    started,
    with_hosts,
    without_page,
    wrappers,
)

_Values = Mapping[str, str | None]
_APART = "\v"  # between commands of one sentence
_LONGEST_BEGIN = 4  # words
_WHY: Mapping[str, str] = wrappers()["why"]
_FARTHEST_QUOTE = 8000  # characters
_CLOSED_BY: Mapping[str, str] = wrappers()["closed_by"]
_SHAPES: Mapping[str, str] = wrappers()["shapes"]
_MOST_ROUNDS, _DEEPEST = 64, 4
_LONGEST_VALUE = 4000  # characters


@cache
def mentioned() -> re.Pattern[str]:
    """What a text has that starts an engine or another program: its first word or its image."""
    rows = wrappers()
    names = [*rows["others"], *rows["by_name"], *rows["main_programs"], *rows["flakes"]]
    for line in lines():
        names += [*line.images, *(one.split()[0] for one in line.begins)]
    return re.compile("|".join(map(re.escape, names)))


def recognises(text: str) -> bool:
    """Whether a command of a text starts an engine; also where a shell would have more to do."""
    script = _Script()
    try:
        script.run(_plain(text), 1)
    except ShellError:
        return True
    known = any(_is_other(x.words[0]) or find(x.words[1:]) for x in script.others)
    return bool(script.found or script.unsure) or known


def read(text: str, source: RecipeFile, values: Mapping[str, str] | None = None) -> list[Start]:
    """What each command of a text starts; raises InputError for a shell's work, with its line.

    values: of variables that are set before. Where a command starts an engine, the others are left
    out by name.
    """
    plain = _plain(text)
    script = _Script(values or {}, source)
    problem: ShellError | None = None
    try:
        script.run(plain, 1)
    except ShellError as error:
        problem = error
    if problem is None and script.found:
        first, *more = script.found
        queue = [Omission(one, _WHY["queued"]) for one in re.findall(wrappers()["queue"], plain)]
        left = (*queue, *script.left, *script.left_behind(), *first.left_out)
        found = without_workers([replace(first, left_out=left), *more])
        return [replace(one, line=source.line(" ".join(one.words), one.line)) for one in found]
    known = next((one for one in script.others if _is_other(one.words[0])), None)
    if known and not problem:
        line = source.line(" ".join(known.words), known.line)
        named = PurePosixPath(known.words[0]).name in wrappers()["by_name"]
        why = wrappers()["named" if named else "other"]
        raise InputError(f"{source}: line {line}: {quoted(known.words[0])} {why}.")
    if problem := problem or next(iter([*script.unsure, *script.problems]), None):
        shown, line = _shown(problem, plain)
        for one in re.findall(r"%(\w+)%", text):  # cmd's, as they are written
            shown = shown.replace(f"${{{one}}}", f"%{one}%")
        raise refusal(problem, shown, source.line(shown, line), f"{source}")
    inline = (one for one in script.others if one.words[0] in wrappers()["blocks"])
    if (block := next(inline, None)) and any(find(one.words[1:]) for one in script.others):
        at = ShellError(block.line, wrappers()["blocks"][block.words[0]])
        raise refusal(at, " ".join(block.words), block.line, f"{source}")
    return [replace(one, line=source.line(" ".join(one.words), one.line)) for one in script.others]


@dataclass
class _Script:
    """What the commands of a text start, one after the other.

    given: the variables that it has from elsewhere. values: of all variables, None where only a
    shell knows it. spent: those of which others are made. unsure: engines of which only a shell
    can tell whether they run. problems: commands of no engine that cannot be read. script, ended:
    whether it is a file that begins with '#!', and whether that has ended.
    """

    given: Mapping[str, str | None] = field(default_factory=dict)
    source: RecipeFile = field(default_factory=RecipeFile)
    values: dict[str, str | None] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    spent: set[str] = field(default_factory=set)
    found: list[Start] = field(default_factory=list)
    others: list[Start] = field(default_factory=list)
    left: list[Omission] = field(default_factory=list)
    unsure: list[ShellError] = field(default_factory=list)
    problems: list[ShellError] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    script: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        self.values |= self.given
        self.used |= {*self.given}

    def run(self, text: str, line: int, depth: int = 0) -> None:
        """Take the commands of a text whose first line has this number; raises ShellError."""
        self.script |= text.startswith("#!")
        for at, block, shape in _blocks(_lines(text)):
            number, kind = line + at, "exit" if self.ended else shape
            if kind in ("for", "while", "until") and depth < _DEEPEST:
                self._loop(block, number, depth)
            elif kind:
                self._unsure(block, number, wrappers()["blocks"][kind])
            else:
                for one in block.split(_APART):
                    self._chains(one, number)

    def left_behind(self) -> list[Omission]:
        """What is left out though it may be meant: unsure engines, variables that nobody has."""
        used = self.exported | self.used
        own = [name for name, one in self.values.items() if one is not None and name not in used]
        return [
            *(
                Omission(one.named, f"it is in {one.what}, and only a shell tells whether it runs")
                for one in self.unsure
            ),
            *(Omission(name, "it is not exported, and no command uses it") for name in own),
        ]

    def _loop(self, block: str, line: int, depth: int) -> None:
        """A loop over values that are written out once for each; one without end once."""
        names, values, body = [], [""], RE["endless"].match(block)
        if each := RE["for"].match(block):
            body, names, listed = each, [each[1]], self.filled(each[2])
            plain = not RE["pattern"].search(re.sub(RE["piece"], "", listed))
            values = [word for one in commands(listed) for word in one.words] if plain else []
        if not body or not 0 < len(values) <= _MOST_ROUNDS or self.rounds > _MOST_ROUNDS**2:
            self._unsure(block, line, "a loop")
            return
        text = body[body.lastindex or 0].rstrip().removesuffix(";")
        begin = line + block.count("\n", 0, body.start(body.lastindex or 0))
        uses = re.search(rf"\$\{{?{names[0]}\b", text) if names else None
        for value in values if uses else values[:1]:
            self.rounds += 1
            self.values |= dict.fromkeys(names, value)
            self.used |= {*names}
            self.run(text, begin, depth + 1)
        self.values |= dict.fromkeys(names, values[-1])

    def _unsure(self, block: str, line: int, what: str) -> None:
        """A block whose commands may be run or not, and what it sets."""
        self._forget(block)
        engines = [one for one in RE["inner"].split(block) if _known(one)]
        self.unsure += [ShellError(line, what, named=self._named(one, line)) for one in engines]
        if not engines:
            self._leave(block, line)

    def _forget(self, text: str) -> None:
        """Of variables that a text sets in a way that only a shell can follow no value is known."""
        names = [*RE["sets"].findall(text)]
        names += [
            name
            for words in RE["reads"].findall(text)
            for name in re.findall(r"\w+", "".join(words))
        ]
        self.values |= dict.fromkeys(names)

    def _leave(self, text: str, line: int) -> None:
        if not RE["prose"].match(text.strip()) and (named := self._named(text, line)):
            self.left.append(Omission(named, _WHY["not_run"]))

    def _named(self, text: str, line: int) -> str:
        return _short(text, self.source.line(text.strip().partition("\n")[0], line))

    def _chains(self, text: str, line: int) -> None:
        """The commands of a line: behind a test none is sure."""
        chains = _joined(text)
        if any(_known(one) for chain in chains[:-1] for _, one in chain):
            chains = [[(0, text)]]
        for chain in chains:
            sure = True
            for at, command in chain:
                # On a page 'exit' leaves a container or another node.
                self.ended |= sure and self.script and command.split()[0] == "exit"
                if sure:
                    self._command(command, line + at)
                else:
                    self._unsure(command, line + at, "a condition")
                sure = sure and command.split()[0] not in wrappers()["tests"]

    def _command(self, text: str, line: int) -> None:
        """One command; raises ShellError where it starts an engine and cannot be read."""
        used = set(self.used)
        self.used = set()
        first = (*text.split(None, 1), "")[0]
        filled = self.filled(text.replace(first, self.aliases.get(first, first), 1))
        here, self.used = self.used, used | self.used
        environment = {name: one for name, one in self.values.items() if name in self.exported}
        given = {**self.given, **environment}
        try:
            read = self._read(filled, line, given)
        except ShellError as error:
            at = ShellError(line + error.line - 1, error.what, error.inner)
            known = _known(filled)
            if find(known):
                raise at from None
            if known:
                place = line + filled.count("\n", 0, filled.find(known[0]))
                self.others.append(Start(tuple(known), line=place))
            self.problems.append(at)
            self._forget(text)
            self._leave(text, line)
            return
        for start in read:
            self._take(replace(start, line=line + max(start.line, 1) - 1), text, here, environment)

    def _read(self, text: str, line: int, given: _Values) -> list[Start]:
        """What a command starts; raises ShellError, but for what is a shell's in its wrappers."""
        source = self.source if self.source.text else RecipeFile("", "\n" * (line - 1) + text)
        with suppress(ShellError):
            return [one for each in commands(text) for one in _split(each, given, source)]
        begins = [*(one.start() for one in RE["word"].finditer(text.replace("\\\n", "  "))), 0]
        at = begins[-1 - len(_known(text))]  # of the engine
        text = RE["of_caller"].sub(lambda x: f"\\${'{...}' * bool(x[1])}", text[:at]) + text[at:]
        return [one for each in commands(text) for one in _split(each, given, source)]

    def _take(self, start: Start, text: str, used: set[str], environment: _Values) -> None:
        """What one command starts or sets; used: the variables that stand in it."""
        program = start.words[0] if start.words else ""
        if find(start.words) and {*wrappers()["asks"]}.isdisjoint(start.words):
            used = used | self.spent
            kept = {name: one for name, one in environment.items() if name not in used}
            own = {
                name: kept.get(name) if one is None else one
                for name, one in start.environment.items()
            }
            left = [
                Omission(f"export {name}", "its value stands in the command")
                for name in environment
                if name in used and name not in own
            ]
            self.found.append(
                replace(start, environment={**kept, **own}, left_out=(*left, *start.left_out))
            )
        elif program in ("", *wrappers()["exports"]):
            self.spent |= used
            given = {k: v if v is None else str(v) for k, v in start.environment.items()}
            given |= dict(pair(one) for one in start.words[1:] if not one.startswith("-"))
            for name, one in given.items():
                if one is not None or not program:
                    self.values[name] = None if len(one or "") > _LONGEST_VALUE else one
            if program == "export" or "-x" in start.words:
                self.exported |= {*given}
                self.values |= {name: None for name in given if name not in self.values}
        elif program == "unset":
            for name in start.words[1:]:
                self.values.pop(name, None)
                self.exported.discard(name)
        elif program == "alias":
            self.aliases |= {name: one or "" for name, one in map(pair, start.words[1:])}
        else:
            self.others.append(start)
            self._forget(text if "=" in program else " ".join(start.words))
            self._leave(text, start.line)

    def filled(self, text: str) -> str:
        """A command with the values of its variables, as far as they are known."""
        text = RE["used_or_piece"].sub(self._piece, text)
        return rewritten(text, DATA / "unknown_values.toml")

    def _piece(self, found: re.Match[str]) -> str:
        if found[0][0] == '"':
            return RE["used"].sub(lambda use: self._value(use, RE["of_quotes"]), found[0])
        return self._value(found, RE["of_a_shell"])

    def _value(self, use: re.Match[str], special: re.Pattern[str]) -> str:
        """What a use of a variable stands for, with its signs that are no shell's; or itself."""
        name = use["name"] or use["inside"]
        if not name:
            return use[0]
        value, known = self.values.get(name), name in self.values
        if use["sign"] in ("-", "=") and not value and (not known or value == ""):
            value = self.filled(use["otherwise"])
            self.values |= {name: value} if use["sign"] == "=" else {}
            return value
        if value is None or is_secret(name, value):
            return use[0]
        self.used.add(name)
        return special.sub(r"\\\1", value.replace("\n", " "))


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines of a text by their offset, each with those that it goes on in.

    So does a quote that opens at a word, in prose at most to the end of its paragraph; a
    here-document; and a function's name.
    """
    found = []
    lines = text.split("\n")
    ends = [*accumulate(len(one) + 1 for one in lines)]
    at = 0
    while at < len(lines):
        begin, end = ends[at] - len(lines[at]) - 1, at
        while end + 1 < len(lines) and (stop := _goes_on(text, begin, ends[end] - 1)):
            end = max(end + 1, bisect_left(ends, stop))
        found.append((at, text[begin : ends[end] - 1]))
        at = end + 1
    return found


def _goes_on(text: str, begin: int, end: int) -> int:
    """Where a command that has no end yet has its next part, or 0."""
    piece = text[begin:end]
    if len(piece) - len(piece.rstrip("\\")) & 1:
        return end + 1
    if (function := RE["function"].match(piece)) and not function["body"]:
        return end + 1 if re.compile(r"\s*\{").match(text, end, end + _FARTHEST_QUOTE) else 0
    bare = RE["masked"].sub("", piece)
    if here := RE["here"].search(bare) or RE["here"].search(piece if "<<" in bare else ""):
        closed = re.compile(rf"\n[ \t]*{here[2]}[ \t]*(?=\n|$)").search(text, begin)
        return closed.end() if closed and closed.end() > end else 0
    if opened := RE["open"].search(bare):
        close = re.compile(rf"(?<!\\){opened[1]}").search(text, end, end + _FARTHEST_QUOTE)
        program = PurePosixPath((*piece.split(None, 1), "")[0]).name
        own = RE["assigned"].match(piece.lstrip()) or program in wrappers()["wrappers"]
        prose = not own and not find(piece.split()[:_LONGEST_BEGIN])
        if close and not (prose and "\n\n" in text[end : close.end()]):
            return close.end()
    return 0


def _blocks(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """The lines of a text, and its loops, conditions and functions as one each with their kind."""
    ends: dict[int, int] = {}
    opened: list[tuple[str, int, bool]] = []
    for n, (_, text) in enumerate(lines):
        for place, word in enumerate(_keywords(text)):
            if word in _CLOSED_BY:
                opened.append((_CLOSED_BY[word], n, place == 0))
                continue
            near = range(len(opened) - 1, max(-1, len(opened) - _MOST_ROUNDS), -1)
            if (at := next((one for one in near if opened[one][0] == word), None)) is not None:
                _, begun, first = opened[at]
                ends |= {begun: n} if first else {}
                del opened[at:]
    at = 0
    while at < len(lines):
        offset, text = lines[at]
        kind = "function" if RE["function"].match(text) else (*text.split(None, 1), "")[0]
        last = ends.get(at, -1)
        if kind in _SHAPES and last >= at:
            block = "\n".join(one for _, one in lines[at : last + 1])
            if re.search(_SHAPES[kind], block):
                yield offset, block, kind
                at = last + 1
                continue
        yield offset, text, "here" if "\n" in text and RE["here"].search(text) else ""
        at += 1


def _keywords(text: str) -> Iterator[str]:
    """The words of a line with which a shell's loops, conditions and functions begin and end."""
    begins, function = True, False
    for word in RE["syntax"].findall(RE["masked"].sub("x", text)):
        if begins and (word in _CLOSED_BY or word in _CLOSED_BY.values()):
            yield word
        begins = word in wrappers()["again"] or word[0] in ";&|\n()" or function
        function = word == "function"


def _joined(text: str) -> list[list[tuple[int, str]]]:
    """The commands of a line with their offsets in lines: of each ';' those that && joins."""
    chains: list[list[tuple[int, str]]] = [[]]
    at = 0
    for joint in (*(one for one in RE["joint"].finditer(text) if one["joint"]), None):
        command = text[at : joint.start() if joint else len(text)]
        chains[-1] += [(text.count("\n", 0, at), command)] if command.strip() else []
        chains += [[]] if joint and joint["joint"] == ";" else []
        at = joint.end() if joint else at
    return [one for one in chains if one]


def _short(text: str, line: int) -> str:
    """A command by its program alone, since its arguments may hold a secret; or the variables."""
    words = text.split()
    names = [one.partition("=")[0] for one in words if RE["assigned"].match(one)]
    words = [*dropwhile(RE["assigned"].match, words)]
    if not words or words[0] in wrappers()["exports"]:
        return " ".join([*words[:1], *names])
    if words[0].startswith("#"):
        return ""
    shown = words[: 2 if words[0] in wrappers()["named_by_two"] else 1]
    rest = " ..." if len(words) > len(shown) else ""
    return f"{' '.join(shown)}{rest} in line {line}"


def _shown(problem: ShellError, plain: str) -> tuple[str, int]:
    """The line of a problem, and its number; of a text in quotes its own line."""
    lines = plain.split("\n")
    if inner := problem.inner.strip():
        places = range(problem.line, len(lines) + 1)
        return inner, next((n for n in places if inner in lines[n - 1]), problem.line)
    return lines[min(problem.line, len(lines)) - 1], problem.line


def without_workers(found: Sequence[Start]) -> list[Start]:
    """Without the commands of other nodes, which are the head's with another rank."""
    most = max((_told(one.words) or 0 for one in found), default=0)
    less = [one for one in found if (_told(one.words) or 0) < most and _told(one.words) is not None]
    kept = [one for one in found if not _is_worker(one.words) and one not in less]
    left = [
        Omission(
            " ".join(one.words), _WHY["client"] if "bench" in one.words else _WHY["other_node"]
        )
        for one in found
        if one not in (*kept, *less)
    ]
    if not kept:
        return list(found)
    for one in less:  # such as the daemon that is asked
        left.append(Omission(f"{one.words[0]} in line {one.line}", _WHY["asked"]))
        kept = [each.within(one.environment, one.left_out) for each in kept]
    return [replace(kept[0], left_out=(*kept[0].left_out, *left)), *kept[1:]]


def _told(words: Sequence[str]) -> int | None:
    """How much of a case requests to its engine's API say in a command; None without an API."""
    line = (find(words) or (None,))[0]
    flags = [flag for one in lines() if line and one.engine == line.engine for flag in one.requests]
    return min(2, sum(one in words for one in flags)) if flags else None


def _is_worker(words: Sequence[str]) -> bool:
    rank = re.search(r"--node-rank[ =]0*[1-9]", " ".join(words))
    return bool(rank) or "--headless" in words or words[1:2] in (("worker",), ("bench",))


def _known(statement: str) -> Sequence[str]:
    """The words of an engine, or of another program that serves a model; empty where none is."""
    if not mentioned().search(statement):
        return ()
    try:
        found = [x.words for each in commands(statement) for x in _split(each, {}, RecipeFile())]
    except ShellError:
        given = RE["word"].findall(statement.replace("\\\n", " "))
        words = tuple(one.strip("\"'") for one in given)
        wrapped = PurePosixPath((*words, "")[0]).name in wrappers()["wrappers"]
        found = [
            words[n:]
            for n in range(len(words))
            if (find(words[n : n + _LONGEST_BEGIN]) and (wrapped or _may_begin(words[:n])))
            or (wrapped and _is_other(words[n]))
        ]
        if wrapped and not found and {*wrappers()["talk"]}.isdisjoint(words):
            found = [x for n in range(1, len(words)) if (x := of_image(words[n], words[n + 1 :]))]
    return next((one for one in found if find(one) or _is_other((*one, "")[0])), ())


def _may_begin(before: Sequence[str]) -> bool:
    """Whether behind words a command may begin, as it may not within a sentence."""
    last = (*before, ";")[max(len(before) - 1, 0)]
    return last in wrappers()["again"] or bool(RE["assigned"].match(last)) or last[-1] in ";&|(){"


def _is_other(word: str) -> bool:
    """Whether a word is a program that serves a model and that no engine is."""
    return PurePosixPath(word).name in (*wrappers()["others"], *wrappers()["by_name"])


def _split(command: ShellCommand, given: _Values, source: RecipeFile) -> list[Start]:
    """The variables before a program, and the program, without what it runs in; raises ShellError.

    given: the variables that it has. source: its lines. Of a shell's -c each command of its text.
    """
    words, at = command.words, 0
    environment: dict[str, str | None] = {}
    while at < len(words) and (RE["assigned"].match(words[at]) or words[at] == "env"):
        environment |= dict([pair(words[at])]) if "=" in words[at] else {}
        at += 1
    whole = of_entrypoint(words[at:])
    words = of_request(of_package(whole))
    wrapped = PurePosixPath((*words, "")[0]).name in wrappers()["wrappers"]
    found = _unwrapped(words, {**given, **environment}, source) if wrapped else [started(words)]
    left = [Omission(one, _WHY["not_run"]) for one in command.dropped]
    if whole[:2] == ("nix", "run") and words[:2] != whole[:2]:
        left.append(Omission(" ".join(whole[: whole.index("--")]), _WHY["in_toolbox"]))
    return [
        replace(
            one,
            environment={**environment, **one.environment},
            line=command.line + max(one.line, 1) - 1,
            left_out=(*left, *one.left_out),
        )
        for one in found
    ]


def _unwrapped(words: Sequence[str], given: _Values, source: RecipeFile) -> list[Start]:
    """What a wrapper starts, with the variables that it gives and itself as left out."""
    (before, found, text), program = _inside(words), PurePosixPath(words[0]).name
    environment: dict[str, str | None] = {}
    for name, value in zip(before, (*before[1:], ""), strict=False):
        option, _, joined = name.partition("=")
        if option in wrappers()["variables"] and RE["named"].match(joined or value):
            environment |= dict([pair(joined or value)])
        elif RE["given"].match(name) and not RE["container"].fullmatch(program):
            environment |= dict([pair(name)])
    if text:
        found = _of_text(text, {**({} if program == "ssh" else given), **environment}, source)
    named = {*wrappers()["wrappers"]}.difference(wrappers()["plain"])
    outer = dropwhile(lambda one: PurePosixPath(one).name not in named, before)
    shown = " ".join(one for one in outer if one not in ("", "--"))
    ranks = PurePosixPath(shown.partition(" ")[0]).name in wrappers()["ranks"]
    around = [Omission(shown, _WHY["ranks" if ranks else "in_toolbox"])] if shown else []
    return [one.within(environment, around) for one in found]


def filled(text: str, values: Mapping[str, str] | None = None) -> str:
    """A command with the values of its variables, or their defaults, as far as they are known."""
    return _Script(values or {}).filled(text)


def starts(text: str) -> list[Start]:
    """What each command of a text without prompts and fences starts; raises ShellError."""
    script = _Script()
    script.run(text, 1)
    if script.unsure:
        raise script.unsure[0]
    return [*script.found, *script.others]


def _of_text(text: str, given: _Values, source: RecipeFile) -> list[Start]:
    """What a text for a shell with these variables starts; raises ShellError."""
    script = _Script(given, source)
    try:
        script.run(text, 1)
    except ShellError as error:
        raise ShellError(1, error.what, error.inner or _shown(error, text)[0]) from None
    if script.unsure and not script.found:
        raise ShellError(1, script.unsure[0].what, _shown(script.unsure[0], text)[0])
    left = (*script.left, *script.left_behind())
    return [one.within({}, left) for one in script.found] or script.others


def _inside(words: Sequence[str]) -> tuple[Sequence[str], list[Start], str]:
    """The words of a wrapper, and the engine, the image or the text for a shell in it."""
    typed = next(
        (n for n in range(len(words), 1, -1) if words[n - 1] not in wrappers()["enter"]), 1
    )
    words = words[:typed]
    places = range(1, len(words))
    for known in (lambda n: find(words[n : n + _LONGEST_BEGIN]), lambda n: _is_other(words[n])):
        if inside := next(filter(known, places), 0):
            return words[:inside], [started(words[inside:])], ""
    plain = {*wrappers()["talk"]}.isdisjoint(PurePosixPath(one).name for one in words)
    image = next((n for n in places if " " not in words[n] and of_image(words[n], ())), 0) * plain
    shell = next(
        (n for n in places[:-1] if PurePosixPath(words[n]).name in wrappers()["shells"]), 0
    )
    shell = shell if len(words) > shell + 2 else 0
    if shell or (not image and plain and " " in words[-1]):
        return words[: shell or -1] or words[:1], [], words[-1]
    if image:
        return words[: image + 1], [Start(of_image(words[image], words[image + 1 :]))], ""
    return (), [Start(tuple(words))], ""


def _plain(text: str) -> str:
    """Without a byte order mark, quotes, prompts and fences; each line stays where it is."""
    plain = without_page(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    plain = of_just(plain) if "{{" in plain else of_make(plain)
    plain = rewritten(with_hosts(plain), DATA / "wrappers.toml")
    if not plain.startswith("#!"):
        plain = "\n".join(map(_of_sentence, plain.split("\n")))
    plain = RE["drive"].sub(lambda one: one[0].replace("\\", "/"), plain)
    if RE["container"].search(plain):
        plain = RE["mounted"].sub(
            lambda one: re.sub("[$]" if '"' in one[0] else r"[$(){}]", r"\\\g<0>", one[0]), plain
        )
    return plain


def _of_sentence(line: str) -> str:
    """The commands in backticks of a sentence, or behind a label; a line without one as it is."""
    label = RE["label"].match(line)
    if label and label[0].strip() and (label["sure"] or _has_model(line[label.end() :])):
        return line[label.end() :]
    codes = (
        [] if line.lstrip().startswith("#") else [code for _, code in RE["inline"].findall(line)]
    )
    return _APART.join(filter(_has_model, codes)) or line


def _has_model(code: str) -> bool:
    """Whether a text is a command that could run, not a mention of an engine or another server."""
    line, rest = find(words := _known(code)) or (None, ())
    if line is None or placeholder(code):
        return line is None and len(words) > 1
    flags = [line.flag(word.partition("=")[0]) for word in rest]
    named = any(one and one.key in ("model", "hub") and one.reads == "text" for one in flags)
    return named or bool(line.model_first and rest and re.match(r"[^-].*[/.]", rest[0]))
