"""Recipes as the text of a sweep, and which form a file has."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from nixwulf.core import secrets
from nixwulf.core.errors import InputError
from nixwulf.core.files import read_text
from nixwulf.core.secrets import named_secrets
from nixwulf.core.text import plural, slug
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.sweep.plan import parse_sweep
from nixwulf.sweep.recipes import (
    MOST_TEXT,
    Omission,
    RecipeFile,
    Start,
    SweepRecipe,
    Value,
    forms,
    is_yaml,
    pasted,
)
from nixwulf.sweep.recipes.command_lines import RE, groups
from nixwulf.sweep.recipes.translate import translate

_LONGEST_NAME = 40
_MOST_YAML = 1 << 18
_WIDTH = 120
_MODULE, _RUNS_MODULE = re.compile(r"[./]"), "runs a Python module"
_SHORTEST_SECRET = 6  # a shorter one may be part of any word
_WORD = re.compile(r"[^\s\"']+")


def read_recipes(path: Path, model: str = "") -> list[SweepRecipe]:
    """The recipes of a file: one of YAML by its suffix, else one for each command of a text.

    model: instead of the recipe's own; empty: that. Raises InputError, with the line, for what is
    no recipe or one that no sweep can say; a secret of the file is in none of its sentences.
    """
    text = read_text(path, _MOST_YAML)
    words = _WORD.findall(text)
    hidden = {*named_secrets(words, {}), *filter(passthrough.has_key, words)}
    hidden |= {*secrets.written(text)}
    secrets.use(hidden)  # so that no sentence cuts one in two, which would not be found below
    try:
        found = [translate(start, str(path), model, text) for start in _starts(path)]
    except InputError as error:
        raise InputError(secrets.pattern(frozenset(hidden)).sub("...", error.message)) from None
    if not found:
        raise InputError(f"{path}: it has no command; paste one into it.")
    long = secrets.pattern(frozenset(one for one in hidden if len(one) >= _SHORTEST_SECRET))
    for one in found:
        if long.search(repr((one.model, one.draft, one.parameters, one.arguments))):
            raise InputError(
                f"{path}: the sweep of {one.engine} would have a secret of the file; write its "
                "command without it."
            )
    return [
        replace(one, left_out=tuple(replace(x, what=long.sub("...", x.what)) for x in one.left_out))
        for one in found
    ]


def is_recipe(path: Path) -> bool:
    """Whether a file may be a recipe: it is YAML by its suffix, or has a command of an engine."""
    if is_yaml(path):
        return True
    try:
        text = read_text(path, MOST_TEXT)
        return bool(forms.is_file(text) or pasted.recognises(text))
    except InputError:
        return False


def _starts(path: Path) -> Sequence[Start]:
    text = read_text(path, _MOST_YAML)
    source = RecipeFile(str(path), text)
    if (read := forms.text_reader(text)) and not forms.fenced(text):
        return read(text, source)
    if is_yaml(path) or (RE["document"].search(text) and not forms.fenced(text)):
        return forms.read_documents(text, source)
    text = read_text(path, MOST_TEXT)
    if not forms.fenced(text):
        return pasted.read(text, RecipeFile(str(path)))
    found, rest = forms.read_fenced(text, source)
    more = pasted.read(rest, RecipeFile(str(path))) if pasted.recognises(rest) else []
    return [*found, *more]


def sweep_text(recipes: Sequence[SweepRecipe], name: str, source: str) -> str:
    """The YAML of a sweep: the first recipe is its matrix, the others are more blocks.

    Raises InputError: what is made is no sweep, such as for a variable's name that is none.
    """
    models: dict[str, object] = {}
    blocks: list[dict[str, object]] = []
    for recipe in recipes:
        called = _add(recipe.model, models)
        draft = _add(recipe.draft, models) if recipe.draft else ""
        block = _block(recipe, called, draft)
        blocks += [] if block in blocks else [block]
    first = recipes[0]
    document = {
        "name": slug(name, _LONGEST_NAME, also="._") or "recipe",
        **({"description": first.description} if first.description else {}),
        "models": models,
        "matrix": blocks[0],
        **({"include": blocks[1:]} if blocks[1:] else {}),
        **_of_all(recipes),
        "limits": {key: max(one.limits[key] for one in recipes) for key in first.limits},
    }
    parse_sweep(document, source)
    body = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=_WIDTH)
    names = ", ".join(dict.fromkeys(one.engine for one in recipes))
    read = f"{plural(len(recipes), 'command')} of {names}"
    out = f"{len(left_out(recipes))} left out"
    return f"# From {Path(source).name!a}, by 'nixwulf import': {read}; {out}.\n{body}"


def left_out(recipes: Sequence[SweepRecipe]) -> list[Omission]:
    """What of them the sweep does not have, each once."""
    found = [one for recipe in recipes for one in recipe.left_out]
    kept = _of_all(recipes)
    found += [
        Omission(f"{key} {value}", f"all cases of a sweep have one, {kept[key]}")
        for key, value in (pair for recipe in recipes for pair in recipe.sweep.items())
        if kept[key] != value
    ]
    return list(dict.fromkeys(replace(one, what=_without_secrets(one.what)) for one in found))


def _without_secrets(text: str) -> str:
    for secret in named_secrets(_WORD.findall(text), {}):
        text = text.replace(secret, "...")
    return f"{text.split()[0]} ..." if passthrough.has_key(text.replace("...", "")) else text


def _of_all(recipes: Sequence[SweepRecipe]) -> dict[str, Value]:
    """Keys of the sweep itself, each as in the first recipe that has it."""
    return {key: one for recipe in reversed(recipes) for key, one in recipe.sweep.items()}


def active_lines(recipe: SweepRecipe) -> list[str]:
    """What of a recipe runs code or takes what is the user's, though the sweep keeps it."""
    environment = passthrough.environment_text(recipe.environment, recipe.name)
    # A plug-in is a path or a module with a dot: '--reasoning-parser qwen3' names a built-in one.
    flags = groups(shlex.split(recipe.arguments))
    built_in = [
        one[0].partition("=")[0] for one in flags if one and not _MODULE.search(" ".join(one))
    ]
    found = passthrough.active(
        {passthrough.ARGUMENTS: recipe.arguments, passthrough.ENVIRONMENT: environment}
    )
    return [one for one in found if not (one.endswith(_RUNS_MODULE) and one.split()[0] in built_in)]


def _add(model: Mapping[str, str], models: dict[str, object]) -> str:
    """Put a model among others and give its name; another one of the same name has a number."""
    end = (model.get("id") or model.get("served") or model["path"]).rstrip("/").rpartition("/")[2]
    name = slug(end.removesuffix(".gguf"), _LONGEST_NAME - 3, also="._") or "model"
    numbered = (f"{name}-{number}" if number > 1 else name for number in count(1))
    called = next(one for one in numbered if models.get(one, model) == model)
    models[called] = dict(model)
    return called


def _block(recipe: SweepRecipe, model: str, draft: str) -> dict[str, object]:
    """Its axes, each with one value but for lists of a benchmark's flags; draft may be empty."""
    parameters: dict[str, list[Any]] = {key: list(one) for key, one in recipe.parameters.items()}
    drafts = parameters.get(speculation.DRAFT, [])
    own = [json.loads(one) for one in drafts if str(one).startswith("{")]
    if own:
        parameters[speculation.DRAFT] = [{**own[0], **({"model": draft} if draft else {})}]
    elif draft:
        parameters[speculation.DRAFT] = [draft]
    if recipe.arguments:
        parameters[passthrough.ARGUMENTS] = [recipe.arguments]
    if recipe.environment:
        parameters[passthrough.ENVIRONMENT] = [dict(recipe.environment)]
    return {
        "engine": [recipe.engine],
        "benchmark": [recipe.benchmark],
        "model": [model],
        "nodes": [recipe.nodes],
        "parallelism": [recipe.parallelism],
        **({"transport": [recipe.transport]} if recipe.transport else {}),
        **({"parameters": parameters} if parameters else {}),
    }
