import re
from pathlib import Path

import pytest

from nixwulf import nccl
from nixwulf.cluster import Attachment, load_cluster

SPARK = Attachment("enp1s0f0np0", "10.100.1.1", "mlx5_0", 3)


@pytest.fixture
def roce():
    return load_cluster("dgx-spark-2").fabrics["qsfp-a"]


def test_tcp_forbids_rdma_and_names_the_interface_exactly(roce):
    assert nccl.environment(roce, SPARK, "tcp") == {
        "NCCL_SOCKET_IFNAME": "=enp1s0f0np0",
        "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_NET_GDR_LEVEL": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_IB_DISABLE": "1",
    }


def test_rdma_names_one_device_exactly_and_its_gid(roce):
    variables = nccl.environment(roce, SPARK, "rdma")
    assert variables["NCCL_IB_DISABLE"] == "0"
    assert variables["NCCL_IB_HCA"] == "=mlx5_0"
    assert variables["NCCL_IB_GID_INDEX"] == "3"
    assert "NCCL_PROTO" not in variables


def test_the_services_of_nixos_have_the_same_variables(roce):
    text = Path("lib/nccl.nix").read_text()
    rendered = set(re.findall(r"\b([A-Z]+(?:_[A-Z]+)+) =", text))
    infiniband = roce.__class__(**{**vars(roce), "kind": "infiniband"})
    variables = nccl.environment(infiniband, SPARK, "rdma")
    assert rendered == set(variables)
    for name, value in variables.items():
        if f'{name} = "' in text and "${" not in text.split(f'{name} = "')[1].split('"')[0]:
            assert f'{name} = "{value}"' in text


@pytest.mark.parametrize(
    ("transport", "log", "against"),
    [
        ("rdma", "Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0", None),
        (
            "rdma",
            "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
            "NCCL crossed NET/Socket, not NET/IB",
        ),
        (
            "rdma",
            "NET/IB : No device found.",
            "NCCL crossed no network that it names, not NET/IB",
        ),
        ("tcp", "via NET/Socket/1", None),
        ("tcp", "", None),
        ("tcp", "via NET/IB/0\nvia NET/Socket/0", "NCCL crossed NET/IB and NET/Socket, not"),
    ],
)
def test_the_channels_of_a_log_tell_what_was_crossed(transport, log, against):
    found = nccl.wrong_network(transport, log)
    assert found is None if against is None else (found or "").startswith(against)
