"""A signal stops the job, wherever its main thread is at that moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

_ASKED: str = """
import signal, threading
from spark.job.application import stop_on_signals

stop = threading.Event()
stop_on_signals(stop)
# As in `stop.wait`, which the main thread is in nearly always, before it has let go of the lock.
with stop._cond:
    signal.raise_signal(signal.{name})
assert stop.wait(20)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_stops_a_job_that_holds_the_event_s_lock(name: str) -> None:
    """The handler must not wait for a lock that the interrupted thread holds."""
    ended = subprocess.run([sys.executable, "-c", _ASKED.format(name=name)], timeout=30, check=False)
    assert ended.returncode == 0
