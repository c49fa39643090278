"""Ctrl-C, SIGTERM and SIGHUP: one cancellation, which reaches every thread and every child.

When this process itself stood still: stopped by a signal, or paused with its machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType, TracebackType
from typing import Any, AnyStr
from weakref import WeakSet

from nixwulf.core.printed import communicate

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Closing a terminal sends more than one signal, and people press Ctrl-C twice: what is taken down
# because of the first is not left half-way because of the second.
_ONE_S = 5.0
_GRACE_S = 1.0
_SOON_S = 0.01


class _Scope:
    """A scope of threads: cancelled, it ends what they wait for, and they start nothing more."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self._lock = threading.RLock()
        self._inner: WeakSet[_Scope] = WeakSet()
        self._children: WeakSet[subprocess.Popen[Any]] = WeakSet()
        self.cancelled = threading.Event()
        if outer is not None:
            with outer._lock:
                outer._inner.add(self)
                if outer.cancelled.is_set():
                    self.cancelled.set()

    def start(self, command: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[Any]:
        with self._lock:
            self.check()
            process = subprocess.Popen(command, **options)
            self._children.add(process)
        return process

    def check(self) -> None:
        if self.cancelled.is_set():
            raise KeyboardInterrupt

    def cancel(self) -> None:
        with self._lock:
            self.cancelled.set()
            inner, children = list(self._inner), list(self._children)
        for scope in inner:
            scope.cancel()
        for process in children:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while any(process.poll() is None for process in children) and time.monotonic() < until:
            time.sleep(0.01)
        for process in children:
            _signal(process, signal.SIGKILL)


_root = _Scope()
_own = threading.local()


def _scope() -> _Scope | None:
    """Return the thread's scope; None in the main thread, where signals raise KeyboardInterrupt."""
    if threading.current_thread() is threading.main_thread():
        return None
    found: _Scope = getattr(_own, "scope", _root)
    return found


def _signal(process: subprocess.Popen[AnyStr], number: int) -> None:
    """Send a signal to a child, and to all of its session where it leads one."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            leads = os.getsid(process.pid) == process.pid
            (os.killpg if leads else os.kill)(process.pid, number)


def handle() -> None:
    """Make signals cancel from now on; one that is ignored (nohup, `&` in a script) stays so.

    The main thread gets a KeyboardInterrupt; one that Python drops, as in a callback, comes
    again.
    """
    last, came = -_ONE_S, signal.SIGINT

    def cancel(number: int, _frame: FrameType | None) -> None:
        nonlocal last, came
        global _root
        came = signal.Signals(number)
        if number == signal.SIGHUP:
            _leave_terminal()
        if time.monotonic() - last < _ONE_S:
            return
        last = time.monotonic()
        before, _root = _root, _Scope()
        before.cancel()
        raise KeyboardInterrupt

    def again(dropped: sys.UnraisableHookArgs) -> None:
        nonlocal last
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            last = -_ONE_S
            threading.Timer(_SOON_S, signal.pthread_kill, (threading.get_ident(), came)).start()
        else:
            sys.__unraisablehook__(dropped)

    sys.unraisablehook = again
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, cancel)


def _leave_terminal() -> None:
    """Redirect words for a terminal that is gone, so that they become no errors."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            with open(os.devnull, "wb") as null, suppress(OSError):  # noqa: PTH123
                os.dup2(null.fileno(), descriptor)


class Pool(ThreadPoolExecutor):
    """Threads of which none goes on when the block is left by an exception, or interrupted.

    They start children by `popen` or `run`, and pause by `wait`.
    """

    def __init__(self, threads: int) -> None:
        self._scope = _Scope(_scope() or _root)
        super().__init__(threads, initializer=setattr, initargs=(_own, "scope", self._scope))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the threads, after an exception as long as their children take to end."""
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)
            self._scope.cancel()
        self.shutdown()


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a child; when the driver is interrupted it ends, and this raises KeyboardInterrupt."""
    scope = _scope()
    return scope.start(command, options) if scope else subprocess.Popen(command, **options)


def run(
    command: Sequence[str], *, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a program in a session of its own, all of which ends when the driver is interrupted.

    Raises:
        KeyboardInterrupt: the driver was interrupted.
        subprocess.TimeoutExpired: it took longer.
        TooMuch: it printed more than is kept, both streams being text in pipes.
    """
    process = popen(command, start_new_session=True, **options)
    try:
        if options.get("text") and process.stdout and process.stderr:
            output, errors = communicate(process, None, timeout or threading.TIMEOUT_MAX)
        else:
            output, errors = process.communicate(timeout=timeout)
    except BaseException:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        _signal(process, signal.SIGKILL)
        process.wait()
        raise
    scope = _scope()
    if scope:
        scope.check()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def ask(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that reads nothing; return both streams as text."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return run(command, text=True, encoding="utf-8", errors="replace", **both, **options)


def wait(seconds: float) -> None:
    """Pause a thread; raises KeyboardInterrupt when the driver is interrupted."""
    scope = _scope()
    if scope is None:
        time.sleep(seconds)
    elif scope.cancelled.wait(seconds):
        raise KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[None]:
    """The block ends before an interrupt that comes meanwhile; then the interrupt comes.

    Only for the main thread, where Python runs handlers of signals, and for blocks that do not
    wait for anything.

    Raises KeyboardInterrupt: after the block, where a signal came during it.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = [signal.signal(number, note) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


_TICK_S = 0.5
# A thread that is so late was not only waiting for a processor.
_STOPPED_S = 5.0


class Pulse(threading.Thread):
    """A thread that ticks, and whose missing ticks show that nothing of the process ran."""

    def __init__(self) -> None:
        """Begin at once; it ends with the process."""
        super().__init__(daemon=True, name="pulse")
        self._ticked = time.monotonic()
        self._ended = float("-inf")
        self.start()

    def run(self) -> None:
        """Tick."""
        while True:
            time.sleep(_TICK_S)
            self.end_of_standstill()
            self._ticked = time.monotonic()

    def end_of_standstill(self) -> float:
        """The monotonic time at which the last standstill was over; -inf before the first."""
        now = time.monotonic()
        if now - self._ticked > _TICK_S + _STOPPED_S:
            self._ended = now
        return self._ended


_pulse = cache(Pulse)


def end_of_standstill() -> float:
    """The same of the process's one pulse, which the first call starts."""
    return _pulse().end_of_standstill()
