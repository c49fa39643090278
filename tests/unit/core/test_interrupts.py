"""An interrupt in the middle of what belongs together comes after it."""

import os
import signal
import subprocess
import sys

import pytest

from nixwulf.core.interrupts import SIGNALS, held_back


@pytest.mark.parametrize("number", SIGNALS)
def test_what_belongs_together_is_done_before_the_interrupt_comes(number):
    done = []

    def interrupted_in_the_middle():
        os.kill(os.getpid(), number)
        done.append("the rest of it")

    with pytest.raises(KeyboardInterrupt), held_back():
        interrupted_in_the_middle()
    assert done == ["the rest of it"]


def test_the_handlers_are_as_before_whatever_happens_in_the_block():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(ValueError, match="full"), held_back():
        raise ValueError("full")
    with held_back():
        pass
    assert [signal.getsignal(number) for number in SIGNALS] == before


_WHERE_PYTHON_DROPS_EXCEPTIONS = """
import os, signal, time
from nixwulf.core import interrupts

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

interrupts.handle()
Dropped()
try:
    time.sleep(20)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_where_python_drops_exceptions_comes_again():
    argv = [sys.executable, "-c", _WHERE_PYTHON_DROPS_EXCEPTIONS]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
