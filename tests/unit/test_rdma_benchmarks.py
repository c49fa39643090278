"""What perftest and the collectives are started with, on clusters that have RDMA."""

import pytest

from machine_runs import run_of
from nixwulf import mpi
from nixwulf.benchmarks import collectives, perftest
from nixwulf.cluster import load_cluster
from nixwulf.run import RunFailure


def perftest_line(tmp_path, cluster, size, **options):
    run = run_of(tmp_path, "perftest", cluster, transport="rdma", **options)
    return " ".join(perftest.arguments(run, run.head, size))


def test_a_spark_gets_its_device_and_gid(tmp_path):
    run = run_of(tmp_path, "perftest", "dgx-spark-2", transport="rdma")
    place = run.head.node.fabrics[run.case.fabric]
    assert perftest_line(tmp_path, "dgx-spark-2", 64) == (
        f"ib_write_lat -d {place.rdma_device} -x {place.gid_index} -F -s 64 -n 1000"
    )
    assert perftest_line(tmp_path, "dgx-spark-2", 65536, operation="read", kind="bandwidth") == (
        f"ib_read_bw -d {place.rdma_device} -x {place.gid_index} -F -s 65536 -n 1000 --report_gbits"
    )


def test_apples_devices_have_unreliable_connections_only(tmp_path):
    assert perftest_line(tmp_path, "mac-studio-4", 4096).endswith("-c UC -m 1024")
    with pytest.raises(RunFailure, match="cannot read; use operation write or send"):
        perftest_line(tmp_path, "mac-studio-4", 4096, operation="read")


def test_every_size_is_a_process_of_its_own():
    assert perftest.SIZES == (64, 4096, 65536, 1048576)


def test_perftest_over_tcp_and_on_one_node_is_no_case():
    assert perftest.BENCHMARK.unsupported({"nodes": 2, "transport": "tcp"}) == (
        "perftest speaks rdma only"
    )
    assert perftest.BENCHMARK.unsupported({"nodes": 2, "transport": "rdma"}) is None
    assert "one node has none" in perftest.BENCHMARK.unsupported({"nodes": 1})


def test_a_node_without_a_device_in_the_cluster_file_is_one_sentence(tmp_path):
    run = run_of(tmp_path, "collectives")
    object.__setattr__(run.case, "transport", "rdma")
    with pytest.raises(RunFailure, match="has no rdma_device on the fabric") as raised:
        collectives.environment_of(run, run.head)
    assert raised.value.outcome == "skipped"


def test_decode_reduces_1_to_256_kib_and_checks_each(tmp_path):
    run = run_of(tmp_path, "collectives", "dgx-spark-2", transport="rdma")
    job = collectives.job_of(run, 0)
    assert " ".join(job.argv) == "all_reduce_perf -b 1K -e 256K -f 2 -g 1 -c 1 -n 20 -w 5"
    assert job.ranks_per_node == 1
    assert mpi.arguments(run, job, 5)[-len(job.argv) :] == list(job.argv)


def test_each_rank_gets_its_own_nodes_devices(tmp_path):
    run = run_of(tmp_path, "collectives", "dgx-spark-2", transport="rdma")
    for node in run.nodes:
        place = node.node.fabrics[run.case.fabric]
        variables = collectives.environment_of(run, node)
        assert variables["NCCL_IB_HCA"] == f"={place.rdma_device}"
        assert variables["NCCL_SOCKET_IFNAME"] == f"={place.interface}"
        assert variables["NCCL_IB_GID_INDEX"] == str(place.gid_index)
        assert variables["NCCL_IB_DISABLE"] == "0"


def test_over_tcp_rdma_is_switched_off(tmp_path):
    variables = collectives.environment_of(run := run_of(tmp_path, "collectives"), run.head)
    assert variables["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_IB_HCA" not in variables


def test_sockets_under_rdma_are_a_fallback():
    # hand-made: no two GPUs are at hand
    # (form: https://github.com/NVIDIA/nccl/blob/b647562/src/transport/net.cc)
    words = "n1:1:1 [0] NCCL INFO Using network Socket\nChannel 00/0 : via NET/Socket/0\n"
    with pytest.raises(RunFailure) as raised:
        collectives.check_transport(words, "rdma")
    assert raised.value.outcome == "fallback"
    collectives.check_transport(words, "tcp")
    collectives.check_transport("via NET/IB/0", "rdma")


@pytest.mark.parametrize("benchmark", [perftest.BENCHMARK, collectives.BENCHMARK])
def test_what_a_node_lacks_is_said_with_the_way_to_get_it(benchmark):
    assert "on PATH; " in benchmark.missing({})
    assert benchmark.missing(dict.fromkeys(benchmark.programs, "/x")) is None


def test_the_clusters_that_these_tests_name_have_rdma():
    for name in ("dgx-spark-2", "mac-studio-4"):
        fabrics = load_cluster(name).fabrics.values()
        assert any("rdma" in fabric.transports for fabric in fabrics)
