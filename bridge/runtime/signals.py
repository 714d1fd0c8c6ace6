"""SIGTERM and Ctrl-C while a process starts up: the process ends at once and prints nothing.

By default Python would print a traceback from whatever it is importing. A container's first process would not end at
all: the kernel ignores signals for which that process has no handler. This module imports only the standard library,
because imports are what takes the time at startup.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def terminate_immediately() -> None:
    """Make SIGTERM and Ctrl-C end the process at once, from now on; this includes signals that `blocked` held back."""
    for number in STOP_SIGNALS:
        signal.signal(number, _end_process)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@contextmanager
def terminating_immediately() -> Iterator[None]:
    """Make SIGTERM and Ctrl-C end the process at once inside the block; nothing in it may need an orderly end."""
    with restoring_handlers():
        terminate_immediately()
        yield


@contextmanager
def restoring_handlers() -> Iterator[None]:
    """Restore the handlers of SIGTERM and Ctrl-C at the end of the block."""
    former = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def blocked() -> Iterator[None]:
    """Block SIGTERM and Ctrl-C inside the block.

    If the block replaces the process by another program (exec), a signal waits until that program unblocks it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_process(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # Reached only by a container's first process, which the kernel does not end by the default action.
    os._exit(128 + number)
