"""The sweep of a published record, and of an earlier run."""

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep.plan import make_plan
from nixwulf.sweep.reproduce.conditions import reference, repeatable, sweep_of_record
from record_factory import case, metric
from record_factory import published as published_record

FRAMEWORK = "framework-desktop"


def record(name):
    return reference(name, "test")[0]


def plan_of(name, cluster, **options):
    machines = load_cluster(cluster)
    return make_plan(sweep_of_record(record(name), machines, **options), machines)


def test_a_record_s_engine_split_and_options_become_its_sweep():
    name = "framework-desktop-llama.cpp-deepseek-r1-671b-4x-tcp-0951552b"
    (found,) = plan_of(name, "framework-4", model="/models/r1.gguf").cases
    assert (found.engine, found.nodes, found.parallelism) == ("llama.cpp", 4, "pipeline")
    assert (found.fabric, found.transport) == ("switch", "tcp")
    asked = {"backend": "vulkan", "flash_attn": "on", "n_prompt": 512, "n_gen": 128, "depth": 0}
    assert asked.items() <= found.parameters.items()


def test_lengths_that_were_not_measured_together_are_not_run_together():
    lengths = [(512, 0, 0), (0, 128, 0), (2048, 0, 32768), (0, 32, 32768)]
    of = case(2, "cable", "pipeline", model="MiniMax-M2", parameters={"backend": "rocm"})
    measured = [
        metric(
            "prompt" if n_prompt else "decode",
            [20.0],
            conditions={"n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth},
        )
        for n_prompt, n_gen, depth in lengths
    ]
    machines = load_cluster("framework-2")
    sweep = sweep_of_record(published_record(of, measured, platforms=[FRAMEWORK]), machines)
    keys = ("n_prompt", "n_gen", "depth")
    found = {tuple(c.parameters[key] for key in keys) for c in make_plan(sweep, machines).cases}
    assert found == {(512, 128, 0), (2048, 32, 32768)}


def test_an_engine_that_only_chats_is_asked_in_chats():
    (found,) = plan_of(
        "mac-studio-m3-ultra-exo-qwen3-235b-a22b-2x-rdma-4814cfaf",
        "mac-studio-4",
        model="mlx-community/Qwen3-235B-A22B-8bit",
    ).cases
    assert (found.benchmark, found.parameters["api"], found.transport) == ("serve", "chat", "rdma")


@pytest.mark.parametrize(
    ("name", "cluster", "why"),
    [
        ("dgx-spark-hpl-b7cd9bb1", "framework-4", "of other machines"),
        ("framework-desktop-ollama-llama-3.1-70b-38d9f5ac", "framework-4", "ollama is no engine"),
        ("minisforum-ms-s1-max-vllm-2x-tcp-f84e29fb", "ms-s1-max-4", "not say which model"),
        ("fevm-fa-ex9-perftest-2x-rdma-ff34249e", "framework-2", "of other machines"),
    ],
)
def test_the_reason_why_a_record_cannot_be_repeated_is_given(name, cluster, why):
    with pytest.raises(InputError, match=why):
        sweep_of_record(record(name), load_cluster(cluster))


@pytest.mark.parametrize("cluster", ["framework-4", "fa-ex9-2", "pi-cm5-10", "lab"])
def test_every_record_of_a_cluster_s_machines_has_a_plan_or_a_reason(cluster):
    machines = load_cluster(cluster)
    platforms = {node.platform for node in machines.nodes}
    found = list(repeatable(machines))
    assert all(platforms & set(one["cluster"]["platforms"]) for one, _ in found)
    assert all(plan if isinstance(plan, str) else plan.cases for _, plan in found)
    assert bool(found) == (cluster != "lab")
