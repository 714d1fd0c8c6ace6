"""Signals that come while the job still imports its modules."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.runtime import signals

REPOSITORY = Path(__file__).resolve().parents[4]

IMPORTING = """
import os, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == "spark.job.application":
            os.kill(os.getpid(), {number})
            sys.exit("still here")
sys.meta_path.insert(0, Finder)
from spark.job.__main__ import main
sys.exit(main())
"""
"""The signal comes while the job imports its modules."""

HANDED_ON = """
import os, sys
from bridge.runtime import signals
with signals.blocked():
    os.kill(os.getpid(), {number})
    os.execv(sys.executable, [sys.executable, "-S", "-c", "from spark.job.__main__ import main; main()"])
"""
"""The signal comes just before the process becomes the job."""


@pytest.mark.parametrize("script", [IMPORTING, HANDED_ON])
@pytest.mark.parametrize("number", signals.STOP_SIGNALS)
def test_signals_end_a_job_that_still_imports_in_silence(script: str, number: signal.Signals) -> None:
    """No traceback, and the status that the signal itself gives, whether it comes now or came a moment ago."""
    command = [sys.executable, "-S", "-c", script.format(number=int(number))]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60, check=False, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout) == (-number, "", "")


def test_handlers_are_given_back() -> None:
    """Only a process that has begun nothing ends like that."""
    former = {number: signal.getsignal(number) for number in signals.STOP_SIGNALS}
    with signals.terminating_immediately():
        assert signal.getsignal(signal.SIGTERM) not in former.values()
    assert {number: signal.getsignal(number) for number in signals.STOP_SIGNALS} == former
    with signals.blocked():
        signal.raise_signal(signal.SIGTERM)
        assert signal.sigtimedwait(signals.STOP_SIGNALS, 10) is not None
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(signals.STOP_SIGNALS)
