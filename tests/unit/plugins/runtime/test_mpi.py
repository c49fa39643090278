"""What mpirun is started with, by version and fabric, and what tells that its ranks work."""

import pytest

from machine_runs import run_of
from nixwulf.nodes.process import CpuTime
from nixwulf.plugins.runtime import mpi


def job(**options):
    return mpi.Job("xhpl", ("xhpl",), 2, "/tmp/nixwulf-x-r0", **options)


def line(run, major, **options):
    return " ".join(mpi.arguments(run, job(**options), major))


def test_open_mpi_4_stays_on_the_fabric_and_prints_its_daemons_commands(tmp_path):
    run = run_of(tmp_path, "hpl", fabric="gbe5", n=1000)
    assert line(run, 4) == (
        "mpirun -np 4 --host 10.77.3.11:2,10.77.3.12:2 --map-by slot --bind-to none "
        "--wdir /tmp/nixwulf-x-r0 --mca pml ob1 --mca btl self,vader,tcp "
        "--mca btl_tcp_if_include 10.77.3.0/24 --mca btl_tcp_port_min_v4 32768 "
        "--mca btl_tcp_port_range_v4 28232 --mca oob_tcp_if_include 10.77.3.0/24 "
        "--mca plm_rsh_agent echo --mca plm_rsh_no_tree_spawn 1 --leave-session-attached xhpl"
    )


def test_open_mpi_5_has_the_options_of_prrte(tmp_path):
    run = run_of(tmp_path, "hpl", fabric="gbe5", n=1000)
    assert line(run, 5) == (
        "mpirun -np 4 --host 10.77.3.11:2,10.77.3.12:2 --map-by slot --bind-to none "
        "--wdir /tmp/nixwulf-x-r0 --mca pml ob1 --mca btl self,sm,tcp "
        "--mca btl_tcp_if_include 10.77.3.0/24 --mca btl_tcp_port_min_v4 32768 "
        "--mca btl_tcp_port_range_v4 28232 --prtemca prte_if_include 10.77.3.0/24 "
        "--prtemca plm_ssh_agent echo --prtemca plm_ssh_no_tree_spawn 1 "
        "--leave-session-attached xhpl"
    )


def test_one_node_needs_no_fabric_and_no_daemon(tmp_path):
    run = run_of(tmp_path, "hpl", nodes=1, n=1000)
    assert line(run, 4, yields=True) == (
        "mpirun -np 2 --host 127.0.0.1:2 --map-by slot --bind-to none --wdir /tmp/nixwulf-x-r0 "
        "--mca pml ob1 --mca mpi_yield_when_idle 1 xhpl"
    )


@pytest.mark.parametrize(
    ("cluster", "cpus", "ranks", "shared"),
    [("lab", 2, 1, False), ("lab", 2, 2, True), ("mini-3", 2, 2, False), ("mini-3", 2, 3, True)],
)
def test_ranks_share_cores_when_there_are_more_of_them(tmp_path, cluster, cpus, ranks, shared):
    run = run_of(tmp_path, "hpl", cluster, n=1000, facts={"cpus": cpus})
    assert mpi.shares_cores(run, ranks) is shared


@pytest.mark.parametrize(
    ("times", "computed"),
    [
        ([("xhpl", 9.0, 0.5), ("xhpl", 3.0, 0.5), ("mpirun", 0.0, 0.0)], 5.0),
        ([("xhpl", 9.0, 0.5), ("xhpl", 2.0, 8.0)], -12.0),
        ([("xhpl", 9.0, 0.5)], 0.0),
    ],
)
def test_the_rank_that_works_least_counts_and_waiting_is_no_work(
    tmp_path, monkeypatch, times, computed
):
    run = run_of(tmp_path, "hpl", nodes=1, n=1000)
    found = [CpuTime(*values) for values in times]
    monkeypatch.setattr(mpi, "cpu_times", lambda node, launcher: found)
    launcher = type("Launcher", (), {"node": run.head.node.name})()
    assert mpi.signs_of_life(run, job(), [launcher])() == (computed, 0.0)
