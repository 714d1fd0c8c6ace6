"""SIGTERM and Ctrl-C while a process of ours only comes up: it ends at once and in silence, as by the signal itself.

Python would end in a traceback out of whatever it imports just then; a container's first process, for which the kernel
ignores signals that it does not handle, would go on as if nothing had been said. Only the standard library is imported
here, because imports are what takes the time.
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
    """From now on these signals end the process, those too that came while it held them (`held`)."""
    for number in STOP_SIGNALS:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@contextmanager
def terminating_immediately() -> Iterator[None]:
    """The same for a while; nothing may be begun meanwhile that would have to be ended in order."""
    with restoring_handlers():
        terminate_immediately()
        yield


@contextmanager
def restoring_handlers() -> Iterator[None]:
    """Whoever handles these signals before, handles them afterwards; meanwhile the caller has them."""
    former = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def blocked() -> Iterator[None]:
    """Keep these signals for the program that this process becomes meanwhile, until it handles them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # Still here: a container's first process, which no signal ends by itself.
    os._exit(128 + number)
