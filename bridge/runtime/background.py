"""Runs blocking calls in threads that do not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_background(call: Callable[[], T], name: str) -> Future[T]:
    """Run a call in a daemon thread.

    Args:
        call: the call.
        name: the thread's name.

    Returns:
        The call's result or exception, once it ends.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  # the thread that waits for the future raises it
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def run_interruptibly(call: Callable[[], T]) -> T:
    """Run a blocking call so that signals are handled while it blocks.

    Python runs no signal handler while a C library blocks the main thread. So the call runs in a daemon thread. If a
    signal handler interrupts the wait, the thread is abandoned.
    """
    return run_in_background(call, "interruptible").result()
