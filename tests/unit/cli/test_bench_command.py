"""Bad input to bench: one sentence, exit 2, nothing half-written."""

import json

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.results.record import save
from nixwulf.sweep.plan import load_sweep, make_plan, save_plan
from nixwulf.sweep.session import record_path
from record_factory import case, ok

SWEEP = """
name: mine
models: {tiny: {random: {}}}
matrix: {model: [tiny], nodes: [1], parallelism: [single]}
"""


def refusal(*arguments):
    result = CliRunner().invoke(cli, ["bench", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: ")
    assert "Traceback" not in result.output
    assert result.output.count("\n") == 1
    return result.output


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def folder(tmp_path, sweep):
    save_plan(make_plan(load_sweep(sweep), load_cluster("lab")), tmp_path / "run" / "plan.json")
    return tmp_path / "run"


def test_a_sweep_that_yields_no_case(tmp_path, sweep):
    sweep.write_text(SWEEP.replace("[1]", "[64]").replace("single", "tensor"))
    assert "the sweep yields no case" in refusal(sweep, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_output_folder_that_is_not_empty_and_not_a_run(tmp_path, sweep):
    (tmp_path / "thesis.txt").write_text("mine")
    assert "is not empty and not a run" in refusal(sweep, "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.txt", "mine.yaml"}


def test_an_output_folder_that_is_a_run_is_to_be_resumed(folder, sweep):
    assert f"'nixwulf bench --resume {folder}'" in refusal(sweep, "--out", folder)


def test_resuming_what_is_no_run(tmp_path):
    assert "it has no plan.json" in refusal("--resume", tmp_path)


def test_resuming_a_run_whose_plan_differs(folder, sweep):
    sweep.write_text(SWEEP + "repetitions: 2\n")
    assert "was started with another plan" in refusal(sweep, "--resume", folder)


def test_resuming_a_run_whose_plan_was_edited(folder):
    document = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**document, "repetitions": 9}))
    assert "the plan was edited" in refusal("--resume", folder)


def test_resuming_a_run_with_a_record_that_was_edited(folder, sweep):
    plan = make_plan(load_sweep(sweep), load_cluster("lab"))
    path = record_path(folder, plan.cases[0], 0)
    save(ok(case(), {"decode": [10.0]}), path)
    document = json.loads(path.read_text())
    document["metrics"][0]["value"] = 99.0
    path.write_text(json.dumps(document))
    assert "the record was edited after the run" in refusal("--resume", folder)


def test_resume_and_out_together(folder, tmp_path):
    assert "leave out --out" in refusal("--resume", folder, "--out", tmp_path / "other")


def test_an_unknown_cluster_or_sweep():
    assert "No clusters/nowhere.toml; known: " in refusal("--cluster", "nowhere")
    assert "No sweeps/nowhere.yaml; known: " in refusal("nowhere")


def test_a_dry_run_prints_the_cases_and_what_is_left_out_and_writes_nothing(tmp_path, sweep):
    sweep.write_text(SWEEP.replace("[1]", "[1, 2]"))
    out = tmp_path / "run"
    result = CliRunner().invoke(cli, ["bench", str(sweep), "--out", str(out), "--dry-run"])
    assert result.exit_code == 0
    assert "1 case, 1 repetition, 1 run." in result.output
    assert "Left out" not in result.output, "single is no split of two nodes: nobody asks why"
    assert not out.exists()


@pytest.mark.parametrize(("cluster", "name"), [("lab", "demo"), ("framework-2", "smoke")])
def test_without_a_sweep_the_lab_has_the_demo_and_machines_have_smoke(cluster, name):
    words = ["bench", "--cluster", cluster, "--dry-run", "--format", "json"]
    document = json.loads(CliRunner().invoke(cli, words).output)
    assert document["sweep"]["document"]["name"] == name


def test_the_plan_as_json_is_of_a_dry_run(sweep, tmp_path):
    assert "--format json is of --dry-run" in refusal(sweep, "--format", "json")


def test_a_sweep_that_has_nothing_to_do_says_each_reason_once(sweep):
    sweep.write_text(SWEEP.replace("[single]", "[pipeline, tensor]"))
    words = refusal(sweep)
    assert words.endswith(
        "no case on cluster 'lab': 'single' needs one node, other splits need several (2).\n"
    )


def test_a_fabric_that_the_cluster_lacks_is_refused_with_what_to_do(sweep):
    sweep.write_text(SWEEP.replace("nodes: [1]", "nodes: [1, 2], fabric: [cable]"))
    assert "gbe2g5; leave fabric out to take all." in refusal(sweep)


@pytest.mark.parametrize("command", ["bench", "engines", "lab", "nodes", "report", "validate"])
def test_the_help_of_each_command_has_an_example(command):
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    group = {"cluster": "check", "lab": "up", "nodes": "exec"}.get(command)
    if group:
        result = CliRunner().invoke(cli, [command, group, "--help"])
    assert f"nixwulf {command}" in result.output.partition("Example")[2]


def test_a_gate_that_is_none_cannot_be_waived(sweep):
    words = refusal(sweep, "--waive", "fabrik")
    assert "--waive: unknown gate 'fabrik'; did you mean 'fabric'?" in words


def test_a_run_is_resumed_with_the_gates_that_it_waived(folder):
    assert "another plan" in refusal("--resume", folder, "--waive", "clock")
