"""What a sweep passes on to an engine as it is, by real llama.cpp in the lab."""

import re
import shutil
import subprocess
from functools import partial

import pytest
import yaml
from lab_under_test import Silent, recorded_each

from nixwulf.llm.random_model import RandomModel
from nixwulf.plugins.engines import find
from nixwulf.plugins.runtime import passthrough
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.recipes.as_sweep import read_recipes, sweep_text

LEFT = "grep -ls -e rpc-server -e llama- /proc/[0-9]*/comm || true"
ENGINE = find("llama.cpp")
# What a sweep gives in another way, in the words of --help.
SET = re.compile(
    r"^\s*(?:-(?:m|rpc|sm|dev|ngl|t|b|ub|ctk|ctv|fa|lm|ts|p|n|d|np|c|r(?=, --rep)|s|o|v|lv)"
    r"|--host|--port)\b"
)
FLAG = re.compile(r"(?<!\S)--?[a-z][a-z-]*(?=[ ,]|$)")


def plan_for(cluster, benchmark="serve", **parameters):
    matrix = {
        "benchmark": [benchmark],
        "model": ["tiny"],
        "nodes": [2],
        "fabric": ["rdma-like"],
        "parallelism": ["pipeline"],
        "parameters": {"threads": [1], "n_prompt": [16], "n_gen": [8], **parameters},
    }
    models = {"tiny": {"random": {"layers": 4}}}
    document = {"name": "flags", "models": models, "matrix": matrix, "sanity": "short"}
    return make_plan(parse_sweep({**document, "samples": 1}, "flags.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded_each, nodes, tmp_path, LEFT)


@pytest.mark.parametrize("benchmark", ["serve", "llama-bench"])
def test_arguments_reach_what_reads_the_model_and_variables_every_program(run, cluster, benchmark):
    plan = plan_for(
        cluster,
        benchmark,
        arguments=["", "--poll 0"],
        environment=[{"GGML_SCHED_DEBUG": 0, "LLAMA_SOME": "a b"}],
    )
    for case, record in run(plan):
        assert record["outcome"] == "ok", record["failure"]
        assert record["case"]["parameters"]["environment"] == "GGML_SCHED_DEBUG=0 'LLAMA_SOME=a b'"
        for process in record["commands"]:
            reads = "rpc-server" not in process["argv"][0]
            passed = "--poll 0" in " ".join(process["argv"])
            assert passed == (reads and "arguments" in case.parameters)
            assert process["environment"]["LLAMA_SOME"] == "a b"


def test_a_pasted_command_is_a_sweep_whose_run_has_its_flags(run, cluster, tmp_path):
    model = ENGINE.random_model(RandomModel(layers=4))
    recipe = tmp_path / "recipe.txt"
    recipe.write_text(
        f"GGML_SOME=1 llama-bench -m {model} -ngl 99 -t 1 -p 16 -n 8 -r 1 \\\n"
        " -fa 1 -ctk q8_0 --poll 0 --rpc 10.0.0.2:50052\n"
    )
    text = sweep_text(read_recipes(recipe), "pasted", str(recipe))
    sweep = parse_sweep({**yaml.safe_load(text), "sanity": "short"}, "pasted.yaml")
    ((_, record),) = run(make_plan(sweep, cluster, "fabric=rdma-like"))
    assert record["outcome"] == "ok", record["failure"]
    (bench,) = [
        process
        for process in record["commands"]
        if "llama-bench" in process["argv"][0] and "-r" in process["argv"]
    ]
    words = " ".join(bench["argv"])
    for flags in ("-t 1", "-p 16 -n 8", "-r 1", "-fa ", "-ctk q8_0", "--poll 0"):
        assert flags in words
    assert bench["environment"]["GGML_SOME"] == "1"


def test_a_secret_of_the_drivers_environment_reaches_the_engine_and_no_record(
    run, cluster, monkeypatch
):
    monkeypatch.setenv("SOME_TOKEN", "s3cr3t-and-long-enough")
    ((_, record),) = run(plan_for(cluster, environment=[{"SOME_TOKEN": None}]))
    assert record["outcome"] == "ok", record["failure"]
    assert record["case"]["parameters"]["environment"] == "SOME_TOKEN"
    assert all("SOME_TOKEN" in process["environment"] for process in record["commands"])
    assert "s3cr3t" not in repr(record)


def test_an_unknown_flag_is_a_failed_run_with_the_engines_own_words(run, cluster):
    ((_, record),) = run(plan_for(cluster, arguments=["--no-such-flag 3"]))
    assert record["outcome"] == "failed"
    assert "invalid argument: --no-such-flag" in record["failure"]["reason"]


@pytest.mark.parametrize("program", ["llama-server", "llama-bench"])
def test_every_other_name_that_the_program_has_for_what_the_driver_sets_is_refused(program):
    place = ENGINE.find_local().programs[program]
    assert shutil.which(place)
    printed = subprocess.run([place, "--help"], capture_output=True, text=True, check=False)
    lines = [one for one in (printed.stdout + printed.stderr).splitlines() if SET.match(one)]
    flags = {flag for line in lines for flag in FLAG.findall(line.split("  ", 3)[0] + line[:48])}
    assert len(flags) > 20
    refused = partial(passthrough.problem, reserved=ENGINE.reserved_arguments, variables={})
    assert not {flag for flag in flags if not refused({"arguments": f"{flag} 1"})}
