"""What a recipe starts, flag by flag, as a recipe in the words of a sweep."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from nixwulf.core.errors import InputError, quoted
from nixwulf.core.registry import Parameter
from nixwulf.core.schema import schema
from nixwulf.core.secrets import SECRET_NAME, is_secret, without_user
from nixwulf.core.text import plural
from nixwulf.llm.catalog import ON_HUB
from nixwulf.plugins import benchmarks, engines
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.sweep.plan import known_parameters
from nixwulf.sweep.recipes import Omission, Start, SweepRecipe, Value, command_lines
from nixwulf.sweep.recipes.command_lines import CommandLine, Flag, joined, require_plain

_HIDDEN = "a sweep has no secret; export it where you run nixwulf"
_TOKENS = "num_speculative_tokens"
_COUNT = re.compile(r"[0-9]{1,9}")
# Flags whose values may have signs of a template of their own.
_TEXTS = re.compile("template|reasoning|prompt|stop|prefix|suffix|token|grammar|schema")
_OWN_CHOICE = ("-1", "auto")  # of an engine, for a number
_NAMES = ("model", "hub", "parallelism", "transport", "served", "tokenizer")
_MODEL = ("model", "hub", "tokenizer")  # which --model may say instead
_OF_THE_SWEEP = ("seed", "samples", "warm_up")
_MODELS = PurePosixPath("/models")
_OF_THE_MODEL = "mtp"  # deepseek_mtp, qwen3_next_mtp, ... are older names of it


@dataclass
class Drafting:
    """What flags say of a draft; model: a name on Hugging Face or a path; tokens: for a step.

    hub: its name there where a flag of its own has it. more: further keys, for the engine as is.
    """

    method: str = ""
    model: str = ""
    hub: str = ""
    tokens: int = 0
    more: dict[str, object] = field(default_factory=dict)

    def read_json(self, text: str) -> str:
        """Take the value of a flag that has drafts as JSON; returns why it cannot be read."""
        document = command_lines.as_json(text)
        if not isinstance(document, Mapping):
            return "its value is no JSON object"
        self.more = dict(document)
        method, model = self.more.pop("method", None), self.more.pop("model", None)
        tokens = str(self.more.pop(_TOKENS, 0) or 0)
        if not (isinstance(method, str) and method) and not (isinstance(model, str) and model):
            return "it has no method and no model"
        if not _COUNT.fullmatch(tokens):
            return f"its {_TOKENS} is no number"
        self.method, self.model, self.tokens = str(method or ""), str(model or ""), int(tokens)
        return ""

    @property
    def words(self) -> dict[str, object]:
        """Method, tokens and further keys as under `draft` of a sweep, without the model.

        A word that every engine has is that word: then nothing of this is left.
        """
        method = self.method
        if method.rpartition("_")[2] == _OF_THE_MODEL and not self.model:
            method = speculation.MTP
        plain = not self.more and (not method or not self.model)
        if plain and method in ("", speculation.MTP, speculation.NGRAM):
            return {}
        given = {"method": method, "tokens": self.tokens, **self.more}
        return {key: one for key, one in given.items() if one not in ("", 0)}


@dataclass
class _Found:
    """What the flags of a command line give; parameters: of the engine and the benchmark."""

    line: CommandLine
    parameters: Mapping[str, Parameter]
    model: str = ""
    hub: str = ""
    draft: Drafting = field(default_factory=Drafting)
    splits: dict[str, int] = field(default_factory=dict)
    parallelism: str = ""
    transport: str = ""
    served: str = ""
    tokenizer: str = ""
    context: tuple[int, str] | None = None  # of all slots, and how it is written
    values: dict[str, dict[Value, None]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    left_out: list[Omission] = field(default_factory=list)


def translate(start: Start, source: str, model: str = "", text: str = "") -> SweepRecipe:
    """A recipe of what starts it.

    model: instead of the recipe's own; empty: that. text: of the whole recipe.

    Raises InputError: no engine of this version is started so, no model is named, a word is for a
    shell, or it is split in two ways at once.
    """
    source = f"{source}: line {start.line}" if start.line else source
    line, words = command_lines.require(start.words, source)
    line, words = line.within_text(text, words), joined(line, words)
    engine, benchmark = engines.find(line.engine, source), benchmarks.find(line.benchmark, source)
    given = {k: str(v) for k, v in start.environment.items() if k in line.variables and v}
    found = _Found(line, known_parameters(benchmark.name, engine.name, source))
    for name, value in given.items():
        _read_variable(found, name, value, engine, source)
    _read(found, words, engine, source)
    nodes, parallelism = _split(found, engine, source)
    values = _values(found, nodes)
    others = {name: one for name, one in start.environment.items() if name not in given}
    environment = _environment(others, engine, found)
    document = _model(model or found.model, "" if model else found.hub, engine, found, source)
    if found.tokenizer and "path" in document:
        document["tokenizer"] = _model(found.tokenizer, "", engine, found, source)["path"]
    draft = _draft(found, values, engine, source)
    return SweepRecipe(
        name=start.name,
        description=start.description,
        engine=engine.name,
        benchmark=benchmark.name,
        model=document,
        draft=draft,
        nodes=nodes,
        parallelism=parallelism,
        transport=found.transport if nodes > 1 else "",
        parameters={key: one for key, one in values.items() if key not in _OF_THE_SWEEP},
        arguments=_arguments(found, environment, engine, source),
        environment=environment,
        sweep={key: one[-1] for key, one in values.items() if key in _OF_THE_SWEEP},
        limits=line.limits,
        left_out=(*start.left_out, *found.left_out),
    )


def _values(found: _Found, nodes: int) -> dict[str, list[Value]]:
    """The values of parameters, with those that nobody gave and the engine would take."""
    values = {key: list(given) for key, given in found.values.items()}
    several = found.line.otherwise_on_several if nodes > 1 else {}
    for key, value in {**found.line.otherwise, **several}.items():
        values.setdefault(key, [value])
    if "concurrency" in values and "requests" in found.parameters:
        most = max(int(one) for one in values["concurrency"])
        if "requests" not in values:
            values["requests"] = [max(most, int(found.parameters["requests"].default))]
            why = f"the recipe has none; requests {values['requests'][0]} is the driver's choice"
            found.left_out.append(Omission("a number of requests", why))
    _depth(found, values)
    if nodes == 1 and "split" in values:
        found.left_out.append(Omission(f"split {values.pop('split')[0]}", "it is of one node"))
    return values


def _arguments(found: _Found, environment: dict[str, object], engine: Engine, source: str) -> str:
    """The flags that stay as they are; raises InputError for what a shell or the driver sets."""
    require_plain(map(str, environment.values()), source)
    _require_filled(map(str, environment.values()), source)
    require_plain((word for word in found.arguments if word.startswith("~")), source)
    arguments = {passthrough.ARGUMENTS: shlex.join(found.arguments)}
    if taken := passthrough.problem(arguments, engine.reserved_arguments, {}):
        raise InputError(f"{source}: {taken}.")
    return arguments[passthrough.ARGUMENTS]


def _read_variable(found: _Found, name: str, value: str, engine: Engine, source: str) -> None:
    """Take a variable that says what a flag does; sentences have its own name."""
    flag, before = found.line.variables[name], len(found.left_out)
    _read(found, [flag, value], engine, source)
    if found.context and found.context[1].startswith(flag):
        found.context = found.context[0], f"{name}={value}"
    found.left_out[before:] = [
        replace(one, what=one.what.replace(f"{flag} ", f"{name}=", 1))
        for one in found.left_out[before:]
    ]


def _read(found: _Found, words: Sequence[str], engine: Engine, source: str) -> None:
    (*loose,), *flags = command_lines.groups(words)
    for first, *values in flags:
        name, equals, joined = first.partition("=")
        given = [joined, *values] if equals else values
        flag = found.line.flag(name)
        instead = passthrough.instead_of_flag(first, engine.reserved_arguments)
        if flag is None and instead is None:
            if _has_secret(name, given):
                found.left_out.append(Omission(_shown(name, given), _HIDDEN))
            else:
                _require_filled([] if _TEXTS.search(name) else given, source)
                found.arguments += [first, *values]
            continue
        if flag is None or not flag.key:
            why = flag.why if flag else _set_by(instead or "")
            found.left_out.append(Omission(_shown(name, given), why))
            continue
        _require_filled([] if flag.key in _MODEL else given[:1], source)
        loose += _given(found, flag, name, given, source)
    if found.line.model_first and loose and not found.model:
        found.model = loose.pop(0)
    _require_filled(loose, source)
    if loose:
        raise InputError(
            f"{source}: the word {quoted(loose[0])} belongs to no flag; write it after one, or "
            "leave it out."
        )


def _require_filled(words: Iterable[str], source: str) -> None:
    """Raise InputError for a word that a template has for a value."""
    if found := next(filter(None, map(command_lines.placeholder, words)), ""):
        what = f"{quoted(found)} stands for a value that the recipe does not have"
        raise InputError(f"{source}: {what}; write the value there.")


def _given(
    found: _Found, flag: Flag, name: str, given: Sequence[str], source: str
) -> Sequence[str]:
    """Take the value of a flag; returns the words behind it."""
    given = [",".join(given)] if flag.reads == "workers" else given
    taken = 0 if flag.alone and (not given or given[0] not in flag.by_value) else 1
    if taken and not given:
        raise InputError(f"{source}: {name} has no value; write one after it.")
    text = given[0] if taken else ""
    if flag.key == "url" and (bare := without_user(text)) != text:
        found.left_out.append(Omission(f"the user and the password in {name}", _HIDDEN))
        text = bare
    listed = found.line.several and flag.key not in ("model", "hub", "nodes")
    if not found.line.several:
        found.values.pop(flag.key, None)
    if found.line.several and flag.key in _NAMES and (other := getattr(found, flag.key)):
        found.left_out.append(Omission(_shown(name, [other]), "a case has one"))
    parts = text.split(",") if listed else [text]
    if flag.reads == "int" and listed and flag.key not in _OF_THE_SWEEP:
        parts = command_lines.in_list(text)
    # Of a list of which a part has no key, the others alone are another measurement.
    for part in [text] if flag.by_value and None in map(flag.value, parts) else parts:
        _take(found, flag, name, part, source)
    return given[taken:]


def _take(found: _Found, flag: Flag, name: str, text: str, source: str) -> None:
    """What one flag with one value gives; raises InputError for one that no sweep has."""
    value = flag.value(text)
    shown, problem = _shown(name, [text] if text else []), ""
    if flag.reads in ("drafting", "draft"):
        problem = _take_draft(found.draft, flag, text)
    elif value is None or not _fits(flag.key, value, found.parameters):
        own = flag.reads == "int" and text in _OWN_CHOICE
        why = flag.why or ("the engine chooses it" if own else "")
        # Without it the engine's default would be measured, which the recipe does not run.
        problem = "" if why else f"a sweep has no such {flag.key}"
        found.left_out.append(Omission(shown, why))
    elif flag.key in _NAMES:
        setattr(found, flag.key, str(value))
    elif flag.reads == "context":
        found.context = int(value), shown
    elif flag.key == "nodes":
        found.splits[flag.parallelism] = int(value)
        if flag.why:
            read = f"{shown}, read as {plural(int(value), 'node')}"
            found.left_out.append(Omission(read, flag.why))
    else:
        found.values.setdefault(flag.key, {})[value] = None
        if flag.reads == "percent" and not math.isclose(float(text) * 100, int(value)):
            found.left_out.append(Omission(shown, f"the parameter is whole per cent: {value}"))
    if problem:
        raise InputError(f"{source}: {shown}: {problem}; write another value, or leave it out.")


def _take_draft(draft: Drafting, flag: Flag, text: str) -> str:
    """What a flag says of a draft: all, its method, model or tokens, or a key of the engine's own.

    Returns why it cannot be read. Methods that every engine has have the sweep's words.
    """
    if flag.reads == "drafting":
        return draft.read_json(text)
    if flag.key == "method":
        draft.method = str(flag.by_value.get(text, text))
    elif flag.key in ("model", "hub"):
        setattr(draft, flag.key, text)
    elif flag.key != "tokens":
        draft.more[flag.key] = int(text) if _COUNT.fullmatch(text) else text or True
    elif not _COUNT.fullmatch(text):
        return "it is no number"
    else:
        draft.tokens = int(text)
    return ""


def _draft(
    found: _Found, values: dict[str, list[Value]], engine: Engine, source: str
) -> dict[str, str]:
    """The model that drafts as under `models`; of a path, which a parameter takes, nothing."""
    draft = found.draft
    draft.model = draft.model or draft.hub
    document = _model(draft.model, draft.hub, engine, found, source) if draft.model else {}
    if not (draft.method or draft.model):
        if draft.tokens:
            what = f"{draft.tokens} tokens of a draft"
            found.left_out.append(Omission(what, "it has no draft that the parameter draft has"))
        return {}
    path = {"model": document["path"]} if "path" in document else {}
    if draft.words:
        values[speculation.DRAFT] = [json.dumps({**draft.words, **path}, sort_keys=True)]
    else:
        method = speculation.NGRAM if draft.method == speculation.NGRAM else speculation.MTP
        values[speculation.DRAFT] = [path.get("model", method)]
        if draft.tokens:
            values[speculation.DRAFT_TOKENS] = [draft.tokens]
    return document if "id" in document else {}


def _fits(key: str, value: Value, parameters: Mapping[str, Parameter]) -> bool:
    """Whether a parameter, an axis or a key of the sweep itself can have a value."""
    if key in parameters:
        return parameters[key].problem(value) is None
    document = schema("sweep")
    rule = document["$defs"]["nodes"] if key == "nodes" else document["properties"].get(key, {})
    if "minimum" not in rule:
        return True
    return bool(rule["minimum"] <= value <= rule.get("maximum", value))


def _split(found: _Found, engine: Engine, source: str) -> tuple[int, str]:
    """The nodes, one GPU each, and how the model is split over them."""
    several = {name: count for name, count in found.splits.items() if count > 1}
    within = next((one for one in found.line.within if one in found.arguments), "")
    if within and "replicas" in several:
        raise InputError(
            f"{source}: with {within}, replicas {several['replicas']} share their GPUs or weights, "
            "and a sweep's are servers of their own; leave out one of the two."
        )
    if len(several) > 1:
        words = " and ".join(f"{name} {count}" for name, count in several.items())
        raise InputError(
            f"{source}: it splits the model in two ways at once, {words}, and a sweep does one; "
            "write one of them as 1."
        )
    for name, count in several.items():
        return count, found.parallelism or name or engine.parallelisms[0]
    if found.parallelism:
        what = f"a split by {found.parallelism}"
        found.left_out.append(Omission(what, "it is of one node, which splits nothing"))
    if found.line.unsaid and not found.splits:
        found.left_out.append(Omission("a number of nodes, read as 1 node", found.line.unsaid))
    return 1, "single"


def _depth(found: _Found, values: dict[str, list[Value]]) -> None:
    """Of the context that a server was given, what is there before the prompt of the benchmark."""
    if found.context is None:
        return
    context, shown = found.context
    keys = ("n_prompt", "n_gen")
    sizes = [int(values.get(key, [found.parameters[key].default])[0]) for key in keys]
    shared = not {*found.line.shared_cache}.isdisjoint(found.arguments)
    slots = 1 if shared else max(int(one) for one in values.get("concurrency", [1]))
    depth = context // slots - sum(sizes)
    if depth > 0:
        values["depth"] = [depth]
    whose = "the context that all slots share" if shared else "a slot's context"
    why = f"read as depth {max(depth, 0)}: {whose} without prompt and answer"
    whole = "it is the model's whole context; write as depth what is to be in it"
    found.left_out.append(Omission(shown, why if context else whole))


def _environment(given: Mapping[str, object], engine: Engine, found: _Found) -> dict[str, object]:
    """The variables that a sweep hands on; of a secret the name alone."""
    kept: dict[str, object] = {}
    for name, value in given.items():
        instead = passthrough.instead_of_variable(name, engine.reserved_variables)
        if instead:
            found.left_out.append(Omission(name, _set_by(instead)))
        elif value is None or value in (f"${name}", f"${{{name}}}"):
            kept[name] = None
        elif SECRET_NAME.search(name) or _has_secret(name, [str(value)]):
            kept[name] = None
            found.left_out.append(Omission(f"{name}=...", _HIDDEN))
        else:
            kept[name] = value if isinstance(value, bool) else str(value)
    return kept


def _model(name: str, hub: str, engine: Engine, found: _Found, source: str) -> dict[str, str]:
    """The model as under `models` of a sweep; raises InputError."""
    if found.served:
        return {"served": found.served}
    if not name and not hub:
        raise InputError(f"{source}: it names no model; add --model ORG/NAME, or a path.")
    _require_filled([name, hub], source)
    if known := _on_hub(name, hub, engine, found):
        return known
    require_plain([name.removeprefix("~")], source)
    bare = engine.hub_models and "/" not in name
    if hub or bare or "://" in name or not name.strip("/~."):
        raise InputError(
            f"{source}: the model {quoted(hub or name)} is no ORG/NAME and no path; add --model."
        )
    if name.startswith("/"):
        return {"path": name}
    path = str(PurePosixPath("/") / name.removeprefix("~").lstrip("/"))
    why = f"a sweep has whole paths: {path} is a guess, write where it is on the nodes"
    found.left_out.append(Omission(f"the model's path, {name}", why))
    return {"path": path}


def _on_hub(name: str, hub: str, engine: Engine, found: _Found) -> dict[str, str]:
    """A model by its name on Hugging Face; empty where it has none that the engine takes."""
    repository, _, quant = (hub or name).partition(":")
    if not ON_HUB.fullmatch(repository) or repository.endswith(engine.model_suffixes):
        return {}
    if engine.hub_models and not quant:
        return {"id": repository}
    if not (hub or quant) or not engine.model_suffixes:
        return {}
    file = f"{PurePosixPath(repository).name}{f'-{quant}' if quant else ''}"
    path = str(_MODELS / f"{file}{engine.model_suffixes[0]}")
    why = f"the sweep reads {path}: bring it there ('nixwulf models get'), or write its path"
    found.left_out.append(Omission(f"the model by name, {hub or name}", why))
    return {"path": path, "hub": repository}


def _set_by(instead: str) -> str:
    """'the driver sets it: use the axis nodes'."""
    reason = instead.removeprefix("nothing: ")
    return reason if reason != instead else f"the driver sets it; use {instead}"


def _has_secret(name: str, values: Sequence[str]) -> bool:
    return any(is_secret(name, one) or passthrough.has_key(one) for one in values)


def _shown(flag: str, values: Sequence[str]) -> str:
    """A flag with its values, but for those of secrets."""
    secret = SECRET_NAME.search(flag) or _has_secret(flag, values)
    return shlex.join([flag, *(["..."] if secret and values else values)])
