"""An interrupt in the middle of what belongs together comes after it."""

import os
import signal

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
