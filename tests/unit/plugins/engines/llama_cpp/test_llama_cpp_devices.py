"""On which devices a case of llama.cpp computes, by what the build on each node lists."""

import subprocess
from pathlib import Path

import pytest

from launch_plan import Answering, planned
from nixwulf.inventory.cluster import load_cluster, with_lab_nodes
from nixwulf.plugins.engines.llama_cpp import ENGINE, devices
from nixwulf.plugins.engines.llama_cpp.options import listed_devices
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep.plan import make_plan, parse_sweep

BUILDS = Path("tests/fixtures/llama.cpp")
NO_GPU = (BUILDS / "0.5.0-dev-build-0-commit-0c1e570" / "list-devices.txt").read_text()
SOFTWARE_GPU = (BUILDS / "0.7.0-build-11669-commit-Debian" / "list-devices.txt").read_text()
VERSION = (BUILDS / "0.7.0-build-11669-commit-Debian" / "version.txt").read_text()
HELP = (BUILDS / "0.7.0-build-11669-commit-Debian" / "llama-bench.help.txt").read_text()
# hand-made: builds and GPUs that are not here
# (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/common/arg.cpp#L1149)
BLAS, SIDE_BY_SIDE = (
    "Available devices:\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)\n",
    "Available devices:\n"
    "  ROCm0: AMD Radeon Graphics (122880 MiB, 122500 MiB free)\n"
    "  Vulkan0: AMD Radeon Graphics (RADV GFX1151) (123392 MiB, 122900 MiB free)\n",
)


def looked(folder, listing, cluster="framework-2", nodes=2, help_text=HELP, **parameters):
    """A run whose nodes have listed their devices; raises RunFailure."""
    split = "pipeline" if nodes > 1 else "single"
    fabric = {"fabric": ["cable"]} if cluster == "framework-2" else {}
    matrix = {"nodes": [nodes], "parallelism": [split], **fabric}
    matrix["parameters"] = {key: [value] for key, value in parameters.items()}
    programs = {name: f"/bin/{name}" for name in ("llama-bench", "llama-server", "rpc-server")}
    # no output: what the driver's script has around the fixtures
    answers = {"script": f"{VERSION}--\n{listing}{help_text}"}
    run = planned(folder, cluster, {"path": "/m.gguf"}, matrix, answers, **programs)
    devices.look(run)
    return run


@pytest.mark.parametrize(
    ("listing", "expected"),
    [(NO_GPU, ()), (SOFTWARE_GPU, ("Vulkan0",)), (BLAS, ()), (SIDE_BY_SIDE, ("ROCm0", "Vulkan0"))],
)
def test_a_device_is_what_is_listed_with_memory_of_its_own(listing, expected):
    assert listed_devices(listing) == expected


@pytest.mark.parametrize(("backend", "device"), [("any", "Vulkan0"), ("rocm", "ROCm0")])
def test_a_gpu_that_two_backends_list_is_used_once_by_the_platforms_first(
    tmp_path, backend, device
):
    run = looked(tmp_path, SIDE_BY_SIDE, backend=backend)
    assert devices.of_client(run) == ("RPC0", device)
    assert ENGINE.rpc_server_argv(run, run.nodes[1])[-2:] == ["-d", device]
    assert run.engine_facts["devices"] == f"fw1: {device}, fw2: {device}"


@pytest.mark.parametrize("listing", [NO_GPU, BLAS])
def test_a_build_for_the_cpu_on_a_platform_with_a_gpu_has_failed(tmp_path, listing):
    with pytest.raises(RunFailure) as failure:
        looked(tmp_path, listing)
    assert failure.value.outcome == "failed"
    assert str(failure.value) == (
        "llama.cpp on node 'fw1' lists the CPU only, and the platform 'framework-desktop' has a "
        "GPU; install a build for vulkan or rocm, or ask for the CPU with 'backend: [cpu]'."
    )


def test_the_cpu_that_is_asked_for_beside_a_gpu_gets_every_layer(tmp_path):
    run = looked(tmp_path, SIDE_BY_SIDE, backend="cpu")
    assert devices.of_client(run) == ("RPC0", "RPC1")
    assert [ENGINE.rpc_server_argv(run, node)[-2:] for node in run.nodes] == [["-d", "CPU"]] * 2
    assert run.engine_facts["devices"] == "fw1: CPU, fw2: CPU"


def test_a_backend_that_no_device_is_of_is_skipped(tmp_path):
    with pytest.raises(RunFailure, match="has no device of cuda for llama.cpp, its") as failure:
        looked(tmp_path, SIDE_BY_SIDE, backend="cuda")
    assert failure.value.outcome == "skipped"


def test_a_build_without_rpc_is_skipped_on_several_nodes(tmp_path):
    without = "".join(line for line in HELP.splitlines(keepends=True) if "--rpc" not in line)
    with pytest.raises(
        RunFailure, match="Node 'fw1' has llama.cpp without RPC: its 'llama-b"
    ) as one:
        looked(tmp_path, SIDE_BY_SIDE, help_text=without)
    assert one.value.outcome == "skipped"
    looked(tmp_path, SIDE_BY_SIDE, nodes=1, help_text=without)


def test_openblas_is_no_device_so_the_head_of_two_cpus_computes_by_its_own_rpc_server(tmp_path):
    run = looked(tmp_path, BLAS, cluster="mini-3")
    assert devices.served(run) == run.nodes
    assert devices.of_client(run) == ("RPC0", "RPC1")


@pytest.mark.parametrize(("listing", "device"), [(NO_GPU, "none"), (SOFTWARE_GPU, "Vulkan0")])
def test_a_platform_without_a_gpu_computes_on_what_is_there(tmp_path, listing, device):
    run = looked(tmp_path, listing, cluster="mini-3", nodes=1)
    arguments = devices.arguments(run, "/")
    assert arguments == ["-dev", device, "-ngl", "0" if device == "none" else "999"]


# hand-made: no node of so many GPUs is here
# (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/common/arg.cpp#L1149)
EIGHT_GPUS = "Available devices:\n" + "".join(
    f"  ROCm{number}: AMD Radeon Graphics (9 MiB, 9 MiB free)\n" for number in range(8)
)


def test_more_devices_than_the_scheduler_has_places_for_are_unsupported_and_not_tried(tmp_path):
    run = looked(tmp_path, EIGHT_GPUS)
    with pytest.raises(RunFailure) as failure:
        ENGINE.start(run)
    assert failure.value.outcome == "unsupported"
    assert "over 15 devices at most, and these nodes have 16; take fewer" in failure.value.reason
    assert run.started == []
    devices.require_few(looked(tmp_path, EIGHT_GPUS.rpartition("  ROCm7")[0]))


def test_more_nodes_than_that_are_left_out_of_a_plan_by_pipeline_alone():
    lab = with_lab_nodes(load_cluster("lab"), 16)
    matrix = {"model": ["tiny"], "nodes": [15, 16], "fabric": ["rdma-like"]}
    document = {
        "name": "many",
        "models": {"tiny": {"random": {"layers": 16}}},
        "matrix": {**matrix, "parallelism": ["pipeline", "tensor"]},
    }
    plan = make_plan(parse_sweep(document, "many.yaml"), lab)
    cases = [(case.nodes, case.parallelism) for case in plan.cases]
    assert (15, "pipeline") in cases
    assert (16, "pipeline") not in cases
    reason = "llama.cpp splits a model by pipeline over 15 devices at most"
    assert reason in [left.reason for left in plan.left_out]


def test_a_head_without_bash_is_named_and_its_silence_is_no_listener(tmp_path, monkeypatch):
    run = looked(tmp_path, NO_GPU, backend="cpu")
    words = "bash: not found"

    def run_command(_node, command, **_):
        assert command[0] == "bash"
        return subprocess.CompletedProcess(command, 127, "", words)

    monkeypatch.setattr(Answering, "run", run_command)
    with pytest.raises(RunFailure, match="Node 'fw1' lacks 'bash'") as failure:
        ENGINE.start(run)
    assert failure.value.outcome == "skipped"
