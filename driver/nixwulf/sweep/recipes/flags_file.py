"""Configuration files of a server's flags (`vllm serve --config`), and vllm-project's recipes.

Both have flags alone, so that the command is known. Their keys:
https://docs.vllm.ai/en/latest/configuration/serve_args.html and
https://github.com/vllm-project/recipes/blob/main/CONTRIBUTING.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nixwulf.core.errors import InputError, quoted
from nixwulf.sweep.recipes.command_lines import config_command
from nixwulf.sweep.recipes.recipe import Omission, Start, mapping, reasons, without_meaning
from nixwulf.sweep.recipes.shell import require_plain

_KEY = re.compile(r"[a-z][a-z0-9_.-]*")
_REASONS = reasons("vllm_recipes")


def recognises_recipe(document: Any) -> bool:
    """Whether a YAML document is one of vllm-project's recipes."""
    model = document.get("model") if isinstance(document, dict) else None
    return isinstance(model, dict) and isinstance(model.get("model_id"), str)


def read_recipe(document: Mapping[str, Any], source: str) -> Start:
    """The default variant, with the features that are on where nobody chooses.

    Raises InputError for keys of another type than theirs.
    """
    model, features = document["model"], document.get("features") or {}
    opt_in = document.get("opt_in_features") or []
    variants = document.get("variants") or {}
    tables = isinstance(features, dict) and isinstance(variants, dict)
    if not tables or not isinstance(opt_in, list):
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
        left_out=(*without_meaning(document, known, _REASONS), *left_out),
    )


def recognises_config(document: Any) -> bool:
    """Whether a YAML document may be a configuration file: flags with one value each."""
    keys = document if isinstance(document, dict) else ()
    return bool(keys) and all(map(_KEY.fullmatch, keys))


def read_config(document: Mapping[str, Any]) -> Start:
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


def _words(block: Any, key: str, source: str) -> list[str]:
    found = block.get(key) or [] if isinstance(block, dict) else block
    if not isinstance(found, list) or not all(isinstance(one, str | int | float) for one in found):
        raise InputError(f"{source}: {key} is {quoted(found)}, expected a list of words.")
    return [str(one) for one in found]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
