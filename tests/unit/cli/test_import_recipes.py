"""nixwulf import of recipes: the sweep on standard output, the rest on standard error."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep.plan import load_sweep, make_plan
from tool_outputs import FIXTURES

# no output: a recipe of sparkrun's form
RECIPE = """\
recipe_version: "2"
model: org/model
runtime: vllm
container: ghcr.io/org/image:latest
min_nodes: 2
defaults: {port: 8000, tensor_parallel: 2}
env: {VLLM_USE_V1: 1}
command: |
  vllm serve {model} --port {port} -tp {tensor_parallel} --kv-cache-dtype fp8
"""


@pytest.fixture
def run(tmp_path):
    """The command on a file of this text."""

    def invoke(text, *options, name="recipe.yaml"):
        (tmp_path / name).write_text(text)
        return CliRunner().invoke(cli, ["import", str(tmp_path / name), *options])

    return invoke


def test_a_recipe_is_a_sweep_that_is_planned_on_a_shipped_cluster(run, tmp_path):
    done = run(RECIPE)
    assert done.exit_code == 0
    (tmp_path / "mine.yaml").write_text(done.stdout)
    plan = make_plan(load_sweep(tmp_path / "mine.yaml"), load_cluster("dgx-spark-2"))
    assert {(case.nodes, case.parallelism) for case in plan.cases} == {(2, "tensor")}
    (arguments,) = {case.parameters["arguments"] for case in plan.cases}
    assert arguments == "--kv-cache-dtype fp8"
    assert done.stderr.splitlines() == [
        "left out: container: 'ghcr.io/org/image:latest': the parameter toolbox takes an image, "
        "else the engine on PATH of each node",
        "left out: min_nodes: 2: nodes of the sweep says how many",
        "left out: --port 8000: the driver starts it and asks it",
    ]


def test_a_file_of_flags_takes_its_model_from_the_command_line(run):
    text = "kv-cache-dtype: fp8\nasync-scheduling: true\nno-enable-prefix-caching: false\n"
    refused = run(text)
    assert refused.exit_code == 2
    assert refused.stderr.endswith("it names no model; add --model ORG/NAME, or a path.\n")
    done = run(text, "--model", "org/model")
    document = yaml.safe_load(done.stdout)
    assert document["models"] == {"model": {"id": "org/model"}}
    (arguments,) = document["matrix"]["parameters"]["arguments"]
    assert arguments == "--kv-cache-dtype fp8 --async-scheduling"


@pytest.mark.parametrize("option", ["--platform=lab", "--nodes=2", "--out=there", "--format=json"])
def test_options_of_records_are_refused_beside_a_recipe(run, option):
    done = run(RECIPE, option)
    assert done.exit_code == 2
    assert f"whose sweep has no {option.partition('=')[0]}; leave it out." in done.stderr


def test_an_output_still_needs_a_platform_also_below_its_command(run):
    table = (FIXTURES / "llama-bench/two-depths.md").read_text()
    for text in (table, f"$ llama-bench -m /models/a.gguf -d 0,32\n{table}"):
        done = run(text, name="output.md")
        assert done.exit_code == 2
        assert "Missing option '--platform'." in done.stderr
        done = run(text, "--platform", "lab", "--model", "a", "--format", "json", name="output.md")
        assert done.exit_code == 0


def test_a_file_that_is_not_there_is_named_as_that(tmp_path):
    done = CliRunner().invoke(cli, ["import", str(tmp_path / "none.sh")])
    assert (done.exit_code, done.stderr) == (2, f"Error: {tmp_path}/none.sh: no such file.\n")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--reasoning-parser deepseek_r1", False),
        ("--logits-processors pkg.module:Class", True),
        ("--tool-parser-plugin /x/parser.py", True),
    ],
)
def test_only_a_path_or_a_module_with_a_dot_runs_python(run, flags, told):
    done = run(f"vllm serve org/a {flags}\n", name="recipe.txt")
    assert ("runs a Python module" in done.stderr) == told


def test_nothing_of_a_recipe_is_run(run, tmp_path):
    done = run(f"llama-server -m /a.gguf; touch {tmp_path / 'ran'}\n", name="recipe.txt")
    assert done.exit_code == 2
    assert "line 1 has a second command: 'llama-server -m /a.gguf; touch" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: &a [1]\nb: [*a, *c]\n", "an alias of itself, of nothing"),
        ("1: 2\n", "the key '1' is no text; put it in quotes"),
        ("model: !!python/object:os.system x\n", "not YAML: could not determine a constructor"),
        ("[a, b]\n", "it is no recipe of sparkrun, spark-vllm-docker or vllm-project"),
        ("", "it is no recipe of sparkrun, spark-vllm-docker or vllm-project"),
    ],
)
def test_hostile_yaml_is_one_sentence(run, text, sentence):
    done = run(text)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.repository
def test_the_session_of_the_page_is_what_is_printed(run):
    page = Path("docs/sweeps.md").read_text()
    text, shown = re.search(
        r"\$ cat command.txt\n(.*?)\$ nixwulf import .*?\n(.*?)```", page, re.DOTALL
    ).groups()
    done = run(text, name="command.txt")
    assert (done.exit_code, done.stderr) == (0, shown)


def test_the_sweep_alone_is_on_standard_output_and_bench_takes_it(tmp_path):
    recipe, sweep = tmp_path / "recipe.txt", tmp_path / "mine.yaml"
    recipe.write_text("llama-server -m /models/a.gguf --host 0.0.0.0 -np 2 --jinja\n")
    nixwulf = [sys.executable, "-m", "nixwulf"]
    with sweep.open("w") as file:
        done = subprocess.run(
            [*nixwulf, "import", recipe], check=False, stdout=file, stderr=subprocess.PIPE
        )
    assert (done.returncode, done.stderr.decode()) == (
        0,
        "left out: --host 0.0.0.0: the driver asks it\n"
        "left out: a number of requests: the recipe has none; requests 8 is the driver's choice\n",
    )
    # A dry run reads files only: no ssh is on PATH.
    argv = [*nixwulf, "bench", sweep, "--cluster", "framework-2", "--dry-run"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    plan = subprocess.run(argv, check=False, capture_output=True, text=True, env=environment)
    assert plan.returncode == 0, plan.stderr
    assert "--jinja" in plan.stdout
