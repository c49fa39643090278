"""llama.cpp's output tells what its RPC crossed and what it computed on.

The lines of RDMA are in the documented form (ggml-rpc of llama.cpp 0c1e570), not run here.
"""

import pytest

from nixwulf.engines.llama_cpp_proof import (
    client_device_problem,
    device_problem,
    server_device_problem,
    transport_problem,
)

LISTENS = "  transport      : TCP (RDMA auto-negotiate enabled)\nAccepted client connection\n"
PROBED = "RDMA probed: dev=rocep1s0f0 gid=3 RoCEv2 qpn=17 inline=64\n"
CLIENT = PROBED + "RDMA activated: qpn=17->33 mtu=4096 rx_depth=24\n"
SERVER = LISTENS + PROBED + "RDMA activated: qpn=33->17 mtu=4096 rx_depth=24\n"


def test_rdma_is_proved_when_both_sides_name_the_same_queue_pairs():
    assert transport_problem("rdma", "n1", CLIENT, {"n2": SERVER}) is None


def test_the_lines_of_a_mac_prove_it_too():
    client = "RDMA(Apple/UC) activated: qpn=5->6 mtu=4096 rx_depth=16\n"
    server = "RDMA(Apple/UC) activated: qpn=6->5 mtu=4096 rx_depth=16\n"
    assert transport_problem("rdma", "n1", client, {"n2": server}) is None


@pytest.mark.parametrize(
    ("client", "server", "words"),
    [
        ("", SERVER, "client on node 'n1' does not say 'RDMA activated' (it did not even probe"),
        (PROBED, SERVER, "client on node 'n1' does not say 'RDMA activated' (it probed RDMA only)"),
        (CLIENT, LISTENS, "RPC server on node 'n2' does not say 'RDMA activated'"),
        (CLIENT, "  transport      : TCP\n", "RPC server on node 'n2' is built without RDMA"),
        (CLIENT, SERVER + "RDMA activate failed, staying on TCP\n", "says 'staying on TCP'"),
        (CLIENT, SERVER.replace("33->17", "33->99"), "no queue pair of this run's client"),
    ],
)
def test_what_does_not_prove_rdma_is_a_problem(client, server, words):
    assert words in (transport_problem("rdma", "n1", client, {"n2": server}) or "")


def test_every_server_has_to_prove_rdma():
    problem = transport_problem("rdma", "n1", CLIENT, {"n2": SERVER, "n3": LISTENS})
    assert "on node 'n3'" in (problem or "")


def test_tcp_that_became_rdma_is_a_problem():
    assert transport_problem("tcp", "n1", "", {"n2": LISTENS}) is None
    assert "the case asks for tcp" in (transport_problem("tcp", "n1", "", {"n2": SERVER}) or "")


@pytest.mark.parametrize(
    ("backend", "backends", "devices", "layers"),
    [
        ("any", "CPU", "", -1),
        ("cpu", "CPU", "", 0),
        ("vulkan", "Vulkan", "AMD Radeon Graphics (RADV GFX1151)", 99),
        ("rocm", "ROCm,RPC", "AMD Radeon Graphics, 10.0.0.2:50052", 99),
        ("metal", "BLAS,MTL", "Apple M3 Ultra", -1),
    ],
)
def test_what_ran_is_what_was_asked_for(backend, backends, devices, layers):
    assert device_problem(backend, "n1", backends, devices, layers) is None


@pytest.mark.parametrize(
    ("backend", "backends", "devices", "layers"),
    [
        ("vulkan", "CPU", "", -1),
        ("vulkan", "Vulkan", "", 99),
        ("cuda", "CUDA", "NVIDIA GB10", 0),
        ("rocm", "Vulkan", "AMD Radeon Graphics", 99),
        ("rocm", "", "", None),
    ],
)
def test_a_gpu_that_was_asked_for_and_did_not_compute_is_a_problem(
    backend, backends, devices, layers
):
    problem = device_problem(backend, "n1", backends, devices, layers)
    assert f"asks for {backend}" in (problem or "")


def test_a_llama_server_names_the_devices_it_uses():
    log = "llama_prepare_model_devices: using device Vulkan0 (AMD Radeon) (0000:c5) - 9 MiB free\n"
    assert client_device_problem("vulkan", "n1", log) is None
    assert "uses Vulkan0" in (client_device_problem("cuda", "n1", log) or "")
    assert "uses the CPU" in (client_device_problem("cuda", "n1", "") or "")
    assert client_device_problem("any", "n1", "") is None


def test_an_rpc_server_names_the_devices_it_offers():
    output = "Devices:\n  CPU: AMD EPYC (24105 MiB, 24105 MiB free)\n"
    assert server_device_problem("cpu", "n2", output) is None
    assert "offers CPU" in (server_device_problem("vulkan", "n2", output) or "")
