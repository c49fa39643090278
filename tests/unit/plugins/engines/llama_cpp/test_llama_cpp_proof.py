"""llama.cpp's output proves what its RPC crossed and what it computed on.

Texts of devices are what a build printed for `tools/fixtures/llama-cpp-builds.sh`.
"""

import json
from pathlib import Path

import pytest

from nixwulf.plugins.engines.llama_cpp.devices import (
    bench_problem,
    rpc_server_problem,
    server_problem,
    transport_problem,
)

BUILDS = Path("tests/fixtures/llama.cpp")
VULKAN = BUILDS / "0.7.0-build-11669-commit-Debian"
DEVICES = ("RPC0", "Vulkan0")


def printed(name, build=VULKAN):
    return (build / name).read_text()


def row(name):
    return json.loads(printed(name).splitlines()[0])


# hand-made: no RDMA device is in a machine of this project
# (form: https://github.com/ggml-org/llama.cpp/blob/0c1e570/ggml/src/ggml-rpc/transport.cpp)
LISTENS, PROBED, ACTIVATED, OF_A_MAC, STAYED = (
    "  transport      : TCP (RDMA auto-negotiate enabled)\nAccepted client connection\n",
    "RDMA probed: dev=rocep1s0f0 gid=3 RoCEv2 qpn=17 inline=64\n",
    "RDMA activated: qpn={}->{} mtu=4096 rx_depth=24\n",
    "RDMA(Apple/UC) activated: qpn={}->{} mtu=4096 rx_depth=16\n",
    "RDMA activate failed, staying on TCP\n",
)
CLIENT = PROBED + ACTIVATED.format(17, 33)
SERVER = LISTENS + PROBED + ACTIVATED.format(33, 17)


@pytest.mark.parametrize("client", [CLIENT, printed("llama-server.default.txt"), ""])
def test_rdma_is_proved_by_the_server_that_names_its_clients_queue_pair(client):
    assert transport_problem("rdma", "n1", client, {"n2": SERVER}) is None


def test_the_lines_of_a_mac_prove_it_too():
    client, server = OF_A_MAC.format(5, 6), OF_A_MAC.format(6, 5)
    assert transport_problem("rdma", "n1", client, {"n2": server}) is None


@pytest.mark.parametrize(
    ("client", "server", "words"),
    [
        (CLIENT, LISTENS, "RPC server on node 'n2' does not say 'RDMA activated' (it did not even"),
        ("", LISTENS + PROBED, "does not say 'RDMA activated' (it probed RDMA only)"),
        (CLIENT, printed("rpc-server.txt"), "RPC server on node 'n2' is built without RDMA"),
        (CLIENT, SERVER + STAYED, "says 'staying on TCP'"),
        (CLIENT, SERVER.replace("33->17", "33->99"), "no queue pair of this run's client"),
    ],
)
def test_what_does_not_prove_rdma_is_a_problem(client, server, words):
    assert words in (transport_problem("rdma", "n1", client, {"n2": server}) or "")


def test_every_server_has_to_prove_rdma():
    problem = transport_problem("rdma", "n1", CLIENT, {"n2": SERVER, "n3": LISTENS})
    assert "on node 'n3'" in (problem or "")


def test_tcp_that_became_rdma_is_a_problem():
    quiet = printed("rpc-server.txt")
    assert transport_problem("tcp", "n1", "", {"n2": quiet, "n3": LISTENS}) is None
    assert "the case asks for tcp" in (transport_problem("tcp", "n1", "", {"n2": SERVER}) or "")


def test_llama_bench_on_the_devices_it_was_given_is_believed():
    assert bench_problem(DEVICES, 999, "n1", row("llama-bench.rpc.jsonl")) is None
    assert bench_problem((), 0, "n1", row("llama-bench.cpu.jsonl")) is None


@pytest.mark.parametrize(
    ("asked", "layers", "name"),
    [
        (DEVICES, 999, "llama-bench.cpu.jsonl"),
        (("Vulkan0",), 999, "llama-bench.rpc.jsonl"),
        (("RPC0", "CUDA0"), 999, "llama-bench.rpc.jsonl"),
        (DEVICES, 99, "llama-bench.rpc.jsonl"),
        ((), 0, "llama-bench.rpc.jsonl"),
    ],
)
def test_llama_bench_on_other_devices_or_layers_is_a_problem(asked, layers, name):
    problem = bench_problem(asked, layers, "n1", row(name)) or ""
    assert problem.startswith(f"llama-bench on node 'n1' was to run {layers} layers on ")


def test_a_backend_that_the_build_lacks_is_a_problem_whatever_the_devices_are_called():
    renamed = {**row("llama-bench.rpc.jsonl"), "backends": "RPC"}
    assert "(backends 'RPC'," in (bench_problem(DEVICES, 999, "n1", renamed) or "")


def test_a_llama_server_that_prints_nothing_of_its_devices_is_no_problem():
    log = printed("llama-server.default.txt")
    assert "using device" not in log
    assert server_problem(DEVICES, "n1", log) is None


def test_a_llama_server_that_prints_its_devices_has_to_print_all_that_it_was_given():
    log = printed("llama-server.verbose.txt")
    assert server_problem(DEVICES, "n1", log) is None
    assert "and uses RPC0, Vulkan0" in (server_problem(("CUDA0",), "n1", log) or "")
    assert "on the CPU and uses" in (server_problem((), "n1", log) or "")


def test_devices_that_split_tensors_are_one_whose_parts_are_counted():
    log = printed("llama-server.tensor.txt", BUILDS / "0.5.0-dev-build-0-commit-0c1e570")
    assert server_problem(("RPC0",), "n1", log) is None
    assert "uses creating a Meta device with 1 devices" in (server_problem(DEVICES, "n1", log))


def test_layers_that_stay_on_the_cpu_are_a_problem():
    problem = server_problem(DEVICES, "n1", printed("llama-server.part.txt")) or ""
    assert "offloaded 2 of 5 layers" in problem


def test_an_rpc_server_offers_what_it_was_to_offer():
    output = printed("rpc-server.txt")
    assert rpc_server_problem(("Vulkan0",), "n2", output) is None
    assert rpc_server_problem(("CPU",), "n2", "") is None, "it is still in a buffer"
    assert "was to offer CPU and offers Vulkan0" in (rpc_server_problem(("CPU",), "n2", output))
