"""Calls in threads of their own."""

from __future__ import annotations

import threading

import pytest

from bridge.errors import RetriableError
from bridge.runtime.background import run_in_background, run_interruptibly


def test_interruptible_call_gives_its_result_or_error() -> None:
    """It runs in another thread than the caller."""
    assert run_interruptibly(threading.current_thread) is not threading.main_thread()

    def fail() -> None:
        raise RetriableError("no")

    with pytest.raises(RetriableError, match=r"^no$"):
        run_interruptibly(fail)


def test_thread_has_a_name_and_does_not_keep_the_process_alive() -> None:
    """The process may end before the call does."""
    thread = run_in_background(threading.current_thread, "some call").result(10)
    assert (thread.name, thread.daemon) == ("some call", True)
