"""Fifty public recipes become sweeps that can be planned, and no flag of theirs is lost.

public_recipes.json has the facts of each: where it is from, engine, model, flags, variables; no
text of theirs. They were chosen by a rule, before any was tried: in the order of their paths the
first 18 of the recipes of spark-arena/recipe-registry and the first 14 of spark-arena/eugr-recipes
(the mirror of eugr/spark-vllm-docker), of vllm-project/recipes the first 4 configuration files,
given a model as on a command line, and the first 4 recipes; of kyuz0 both commands of
amd-strix-halo-toolboxes' README that name a model, the first 3 of its first campaign, and the
first 5 rows of amd-strix-halo-vllm-toolboxes' table of models as its launcher starts them.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from nixwulf.inventory.cluster import parse_cluster
from nixwulf.plugins.runtime import speculation
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.recipes.as_sweep import left_out, read_recipes, sweep_text

FACTS = json.loads(Path(__file__).with_name("public_recipes.json").read_text())
# Flags that are keys of ours, as both projects' own documents have them, and of ours the key.
KEYS = {
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--dtype": "dtype",
    "-ub": "n_ubatch",
    "-b": "n_batch",
    "-d": "depth",
    "-n": "n_gen",
    "-p": "n_prompt",
}
OTHER_KEYS = {
    "--gpu-memory-utilization",
    "--enforce-eager",
    "--distributed-executor-backend",
    "--tensor-parallel-size",
    "-tp",
    "--pipeline-parallel-size",
    "-pp",
    "--seed",
    "-m",
    "-fa",
    "-mmp",
    "--no-mmap",
    "-r",
    "-c",
}


def command(words):
    return " \\\n  ".join(shlex.join(group) for group in words)


def rendered(facts):
    """A recipe of these facts in the form of its source, with the name of a file for it."""
    kept = {key: ["something"] for key in facts.get("keys", ())}
    if facts["form"] == "sparkrun":
        template = command([["vllm", "serve", facts["named"]], *facts["flags"]])
        document = {
            "recipe_version": facts["version"],
            "model": facts["model"],
            "container": "image",
            **kept,
            "defaults": facts["defaults"],
            "env": facts["environment"],
            "command": re.sub(r"'(\{\w+\})'", r"\1", template),
        }
        # A template quotes where its value has spaces.
        for key, value in facts["defaults"].items():
            if " " in str(value) or '"' in str(value):
                document["command"] = document["command"].replace(f"{{{key}}}", f"'{{{key}}}'")
        return "recipe.yaml", yaml.safe_dump(document, sort_keys=False, width=1 << 20)
    if facts["form"] == "config":
        return "config.yaml", yaml.safe_dump(facts["config"], sort_keys=False)
    if facts["form"] == "vllm-project":
        document = {
            "meta": {"description": "a model"},
            "model": {"model_id": facts["model"], "base_args": facts["base_args"]},
            "features": {name: {"args": words} for name, words in facts["features"].items()},
            "opt_in_features": facts["opt_in"],
            "variants": {
                "default": {"extra_args": facts["extra_args"], "extra_env": facts["environment"]},
                **{name: {"model_id": "another/model"} for name in facts["variants"]},
            },
            **kept,
        }
        return "recipe.yaml", yaml.safe_dump(document, sort_keys=False)
    variables = [f"{name}={value}" for name, value in facts["environment"].items()]
    return "command.txt", command([[*variables, *facts["program"]], *facts["flags"]]) + "\n"


def flags_of(facts):
    """Its flags with their values, filled in as Python, or as a shell's words, would."""
    values = {**facts.get("defaults", {}), "model": facts["model"]}
    if facts["form"] == "config":
        return [
            [f"--{key}", *([] if value is True else [str(value)])]
            for key, value in facts["config"].items()
        ]
    if facts.get("version") == "1":
        return [[word.format(**values) for word in group] for group in facts["flags"]]
    return [
        [re.sub(r"^\{(\w+)\}$", lambda place: str(values[place[1]]), word) for word in group]
        for group in facts["flags"]
    ]


def cluster_of(nodes):
    """As many DGX Sparks on one network."""
    return parse_cluster(
        {
            "name": "sparks",
            "fabrics": {
                "lan": {
                    "kind": "ethernet",
                    "speed_gbps": 10,
                    "mtu": 1500,
                    "subnet": "10.9.0.0/24",
                }
            },
            "nodes": [
                {
                    "name": f"spark{n}",
                    "platform": "dgx-spark",
                    "ssh": f"root@spark{n}.example",
                    "fabrics": {"lan": {"interface": "eth0", "address": f"10.9.0.{n}"}},
                }
                for n in range(1, nodes + 1)
            ],
        },
        "sparks.toml",
    )


def imported(facts, tmp_path):
    name, text = rendered(facts)
    path = tmp_path / name
    path.write_text(text)
    recipes = read_recipes(path, *([facts["model"]] if facts["form"] == "config" else []))
    sweep = parse_sweep(yaml.safe_load(sweep_text(recipes, path.stem, str(path))), str(path))
    return sweep, left_out(recipes)


def name_of(facts):
    return f"{facts['repository'].rpartition('/')[2]}/{facts['path']}:{facts['model']}"


def test_they_are_fifty_and_each_has_its_source():
    assert len(FACTS) == 50
    assert len({name_of(facts) + facts.get("program", [""])[0] for facts in FACTS}) == 50
    for facts in FACTS:
        assert re.fullmatch(r"[0-9a-f]{40}", facts["commit"])
        assert facts["repository"].count("/") == 1


@pytest.mark.parametrize("facts", FACTS, ids=name_of)
def test_it_is_planned_on_as_many_nodes_as_it_splits_its_model_over(facts, tmp_path):
    sweep, _ = imported(facts, tmp_path)
    plan = make_plan(sweep, cluster_of(facts["nodes"]))
    assert {(case.engine, case.nodes, case.parallelism) for case in plan.cases} == {
        (facts["engine"], facts["nodes"], facts["parallelism"])
    }
    depths = next((g[1] for g in facts.get("flags", ()) if g[0] == "-d"), "0")
    assert len(plan.cases) == len(depths.split(","))
    model, *_ = sweep.models.values()  # and one that drafts
    assert (model.id or str(model.path)).lstrip("/") == facts["model"].lstrip("/")


def drafts_so(config, case, sweep):
    """A case drafts as vLLM's configuration does: its method, model, tokens and every other key."""
    draft = speculation.of(case.parameters)
    if "model" in config:
        assert sweep.models[draft.model].id == config["model"]
    method = config.get("method", "")
    plain = "mtp" if method.endswith("mtp") and "model" not in config else method
    assert (draft.method or draft.kind) == (plain or "model")
    assert draft.tokens == config.get("num_speculative_tokens", 0)
    assert draft.more == {
        key: one
        for key, one in config.items()
        if key not in ("method", "model", "num_speculative_tokens")
    }


@pytest.mark.parametrize("facts", FACTS, ids=name_of)
def test_each_flag_and_variable_is_a_key_or_an_argument_or_named(facts, tmp_path):
    sweep, omissions = imported(facts, tmp_path)
    case = make_plan(sweep, cluster_of(facts["nodes"])).cases[0]
    arguments = shlex.split(case.parameters.get("arguments", ""))
    named = [shlex.split(one.what) for one in omissions if one.what.startswith("-")]
    for group in flags_of(facts):
        if group[0] in KEYS and group not in named:
            value = case.parameters[KEYS[group[0]]]
            assert str(value) == group[1].partition(",")[0]
        elif group[0] == "--speculative-config" and group not in named:
            drafts_so(json.loads(group[1]), case, sweep)
        elif group not in named and group[0] not in OTHER_KEYS:
            at = arguments.index(group[0])
            assert arguments[at : at + len(group)] == group
            del arguments[at : at + len(group)]
    assert arguments == []
    environment = dict(
        word.partition("=")[::2] for word in shlex.split(case.parameters.get("environment", ""))
    )
    others = {one.what for one in omissions}
    for name, value in facts["environment"].items():
        assert name in others or environment.pop(name) == str(value)
    assert environment == {}
    for key in facts.get("keys", ()):
        assert any(one.what.partition(":")[0] == key for one in omissions)


@pytest.mark.parametrize("facts", FACTS, ids=name_of)
def test_numbers_of_its_flags_are_those_of_its_case(facts, tmp_path):
    sweep, _ = imported(facts, tmp_path)
    case = make_plan(sweep, cluster_of(facts["nodes"])).cases[0]
    flags = {group[0]: group[1:] for group in flags_of(facts)}
    if share := flags.get("--gpu-memory-utilization"):
        percent = case.parameters["gpu_memory_percent"]
        assert abs(percent - float(share[0]) * 100) <= 0.5
    if facts["engine"] == "vllm":
        assert case.parameters["eager"] == ("--enforce-eager" in flags)
        if facts["nodes"] > 1:
            ray = flags.get("--distributed-executor-backend") == ["ray"]
            assert case.parameters["executor"] == ("ray" if ray else "mp")
    else:
        assert case.parameters["flash_attn"] == "on"
        assert case.parameters["load"] == "none"
    if seed := flags.get("--seed"):
        assert case.seed == int(seed[0])
    if repetitions := flags.get("-r"):
        assert case.samples == int(repetitions[0])
