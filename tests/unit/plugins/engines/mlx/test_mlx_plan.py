"""What is started where to run MLX on N nodes: over its ring, and over jaccl (RDMA).

jaccl was not yet run on hardware by this project: its commands are asserted here.
"""

import json
import subprocess
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes.facts import parse_facts
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.benchmarks import find
from nixwulf.plugins.engines import devices
from nixwulf.plugins.engines.mlx import ENGINE, ranks
from nixwulf.plugins.runtime import nccl
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Run, RunFailure
from nixwulf.sweep.plan import make_plan, parse_sweep

# hand-made: NCCL writes it with GPUs in two nodes (form: INFO in
# https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/transport/net.cc)
SENT = "n1:15718:15731 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0\n"
STREAMS = Path("tests/fixtures/openai-streams")
PLACE = "/run/nixwulf"
# no output: places of programs, as the driver's script prints them
FACTS = parse_facts("/sw/bin/mlx_lm.benchmark\n/sw/bin/mlx_lm.server\n--\n")


class Planned(Run):
    """A run whose programs are not started: all have ended well, and rank 0 printed a result.

    device is what MLX answers on each node when it is asked what it computes on.
    """

    device = ""

    def output(self, node, script, *arguments, timeout_s=60):
        assert arguments[3:5] == ("sh", "/sw/bin/mlx_lm.benchmark")
        return f"{devices.MARK} {self.device}\n" if self.device else ""

    def start(self, node, name, argv, environment, *, background=False):
        output = self.raw / f"{name}-{node.node.name}"
        fixture = Path("tests/fixtures/mlx/mlx.single.llama.txt")
        output.write_text("" if background else fixture.read_text())
        nothing = self.raw / "nothing"
        nothing.write_text("")
        process = OwnedProcess(
            node.node.name,
            name,
            tuple(argv),
            dict(environment),
            output,
            nothing,
            background,
            stdout_times=array("d", [0.0] * 5),
            ended=0.0,
            returncode=0,
        )
        self.owned.append(process)
        return process


@pytest.fixture
def sent(monkeypatch):
    """The commands that all nodes were sent at once, each answered with the same place."""
    commands = []

    def answer(nodes, command, **_):
        commands.append(([node.node.name for node in nodes], command))
        return [subprocess.CompletedProcess(command, 0, f"{PLACE}/group\n", "") for _ in nodes]

    monkeypatch.setattr(ranks, "run_all", answer)
    return commands


def sweep_with(random=None, **matrix):
    return parse_sweep(
        {
            "name": "mlx",
            "models": {"m": {"random": random} if random else {"path": "/models/m"}},
            "matrix": {
                "engine": ["mlx"],
                "benchmark": ["mlx_lm.benchmark"],
                "model": ["m"],
                "nodes": [2],
                "parallelism": ["tensor"],
                "parameters": {"n_prompt": [512], "n_gen": [128]},
                **matrix,
            },
            "samples": 2,
        },
        "mlx.yaml",
    )


def run_of(cluster, tmp_path, **matrix):
    (case,) = make_plan(sweep_with(**matrix), cluster).cases
    nodes = tuple(Connection(node, ()) for node in case.nodes_of(cluster))
    facts = {node.node.name: FACTS for node in nodes}
    limits = Limits()
    return Planned("r", case, cluster, nodes, "/models/m", limits, tmp_path, 1e18, facts)


def test_a_ring_is_one_program_a_node_with_the_addresses_of_the_fabric(sent, tmp_path):
    run = run_of(load_cluster("lab"), tmp_path, nodes=[3], fabric=["thunderbolt"])
    find("mlx_lm.benchmark").measure(run)
    arguments = ("--model", "/models/m", "-p", "512", "-g", "128", "-n")
    assert [(p.node, p.argv, p.background) for p in run.owned] == [
        ("n3", ("/sw/bin/mlx_lm.benchmark", *arguments, "3"), True),
        ("n2", ("/sw/bin/mlx_lm.benchmark", *arguments, "3"), True),
        ("n1", ("/sw/bin/mlx_lm.benchmark", *arguments, "2"), False),
    ]
    assert run.owned[0].environment == {
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "MLX_HOSTFILE": f"{PLACE}/group",
        "MLX_RANK": "2",
    }
    (written, removed) = sent
    assert written[0] == removed[0] == ["n1", "n2", "n3"]
    name, text = written[1][-2:]
    assert json.loads(text) == [
        ["10.77.2.11:50053"],
        ["10.77.2.12:50053"],
        ["10.77.2.13:50053"],
    ]
    assert removed[1][-1] == name


def test_a_pipeline_is_asked_for_and_tensors_are_the_programs_own_way(sent, tmp_path):
    run = run_of(load_cluster("lab"), tmp_path, fabric=["gbe5"], parallelism=["pipeline"])
    find("mlx_lm.benchmark").measure(run)
    assert all("--pipeline" in process.argv for process in run.owned)


def test_one_node_has_no_group(sent, tmp_path):
    run = run_of(load_cluster("lab"), tmp_path, nodes=[1], parallelism=["single"])
    find("mlx_lm.benchmark").measure(run)
    (process,) = run.owned
    assert process.environment.keys() == {"PYTHONUNBUFFERED", "HF_HUB_OFFLINE"}
    assert sent == []


def test_nvidias_nodes_meet_over_nccl_with_the_variables_of_vllm(sent, tmp_path, monkeypatch):
    logs = []
    monkeypatch.setattr(nccl, "run_all", lambda nodes, command: logs.append(command) or answers)
    answers = [subprocess.CompletedProcess([], 0, SENT, "") for _ in range(2)]
    cluster = load_cluster("dgx-spark-2")
    run = run_of(cluster, tmp_path, fabric=["qsfp-a"], transport=["rdma"])
    run.device = "cuda"
    ENGINE.start(run)
    find("mlx_lm.benchmark").measure(run)
    assert run.engine_facts["backends"] == "nccl"
    assert run.engine_facts["devices"] == "spark1: cuda, spark2: cuda"
    worker, head = run.owned
    for rank, process in enumerate((head, worker)):
        assert process.environment == {
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "NCCL_HOST_IP": "10.100.1.1",
            "NCCL_PORT": "50053",
            "MLX_RANK": str(rank),
            "MLX_WORLD_SIZE": "2",
            "CUDA_VISIBLE_DEVICES": "0",
            "NCCL_DEBUG_FILE": f"{run.scratch}/nccl.%p",
            **nccl.environment(run, run.nodes[rank]),
        }
    assert sent == []
    assert [command[-1] for command in logs] == [f"{run.scratch}/nccl"]
    assert ENGINE.transport_problem(run) is None
    answers[1] = subprocess.CompletedProcess([], 0, SENT.replace("IB", "Socket"), "")
    find("mlx_lm.benchmark").measure(run)
    assert "On node 'spark2' NCCL crossed NET/IB and NET/Socket" in ENGINE.transport_problem(run)


@pytest.mark.parametrize(("platform", "device"), [("dgx-spark-2", "cpu"), ("mac-studio-4", "cpu")])
def test_mlx_on_the_cpu_of_a_node_that_has_a_gpu_is_failed(tmp_path, platform, device):
    run = run_of(load_cluster(platform), tmp_path, nodes=[1], parallelism=["single"])
    run.device = device
    with pytest.raises(RunFailure, match="computes on the CPU, and the platform .* has a GPU; ins"):
        ENGINE.start(run)
    assert run.engine_facts["devices"] == f"{run.head.node.name}: cpu"


def test_mlx_on_the_cpu_of_a_node_without_a_gpu_is_fine_and_noted(tmp_path):
    run = run_of(load_cluster("lab"), tmp_path, nodes=[1], parallelism=["single"])
    run.device = "cpu"
    ENGINE.start(run)
    assert run.engine_facts["devices"] == "n1: cpu"
    assert run.warnings == []


def test_a_device_that_mlx_does_not_tell_is_a_warning_and_the_platforms_counts(tmp_path):
    run = run_of(load_cluster("dgx-spark-2"), tmp_path, fabric=["qsfp-a"])
    ENGINE.start(run)
    assert run.engine_facts == {
        "origin": "/sw/bin/mlx_lm.benchmark",
        "devices": "spark1: unknown, spark2: unknown",
        "backends": "nccl",
    }
    assert [warning.partition(" did not")[0] for warning in run.warnings] == [
        "mlx on node 'spark1'",
        "mlx on node 'spark2'",
    ]


@pytest.mark.parametrize(
    ("devices_of", "parallelism", "reason"),
    [
        (("cuda", "cpu"), "tensor", "no backend between nodes of CUDA and others"),
        (("cuda", "cuda"), "pipeline", "without send and so no pipeline; take tensor"),
    ],
)
def test_nodes_of_unknown_gpus_that_mlx_cannot_join_are_unsupported(
    tmp_path, devices_of, parallelism, reason
):
    run = run_of(load_cluster("lab"), tmp_path, fabric=["gbe5"], parallelism=[parallelism])
    answers = dict(zip(("n1", "n2"), devices_of, strict=True))
    run.output = lambda node, *_, **__: f"{devices.MARK} {answers[node.node.name]}\n"
    with pytest.raises(RunFailure, match=reason) as failure:
        ENGINE.start(run)
    assert failure.value.outcome == "unsupported"


@pytest.mark.parametrize(
    ("gpus", "parallelism", "transport", "kind", "reason"),
    [
        ({"nvidia"}, "tensor", "rdma", "roce", None),
        ({"nvidia"}, "pipeline", "tcp", "roce", "take tensor"),
        ({"nvidia", "apple"}, "tensor", "tcp", "ethernet", "nodes of one kind of GPU"),
        ({"apple"}, "tensor", "rdma", "roce", "take tcp"),
        ({"apple"}, "pipeline", "tcp", "ethernet", None),
    ],
)
def test_what_no_backend_of_mlx_joins_is_left_out_of_the_plan(
    gpus, parallelism, transport, kind, reason
):
    point = {"nodes": 2, "parallelism": parallelism, "transport": transport, "parameters": {}}
    found = ENGINE.unsupported({**point, "fabric_kind": kind, "gpus": gpus})
    assert found is None if reason is None else reason in (found or "")


def test_the_plan_knows_the_gpus_of_a_clusters_nodes():
    sweep = sweep_with(fabric=["qsfp-a"], parallelism=["tensor", "pipeline"])
    plan = make_plan(sweep, load_cluster("dgx-spark-2"))
    assert [case.parallelism for case in plan.cases] == ["tensor"]
    assert "MLX crosses NVIDIA's nodes by NCCL" in plan.left_out[0].reason


def test_jaccl_on_two_macs_takes_the_cable_between_them(sent, tmp_path):
    cluster = load_cluster("mac-studio-4")
    run = run_of(cluster, tmp_path, fabric=["mesh"], transport=["rdma"])
    ENGINE.start(run)
    find("mlx_lm.benchmark").measure(run)
    assert run.engine_facts["backends"] == "jaccl"
    assert [(p.node, p.environment) for p in run.owned] == [
        (
            name,
            {
                "PYTHONUNBUFFERED": "1",
                "HF_HUB_OFFLINE": "1",
                "MLX_IBV_DEVICES": f"{PLACE}/group",
                "MLX_JACCL_COORDINATOR": "10.50.12.1:50053",
                "MLX_RANK": rank,
            },
        )
        for name, rank in (("mac-b", "1"), ("mac-a", "0"))
    ]
    assert json.loads(sent[0][1][-1]) == [[None, "rdma_en3"], ["rdma_en3", None]]


def test_jaccl_on_four_macs_finds_the_cable_of_each_pair(sent, tmp_path):
    run = run_of(
        load_cluster("mac-studio-4"), tmp_path, nodes=[4], fabric=["mesh"], transport=["rdma"]
    )
    find("mlx_lm.benchmark").measure(run)
    assert json.loads(sent[0][1][-1]) == [
        [None, "rdma_en3", "rdma_en4", "rdma_en5"],
        ["rdma_en3", None, "rdma_en4", "rdma_en5"],
        ["rdma_en3", "rdma_en4", None, "rdma_en5"],
        ["rdma_en3", "rdma_en4", "rdma_en5", None],
    ]
    assert run.owned[-1].environment["MLX_JACCL_COORDINATOR"] == "192.168.1.51:50053"


def test_a_ring_over_cables_has_the_address_to_which_the_node_before_it_connects(sent, tmp_path):
    run = run_of(load_cluster("mac-studio-4"), tmp_path, nodes=[4], fabric=["mesh"])
    find("mlx_lm.benchmark").measure(run)
    assert [address for (address,) in json.loads(sent[0][1][-1])] == [
        f"10.50.{cable}:50053" for cable in ("14.1", "12.2", "23.2", "34.2")
    ]


def test_jaccl_without_a_device_between_two_nodes_is_unsupported_and_names_them(tmp_path):
    cluster = load_cluster("mac-studio-4")
    *others, last = cluster.nodes
    cables = last.links["mesh"]
    bare = replace(
        last, links={"mesh": {**cables, "mac-b": replace(cables["mac-b"], rdma_devices=())}}
    )
    cluster = replace(cluster, nodes=(*others, bare))
    run = run_of(cluster, tmp_path, nodes=[4], fabric=["mesh"], transport=["rdma"])
    with pytest.raises(RunFailure, match="'mac-b' and 'mac-d' have no rdma_device") as failure:
        ENGINE.start(run)
    assert failure.value.outcome == "unsupported"


def test_a_rank_that_printed_results_ran_alone_and_is_a_fallback(sent, tmp_path, monkeypatch):
    run = run_of(load_cluster("lab"), tmp_path, fabric=["gbe5"])
    start = Planned.start
    monkeypatch.setattr(
        Planned, "start", lambda self, *args, **_: start(self, *args, background=False)
    )
    with pytest.raises(RunFailure, match="ran the whole model alone") as failure:
        find("mlx_lm.benchmark").measure(run)
    assert failure.value.outcome == "fallback"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_server_that_listens_where_rank_0_is_not_ran_alone(tmp_path, rank):
    run = run_of(load_cluster("mac-studio-4"), tmp_path, fabric=["mesh"], transport=["rdma"])
    for number, node in enumerate(run.nodes):
        process = run.start(node, "mlx-server", ["/bin/mlx_lm.server"], {}, background=number > 0)
        text = (STREAMS / "mlx_lm.server.log").read_text() if number == rank else ""
        process.stderr = tmp_path / f"stderr-{number}"
        process.stderr.write_text(text)
    problem = ENGINE.transport_problem(run)
    assert (problem is None) == (rank == 0)
    if problem:
        assert problem.startswith("mlx_lm.server on node 'mac-b' listens, which only rank 0 does")


@pytest.mark.parametrize(
    ("random", "nodes", "parallelism", "reason"),
    [
        ({"architecture": "llama"}, 2, "pipeline", "splits a llama by tensors only"),
        ({"hidden": 400, "heads": 10, "kv_heads": 10}, 4, "tensor", "4 do not divide 10"),
        (
            {"architecture": "qwen3moe", "experts": 2, "experts_used": 1, "layers": 2},
            3,
            "pipeline",
            "2 layers are too few for 3 nodes",
        ),
    ],
)
def test_what_mlx_cannot_split_is_left_out_of_the_plan(random, nodes, parallelism, reason):
    sweep = sweep_with(random, nodes=[1, nodes], parallelism=["single", parallelism])
    plan = make_plan(sweep, load_cluster("lab"))
    assert [case.nodes for case in plan.cases] == [1]
    assert any(reason in left.reason for left in plan.left_out)


def test_a_node_without_a_program_lacks_it_by_name():
    assert ENGINE.missing({"mlx_lm.benchmark": "/sw/bin/mlx_lm.benchmark"}) == "'mlx_lm.server'"
    assert ENGINE.missing(FACTS.programs) is None
