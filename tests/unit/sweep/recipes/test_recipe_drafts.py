"""Drafts of recipes, by flags and by JSON, are the parameters draft and draft_tokens."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.plugins.engines import sglang, vllm
from nixwulf.plugins.engines.llama_cpp import options
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.recipes.command_lines import groups


# no output: configurations of vLLM, and what a sweep has of them
@pytest.mark.parametrize(
    ("words", "drafts", "named"),
    [
        ('{"method": "ngram", "num_speculative_tokens": 5}', {"draft": ["ngram"]}, []),
        ('{"method": "deepseek_mtp", "num_speculative_tokens": 2}', {"draft": ["mtp"]}, []),
        ('{"model": "org/head"}', {"draft": ["head"]}, []),
        (
            '{"method": "eagle3", "model": "org/head"}',
            {"draft": [{"method": "eagle3", "model": "head"}]},
            [],
        ),
        (
            '{"method": "ngram", "prompt_lookup_max": 4}',
            {"draft": [{"method": "ngram", "prompt_lookup_max": 4}]},
            [],
        ),
        (
            '{"method": "suffix", "num_speculative_tokens": 7}',
            {"draft": [{"method": "suffix", "tokens": 7}]},
            [],
        ),
        (
            '{"method": "dflash", "model": "/m/d2", "num_speculative_tokens": 15}',
            {"draft": [{"method": "dflash", "model": "/m/d2", "tokens": 15}]},
            [],
        ),
    ],
)
def test_drafts_of_a_servers_configuration_are_parameters(imported, words, drafts, named):
    # no output: a command
    document, said = imported(f"vllm serve org/model --speculative-config '{words}'")
    given = document["matrix"]["parameters"]
    plain = isinstance(drafts.get("draft", [{}])[0], str)
    tokens = re.findall(r"num_speculative_tokens\": (\d)", words) if plain else []
    assert {key: given[key] for key in given.keys() & {"draft"}} == drafts
    assert given.get("draft_tokens", []) == [int(one) for one in tokens]
    assert [one for one in said if "draft" in one or "speculative" in one] == named
    if "org/head" in words:
        assert document["models"]["head"] == {"id": "org/head"}


def test_drafts_of_llama_server_are_parameters_and_tokens_of_none_are_named(imported):
    # no output: a command
    document, _ = imported("llama-server -m /a.gguf -md /d.gguf --draft-max 8")
    assert document["matrix"]["parameters"] == {"draft": ["/d.gguf"], "draft_tokens": [8]}
    # no output: a command
    document, named = imported("llama-server -m /a.gguf --draft-max 8")
    assert "parameters" not in document["matrix"]
    assert named == ["8 tokens of a draft: it has no draft that the parameter draft has"]


RECIPES = tomllib.loads(Path("tests/unit/sweep/recipes/public_drafts.toml").read_text())["recipes"]
# no output: beginnings of commands
STARTS = {
    "vllm": "vllm serve org/model",
    "sglang": "sglang serve --model-path org/model",
    "llama.cpp": "llama-server -m /m/a.gguf",
}


def flags_of(words):
    """Flags with their values, JSON read; of a method of layers of the model the newer name."""
    found = {}
    for group in groups(words):
        for flag, *values in [group] if group else []:
            value = values[0] if values else ""
            found[flag] = json.loads(value) if value.startswith("{") else value
    config = found.get("--speculative-config", {})
    if str(config.get("method", "")).endswith("mtp") and "model" not in config:
        config["method"] = "mtp"
    return found


@pytest.mark.parametrize(
    "public", RECIPES, ids=[f"{one['engine']}-{number}" for number, one in enumerate(RECIPES)]
)
def test_the_draft_of_a_public_recipe_is_kept_and_passed_on_whole(imported, public):
    assert public["source"].startswith("https://github.com/")
    engine = public["engine"]
    # no output: a command
    document, said = imported(f"{STARTS[engine]} {public['words']}")
    assert not [one for one in said if "draft" in one or "spec" in one]
    case = make_plan(parse_sweep(document, "recipe.yaml"), load_cluster("lab")).cases[0]
    draft = speculation.of(case.parameters)
    models = document["models"]
    path = models.get(draft.model, {}).get("id", draft.model)
    run = SimpleNamespace(case=case, draft=path)
    given = {
        "vllm": lambda: vllm._draft(run),
        "sglang": lambda: sglang._draft(run),
        "llama.cpp": lambda: options.of_draft(case.parameters, path, (), ("--spec-type",)),
    }[engine]()
    launched = [*given, *passthrough.arguments(case.parameters)]
    wanted = flags_of(shlex.split(public["words"]))
    assert {flag: flags_of(launched).get(flag) for flag in wanted} == wanted


def test_they_are_thirty_and_one():
    assert len({(one["engine"], one["words"]) for one in RECIPES}) == 31
