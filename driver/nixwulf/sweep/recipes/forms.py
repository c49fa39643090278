"""The forms of recipes that are files of YAML or units; where their keys are said to be:

configurations of a server's flags and vllm-project's recipes, whose command is known
(https://docs.vllm.ai/en/latest/configuration/serve_args.html, CONTRIBUTING.md of
https://github.com/vllm-project/recipes); docker-compose, Dockerfiles, units of systemd, Podman and
supervisord, llama-swap and LiteLLM (docs.docker.com, systemd.service(5), podman-systemd.unit(5),
supervisord.org, https://github.com/mostlygeek/llama-swap, docs.litellm.ai); sparkrun's and eugr's,
whose form is its first (RECIPES.md of https://github.com/spark-arena/sparkrun).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.files import parse_yaml
from nixwulf.core.secrets import is_secret
from nixwulf.core.text import did_you_mean
from nixwulf.sweep.recipes import Omission, RecipeFile, Start, mapping, reasons, without_meaning
from nixwulf.sweep.recipes.command_lines import (
    RE,
    ShellError,
    commands,
    config_command,
    find,
    of_image,
    refusal,
    require_plain,
    tables,
)
from nixwulf.sweep.recipes.pasted import filled, mentioned, recognises, starts, without_workers
from nixwulf.sweep.recipes.pasted import read as read_text

_NOT_OF_VLLM = reasons("vllm_recipes")
_NOT_OF_SERVICES = reasons("services")
_NO_ENGINE = "it starts no engine that is known"
_TAKEN = ("command", "entrypoint", "environment")
# Keys of units, by what a compose file calls them; and two that each kind of unit has.
_STARTING = {"ExecStart": "", "Environment": "", "Image": "image", "Exec": "command"}
_UNITS = (("[Service]", "ExecStart"), ("[Container]", "Image="), ("[program:", "command"))
_SHELL = {"-c", "-lc", "-ec"}
_SUPERVISED = {"command": "ExecStart", "environment": "Environment"}
# https://docs.docker.com/reference/dockerfile/
_STARTS = {"ENTRYPOINT": "entrypoint", "CMD": "command"}
_PASSES = 4  # of values that have placeholders themselves
_LONGEST = 1 << 16
_KNOWN = ("recipe_version", "name", "description", "model", "command", "defaults", "env", "runtime")
_NOT_OF_SPARKRUN = reasons("sparkrun")
_OF_ITS_NAME = ("apiVersion", "kind", "metadata", "selector")


def recognises_recipe(document: object) -> TypeGuard[dict[str, object]]:
    """Whether a YAML document is one of vllm-project's recipes."""
    model = document.get("model") if isinstance(document, dict) else None
    return isinstance(model, dict) and isinstance(model.get("model_id"), str)


def read_recipe(document: Mapping[str, object], source: str) -> Start:
    """The default variant, with its usual features; raises InputError for keys of other types."""
    model, features = dict(_pairs(document["model"])), document.get("features") or {}
    opt_in = document.get("opt_in_features") or []
    variants = document.get("variants") or {}
    if not (isinstance(features, dict) and isinstance(variants, dict) and isinstance(opt_in, list)):
        raise InputError(
            f"{source}: features and variants are tables by name, opt_in_features is a list."
        )
    chosen = variants.get("default") or {}
    on = [name for name in features if name not in opt_in]
    blocks = [("base_args", model), *(("args", features[name]) for name in on)]
    words = [word for key, block in blocks for word in _words(block, key, source)]
    words += _words(chosen, "extra_args", source)
    require_plain(words, source)
    environment = {**mapping(model, "base_env", source), **mapping(chosen, "extra_env", source)}
    left_out = [
        *(Omission(f"features.{one}", "it is off until asked for") for one in opt_in),
        *(Omission(f"variants.{one}", "another model") for one in variants if one != "default"),
    ]
    known = ("model", "features", "opt_in_features", "variants")
    meta = document.get("meta")
    return Start(
        (*config_command(), str(chosen.get("model_id") or model["model_id"]), *words),
        environment,
        description=str(meta.get("description") or "") if isinstance(meta, dict) else "",
        left_out=(*without_meaning(document, known, _NOT_OF_VLLM), *left_out),
    )


def recognises_config(document: object) -> TypeGuard[dict[str, object]]:
    """Whether a YAML document may be a configuration file: flags with one value each."""
    keys = document if isinstance(document, dict) else ()
    return bool(keys) and all(map(RE["key"].fullmatch, keys))


def read_config(document: Mapping[str, object]) -> Start:
    """The command that such a file stands for; its model may be missing."""
    words: list[str] = []
    for key, value in document.items():
        if value is False or value is None:
            continue
        words.append(f"--{key}")
        if isinstance(value, list):
            words += [_text(one) for one in value]
        elif value is not True:
            words.append(_text(value))
    return Start((*config_command(), *words))


def _words(block: object, key: str, source: str) -> list[str]:
    found = block.get(key) or [] if isinstance(block, dict) else block
    if not isinstance(found, list) or not all(isinstance(one, str | int | float) for one in found):
        raise InputError(f"{source}: {key} is {quoted(found)}, expected a list of words.")
    return [str(one) for one in found]


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def is_launch_file(document: object) -> TypeGuard[dict[str, object]]:
    """Whether a YAML document is one of these."""
    return isinstance(document, dict) and any(
        isinstance(document.get(key), kind)
        for key, kind in (("services", dict), ("model_list", list), ("models", dict))
    )


def read_launch_file(document: Mapping[str, object], source: RecipeFile) -> list[Start]:
    """What each service or model of it starts; raises InputError where none is an engine's."""
    found: list[Start] = []
    others: list[Omission] = []
    key = next((one for one in _READERS if document.get(one)), "services")
    for name, block in _pairs(document.get(key)):
        if not isinstance(block, dict):
            raise InputError(f"{source}: {key} {name} is {quoted(block)}, expected a table.")
        own = _READERS[key](block, document, source.below(name))
        found += [replace(one, name=str(name)) for one in own]
        if not own:
            others.append(Omission(f"{key} {name}", _NO_ENGINE))
    if not found and key == "containers":
        return []  # of many that a cluster has
    if not found:
        raise InputError(
            f"{source}: none of its {key} starts an engine that is known; paste the command of one "
            "into a text file, and import that."
        )
    left = without_meaning(document, (key, "version", "name", "macros"), {})
    head = replace(found[0], left_out=(*found[0].left_out, *others, *left))
    return without_workers([head, *found[1:]])


def _service(
    block: Mapping[str, object], document: Mapping[str, object], source: RecipeFile
) -> list[Start]:
    given, listed = dict[str, object](), block.get("environment")
    if isinstance(listed, list):
        given |= (str(one).partition("=")[::2] for one in listed)
    else:
        given |= mapping(block, "environment", str(source))
    # Its own variables are those that two signs keep from the file's.
    values = {k: str(v) for k, v in given.items() if v is not None and "$$" in str(block)}
    kept: dict[str, object] = {}
    left = [*without_meaning(block, _TAKEN, _NOT_OF_SERVICES)]
    for name, value in given.items():
        if value in (f"${{{name}}}", f"${name}"):
            kept[name] = None
        elif "$" in str(value):
            left.append(Omission(f"{name}={value}", "its value stands elsewhere; write it"))
        else:
            kept[name] = value
    return [one.within(kept, left) for one in _of_container(block, source, values)]


def _of_container(
    block: Mapping[str, object], source: RecipeFile, values: Mapping[str, str] | None = None
) -> list[Start]:
    """What a container starts: by the command that it is given, or its image with flags."""
    begin, rest = block.get("entrypoint"), block.get("command")
    if begin and rest:
        begin = _split(begin) if isinstance(begin, str) else _listed(begin)
        rest = _split(rest) if isinstance(rest, str) and not _SHELL & {*begin} else rest
    # Compose puts a file's variables into lists as well; two signs are one of the shell's.
    words = [
        filled(one, values) if "$" in one.replace("$$", "") and " " not in one else one
        for one in (*_listed(begin), *_listed(rest))
    ]
    script = _script(words).replace("$$", "$")
    found = read_text(script, source, values) if recognises(script) else []
    found = [one for one in found if find(one.words)]
    # An image starts its engine by itself where nothing else is started in it.
    image = "" if begin else str(block.get("image", ""))
    # Items of a list are given to no shell; a flag and its value are one only by mistake.
    text = not isinstance(rest, list)
    split = (
        _split(filled(x, values)) if text or RE["flag_and_value"].match(x) else [x] for x in words
    )
    flags = of_image(image, [one for part in split for one in part])
    line = source.line(" ".join(words), 0)
    return found or ([Start(flags, line=line)] if flags else [])


def _split(text: str) -> list[str]:
    text = re.sub(r"\{\{[^{}\n]*\}\}", lambda one: re.sub(r"\s", "", one[0]), text)
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()


def _listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []


def _script(words: Sequence[str]) -> str:
    """The text for a shell: what stands behind its -c, or the words themselves."""
    if _SHELL & {*words[:3]} and " " in words[-1]:
        # Folded YAML keeps the lines of options, which stand further in.
        return re.sub(r"(?<!\\)\n[ \t]+(?=-)", " ", words[-1])
    program = [one for one in words if one not in ("/bin/bash", "/bin/sh", "bash", "sh")]
    return program[0] if len(program) == 1 else shlex.join(program)


def _swapped(
    block: Mapping[str, object], document: Mapping[str, object], source: RecipeFile
) -> list[Start]:
    """A model of llama-swap: its command with the file's macros, of which PORT is its own."""
    macros = {**mapping(document, "macros", str(source)), "PORT": "...", "MODEL_ID": "model"}
    text = str(block.get("cmd") or "")
    for _ in range(4):
        text = RE["macro"].sub(lambda one: str(macros.get(one[1], one[0])), text)
    text = " ".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = [one for one in read_text(text, source) if find(one.words)] if text else []
    given = dict(str(one).partition("=")[::2] for one in _listed(block.get("env")))
    left = without_meaning(block, ("cmd", "env"), {})
    return [one.within(given, left) for one in found]


def _routed(
    block: Mapping[str, object], document: Mapping[str, object], source: RecipeFile
) -> list[Start]:
    """A model of LiteLLM: a server that is there already."""
    given = block.get("litellm_params")
    if not isinstance(given, dict) or not given.get("api_base"):
        return []
    name = str(given.get("model", "")).partition("/")[2] or str(block.get("model_name", ""))
    left = without_meaning(given, ("model", "api_base"), reasons("litellm"))
    left += without_meaning(block, ("litellm_params",), reasons("litellm"))
    return [
        Start(("nixwulf-endpoint", "--url", str(given["api_base"]), "--model", name), left_out=left)
    ]


_READERS = {"services": _service, "containers": _service, "model_list": _routed, "models": _swapped}


def is_unit(text: str) -> bool:
    """Whether a text is a unit of systemd, Podman or supervisord that starts something."""
    return any(head in text and key in text for head, key in _UNITS)


def read_unit(text: str, source: RecipeFile) -> list[Start]:
    """What a unit starts, with its environment; raises InputError."""
    own = re.split(r"(?m)^(?=\[program:)", text)
    if own[2:]:  # each has its own variables
        return [one for part in own if is_unit(part) for one in read_unit(part, source)]
    kept: list[tuple[str, str]] = []
    left: list[Omission] = []
    files = RE["variable"].findall(text) if "EnvironmentFile" in text else []
    of_file = {name: value for name, _, value in files if name.isupper()}
    for one in RE["unit"].finditer(re.sub(r"\\[ \t]*\n", " ", text)):
        key, value = _SUPERVISED.get(one["key"], one["key"]), one["value"].strip()
        if key not in {*_STARTING, *of_file}:
            left.append(Omission(f"{key}={value}", "it is of what starts the service"))
        elif value:
            kept.append((key, value))
            left += [Omission(f"Image={value}", _NOT_OF_SERVICES["image"])] * (key == "Image")
        else:  # as in a drop-in: what was said before holds no longer
            left += [Omission(f"{k}={v}", "a later line replaces it") for k, v in kept if k == key]
            kept = [pair for pair in kept if pair[0] != key]
    environment = {
        name: value
        for key, text_of in kept
        if key == "Environment"
        for name, _, value in (
            word.partition("=") for word in _split(RE["pairs"].sub(" ", text_of))
        )
    } | of_file
    commands = "\n".join(value.lstrip("-@:+!") for key, value in kept if key == "ExecStart")
    container = {_STARTING.get(key, key): value for key, value in kept}
    # A unit's own variables stand for their names in what it starts.
    if commands:
        found = read_text(commands, source, environment)
    else:
        found = _of_container(container, source, environment)
    return [one.within(environment, left) for one in found]


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile that starts something."""
    said = [key for key, _ in RE["built"].findall(text)]
    begins = said[:1] in (["FROM"], ["ARG"]) and "FROM" in said
    return begins and not {"CMD", "ENTRYPOINT"}.isdisjoint(said)


def read_dockerfile(text: str, source: RecipeFile) -> list[Start]:
    """What the image starts by itself, with its variables: the last of the stages that build it."""
    block: dict[str, object] = {}
    environment: dict[str, str] = {}
    stages: dict[str, tuple[dict[str, object], dict[str, str]]] = {}
    left: list[Omission] = []
    for key, value in RE["built"].findall(re.sub(r"\\[ \t]*\n", " ", text)):
        if key == "ENV":
            words = _split(value)
            pairs = [one.partition("=")[::2] for one in words if "=" in one]
            environment |= dict(pairs or [(words[0], " ".join(words[1:]))])
        elif key == "FROM":
            words = [one for one in _split(value) if one[:2] != "--"] or [""]
            before, named = stages.get(words[0], ({"image": words[0]}, {}))
            block, environment = dict(before), dict(named)
            stages[words[-1]] = block, environment
            left.append(Omission(f"FROM {value}", _NOT_OF_SERVICES["image"]))
        elif starts := _STARTS.get(key):
            block[starts] = parse_yaml(value, source.name) if value.startswith("[") else value
        else:
            left.append(Omission(f"{key} {value}", "it is of the image's build"))
    others = (name for _, named in stages.values() for name in named if name not in environment)
    why = "it is of another stage of the image's build"
    left += [Omission(name, why) for name in dict.fromkeys(others)]
    found = _of_container(block, source, environment)
    return [one.within(environment, left) for one in found]


def is_sparkrun(document: object) -> TypeGuard[dict[str, object]]:
    """Whether a YAML document is such a recipe."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("model"), str)
        and not {"container", "runtime", "defaults", "command"}.isdisjoint(document)
    )


def read_sparkrun(document: dict[str, object], text: str, source: str) -> Start:
    """What a recipe starts.

    Raises InputError: for a shell's work in the command, a placeholder without a value, keys of
    another type, and a runtime that is not known where there is no command.
    """
    defaults, environment = (mapping(document, key, source) for key in ("defaults", "env"))
    command = document.get("command")
    if not isinstance(command, str | None):
        raise InputError(f"{source}: command is {quoted(command)}, expected text.")
    if command is None:
        start = Start(_made(document, defaults, source))
        unused: tuple[Omission, ...] = ()
    else:
        start = _of_template(command, document, defaults, text, source)
        unused = tuple(
            Omission(f"defaults.{key}", "the command does not use it")
            for key in defaults
            if f"{{{key}}}" not in command
        )
    metadata = document.get("metadata")
    described = metadata.get("description") if isinstance(metadata, dict) else None
    known = (*_KNOWN, *(["metadata"] if metadata == {"description": described} else []))
    return replace(
        start,
        environment={**environment, **start.environment},
        description=str(document.get("description") or described or document.get("name") or ""),
        left_out=(*without_meaning(document, known, _NOT_OF_SPARKRUN), *unused, *start.left_out),
    )


def _of_template(
    template: str, document: dict[str, object], defaults: dict[str, object], text: str, source: str
) -> Start:
    """The command of a template; its line is that of the file."""
    lines = text.splitlines()
    head = next((n for n, line in enumerate(lines, 1) if line.startswith("command:")), 1)
    try:
        commands(template)
    except ShellError as error:
        line = template.split("\n")[error.line - 1].strip()
        number = next((n for n, one in enumerate(lines, 1) if line in one), head)
        raise refusal(error, line, number, source) from None
    values = {**defaults, "model": document["model"]}
    filled = _filled(template, values, document.get("recipe_version"), f"{source}: line {head}")
    try:
        found = starts(filled)
    except ShellError as error:
        line = filled.split("\n")[error.line - 1]
        raise refusal(error, line, head, source) from None
    if len(found) != 1:
        raise InputError(
            f"{source}: line {head}: the command has {len(found)} commands; a recipe is never "
            "given to a shell: write one."
        )
    return replace(found[0], line=head)


def _filled(template: str, values: Mapping[str, object], version: object, source: str) -> str:
    """A template with its values; in the first version two braces stand for one.

    Raises InputError for a placeholder without a value, and for values that never end.
    """
    first = str(version) == "1"
    for _ in range(_PASSES):
        pieces, at, length = [], 0, 0
        for place in (RE["place_or_brace"] if first else RE["place"]).finditer(template):
            key = place[1]
            if key is not None and key not in values:
                known = ", ".join(values)
                raise InputError(f"{source}: the command has {{{key}}}; defaults have: {known}.")
            value = place[0][0] if key is None else values[key]
            piece = "" if value is None else str(value)
            pieces += [template[at : place.start()], piece]
            at, length = place.end(), length + len(pieces[-2]) + len(piece)
            if length > _LONGEST:
                raise InputError(f"{source}: the command is longer than {_LONGEST >> 10} KiB.")
        template = "".join(pieces) + template[at:]
        if first or not pieces:
            return template
    raise InputError(f"{source}: values of defaults have placeholders without end.")


def _made(document: dict[str, object], defaults: dict[str, object], source: str) -> tuple[str, ...]:
    """The command that sparkrun makes of defaults where a recipe has none."""
    runtime = str(document.get("runtime") or "")
    table = next((one for one in tables() if runtime in one.runtimes), None)
    if table is None:
        known = [name for one in tables() for name in one.runtimes]
        raise InputError(
            f"{source}: it has no command, and the runtime {quoted(runtime)} is not known; "
            f"{did_you_mean(runtime, known)} Or write its command."
        )
    line, words = table.commands[0], []
    name = next(flag for flag, known in line.flags.items() if known.key == "model")
    for key, value in {name: document["model"], **defaults}.items():
        flag = key if key == name else table.keys.get(key, f"--{key.replace('_', '-')}")
        if value is not False and value is not None:
            words += [flag, *([] if value is True else [str(value)])]
    return (*line.begins[0].split(), *words)


def read_documents(text: str, source: RecipeFile) -> list[Start]:
    """What the documents of a YAML file start; raises InputError where none is a recipe."""
    parts = [
        one for one in RE["next"].sub("\0", text).split("\0") if re.search(r"(?m)^\s*[^\s#]", one)
    ]
    begins = [text.find(one) for one in parts]
    parts = ["\n" * text.count("\n", 0, at) + one for at, one in zip(begins, parts, strict=True)]
    documents = [parse_yaml(one, source.name, aliases=True) for one in parts or [""]]
    read = [_of_document(one, source) for one in documents]
    if not any(read):
        first = documents[0][0] if isinstance(documents[0], list) else documents[0]
        keys = {*first} if isinstance(first, dict) else set()
        known = (what for names, what in reasons("no_recipe").items() if {*names.split()} <= keys)
        lines = ((n, x.split()) for n, x in enumerate(text.split("\n"), 1) if mentioned().search(x))
        begun = ((n, find(one[k : k + 4])) for n, one in lines for k in range(len(one)))
        line = next((f" of line {n}" for n, one in begun if one and one[1]), "")
        paste = f"paste the command{line} into a text file, and import that"
        raise InputError(f"{source}: it is {next(known)}; {paste}.")
    others = [
        Omission(f"kind: {document['kind']}", _NO_ENGINE)
        for document, starts in zip(documents, read, strict=True)
        if not starts and is_manifest(document)
    ]
    first, *more = (start for starts in read for start in starts)
    return [replace(first, left_out=(*first.left_out, *others)), *more]


def _of_document(document: object, source: RecipeFile) -> list[Start]:
    """What one document starts; nothing where it is no recipe."""
    if is_manifest(document):
        containers = _as_services(document)
        found = read_launch_file({"containers": containers}, source) if containers else []
        return [one.within({}, _around(document)) for one in found[:1]] + found[1:]
    if is_launch_file(document):
        return read_launch_file(document, source)
    if recognises_recipe(document):
        return [read_recipe(document, source.name)]
    if is_sparkrun(document):
        return [read_sparkrun(document, source.text, source.name)]
    return [read_config(document)] if recognises_config(document) else []


def is_manifest(document: object) -> TypeGuard[dict[str, object]]:
    """Whether a YAML document is one of Kubernetes."""
    return isinstance(document, dict) and isinstance(document.get("kind"), str)


def _around(value: object, path: str = "") -> Iterator[Omission]:
    """The keys of a manifest above its containers, by path; of what it is called none."""
    why = reasons("manifests")
    for key, one in (pair for pair in _pairs(value) if pair[0] not in _OF_ITS_NAME):
        if isinstance(one, dict | list) and _containers({key: one}):
            yield from _around(one, f"{path}{key}.") if key != "containers" else ()
        else:
            at = f"{path}{key}"
            yield from without_meaning({at: one}, (), {at: why.get(key, why[""])})


def _as_services(document: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The containers of a manifest as services of a compose file.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#Container
    """
    found: dict[str, dict[str, object]] = {}
    for one in _containers(document):
        given: dict[str, object] = {}
        for each in (each for _, each in _pairs(one.pop("env", None)) if isinstance(each, dict)):
            name = str(each.get("name"))
            given[name] = each.get("value", None if "secretKeyRef" in str(each) else f"$({name})")
        block = {"entrypoint": one.pop("command", None), "command": one.pop("args", None)}
        text = re.sub(r"\$(?=[\w{])", "$$", json.dumps(block, default=str))
        for name, value in given.items():
            text = text.replace(f"$({name})", json.dumps(str(value))[1:-1])
        name = str(one.pop("name", len(found)))
        found[name] = {**one, **json.loads(text), "environment": given}
    return found


def _containers(value: object) -> list[dict[str, object]]:
    """The containers of a manifest, wherever its kind has them."""
    found: list[dict[str, object]] = []
    for key, one in _pairs(value):
        if key == "containers" and isinstance(one, list):
            found += [dict(each) for each in one if isinstance(each, dict)]
        else:
            found += _containers(one)
    return found


def _pairs(value: object) -> list[tuple[str, object]]:
    """What is in a table, by its keys, or in a list, by its places; of another value nothing."""
    table = dict(enumerate(value)) if isinstance(value, list) else value
    return [(str(key), one) for key, one in table.items()] if isinstance(table, dict) else []


def text_reader(text: str) -> Callable[[str, RecipeFile], list[Start]] | None:
    """The reader of a file that is no YAML: of a unit or a Dockerfile."""
    return read_unit if is_unit(text) else read_dockerfile if is_dockerfile(text) else None


def fenced(text: str) -> bool:
    """Whether a page has such a file, or a unit, in a fence."""
    return any(is_file(one["text"]) for one in RE["fence"].finditer(text))


def is_file(text: str) -> bool:
    """Whether a text is a file of a form that starts servers."""
    return bool(RE["document"].search(text)) or is_unit(text) or is_dockerfile(text)


def read_fenced(text: str, source: RecipeFile) -> tuple[list[Start], str]:
    """What the files of a page start, and the page without them; raises InputError.

    A fence with nothing but variables is the .env of the files.
    """
    fences = [*RE["fence"].finditer(text)]
    alone = [one["text"] for one in fences if RE["variables"].fullmatch(one["text"])]
    values = {name: one for each in alone for name, _, one in RE["variable"].findall(each)}
    known = {name: one for name, one in values.items() if one and not is_secret(name, one)}
    found: list[Start] = []
    for one in (one for one in fences if is_file(one["text"])):
        part = "\n" * text.count("\n", 0, one.start("text")) + one["text"]
        if read := text_reader(part):
            found += read(
                "\n".join([part, *alone] if "EnvironmentFile" in part else [part]), source
            )
        else:
            part = RE["reference"].sub(lambda use: known.get(use[1] or use[2], use[0]), part)
            found += read_documents(part, source)
        text = text[: one.start()] + re.sub(r"[^\n]", " ", one[0]) + text[one.end() :]
    return found, text
