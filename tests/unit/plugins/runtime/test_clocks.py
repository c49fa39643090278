import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from nixwulf.nodes.ssh import Unreachable
from nixwulf.plugins.runtime.case import Limits
from nixwulf.plugins.runtime.run import Clocks, RunFailure, Sign

PROGRESS_S = 0.4
LEAST = 100


class Silent:
    """A process that prints nothing."""

    program = "llama-server"
    output_at = 0.0
    stopped = False

    def stop(self):
        self.stopped = True


class Looks:
    """Signs of life: how much is carried a second, how long a look takes, and which do fail."""

    def __init__(self, rate=0.0, takes=0.0, fail=()):
        self.rate, self.takes, self.fail = rate, takes, fail
        self.count = 0

    def __call__(self, process):
        self.count += 1
        amount = self.rate * time.monotonic()
        time.sleep(self.takes)
        if self.fail == "all" or self.count in self.fail:
            raise Unreachable("Node 'n2' gave no answer.")
        return (Sign(amount, LEAST, "the fabric carried {:,.0f} bytes"),)


def clocks_of(looks):
    run = SimpleNamespace(
        deadline=time.monotonic() + 60,
        limits=Limits(progress_s=PROGRESS_S),
        signs_of_life=looks,
        deaths=str,
    )
    return Clocks(run, Silent())


def until(moment, clocks, *, on_event=False, pause=0.01):
    while time.monotonic() < moment:
        if on_event:
            clocks.on_event()
        clocks.check()
        time.sleep(pause)


def hang_of(clocks):
    with pytest.raises(RunFailure) as caught:
        until(time.monotonic() + 60, clocks)
    assert caught.value.outcome == "hang"
    assert clocks._process.stopped
    return caught.value.reason


def test_what_arrives_over_a_socket_is_progress():
    clocks = clocks_of(Looks())
    until(time.monotonic() + 3 * PROGRESS_S, clocks, on_event=True)
    assert hang_of(clocks) == (
        "'llama-server' was silent for 0.4 s, and in the last 0.2 s the fabric carried 0 bytes."
    )


def test_what_carries_a_little_all_the_time_is_no_hang():
    until(time.monotonic() + 4 * PROGRESS_S, clocks_of(Looks(rate=20 * LEAST)))


def test_a_stopped_peer_whose_kernel_still_sends_probes_is_a_hang():
    reason = hang_of(clocks_of(Looks(rate=LEAST)))
    assert "the fabric carried 2" in reason or "the fabric carried 3" in reason, reason


def test_a_first_look_that_answers_late_leaves_the_run_its_time_to_show_life():
    clocks = clocks_of(Looks(rate=20 * LEAST, takes=2 * PROGRESS_S))
    until(time.monotonic() + 8 * PROGRESS_S, clocks)
    assert clocks._signs is not None


def test_a_caller_that_asks_rarely_sees_no_hang_where_there_is_progress():
    clocks = clocks_of(Looks(rate=20 * LEAST))
    until(time.monotonic() + 5 * PROGRESS_S, clocks, pause=2 * PROGRESS_S)


@pytest.mark.parametrize("fail", [(1,), (2,), (2, 3)])
def test_a_look_that_failed_says_nothing_of_the_run(fail):
    looks = Looks(rate=20 * LEAST, fail=fail)
    clocks = clocks_of(looks)
    until(time.monotonic() + 3 * PROGRESS_S, clocks)
    while looks.count <= max(fail):  # on a busy machine looks come late; the run's deadline ends it
        until(time.monotonic() + PROGRESS_S, clocks)


def test_a_node_that_never_answers_is_named():
    begin = time.monotonic()
    reason = hang_of(clocks_of(Looks(fail="all")))
    assert time.monotonic() - begin > 1.4 * PROGRESS_S
    assert reason == (
        "'llama-server' was silent for 0.4 s, and nothing shows whether it works: "
        "Node 'n2' gave no answer."
    )


STOPPED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from nixwulf.core import interrupts
interrupts._STOPPED_S = 0.5
import test_clocks
clocks = test_clocks.clocks_of(test_clocks.Looks())
clocks._run.limits = test_clocks.Limits(progress_s=3)
clocks = test_clocks.Clocks(clocks._run, clocks._process)
until = time.monotonic() + 1.8
test_clocks.until(until, clocks)
print("looked", flush=True)
print(test_clocks.hang_of(clocks), flush=True)
"""


def test_a_driver_that_was_stopped_itself_begins_to_count_again():
    folder = __file__.rpartition("/")[0]
    argv = [sys.executable, "-c", STOPPED, folder]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout.readline() == "looked\n"
        driver.send_signal(signal.SIGSTOP)
        time.sleep(3)
        driver.send_signal(signal.SIGCONT)
        begin = time.monotonic()
        assert "was silent for 3 s" in driver.stdout.readline()
        assert time.monotonic() - begin >= 2.9
