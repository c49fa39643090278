import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from machine_runs import run_of
from nixwulf.plugins.runtime import nccl

FABRICS = {"dgx-spark-2": "qsfp-a", "dgx-spark-3": "ring"}


@pytest.fixture
def variables(tmp_path):
    """Those of a case's head; `change` is made to its fabric, and to all places on it."""

    def make(transport, cluster="dgx-spark-2", nodes=2, node=0, change=(), **place):
        axes = {"nodes": nodes, "transport": transport, "fabric": FABRICS[cluster]}
        run = run_of(tmp_path, "collectives", cluster, **axes)
        fabric = replace(run.fabric, **dict(change))
        run.cluster = replace(run.cluster, fabrics={**run.cluster.fabrics, fabric.name: fabric})
        for one in run.nodes if place else ():
            one.node.fabrics[fabric.name] = replace(one.node.fabrics[fabric.name], **place)
        return nccl.environment(run, run.nodes[node])

    return make


def test_tcp_forbids_rdma_and_names_the_interface_exactly(variables):
    assert variables("tcp") == {
        "NCCL_SOCKET_IFNAME": "=enp1s0f0np0",
        "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_NET_GDR_LEVEL": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_IB_DISABLE": "1",
    }


def test_rdma_names_one_device_exactly_and_its_gid(variables):
    found = variables("rdma")
    assert found["NCCL_IB_DISABLE"] == "0"
    assert found["NCCL_IB_HCA"] == "=mlx5_0"
    assert found["NCCL_IB_GID_INDEX"] == "3"
    assert not {"NCCL_PROTO", "NCCL_IB_MERGE_NICS"} & found.keys()


def test_several_devices_of_a_node_on_a_network_are_one_to_nccl(variables):
    found = variables("rdma", rdma_devices=("mlx5_1", "mlx5_0"))
    assert found["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert found["NCCL_IB_MERGE_NICS"] == "1"


@pytest.mark.parametrize("node", range(3))
def test_on_cables_nccl_takes_all_ports_each_for_the_peer_on_its_subnet(variables, node):
    found = variables("rdma", "dgx-spark-3", nodes=3, node=node)
    assert found["NCCL_IB_HCA"] == "=roceP2p1s0f0,roceP2p1s0f1,rocep1s0f0,rocep1s0f1"
    assert found["NCCL_SOCKET_IFNAME"] == "=enP7s7"
    assert found["NCCL_IB_GID_INDEX"] == "3"
    assert found["NCCL_IB_MERGE_NICS"] == "0"
    assert found["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert found["NCCL_IB_SUBNET_PREFIX_LEN"] == "24"
    assert "NCCL_ALGO" not in found


def test_in_a_ring_of_four_nccl_makes_no_tree(tmp_path):
    across = {"a": "c", "b": "d", "c": "a", "d": "b"}
    parts = Path("clusters/mac-studio-4.toml").read_text().split("[[nodes]]")
    for number, (name, other) in enumerate(across.items(), start=1):
        assert f'name = "mac-{name}"' in parts[number]
        parts[number] = re.sub(f"fabrics.mesh.links.mac-{other}.*", "", parts[number])
    file = tmp_path / "ring.toml"
    file.write_text("[[nodes]]".join(parts).replace("thunderbolt5-rdma", "roce"))
    run = run_of(tmp_path, "collectives", file, nodes=4, transport="rdma", fabric="mesh")
    assert [node.node.name[-1] for node in run.nodes] == ["a", "b", "c", "d"]
    found = nccl.environment(run, run.nodes[0])
    assert found["NCCL_ALGO"] == "Ring"
    assert found["NCCL_IB_HCA"] == "=rdma_en3,rdma_en5"
    assert found["NCCL_SOCKET_IFNAME"] == "=en0"


def test_two_nodes_on_a_cable_meet_there_and_take_its_ports_alone(variables):
    found = variables("rdma", "dgx-spark-3")
    assert found["NCCL_SOCKET_IFNAME"] == "=enp1s0f0np0"
    assert found["NCCL_IB_HCA"] == "=roceP2p1s0f0,rocep1s0f0"


def test_infiniband_takes_the_protocol_that_works_on_it(variables):
    infiniband = {"kind": "infiniband"}
    assert variables("rdma", change=infiniband)["NCCL_PROTO"] == "LL"
    assert "NCCL_PROTO" not in variables("tcp", change=infiniband)


def test_without_an_index_nccl_looks_for_the_gid_itself(variables):
    assert "NCCL_IB_GID_INDEX" not in variables("rdma", gid_index=None)


# hand-made: NCCL writes it with GPUs in two nodes (form: INFO in
# https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/transport/net.cc)
SENT = "n1:15718:15731 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/{}\n"
BOTH = SENT.format("IB/0") + SENT.format("Socket/0")


@pytest.mark.parametrize(
    ("transport", "log", "against"),
    [
        ("rdma", SENT.format("IB/0"), None),
        (
            "rdma",
            SENT.format("Socket/0").replace("send", "receive"),
            "NCCL crossed NET/Socket, not NET/IB",
        ),
        (
            "rdma",
            "NET/IB : No device found.",
            "NCCL crossed no network that it names, not NET/IB",
        ),
        ("tcp", SENT.format("Socket/1"), None),
        ("tcp", "", None),
        ("tcp", BOTH, "NCCL crossed NET/IB and NET/Socket, not"),
    ],
)
def test_the_channels_of_a_log_tell_what_was_crossed(transport, log, against):
    found = nccl.wrong_network(transport, log)
    assert found is None if against is None else (found or "").startswith(against)


@pytest.mark.parametrize(
    ("transport", "log", "problem"),
    [
        ("rdma", SENT.format("IB/0"), None),
        ("rdma", SENT.format("Socket/0"), "On node 'spark2' NCCL crossed NET/Socket, not NET/IB."),
        ("rdma", "", "On node 'spark2' NCCL crossed no network that it names, not NET/IB."),
        ("tcp", SENT.format("Socket/0"), None),
        ("tcp", SENT.format("IB/0"), "On node 'spark2' NCCL crossed NET/IB, not NET/Socket."),
    ],
)
def test_the_log_of_every_node_is_kept_and_has_to_show_the_transport(
    tmp_path, monkeypatch, transport, log, problem
):
    run = run_of(tmp_path, "collectives", "dgx-spark-2", transport=transport)
    good = SENT.format("IB/0" if transport == "rdma" else "Socket/0")

    def answer(nodes, command):
        assert command[-1] == f"{run.scratch}/nccl"
        texts = [good] * (len(nodes) - 1) + [log]
        return [subprocess.CompletedProcess(command, 0, text, "") for text in texts]

    monkeypatch.setattr(nccl, "run_all", answer)
    nccl.collect_logs(run, "all_reduce_perf-0")
    assert nccl.logs(run) == {"spark1": good, "spark2": log}
    assert (run.raw / "nccl" / "spark2" / "all_reduce_perf-0.log").read_text() == log
    assert nccl.transport_problem(run.case.transport, nccl.logs(run)) == problem


def test_logs_are_moved_from_a_node_all_files_of_a_run_and_no_other(tmp_path):
    for name in ("mine.7", "mine.8", "minerals", "other.7"):
        (tmp_path / name).write_text(f"{name}\n")
    answer = subprocess.run(
        ["sh", "-c", nccl._MOVE, "sh", f"{tmp_path}/mine"],
        capture_output=True,
        text=True,
        check=True,
    )
    # no output: the lines that this test wrote
    assert answer.stdout == "mine.7\nmine.8\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["minerals", "other.7"]


def test_the_last_warning_of_a_log_is_found_among_other_lines():
    # hand-made: NCCL warns with GPUs in two nodes (form: WARN in src/init.cc and
    # https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/misc/ibvwrap.cc)
    log = "x [0] init.cc:1 NCCL WARN first\n" + SENT + "x [0] misc/ibvwrap.cc:94 NCCL WARN last\n"
    assert nccl.last_warning(log + SENT) == "last"
    assert nccl.last_warning(SENT) is None
