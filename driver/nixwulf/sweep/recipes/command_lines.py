"""Command lines that start an engine: their words, as a shell would read them, and what flags say.

They are never given to a shell: what it would do more than split words (expand, redirect, join,
start something else) is refused with its line. data/command_lines has a table an engine. What a
table does not have stays in `arguments`; flags that the driver sets itself (reserved_arguments of
the engine) are left out by name.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import accumulate, islice, pairwise, repeat, takewhile
from operator import add, mul
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import DATA, read_toml, shipped_table
from nixwulf.core.schema import check
from nixwulf.core.secrets import is_secret
from nixwulf.core.text import did_you_mean
from nixwulf.sweep.plan import MOST_POINTS
from nixwulf.sweep.recipes import Omission, Start, Value

wrappers = partial(shipped_table, "wrappers")  # what stands around the command of an engine
_ACTS: Mapping[str, str] = wrappers()["acts"]
_BLOCKS: Mapping[str, str] = wrappers()["blocks"]
RE: Mapping[str, re.Pattern[str]] = {
    name: re.compile(one) for name, one in wrappers()["patterns"].items()
}
_FOLDER = DATA / "command_lines"
_TIMES = {"": 1, "k": 1000, "K": 1 << 10, "m": 1_000_000, "M": 1 << 20}
_LOOPBACK = ("127.", "localhost", "[::1]")
_GOES_ON = ("\\", "^", "`", "'", '"', "|", "&&")
_MOST_JSON = 1000  # places of a text where it may begin
_MOST_MADE = 1 << 18  # characters of a Makefile with its values


@dataclass(frozen=True)
class ShellCommand:
    """The words of a command, and the line of its text in which it begins, from 1 on.

    dropped: what only a shell does with its output, as '2>&1'.
    """

    words: tuple[str, ...]
    line: int
    dropped: tuple[str, ...] = ()


class ShellError(Exception):
    """A text is more than commands: in which line of it, from 1 on, and what is there.

    inner: that line, where it is of a text in quotes. named: the command that is meant.
    """

    def __init__(self, line: int, what: str, inner: str = "", named: str = "") -> None:
        super().__init__(what)
        self.line, self.what, self.inner, self.named = line, what, inner, named


def commands(text: str) -> list[ShellCommand]:
    """The commands of a text, one a line but for continued lines and lines in quotes.

    Raises ShellError: for what only a shell could do, and for a quote that is not closed.
    """
    read, line, at = _Read(), 1, 0
    while at < len(text):
        token = RE["token"].match(text, at)
        if token is None:
            raise ShellError(line, f"a quote ({text[at]}) that is not closed")
        kind, piece, end = token.lastgroup or "", token[0], token.end()
        around = RE["around"].match(text, at) if kind == "acts" and read.words else None
        if around:
            end = around.end()
            read.around(around)
        elif kind == "acts":
            raise ShellError(line, _act(text, at, read))
        elif kind == "plain" and read.word is None and piece.startswith("#"):
            end = text.find("\n", end) if "\n" in text[end:] else len(text)
        elif kind in ("continued", "newline", "space"):
            read.end_word()
            if kind == "newline":
                read.end_command()
        else:
            read.begun = read.begun if read.words or read.word is not None else line
            read.word = (read.word or "") + _unquoted(kind, piece, line)
        line += 0 if around else piece.count("\n")
        at = end
    read.end_word()
    read.end_command()
    return read.found


def _act(text: str, at: int, read: _Read) -> str:
    """What a sign there does in a shell."""
    sign, word = text[at : at + 2], read.word or ""
    if RE["array"].match(text, at) or (sign[0] == "(" and word.endswith("=")):
        return _ACTS["=("]
    pair = sign == "||" or (sign == "()" and word and not read.words)
    return _BLOCKS.get((*read.words, "")[0]) or _ACTS[sign if pair else sign[0]]


@dataclass
class _Read:
    """What was read of a text: whole commands, and of the one that it is in."""

    found: list[ShellCommand] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    word: str | None = None
    begun: int = 1

    def end_word(self) -> None:
        self.words += [] if self.word is None else [self.word]
        self.word = None

    def end_command(self) -> None:
        if self.words:
            self.found.append(ShellCommand(tuple(self.words), self.begun, tuple(self.dropped)))
            self.words, self.dropped = [], []

    def around(self, match: re.Match[str]) -> None:
        """The end of a command, or what is dropped; a number in front says which output it is."""
        number = self.word if self.word and self.word.isdigit() and not match["next"] else ""
        self.word = None if number else self.word
        self.end_word()
        if match["next"]:
            self.end_command()
        else:
            self.dropped.append(f"{number}{match[0].strip()}")


def _unquoted(kind: str, piece: str, line: int) -> str:
    """What a token stands for; raises ShellError for an expansion inside of double quotes."""
    if kind == "single":
        return piece[1:-1]
    if kind == "escaped":
        return piece[1:]
    if kind != "double":
        return piece
    bare = re.sub(r"\\.|\$(?=\{\{)", lambda one: " " * len(one[0]), piece, flags=re.DOTALL)
    expands = RE["expands"].search(bare)
    if expands:
        what = _ACTS["=(" if RE["array"].match(piece, expands.start()) else expands[0][0]]
        raise ShellError(line + piece.count("\n", 0, expands.start()), what)
    return RE["escaped"].sub(lambda escaped: escaped[1] or "", piece[1:-1])


def refusal(error: ShellError, line: str, number: int, source: str) -> InputError:
    """The sentence for a line, numbered from 1 on, that a shell would have to run."""
    return InputError(
        f"{source}: line {number} has {error.what}: {quoted(line.strip())}; a recipe is "
        "never given to a shell: write the command alone."
    )


def require_plain(words: Iterable[str], source: str) -> None:
    """Raise InputError for a word that a shell would expand: nothing here does."""
    for word in words:
        if RE["expands"].search(word):
            raise InputError(
                f"{source}: {quoted(word)} is for a shell to expand, and no recipe is given to "
                "one; write what it stands for."
            )


def placeholder(text: str) -> str:
    """What of a text somebody else has to fill, as {{model}} and <model>; or nothing."""
    found = RE["placeholder"].search(text)
    return found[0] if found else ""


def of_just(text: str) -> str:
    """A justfile with the values of its variables and, in each recipe, of its own parameters."""
    shared, found = dict(RE["value"].findall(text)), ""
    heads = [(one.start(), one[1]) for one in RE["head"].finditer(text)]
    for (begin, own), (end, _) in pairwise([(0, ""), *heads, (len(text), "")]):
        values = {**shared, **dict(RE["parameter"].findall(own))}
        known = {name: one[1:-1] for name, one in values.items() if not is_secret(name, one)}
        parts = RE["use"].split(text[begin:end])
        parts[1::2] = [known.get(one.strip("{} \t")) or one for one in parts[1::2]]
        found += "".join(parts)
    return RE["value"].sub("", RE["rule"].sub("", found))


def of_make(text: str) -> str:
    """A Makefile's recipes as a shell is given them, with the values of its variables."""
    if not RE["target"].search(text):
        return text
    used = {one[1] or one[2] for one in RE["of_make"].finditer(text)}
    values: dict[str, str] = {}
    for _, name, sign, given in RE["made"].findall(text):
        if sign != "?" or name not in values:
            before = values.get(name, "") if sign == "+" else ""
            values[name] = " ".join([*before.split(), *given.replace("\\\n", " ").split()])

    def kept(found: re.Match[str]) -> str:
        name, lines = found[2], "\n" * found[0].count("\n")
        if not found[3] and f"{name} " not in found[0] and name not in used:
            return found[0]
        return f"export {name}={shlex.quote(filled(values[name]))}{lines}" if found[1] else lines

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        one = values.get(name)  # of another name its caller's environment may have one
        return f"${{{name}}}" if one is None or is_secret(name, one) else one

    def filled(text: str) -> str:
        for _ in range(4):
            text = RE["of_make"].sub(value, text)[:_MOST_MADE]
        return text

    plain = RE["alone"].sub("", RE["made"].sub(kept, text))
    return filled(RE["shown"].sub("\t", plain)).replace("$$", "$")


def without_page(text: str) -> str:
    """Commands without a page's tags and entities, and without a mail's quotes.

    A shell shows a > too, in a line that goes on from the one above.
    """
    if RE["entity"].search(text):
        text = html.unescape(RE["tag"].sub("", text)).replace("\xa0", " ")
    elif "<pre" in text:
        text = RE["tag"].sub("", text)
    lines, quoting = [""], False
    for line in text.split("\n"):
        mark = RE["quote"].match(line)
        quoting = bool(mark) and (quoting or not lines[-1].rstrip().endswith(_GOES_ON))
        lines.append(line[mark.end() :] if mark and quoting else line)
    return "\n".join(lines[1:])


def with_hosts(text: str) -> str:
    """A text without its lines of JSON, and with the hosts of a file in it where that is named."""
    made = ((RE["host_names"].findall(one), one) for one in RE["makes_hosts"].findall(text))
    files = [((*RE["host_file"].findall(one), "")[0], f"--hosts {x[0]}") for x, one in made if x]
    read, at, seen = "", 0, 0
    for begin in islice(RE["begins_json"].finditer(text), _MOST_JSON):
        try:
            document, end = json.JSONDecoder().raw_decode(text, begin.end())
        except (ValueError, RecursionError):
            continue
        if begin.end() < seen or not document:
            continue
        before, rest = text[seen : begin.start()], text[end:].partition("\n")[0].strip()
        given = document if isinstance(document, dict) else {"hosts": document}
        if words := _as_words(given, "--backend" in text):
            named = RE["file_of_json"].findall(before)[-1:] + RE["file_of_json"].findall(rest)
            files.append((("", *named)[-1], words))
        if not rest and (before.rstrip() + begin[0])[-1:] not in ("'", '"'):
            read += text[at : begin.start()] + "\n" * text.count("\n", begin.start(), end)
            at = end
        seen = end

    def hosts(found: re.Match[str]) -> str:
        name = PurePosixPath(found[2]).name
        alone = [words for file, words in files[:1] if not files[1:] and (not file or "$" in name)]
        return [found[0], *alone, *(words for file, words in files if file == name)][-1]

    return RE["hostfile"].sub(hosts, read + text[at:])


def _as_words(given: Mapping[str, object], backend: bool) -> str:
    """The options of mlx.launch that its file of hosts stands for; empty where it is none."""
    listed, envs = (x if isinstance(x, list) else [] for x in map(given.get, ("hosts", "envs")))
    hosts = [str(one["ssh"]) for one in listed if isinstance(one, dict) and one.get("ssh")]
    pairs = [("--hosts", ",".join(dict.fromkeys(hosts))), *(("--env", str(one)) for one in envs)]
    pairs += [("--backend", str(given["backend"]))] if given.get("backend") and not backend else []
    return shlex.join(word for pair in pairs for word in pair) if hosts else ""


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
            whole = RE["number"].fullmatch(text)
            return int(whole[1]) * _TIMES[whole[2]] if whole else None
        return text


@dataclass(frozen=True)
class CommandLine:
    """One kind of command line of an engine.

    begins: the programs that it begins with, each as words apart. benchmark: what measures what it
    starts. several: whether values are lists, as of a benchmark's. model_first: whether the model
    is its first word. otherwise: parameters where no flag gives them; otherwise_on_several: and on
    several nodes. limits: seconds of a run. images: parts of the names of containers that start it.
    variables: flags of variables that say the same. shared_cache: flags with which all requests
    share one context. within: flags with which the replicas are of the attention alone, on the GPUs
    of the other split. only_flags: its name is a word of sentences too, in which others follow.
    asked, requests: what stands in a request that means it, and for each flag. unsaid: why one node
    is a guess where no flag gives nodes. beside: what the text around it changes.
    """

    engine: str
    begins: Sequence[str]
    benchmark: str
    flags: Mapping[str, Flag]
    several: bool = False
    model_first: bool = False
    otherwise: Mapping[str, Value] = field(default_factory=dict)
    otherwise_on_several: Mapping[str, Value] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    images: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    shared_cache: Sequence[str] = ()
    within: Sequence[str] = ()
    only_flags: bool = False
    asked: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    unsaid: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)

    def within_text(self, text: str, words: Iterable[str]) -> CommandLine:
        """The same where it stands in a text with these words."""
        given = {one.partition("=")[0] for one in words}
        row = self.beside
        if not row or given & {*row["unless"]} or not re.search(row["text"], text, re.MULTILINE):
            return self
        return replace(self, otherwise_on_several=row["on_several"])

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
    runtimes: Sequence[str] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    config: str = ""


@cache
def tables() -> tuple[CommandTable, ...]:
    """Every table; raises InputError."""
    return tuple(map(_load, sorted(_FOLDER.glob("*.toml"))))


@cache
def lines() -> tuple[CommandLine, ...]:
    """The kinds of command lines of every table; raises InputError."""
    return tuple(line for table in tables() for line in table.commands)


def _load(path: Path) -> CommandTable:
    document = read_toml(path)
    check(document, "command-lines", str(path))
    shared = _flags(document.get("flags", {}))
    lines = tuple(
        CommandLine(
            **{key: value for key, value in one.items() if key != "flags"},
            engine=document["engine"],
            flags={**shared, **_flags(one.get("flags", {}))},
            limits=document["limits"],
        )
        for one in document["commands"]
    )
    rest = {key: document[key] for key in ("runtimes", "keys", "config") if key in document}
    return CommandTable(lines, **rest)


def _flags(rows: Mapping[str, Mapping[str, object]]) -> dict[str, Flag]:
    fields = {"as": "reads", "values": "by_value"}
    made = {
        names: Flag(**{fields.get(key, key): one for key, one in row.items()})  # type: ignore[arg-type]
        for names, row in rows.items()
    }
    return {name: flag for names, flag in made.items() for name in names.split()}


def find(words: Sequence[str]) -> tuple[CommandLine, Sequence[str]] | None:
    """The kind of a command line and the words after its program, or None."""
    first = [_program(word) for word in words[:1]]
    for line, begins in ((one, begin.split()) for one in lines() for begin in one.begins):
        rest = words[len(begins) :]
        others = line.only_flags and rest and rest[0][:1] != "-"
        if [*first, *words[1 : len(begins)]] == begins and not others:
            return line, rest
    return None


def of_package(words: tuple[str, ...]) -> tuple[str, ...]:
    """The program and its arguments behind `nix run FLAKE#PACKAGE --`; else the words."""
    if words[:2] != ("nix", "run") or "--" not in words:
        return words
    end = words.index("--")
    flake = next((one for one in words[2:end] if "#" in one or ":" in one), "")
    package = flake.partition("#")[2]
    own = next((one for name, one in wrappers()["flakes"].items() if name in flake), package)
    for program in (package, wrappers()["main_programs"].get(package, own)):
        if find(inside := (program, *words[end + 1 :])):
            return inside
    return words


def of_entrypoint(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a container with the program of its --entrypoint behind its image."""
    at = (*words, "--entrypoint").index("--entrypoint")
    image = next((n for n in range(at, 0, -1) if words[n - 1] in ("run", "create")), len(words))
    while image < len(words) and words[image].startswith("-"):
        image += 1 if RE["bare"].fullmatch(words[image]) else 2
    if not at < image < len(words):
        return words
    return (*words[:at], *words[at + 2 : image + 1], words[at + 1], *words[image + 1 :])


def of_request(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command that a request to an engine's API stands for, and its wrapper; else the words."""
    asking = (n for n, one in enumerate(words) if _program(one).lower() in wrappers()["asking"])
    begin = next(asking, len(words))
    text = unquote(" ".join(words[begin:]))
    for line in (line for line in lines() if line.asked and re.search(line.asked, text)):
        found = ((flag, re.search(one, text)) for flag, one in line.requests.items())
        said = [word for flag, one in found if one for word in (flag, one[one.lastindex or 0])]
        return (*words[:begin], *line.begins[0].split(), *said) if said else words
    return words


def started(words: Sequence[str]) -> Start:
    """A command; of a launcher its options and those of the program that it starts on each node."""
    if PurePosixPath((*words, "")[0]).name not in wrappers()["launchers"]:
        return Start(tuple(words))
    at = [*words, "--"].index("--") + 1
    wrapped = PurePosixPath((*words[at:], "")[0]).name in wrappers()["wrappers"]
    inner = next((n for n in range(at, len(words)) if wrapped and find(words[n:])), at)
    left = [Omission(" ".join(words[at:inner]), wrappers()["why"]["in_toolbox"])][: inner - at]
    words = [*words[:at], *words[inner:]]
    kept: list[str] = []
    environment: dict[str, str | None] = {}
    # A program with flags of its own has them behind it; mlx_lm's servers and texts share theirs.
    known = {n: found[0] for n in range(len(words)) if (found := find(words[n:]))}
    begins = next((n for n, line in known.items() if line is not known.get(0)), len(words))
    own, given = words[begins:], iter(words[:begins])
    for word in given:
        option, _, joined = word.partition("=")
        python = left and left[-1].what.rpartition("/")[2].startswith("python")
        if option in wrappers()["variables"]:
            environment |= dict([pair(joined or next(given, ""))])
        elif word in wrappers()["repeats"]:
            count = next(given, "")
            if {*wrappers()["hosts"]}.isdisjoint(words):
                kept += [wrappers()["repeats"][-1], count]
            else:
                left.append(Omission(f"{word} {count}", "the driver starts one rank on each node"))
        elif kept and re.fullmatch(wrappers()["launched"], PurePosixPath(word).name):
            left.append(Omission(word, "the driver starts the engine's own program"))
        elif word != "--" and not (word == "-m" and python):
            kept.append(word)
    return Start((*own, *kept[1 if own else 0 :]), environment, left_out=tuple(left))


def pair(word: str) -> tuple[str, str | None]:
    """NAME=VALUE; of a name alone the driver's own value."""
    name, equals, value = word.partition("=")
    return name, value if equals else None


def _program(word: str) -> str:
    name = PurePosixPath(word.replace("\\", "/")).name.removesuffix(".exe")
    return re.sub(r"^python3?\.\d+$", "python3", name)


def of_image(image: str, words: Sequence[str]) -> tuple[str, ...]:
    """The command of a container whose image starts an engine by itself; else nothing."""
    for line in lines():
        if any(one in image for one in line.images):
            return (*line.begins[0].split(), *words)
    return ()


def require(words: Sequence[str], source: str) -> tuple[CommandLine, Sequence[str]]:
    """The same; raises InputError where no engine is started so."""
    if found := find(words):
        return found
    known = [begin for line in lines() for begin in line.begins]
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
        if len(word) > 1 and word.startswith("-") and not RE["like_a_value"].fullmatch(word):
            found.append([word])
        else:
            found[-1].append(word)
    return found


def in_list(text: str) -> list[str]:
    """The numbers of a list, with those of llama-bench's ranges: 16-64+16 and 512-2048*2."""
    return RE["range"].sub(_written_out, text).split(",")


def _written_out(found: re.Match[str]) -> str:
    """The numbers of a range; one that is empty or has too many as it is."""
    first, last, step = (int(one or 1) for one in found.group(1, 2, 4))
    join, more = (mul, first * step) if found[3] == "*" else (add, first + step)
    numbers = accumulate(repeat(step), join, initial=first) if more > first else ()
    values = [*islice(takewhile(last.__ge__, numbers), MOST_POINTS + 1)]
    return ",".join(map(str, values)) if 0 < len(values) <= MOST_POINTS else found[0]


def joined(line: CommandLine, words: Sequence[str]) -> list[str]:
    """Words with '--flag.key VALUE' of a draft as the JSON that vLLM's parser makes of them."""
    kept: list[str] = []
    draft: dict[str, Any] = {}
    given, name = iter(words), ""
    for word in given:
        first, equals, text = word.partition("=")
        flag, *keys = first.removesuffix("+").split(".")
        known = line.flag(flag) if keys else None
        if not known or known.reads != "drafting":
            kept.append(word)
            continue
        value, name, table = text if equals else next(given, ""), flag, draft
        for key in keys[:-1]:
            table[key] = table[key] if isinstance(table.get(key), dict) else {}
            table = table[key]
        table[keys[-1]] = value.split(",") if first.endswith("+") else as_json(value)
    return [*kept, *([name, json.dumps(draft)] if draft else [])]


def as_json(text: str) -> object:
    """What a text is as JSON, or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
