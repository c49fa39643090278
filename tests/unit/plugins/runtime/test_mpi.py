"""What mpirun is started with, by version and fabric, and what tells that its ranks work."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine_runs import run_of
from nixwulf.nodes.process import CpuTime
from nixwulf.plugins.runtime import mpi
from nixwulf.plugins.runtime.run import PROGRESS_CPU_S, RunFailure


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
        "mpirun -np 4 --host 10.77.3.11:2,10.77.3.12:2 --map-by slot:oversubscribe "
        "--bind-to none --wdir /tmp/nixwulf-x-r0 --mca pml ob1 --mca btl self,sm,tcp "
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
        ([("xhpl", 9.0, 0.5), ("xhpl", 3.0, 0.5), ("mpirun", 0.0, 0.0)], 2.5),
        ([("xhpl", 9.0, 0.5), ("xhpl", 2.0, 8.0)], -6.0),
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
    (sign,) = mpi.signs_of_life(run, job(), [launcher])()
    assert (sign.amount, sign.least) == (computed, PROGRESS_CPU_S)


# Printed by Debian's mpirun 4.1.4 with `--mca plm_rsh_agent echo`, cut short.
PLAIN = (
    'orted -mca ess "env" -mca ess_base_vpid 1 -mca orte_node_regex "vm,[2:10].77.1.12@0(2)" '
    '-mca orte_hnp_uri "110231552.0;tcp://192.0.2.2:42873;tcp6://[fd00::2]:45733" -mca plm "rsh"'
)
PREFIXED = (
    "         PATH=/usr/bin:$PATH ; export PATH ; LD_LIBRARY_PATH=/usr/lib:${LD_LIBRARY_PATH:-} ; "
    f"export LD_LIBRARY_PATH ;   /usr/bin/{PLAIN}"
)
# hand-made: mpirun's words for a login shell that is sh, and those of Open MPI 5 (plm_ssh_module.c)
PROFILE = f"( test ! -r ./.profile || . ./.profile; {PLAIN} )"
NEWER = f"PRTE_PREFIX=/opt/x ; export PRTE_PREFIX ; /opt/x/bin/{PLAIN.replace('orted', 'prted')}"


@pytest.mark.parametrize("command", [PLAIN, PREFIXED, PROFILE, NEWER])
def test_a_daemon_of_open_mpi_is_started_on_a_worker(command):
    assert mpi.daemon_of(command, "n1") == ["sh", "-c", command]


@pytest.mark.parametrize(
    "command",
    [
        "id >/tmp/owned",
        f"{PLAIN}; id",
        f"id; {PLAIN}",
        f"{PLAIN} & id",
        f"{PLAIN} | sh",
        f"{PLAIN} $(id)",
        f'{PLAIN} "$(id)"',
        f"{PLAIN} `id`",
        f"PATH=$(id):$PATH ; {PLAIN}",
        "/tmp/evil/orted-not -x",
        # no output: what somebody else could have a shell run
        f"{PLAIN}\nid",
        f"{PLAIN} ) ; id",
    ],
)
def test_what_else_a_head_asks_for_is_run_on_no_worker(command):
    with pytest.raises(RunFailure, match="mpirun on node 'n1' asks for .* which is no daemon"):
        mpi.daemon_of(command, "n1")


# no output: what a shell acts upon
@given(st.text(alphabet=";|&<>()$`\\\"' \nid", min_size=1))
def test_after_a_daemon_no_other_command_begins(more):
    try:
        mpi.daemon_of(f"orted {more}", "n1")
    except RunFailure:
        return
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", more)
    assert not set(unquoted.rstrip(") \n")) & set(";|&<>()$`\\")
