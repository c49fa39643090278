"""Every shipped sweep on every shipped cluster: a plan, or one line that says why there is none."""

import copy
import itertools
import json
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.inventory.cluster import load_cluster
from nixwulf.inventory.platforms import gpu_vendor
from nixwulf.perf.scenarios.candidates import NO_SPLIT
from nixwulf.sweep.plan import load_sweep, make_plan, parse_sweep

CLUSTERS = sorted(Path("clusters").glob("*.toml"))
ANYWHERE = sorted(Path("sweeps").glob("*.yaml"))
FOR_THE_LAB = sorted(Path("sweeps/lab").glob("*.yaml"))
PAIRS = [
    pytest.param(sweep, cluster, id=f"{sweep.stem}-{cluster.stem}")
    for sweep, cluster in itertools.product(ANYWHERE, CLUSTERS)
]
SEEDS = sorted(Path("sweeps/seeds").glob("*.yaml"))
SEED_PAIRS = [
    pytest.param(sweep, cluster, id=f"seeds/{sweep.stem}-{cluster.stem}")
    for sweep, cluster in itertools.product(SEEDS, CLUSTERS)
]
LAB_PAIRS = [
    pytest.param(sweep, cluster, id=f"lab/{sweep.stem}-{cluster.stem}")
    for sweep, cluster in itertools.product(FOR_THE_LAB, CLUSTERS)
]
# What has no kernels for the GPUs of a cluster has nothing to do there.
WITHOUT_KERNELS = {"mlx": "amd", "vllm": "apple"}
LINUX_ONLY = {"hpl"}


def on_macs(cluster):
    return "apple" in {gpu_vendor(node.platform) for node in load_cluster(cluster).nodes}


WIDTH = 80


@cache
def dry_run(sweep, cluster, *options):
    words = ["bench", str(sweep), "--cluster", str(cluster), "--dry-run", *options]
    done = CliRunner().invoke(cli, words, env={"COLUMNS": str(WIDTH)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.mark.parametrize(("sweep", "cluster"), PAIRS)
def test_a_sweep_plans_cases_on_a_cluster_unless_nothing_of_it_runs_there(sweep, cluster):
    done = dry_run(sweep, cluster)
    vendors = {gpu_vendor(node.platform) for node in load_cluster(cluster).nodes}
    no_kernels = WITHOUT_KERNELS.get(sweep.stem) in vendors
    if no_kernels or (sweep.stem in LINUX_ONLY and on_macs(cluster)):
        assert done.exit_code == 2
        assert done.output.startswith(f"Error: {sweep}: the sweep yields no case on cluster")
        why = "has no kernels for the GPU of" if no_kernels else "runs on Linux only, not on Macs ("
        assert done.output.count(why) == 1
        assert done.output.count("\n") == 1
    else:
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("sweep", "cluster"), LAB_PAIRS)
def test_a_sweep_for_the_lab_plans_cases_there_and_names_the_lab_s_fabric_elsewhere(sweep, cluster):
    done = dry_run(sweep, cluster)
    fabrics = load_sweep(sweep).document["matrix"].get("fabric")
    if sweep.stem in LINUX_ONLY and on_macs(cluster):
        assert (done.exit_code, done.output.count("runs on Linux only")) == (2, 1)
    elif cluster.stem == "lab" or not fabrics:
        assert done.exit_code == 0, done.output
    else:
        assert done.exit_code == 2
        assert f"the fabric {fabrics[0]!r} is not in {cluster}" in done.output
        assert done.output.count("\n") == 1


@pytest.mark.parametrize(("sweep", "cluster"), SEED_PAIRS)
def test_a_seed_plans_cases_on_a_cluster_or_says_in_one_line_why_it_has_none(sweep, cluster):
    done = dry_run(sweep, cluster)
    assert "…" not in done.output
    if done.exit_code != 0:
        assert done.exit_code == 2
        assert done.output.startswith(f"Error: {sweep}: the sweep yields no case on cluster")
        assert done.output.count("\n") == 1


@pytest.mark.parametrize("sweep", ANYWHERE + SEEDS, ids=lambda path: path.stem)
def test_no_sweep_for_all_clusters_names_a_fabric_or_counts_threads(sweep):
    document = load_sweep(sweep).document
    for block in (document["matrix"], *document.get("include", ()), *document.get("exclude", ())):
        assert "fabric" not in block
        assert "threads" not in block.get("parameters", {})


@pytest.mark.parametrize(("sweep", "cluster"), PAIRS + LAB_PAIRS + SEED_PAIRS)
def test_a_dry_run_that_is_piped_cuts_and_breaks_no_word(sweep, cluster):
    done = dry_run(sweep, cluster)
    if done.exit_code != 0:
        return
    plan = make_plan(load_sweep(sweep), load_cluster(cluster))
    lines = done.output.splitlines()
    assert "…" not in done.output
    (head,) = (number for number, line in enumerate(lines) if line.split()[0] == "case")
    rows = lines[head + 1 : head + 1 + len(plan.cases)]
    assert [row.split()[0] for row in rows] == [case.id for case in plan.cases]
    columns = lines[head].split()[1:]
    for row, case in zip(rows, plan.cases, strict=True):
        values = {**case.document(), **case.parameters}
        shown = [str(values[name]) for name in columns if values.get(name) is not None]
        assert row.split()[1:] == shown


@pytest.mark.parametrize(("sweep", "cluster"), PAIRS + LAB_PAIRS + SEED_PAIRS)
def test_a_reason_is_printed_once_with_its_points_and_json_has_every_one(sweep, cluster):
    done = dry_run(sweep, cluster)
    if done.exit_code != 0:
        return
    document = json.loads(dry_run(sweep, cluster, "--format", "json").output)
    reasons = [left["reason"] for left in document["left_out"]]
    text = " ".join(done.output.split())
    for reason in set(reasons) - {NO_SPLIT}:
        assert text.count(f"Left out {reasons.count(reason)}: {reason}.") == 1
    assert text.count("Left out ") == len(set(reasons) - {NO_SPLIT})


def test_rdma_is_crossed_where_a_fabric_carries_it():
    for name, expected in (("dgx-spark-2", {"tcp", "rdma"}), ("framework-2", {"tcp"})):
        plan = make_plan(load_sweep("vllm"), load_cluster(name))
        assert {case.transport for case in plan.cases if case.fabric} == expected


def test_in_a_toolbox_vllm_starts_its_ranks_itself():
    document = copy.deepcopy(load_sweep("vllm").document)
    document["matrix"]["parameters"]["toolbox"] = ["vllm"]
    plan = make_plan(parse_sweep(document, "vllm.yaml"), load_cluster("framework-2"))
    assert {case.parameters["executor"] for case in plan.cases} == {"mp"}
    assert any(left.reason.startswith("Ray is not driven") for left in plan.left_out)


def test_hpl_takes_its_size_from_the_nodes():
    for case in make_plan(load_sweep("hpl"), load_cluster("framework-2")).cases:
        assert (case.parameters["n"], case.parameters["threads"]) == (0, 0)


def test_a_copy_of_smoke_measures_the_model_of_its_path(tmp_path):
    text = Path("sweeps/smoke.yaml").read_text()
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("{random: {architecture: llama}}", "{path: /models/mine.gguf}"))
    for cluster in CLUSTERS:
        plan = make_plan(load_sweep(mine), load_cluster(cluster))
        assert {case.parallelism for case in plan.cases} == {"single", "pipeline", "tensor"}
        assert not any(model.random for model in plan.sweep.models.values())
