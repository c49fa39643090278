"""How a lab begins and ends: by a command, with its driver, or killed; nothing may stay."""

from __future__ import annotations

import inspect
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from lab_under_test import Running, Traces, cluster_of

from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import Shape
from nixwulf.nodes import lab
from nixwulf.nodes.ssh import connections, open_all
from stand_in import put

TWO_FABRICS = {"plain": Shape(rate_gbps=10), "slow": Shape(delay_us=500)}
TakeTraces = Callable[[lab.Lab], Traces]


def test_a_lab_that_was_up_and_down_leaves_nothing(
    bring_up: Callable[..., Running], traces: TakeTraces, state_base: Path
) -> None:
    def host() -> list[str]:
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        names = [line.split(": ")[1] for line in links.stdout.splitlines()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return [*sorted(names), *mounts, *sorted(map(str, state_base.rglob("*/lab/*")))]

    before = host()
    running = bring_up(cluster_of(4, **TWO_FABRICS), "gone")
    running.out("n1", "sleep 1000 >/dev/null 2>&1 & touch kept; ssh n2 true")
    seen = traces(running.lab)
    running.lab.down()
    assert seen.left() == []
    assert host() == before


def test_a_lab_of_sixteen_nodes_comes_up_and_goes(
    bring_up: Callable[..., Running], traces: TakeTraces
) -> None:
    running = bring_up(cluster_of(16, **TWO_FABRICS), "sixteen")
    assert (
        running.out("n16", f"ping -n -c 1 {running.address('n1', 'slow')} >/dev/null; hostname")
        == "n16"
    )
    seen = traces(running.lab)
    running.lab.down()
    assert seen.left() == []


def test_two_labs_with_the_same_addresses_are_up_side_by_side(
    bring_up: Callable[..., Running],
) -> None:
    cluster = cluster_of(2, slow=Shape(delay_us=500))
    first, second = bring_up(cluster, "first"), bring_up(cluster, "second")
    try:
        first.out("n1", "touch mark")
        assert first.address("n2", "slow") == second.address("n2", "slow")
        assert first.ssh("n1", "test -e mark").returncode == 0
        assert second.ssh("n1", "test -e mark").returncode == 1
        second.lab.set_shape("slow", Shape(delay_us=3000))
        assert first.rtt_us("slow") < second.rtt_us("slow")
        first.lab.down()
        assert second.out("n2", "hostname") == "n2"
        assert [found.name for found in lab.labs()] == ["second"]
    finally:
        first.lab.down()
        second.lab.down()


def test_a_name_that_is_up_is_refused_and_the_lab_stays(bring_up: Callable[..., Running]) -> None:
    running = bring_up(cluster_of(2, plain=Shape()), "taken")
    with pytest.raises(InputError, match="nixwulf lab down --name taken"):
        lab.up(running.lab.cluster, name="taken")
    assert running.out("n1", "hostname") == "n1"
    running.lab.down()


def test_a_lab_ends_with_the_driver_that_was_killed(
    bring_up: Callable[..., Running], traces: TakeTraces
) -> None:
    program = (
        "import sys, time; from lab_under_test import cluster_of; from nixwulf.nodes import lab\n"
        "from nixwulf.inventory.cluster import Shape\n"
        "lab.up(cluster_of(2, slow=Shape(delay_us=500)), name='driven', lifeline=True)\n"
        "print('up', flush=True); time.sleep(1000)\n"
    )
    bring_up(cluster_of(2, plain=Shape()), "probe").lab.down()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "up\n"
    running = Running(lab.find("driven"))
    running.out("n1", "true")  # leaves a shared connection, a process outside the lab
    seen = traces(running.lab)
    driver.kill()
    driver.wait()
    assert seen.left_after(10) == []


def test_a_lab_whose_supervisor_was_killed_is_cleaned_up_by_down(
    bring_up: Callable[..., Running], traces: TakeTraces
) -> None:
    running = bring_up(cluster_of(2, **TWO_FABRICS), "killed")
    running.out("n1", "true")
    seen = traces(running.lab)
    os.kill(int(running.lab.files.process_id.read_text()), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while running.lab.is_up and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running.lab.is_up
    assert [path for path in seen.left() if not path.startswith(str(seen.state))] == []
    lab.find("killed").down()
    assert seen.left() == []


def test_a_lab_whose_supervisor_hangs_is_killed_by_down(
    bring_up: Callable[..., Running], traces: TakeTraces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nixwulf.nodes.lab.handle.ANSWER_SECONDS", 0.5)
    running = bring_up(cluster_of(2, plain=Shape()), "stuck")
    seen = traces(running.lab)
    os.kill(int(running.lab.files.process_id.read_text()), signal.SIGSTOP)
    running.lab.down()
    assert seen.left() == []


@pytest.mark.parametrize("by", ["ssh", "the driver"])
def test_a_stopped_connection_of_a_lab_is_ended_by_down(
    by: str, bring_up: Callable[..., Running]
) -> None:
    def masters() -> list[int]:
        titles = (f"ssh: {running.lab.files.connections}/", f"ssh\0-F\0{running.lab.ssh_config}\0")
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cmdline").read_text().startswith(titles):
                    found.append(int(process.name))
        return found

    cluster = cluster_of(2, **TWO_FABRICS)
    running = bring_up(cluster, "stopped-master")
    if by == "ssh":
        running.out("n1", "true")
        running.out("n2", "true")
    else:
        open_all(connections(cluster, running.lab.ssh_config).values())
    (one, _) = masters()
    os.kill(one, signal.SIGSTOP)
    begin = time.monotonic()
    running.lab.down()
    assert time.monotonic() - begin < 10
    assert masters() == []


def test_an_sshd_that_refuses_to_start_is_quoted_and_nothing_stays(
    bring_up: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    state_base: Path,
) -> None:
    bring_up(cluster_of(2, plain=Shape()), "probe").lab.down()
    put(tmp_path, "sshd", "echo 'Bad option: Port' >&2; exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NixwulfError, match="'n[12]' did not start: .*Bad option: Port"):
        lab.up(cluster_of(2, plain=Shape()), name="refused")
    assert list(state_base.rglob("refused")) == []


def test_the_name_of_a_killed_lab_can_be_used_again(bring_up: Callable[..., Running]) -> None:
    cluster = cluster_of(2, plain=Shape())
    first = bring_up(cluster, "again")
    os.kill(int(first.lab.files.process_id.read_text()), signal.SIGKILL)
    while first.lab.is_up:
        time.sleep(0.02)
    second = bring_up(cluster, "again")
    assert second.out("n2", "hostname") == "n2"
    second.lab.down()


def test_a_lab_that_is_interrupted_while_it_comes_up_leaves_nothing(
    bring_up: Callable[..., Running], state_base: Path
) -> None:
    bring_up(cluster_of(2, plain=Shape()), "probe").lab.down()
    moments = [0.0, 0.1, 0.3, 0.8]
    signals = itertools.cycle([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    for moment, number in zip(moments, signals, strict=False):
        command = [sys.executable, "-m", "nixwulf", "lab", "up", "--name", "early"]
        driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not (state_base / "nixwulf" / "lab" / "early").exists():
            assert driver.poll() is None
            time.sleep(0.01)
        time.sleep(moment)
        begin = time.monotonic()
        driver.send_signal(number)
        _, words = driver.communicate(timeout=30)
        assert (driver.returncode, words.strip()) == (130, "Interrupted."), moment
        assert time.monotonic() - begin < 15, moment  # 1 s where nothing else runs
        assert lab.labs() == []
        assert not (state_base / "nixwulf" / "lab" / "early").exists()
        assert _processes_with(str(state_base / "nixwulf" / "lab" / "early")) == []


def test_a_lab_that_is_interrupted_at_any_line_of_its_beginning_leaves_nothing(
    state_base: Path,
) -> None:
    cluster = cluster_of(2, plain=Shape())
    source, first = inspect.getsourcelines(lab.up)
    begin = first + next(n for n, line in enumerate(source) if "state.remove()" in line)
    lines = {line for _, _, line in lab.up.__code__.co_lines() if line and line >= begin}
    for wanted in sorted(lines):

        def interrupt(frame: FrameType, event: str, _: object, wanted: int = wanted) -> Any:
            if frame.f_code is not lab.up.__code__:
                return None
            if event == "line" and frame.f_lineno > wanted:
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            with suppress(KeyboardInterrupt):
                lab.up(cluster, name="any-line").down()
        finally:
            sys.settrace(None)
        assert sorted((state_base / "nixwulf" / "lab").glob("*")) == [], wanted


def _processes_with(text: str) -> list[str]:
    """Those whose command line or open files name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                words = (entry / "cmdline").read_text(errors="replace")
                files = [str(file.readlink()) for file in (entry / "fd").iterdir()]
                found += [words] if text in " ".join([words, *files]) else []
    return found


def test_a_lab_whose_first_process_was_stopped_while_it_began_ends_all_the_same(
    bring_up: Callable[..., Running], traces: TakeTraces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nixwulf.nodes.lab.handle.END_SECONDS", 2.0)
    running = bring_up(cluster_of(2, plain=Shape()), "stopped-parent")
    seen = traces(running.lab)
    supervisor = Path(f"/proc/{running.lab.files.process_id.read_text()}/stat").read_text()
    parent = int(supervisor.rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGSTOP)
    running.lab.down()
    assert seen.left() == []
