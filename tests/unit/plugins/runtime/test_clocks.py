import time
from types import SimpleNamespace

import pytest

from nixwulf.plugins.runtime.run import Clocks, Limits, RunFailure

PROGRESS_S = 0.2


class Silent:
    """A process that prints nothing and computes nothing."""

    argv = ("/bin/llama-server",)
    output_at = 0.0
    stopped = False

    def stop(self):
        self.stopped = True


@pytest.fixture
def clocks():
    run = SimpleNamespace(
        deadline=time.monotonic() + 60,
        limits=Limits(progress_s=PROGRESS_S),
        fabric=None,
        signs_of_life=lambda process: (0.0,),
        deaths=str,
    )
    return Clocks(run, Silent())


def until(moment, clocks, *, on_event):
    while time.monotonic() < moment:
        if on_event:
            clocks.on_event()
        clocks.check()
        time.sleep(0.01)


def test_what_arrives_over_a_socket_is_progress(clocks):
    until(time.monotonic() + 3 * PROGRESS_S, clocks, on_event=True)
    with pytest.raises(RunFailure, match=r"'llama-server' was silent for 0\.2 s") as caught:
        until(time.monotonic() + 60, clocks, on_event=False)
    assert caught.value.outcome == "hang"
    assert clocks._process.stopped
