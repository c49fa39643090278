"""The command lines and environments with which llama.cpp is started, option by option."""

import time
from pathlib import Path

import pytest

from launch_plan import planned
from nixwulf.inventory.cluster import parse_cluster
from nixwulf.nodes.facts import parse_facts
from nixwulf.nodes.process import OwnedProcess
from nixwulf.nodes.ssh import Connection
from nixwulf.plugins.engines.llama_cpp import ENGINE, options
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Run, RunFailure
from nixwulf.sweep.plan import make_plan, parse_sweep

# no output: a cluster
CLUSTER = {
    "name": "pair",
    "fabrics": {
        "roce": {"kind": "roce", "speed_gbps": 100, "mtu": 9000, "subnet": "10.9.0.0/24"},
    },
    "nodes": [
        {
            "name": f"n{number}",
            "platform": "generic-x86_64",
            "ssh": f"n{number}",
            "fabrics": {
                "roce": {
                    "interface": "eth1",
                    "address": f"10.9.0.{number}",
                    "rdma_device": f"mlx5_{number}",
                    "gid_index": 3,
                }
            },
        }
        for number in (1, 2)
    ],
}
BUILD = Path("tests/fixtures/llama.cpp/0.7.0-build-11669-commit-Debian")
NEW_BENCH = (BUILD / "llama-bench.help.txt").read_text()
NEW_SERVER = (BUILD / "llama-server.help.txt").read_text()
# hand-made: builds of 2025, whose programs are not on PyPI or in Debian any more
# (form: https://github.com/ggml-org/llama.cpp/blob/b6000/tools/llama-bench/llama-bench.cpp)
OLD_BENCH, OLD_SERVER = (
    "  -fa, --flash-attn <0|1>  \n -mmp, --mmap <0|1>  (default: 1)\n",
    "-fa,   --flash-attn [on|off|auto]\n--mmap, --no-mmap\n-dio, --direct-io, -ndio",
)
# hand-made: no RDMA device is in a machine of this project
# (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/ggml/src/ggml-rpc/transport.cpp)
ACTIVATED = "RDMA activated: qpn={}->{} mtu=4096 rx_depth=24\n"


def run_of(devices=(), nodes=2, transport="tcp", help_text=NEW_BENCH, **parameters):
    matrix = {
        "model": ["big"],
        "nodes": [nodes],
        "transport": [transport],
        "parallelism": ["pipeline" if nodes > 1 else "single"],
        "parameters": {key: [value] for key, value in parameters.items()},
    }
    sweep = {"name": "s", "models": {"big": {"path": "/m.gguf"}}, "matrix": matrix}
    cluster = parse_cluster(CLUSTER, "pair.toml")
    case = make_plan(parse_sweep(sweep, "s.yaml"), cluster).cases[0]
    connections = tuple(Connection(node, ()) for node in cluster.nodes[:nodes])
    places = "".join(f"/bin/{name}\n" for name in ("llama-bench", "llama-server", "rpc-server"))
    run = Run(
        name="r",
        case=case,
        cluster=cluster,
        nodes=connections,
        model="/m.gguf",
        limits=Limits(),
        raw=Path("raw"),
        deadline=time.monotonic(),
        facts={node.name: parse_facts(f"{places}--\n") for node in cluster.nodes},
    )
    run.engine_found |= {("devices", node.name): tuple(devices) for node in cluster.nodes}
    offered = tuple(options.offered(help_text))
    head = cluster.nodes[0].name
    run.engine_found |= {
        ("flags", f"{name} on {head}"): offered for name in ("llama-bench", "llama-server")
    }
    return run


def test_over_tcp_rdma_is_forbidden_on_both_sides():
    run = run_of()
    for node in run.nodes:
        assert ENGINE.environment(run, node) == {
            "GGML_NO_BACKTRACE": "1",
            "GGML_RPC_NO_RDMA": "1",
            "GGML_RDMA_DEV": "none",
        }
    assert ENGINE.rpc_server_argv(run, run.nodes[1]) == [
        "/bin/rpc-server", "-H", "10.9.0.2", "-p", "50052", "-d", "CPU",
    ]  # fmt: skip
    assert ENGINE.bench_arguments(run) == [
        "-m", "/m.gguf", "--rpc", "10.9.0.1:50052,10.9.0.2:50052", "-sm", "layer",
        "-dev", "RPC0/RPC1", "-ngl", "999", "--repack", "0",
    ]  # fmt: skip


def test_over_rdma_each_node_gets_its_own_device_and_gid_and_the_client_is_verbose():
    run = run_of(transport="rdma")
    assert ENGINE.environment(run, run.nodes[1]) == {
        "GGML_NO_BACKTRACE": "1",
        "GGML_RDMA_DEV": "mlx5_2",
        "GGML_RDMA_GID": "3",
    }
    assert ENGINE.bench_arguments(run)[-1] == "-v"


def test_on_cables_each_server_is_reached_over_its_own_and_the_head_finds_the_device(tmp_path):
    matrix = {
        "engine": ["llama.cpp"],
        "nodes": [3],
        "fabric": ["ring"],
        "transport": ["rdma"],
        "parallelism": ["pipeline"],
        "parameters": {},
    }
    programs = {name: f"/bin/{name}" for name in ("llama-bench", "llama-server", "rpc-server")}
    run = planned(tmp_path, "dgx-spark-3", {"path": "/m.gguf"}, matrix, **programs)
    run.engine_found |= {("devices", node.node.name): ("CUDA0",) for node in run.nodes}
    assert [ENGINE.rpc_server_argv(run, node)[2] for node in run.workers] == [
        "192.168.0.2",
        "192.168.2.2",
    ]
    own = [ENGINE.environment(run, node).get("GGML_RDMA_DEV") for node in run.nodes]
    assert own == [None, "rocep1s0f1", "rocep1s0f0"]


def test_a_gpu_of_the_head_computes_without_an_rpc_server():
    run = run_of(devices=["Vulkan0"], backend="vulkan")
    assert ENGINE.rpc_server_argv(run, run.nodes[1])[-2:] == ["-d", "Vulkan0"]
    arguments = ENGINE.bench_arguments(run)
    assert arguments[arguments.index("--rpc") + 1] == "10.9.0.2:50052"
    assert arguments[arguments.index("-dev") + 1] == "RPC0/Vulkan0"
    assert arguments.index("--rpc") < arguments.index("-dev")


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], ["-dev", "none", "-ngl", "0"]),
        (["CUDA0", "CUDA1"], ["-dev", "CUDA0/CUDA1", "-ngl", "999"]),
    ],
)
def test_one_node_computes_on_its_gpus_else_on_its_cpu(devices, expected):
    run = run_of(devices=devices, nodes=1, help_text="")
    assert ENGINE.bench_arguments(run) == ["-m", "/m.gguf", *expected]


def test_a_llama_server_never_changes_what_the_case_says_to_make_it_fit():
    flags = options.offered(NEW_SERVER)
    assert options.of_server({}, flags)[-2:] == ["--fit", "off"]
    assert options.verbose(flags) == ["-lv", "4"]


def test_options_that_differ_from_the_defaults_become_flags():
    run = run_of(nodes=1, threads=4, n_batch=4096, n_ubatch=1024, type_k="q8_0", host_memory=True)
    assert ENGINE.arguments(run) == [
        "-m", "/m.gguf", "-t", "4", "-b", "4096", "-ub", "1024", "-ctk", "q8_0",
    ]  # fmt: skip
    assert ENGINE.environment(run, run.head)["GGML_VK_PREFER_HOST_MEMORY"] == "1"


@pytest.mark.parametrize(
    ("program", "help_text", "load", "expected"),
    [
        ("bench", NEW_BENCH, "none", ["-lm", "none"]),
        ("bench", NEW_BENCH, "dio", ["-lm", "dio"]),
        ("bench", OLD_BENCH, "none", ["-mmp", "0"]),
        ("bench", OLD_BENCH, "mmap", ["-mmp", "1"]),
        ("server", NEW_SERVER, "none", ["-lm", "none"]),
        ("server", OLD_SERVER, "none", ["--no-mmap"]),
        ("server", OLD_SERVER, "dio", ["--direct-io"]),
    ],
)
def test_the_load_mode_takes_the_flag_that_the_build_has(program, help_text, load, expected):
    of_program = getattr(options, f"of_{program}")
    assert of_program({"load": load}, options.offered(help_text))[:2] == expected


@pytest.mark.parametrize(
    ("help_text", "expected"), [(NEW_BENCH, ["-fa", "on"]), (OLD_BENCH, ["-fa", "1"])]
)
def test_flash_attention_takes_the_value_that_the_build_has(help_text, expected):
    flags = options.offered(help_text)
    assert options.of_bench({"flash_attn": "on"}, flags)[:2] == expected


def test_an_option_that_a_build_lacks_is_unsupported():
    flags = options.offered(OLD_BENCH)
    with pytest.raises(RunFailure, match="This build of llama-bench has no load 'dio'") as failure:
        options.of_bench({"load": "dio"}, flags)
    assert failure.value.outcome == "unsupported"


def said(run, folder, node, name, text):
    """A process of a run in a container, and what it said."""
    stdout, stderr = (folder / f"{name}-{node}.{kind}" for kind in ("stdout", "stderr"))
    stderr.write_text(text)
    background = name == "rpc-server"
    run.owned.append(OwnedProcess(node, "unit", ("podman",), {}, stdout, stderr, background))


@pytest.mark.parametrize("silent", ["", "n1", "n2"])
def test_the_logs_of_both_sides_of_rdma_count_wherever_their_programs_run(tmp_path, silent):
    run = run_of(transport="rdma")
    for node in ("n1", "n2"):
        text = "" if node == silent else ACTIVATED.format(7, 5)
        said(run, tmp_path, node, "rpc-server", text)
    said(run, tmp_path, "n1", "llama-bench", ACTIVATED.format(5, 7))
    problem = ENGINE.transport_problem(run)
    assert (f"RPC server on node {silent!r} does not say" in problem) if silent else not problem
