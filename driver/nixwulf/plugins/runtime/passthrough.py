"""Arguments and environment variables that a sweep hands to an engine as they are.

Both are parameters of every engine, and so coordinates of a case: `arguments` is text as in a
shell, `environment` a mapping of variables, kept as the text NAME=VALUE ... in the order of names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, zip_longest
from typing import Any

from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import shipped_table
from nixwulf.core.secrets import is_secret, use

ARGUMENTS = "arguments"
ENVIRONMENT = "environment"
_BY_VARIABLE = "write environment: {NAME: null} and export NAME where you run nixwulf"
PARAMETERS = (ARGUMENTS, ENVIRONMENT)
_ELSEWHERE = "set it on the node for the user that ssh logs in, or use a toolbox that has it"
# Values that name a file, an address or a module, also within JSON.
_LEADS = re.compile(
    r"(?:^|[\s\"'=:,;\[])(?:~|\.{0,2})/|://|auto_map|_plugin|[\"'][A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+[\"']"
)
# The host of an address with a scheme, or alone with a port or of numbers.
_HOST = re.compile(
    r"://((?:[^\s/\"'?#;,\[\]]*@)?\[[^\]\s]*\]|[^\s/\"'?#;,\[\]{}]+)|(\[[\dA-Fa-f:.]+\])(?=:\d)"
    r"|(?<![\w.-])((?:\d{1,3}\.){3}\d{1,3}(?![\w.])|[\w-]+(?:\.[\w-]+)+(?=:\d{1,5}(?![\w.])))"
)
_BARE = re.compile(r"(?!\d{1,5}$|(?:true|false|on|off|auto|none)$)[\w.:\[\]-]+", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:u00([\da-fA-F]{2})|(/))")
# A header or a field with its secret, within a value.
_HEADER = re.compile(
    r"(?i)((authorization|cookie|[\w-]*((api|access)[_-]?key|secret|passw(or)?d)|(auth|access|hf)"
    r"[_-]token)[\"']?\s*[:=]\s*|\bbearer(\s|%20)+)[\"']?[^\s\"'$]"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_text(value: object, source: str) -> str:
    """A mapping of variables as the text that a case has; a text as it is.

    Raises InputError: a name is none, a value is no text or number, or a secret is written down.
    """
    if not isinstance(value, Mapping):
        value = _read(value, source)
    words = []
    for name, text in sorted(value.items()):
        if not _NAME.fullmatch(name):
            raise InputError(f"{source}: {ENVIRONMENT} has {name!r}, which is no variable's name.")
        if text is None:
            words.append(name)
            continue
        if is_secret(name, str(text)):
            raise InputError(
                f"{source}: {ENVIRONMENT} has a value for {name!r}, which every record would have; "
                f"write '{name}: null' and export {name} where you run nixwulf."
            )
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise InputError(
                f"{source}: {ENVIRONMENT} has {name}: {text!r}; quote it, as in {name}: "
                f'"{int(text) if isinstance(text, bool) else 1}".'
            )
        if any(ord(character) < ord(" ") for character in str(text)):
            raise InputError(f"{source}: {name} in {ENVIRONMENT} has a control character.")
        words.append(f"{name}={text}")
    return shlex.join(words)


def _read(text: object, source: str) -> dict[str, str | None]:
    """The variables of a text that a case has."""
    if not isinstance(text, str):
        raise InputError(f"{source}: {ENVIRONMENT} is {text!r}, expected {{NAME: VALUE}}.")
    pairs = (word.partition("=") for word in _words(text, source, ENVIRONMENT))
    return {name: value if equals else None for name, equals, value in pairs}


def problem(
    parameters: Mapping[str, Any], reserved: Mapping[str, str], variables: Mapping[str, str]
) -> str | None:
    """Which argument or variable the driver sets itself, with what to use instead, or None.

    reserved: the engine's flags that the driver sets, in words apart, each group with what to use
    instead. variables: so its variables; a name with a '*' is that of a family.
    """
    for word in arguments(parameters):
        if instead := instead_of_flag(word, reserved):
            return f"the driver sets {word.partition('=')[0]} itself; use {instead}"
    if secret := _written_secret(arguments(parameters)):
        return (
            f"{ARGUMENTS} has the value of {secret}, which every record would have; {_BY_VARIABLE}"
        )
    for name, value in given_variables(parameters).items():
        if value and has_key(value):
            return (
                f"{ENVIRONMENT} has a key in {name}, which every record would have; {_BY_VARIABLE}"
            )
        if _names("refused").fullmatch(name):
            return f"{name} decides which code runs or where it connects; {_ELSEWHERE}"
        if instead := instead_of_variable(name, variables):
            return f"the driver sets {name} itself; use {instead}"
    return None


def instead_of_flag(word: str, reserved: Mapping[str, str]) -> str | None:
    """What to use instead of a flag that the driver sets, by an engine's reserved ones, or None."""
    found = _flag(word)
    for flags, instead in reserved.items() if found else ():
        if any(_same(found, flag) for flag in flags.split()):
            return instead
    return None


@cache
def reserved_variables(engine: str) -> dict[str, str]:
    """Those that the driver sets for an engine, with what to use instead: a row a variable."""
    return {
        name: instead
        for names, instead in shipped_table("reserved_variables").get(engine, {}).items()
        for name in (
            chain(*shipped_table("nccl").values()) if names == "nccl.toml" else names.split()
        )
    }


def instead_of_variable(name: str, variables: Mapping[str, str]) -> str | None:
    """So of a variable; a reserved name with a '*' is that of a family."""
    if _names("refused").fullmatch(name):
        return f"the node's own environment: {_ELSEWHERE}"
    for taken, instead in {**reserved_variables("every engine"), **variables}.items():
        if fnmatchcase(name, taken):
            return instead
    return None


def addresses(parameters: Mapping[str, Any]) -> list[str]:
    """The servers that a case's parameters name, each once: its url, of others host or host:port.

    JSON may write them with escapes. Of a url with a user the user is named too, as a host.
    """
    found = [parameters["url"]] if parameters.get("url") else []
    texts = [("", str(one)) for key, one in parameters.items() if key not in (*PARAMETERS, "url")]
    texts += [(name, value or "") for name, value in given_variables(parameters).items()]
    words = _with_flags(arguments(parameters))
    values = [(flag, word.partition("=")[2] if _flag(word) else word) for flag, word in words]
    for flag, text in (*values, *texts):
        plain = _ESCAPE.sub(lambda one: chr(int(one[1], 16)) if one[1] else one[2], text)
        for host in _HOST.findall(plain):
            found += filter(None, re.split(r"[@\\]", "".join(host)))
        if _names("servers").fullmatch(flag):
            found += filter(_BARE.fullmatch, plain.split(","))
    return list(dict.fromkeys(found))


def _with_flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Each word with the flag that it is, or is a value of."""
    flag = ""
    for word in words:
        flag = word.partition("=")[0] if _flag(word) else flag
        yield flag, word


def active(parameters: Mapping[str, object]) -> list[str]:
    """What of a case's arguments and variables runs code, or takes what is the user's, and how."""
    found = []
    for flag, word in _with_flags(arguments(parameters)):
        if effect := instead_of_flag(flag, shipped_table("passed_options")["flags"]):
            found += [f"{flag} {effect}"] if _flag(word) else []
        elif _LEADS.search(word):
            found.append(f"{flag} names a file, an address or a module: {quoted(word)}")
    draft = str(parameters.get("draft", ""))
    if draft.startswith("{"):
        rest = {key: one for key, one in json.loads(draft).items() if key != "model"}
        if _LEADS.search(json.dumps(rest)):
            found.append(f"draft names a file, an address or a module: {quoted(json.dumps(rest))}")
    for name, value in given_variables(parameters).items():
        if value is None:
            found.append(f"{name}: null takes your variable of that name")
        elif effect := shipped_table("passed_options")["variables"].get(name):
            found.append(f"{name} {effect}")
        elif _names("leading").fullmatch(name) or _LEADS.search(value):
            found.append(f"{name} decides what is loaded, or where: {quoted(value)}")
    return found


def has_key(value: str) -> bool:
    """Whether a value contains a key of a known service, or a header that has one."""
    return bool(_families().search(value) or _HEADER.search(value))


@cache
def _families() -> re.Pattern[str]:
    """What keys of known services look like."""
    families = shipped_table("token_families")["families"].values()
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(families)})")


@cache
def _names(kind: str) -> re.Pattern[str]:
    """What names of a kind match: 'refused', 'leading' or 'servers'."""
    return re.compile("|".join(shipped_table("passed_options")[kind]))


def _written_secret(words: list[str]) -> str:
    """The flag whose value is a secret, by its name or by the family of the value; or empty."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        flag, _, value = word.partition("=")
        value = value or ("" if after.startswith("-") else after)
        if flag.startswith("-") and is_secret(flag, value):
            return flag
        if has_key(value or word):
            return flag if flag.startswith("-") else "a key"
    return ""


def as_texts(
    block: Mapping[str, Any], source: str, more: Mapping[str, Callable[[Any, str], Any]]
) -> dict[str, Any]:
    """A block or a point of a sweep whose environments, and what `more` parses, are texts.

    Raises InputError: arguments are no words, or an environment is none.
    """
    given = dict(block.get("parameters", {}))
    for key, parse in {ARGUMENTS: _joined, ENVIRONMENT: environment_text, **more}.items():
        if key in given:
            several = isinstance(given[key], list)
            texts = [parse(value, source) for value in (given[key] if several else [given[key]])]
            given[key] = texts if several else texts[0]
    return {**block, **({"parameters": given} if given else {})}


def _joined(value: object, source: str) -> str:
    """Arguments as the text that a case has: the same words are the same text."""
    if not isinstance(value, str):
        raise InputError(f"{source}: {ARGUMENTS} is {value!r}, expected text as in a shell.")
    return shlex.join(_words(value, source, ARGUMENTS))


def arguments(parameters: Mapping[str, Any]) -> list[str]:
    """The arguments of a case, as words."""
    return shlex.split(parameters.get(ARGUMENTS, ""))


def given_variables(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """The variables of a case as its sweep has them, None where the value is the driver's own."""
    return _read(parameters.get(ENVIRONMENT, ""), "")


def secrets(parameters: Mapping[str, object]) -> set[str]:
    """The values that a case takes from the driver's own environment, which no record may have."""
    taken = (name for name, value in given_variables(parameters).items() if value is None)
    return {os.environ[name] for name in taken if os.environ.get(name)}


def environment(parameters: Mapping[str, object]) -> dict[str, str]:
    """The variables of a case; raises NixwulfError where this environment lacks a secret."""
    found = {}
    use(secrets(parameters))
    for name, value in given_variables(parameters).items():
        given = os.environ.get(name) if value is None else value
        if given is None:
            raise NixwulfError(
                f"The sweep takes {name} from the environment of nixwulf, which lacks it; run "
                f"'export {name}=...' and the same command again."
            )
        found[name] = given
    return found


def _words(text: str, source: str, key: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(
            f"{source}: the parameter {key!r} is {text!r}: {str(error).lower()}; close it."
        ) from None


def _flag(word: str) -> str:
    """The flag of a word, in the form of the reserved ones; empty where it is a value."""
    if not word.startswith("-") or re.fullmatch(r"-[\d.,]+", word):
        return ""
    name = word.partition("=")[0].partition(".")[0] if word.startswith("--") else word
    return name.replace("_", "-")


def _same(flag: str, reserved: str) -> bool:
    """Whether a flag is a reserved one, or its beginning, which argparse takes for it."""
    if not flag:
        return False
    if reserved.startswith("--"):
        return flag == reserved or (len(flag) > len("--xx") and reserved.startswith(flag))
    return flag == reserved or (flag.startswith(reserved) and flag[len(reserved) :][:1] == "=")
