"""What reports are made with is loaded beside the start of a sweep, which may be interrupted."""

import subprocess
import sys

INTERRUPTED = """
import sys
from nixwulf.core.interrupts import Pool
from nixwulf.report import load
try:
    with Pool(1) as pool:
        pool.submit(load)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print(*(name for name in ("pandas", "nixwulf.report.render") if name in sys.modules))
"""


def test_an_interrupt_does_not_wait_until_everything_is_loaded():
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
