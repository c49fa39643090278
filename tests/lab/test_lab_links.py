"""What a lab makes of its fabrics: delay, rate and loss, each on its own, changed while up."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_under_test import Running, cluster_of, processes_of

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import Shape

SLOW = Shape(delay_us=2000, rate_gbps=1)
needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not on PATH")


@pytest.fixture(scope="module")
def running(bring_up: Callable[..., Running]) -> Iterator[Running]:
    shapes = {"plain": Shape(), "limited": Shape(rate_gbps=0.5), "slow": SLOW}
    middle = Shape(delay_us=500, rate_gbps=10)
    running = bring_up(cluster_of(3, **shapes, middle=middle), "links")
    yield running
    running.lab.down()


def test_fabrics_of_one_lab_keep_the_order_of_their_delays(running: Running) -> None:
    plain, middle, slow = (running.rtt_us(name) for name in ("plain", "middle", "slow"))
    assert plain < middle < slow
    assert middle >= 2 * 500 * 0.9
    assert slow >= 2 * 2000 * 0.9


def test_a_link_without_delay_and_loss_is_shaped_by_the_kernel(running: Running) -> None:
    assert running.lab.shaping("plain") == "none"
    assert running.lab.shaping("limited") == "tbf"
    assert running.lab.shaping("slow") in ("netem", "switch")


def test_the_round_trip_follows_the_delay_on_the_same_interface(running: Running) -> None:
    index = "cat /sys/class/net/middle/ifindex /sys/class/net/middle/address"
    before = running.rtt_us("middle"), running.out("n1", index)
    running.lab.set_shape("middle", Shape(delay_us=3000, rate_gbps=10))
    during = running.rtt_us("middle"), running.out("n1", index)
    running.lab.set_shape("middle", Shape())
    after = running.rtt_us("middle"), running.out("n1", index)
    running.lab.set_shape("middle", Shape(delay_us=500, rate_gbps=10))
    again = running.rtt_us("middle"), running.out("n1", index)
    assert after[0] < before[0] < during[0] > again[0] > after[0]
    assert before[1] == during[1] == after[1] == again[1]


def test_a_connection_outlives_changes_of_the_link(running: Running) -> None:
    address = running.address("n2", "middle")
    running.out("n2", "rm -f got")
    listen = "import socket; s=socket.create_server(('', 5001)); c=s.accept()[0]; f=c.makefile()"
    running.out("n2", f"python3 -c \"{listen}; open('got', 'w').write(f.read())\" >log 2>&1 &")
    send = f"s=socket.create_connection(('{address}', 5001))"
    loop = "[(s.send(b'x' * 100), time.sleep(0.01)) for _ in range(200)]"
    program = f'python3 -c "import socket, time; time.sleep(0.3); {send}; {loop}"'
    running.out("n1", f"{program} >log 2>&1 & echo")
    for delay_us in (0, 1000, 0, 500):
        time.sleep(0.4)
        running.lab.set_shape("middle", Shape(delay_us=delay_us, rate_gbps=10))
    deadline = time.monotonic() + 20
    while running.ssh("n2", "cat got").stdout != "x" * 20_000:
        assert time.monotonic() < deadline, running.ssh("n1", "cat log").stdout
        time.sleep(0.1)


def test_all_frames_lost_is_a_ping_without_answer_until_the_loss_ends(running: Running) -> None:
    ping = f"ping -n -c 3 -i 0.05 -W 1 {running.address('n2', 'slow')}"
    running.lab.set_shape("slow", dataclasses.replace(SLOW, loss_percent=100))
    assert running.ssh("n1", ping).returncode == 1
    running.lab.set_shape("slow", SLOW)
    assert running.ssh("n1", ping).returncode == 0


def test_all_nodes_of_a_fabric_reach_each_other(running: Running) -> None:
    for fabric in running.lab.cluster.fabrics:
        for source, target in (("n1", "n3"), ("n3", "n2"), ("n2", "n1")):
            ping = f"ping -n -c 2 -i 0.02 -W 2 {running.address(target, fabric)}"
            assert running.ssh(source, ping).returncode == 0, (fabric, source, target)


@needs_iperf3
@pytest.mark.parametrize("fabric", ["limited", "slow"])
def test_a_stream_is_carried_at_no_more_than_the_rate(running: Running, fabric: str) -> None:
    asked = running.lab.shape(fabric).rate_gbps
    assert asked is not None
    assert asked * 0.3 < running.gbps(fabric, 50) <= asked * 1.05


@needs_iperf3
def test_the_switch_passes_large_frames_whole(running: Running) -> None:
    if running.lab.shaping("slow") != "switch":
        pytest.skip("this kernel has netem, so no switch runs")
    before = running.lab.status()["slow"]["forwarded"]
    running.gbps("slow", 50)
    frames = running.lab.status()["slow"]["forwarded"] - before
    assert frames < 50e6 / 1448 / 2  # packets of 1448 bytes, if it cut them


def test_a_switch_without_traffic_takes_no_cpu(running: Running) -> None:
    def ticks() -> int:
        used = 0
        for pid in processes_of(running.lab):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
        return used

    running.lab.status()
    before = ticks()
    time.sleep(1)
    assert ticks() - before <= 3


def test_an_unknown_fabric_is_named_with_those_there_are(running: Running) -> None:
    with pytest.raises(InputError, match=r"no fabric 'fast'; known: plain, limited, slow, middle"):
        running.lab.set_shape("fast", Shape())


def test_a_shape_that_no_link_has_is_refused_and_the_old_one_stays(running: Running) -> None:
    with pytest.raises(InputError, match="-1 us, expected 0 to"):
        running.lab.set_shape("slow", Shape(delay_us=-1))
    assert running.lab.shape("slow") == SLOW
