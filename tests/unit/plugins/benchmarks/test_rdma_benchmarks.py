"""What perftest and the collectives are started with, on clusters that have RDMA."""

from dataclasses import replace
from pathlib import Path

import pytest

from machine_runs import run_of
from nixwulf.inventory.cluster import load_cluster
from nixwulf.outputs import nccl as parser
from nixwulf.plugins.benchmarks import collectives, perftest
from nixwulf.plugins.runtime import mpi
from nixwulf.plugins.runtime.run import RunFailure

# hand-made: NCCL writes them with GPUs in two nodes, and RCCL with AMD's (form: INFO in
# https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/transport/net.cc, WARN in src/misc/ibvwrap.cc
# there and in https://github.com/ROCm/rccl/blob/rocm-6.2.2/src/init.cc)
SENT = "n1:15718:15731 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/{}\n"
IOMMU = """
n1:15718:15718 [0] /src/init.cc:163 NCCL WARN Missing "iommu=pt" from kernel command line"""
LIBRARY = """
n1:15718:15718 [0] misc/ibvwrap.cc:94 NCCL WARN Failed to open libibverbs.so[.1]"""


def perftest_line(tmp_path, cluster, size, **options):
    run = run_of(tmp_path, "perftest", cluster, transport="rdma", **options)
    return " ".join(perftest.arguments(run, run.head, run.workers[0], size))


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
        "perftest runs over rdma only"
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
    assert " ".join(job.argv) == "all_reduce_perf -b 1024 -e 262144 -f 2 -g 1 -c 1 -n 20 -w 5"
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


def test_nccl_of_each_rank_logs_to_a_file_of_its_own(tmp_path):
    run = run_of(tmp_path, "collectives", "dgx-spark-2", transport="rdma")
    job = collectives.job_of(run, 1)
    for node in run.nodes:
        variables = job.environment[node.node.name]
        assert variables["NCCL_DEBUG_FILE"] == f"{run.scratch}/nccl.%p"
        assert variables["NCCL_DEBUG"] == "INFO"


def test_the_sizes_are_each_power_of_two_from_the_first_to_the_last(tmp_path):
    decode = collectives.sizes(run_of(tmp_path, "collectives"))
    large = collectives.sizes(run_of(tmp_path, "collectives", sizes="large"))
    assert decode == [1 << power for power in range(10, 19)]
    assert (large[0], large[-1], len(large)) == (1 << 20, 1 << 28, 9)


def test_a_table_has_each_size_that_was_asked_for(tmp_path):
    wanted = collectives.sizes(run_of(tmp_path, "collectives"))
    table = parser.parse(Path("tests/fixtures/nccl-tests/decode.txt").read_text())
    collectives.check_sizes(table, wanted)
    for rows in (table.rows[1:], table.rows[:-1], (*table.rows, table.rows[0])):
        with pytest.raises(RunFailure, match="from 1024 to 262144") as raised:
            collectives.check_sizes(replace(table, rows=rows), wanted)
        assert raised.value.outcome == "failed"


def test_a_test_that_ended_badly_is_quoted_with_the_last_warning_of_each_node():
    output = Path("tests/fixtures/nccl-tests/no-gpu.txt").read_text()
    # no output: lines that are above
    logs = {"a": f"{IOMMU}\n{LIBRARY}\n", "b": SENT.format("IB/0")}
    failure = collectives.failure_of("ended with 2", output, "nothing", logs)
    assert failure.outcome == "failed"
    assert failure.reason.startswith("all_reduce_perf ended with 2: ")
    assert "'CUDA driver version is insufficient for CUDA runtime version'" in failure.reason
    assert "NCCL on node 'a' warned: Failed to open libibverbs.so[.1]." in failure.reason
    assert "'b'" not in failure.reason
    assert "iommu" not in failure.reason


@pytest.mark.parametrize("benchmark", [perftest.BENCHMARK, collectives.BENCHMARK])
def test_what_a_node_lacks_is_named_with_how_to_get_it(benchmark):
    assert "on PATH; " in benchmark.missing({})
    assert benchmark.missing(dict.fromkeys(benchmark.programs, "/x")) is None


def test_the_clusters_that_these_tests_name_have_rdma():
    for name in ("dgx-spark-2", "dgx-spark-3", "mac-studio-4"):
        fabrics = load_cluster(name).fabrics.values()
        assert any("rdma" in fabric.transports for fabric in fabrics)
