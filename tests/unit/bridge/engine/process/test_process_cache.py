"""What tells tasks of a process apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.engine.ports import RunningTask
from bridge.engine.process.process_cache import ProcessCache


@pytest.mark.parametrize(("attempt_number", "is_retry"), [(None, False), (0, False), (1, True), (3, True)])
def test_later_attempts_are_retries(attempt_number: int | None, is_retry: bool) -> None:
    """Outside tasks there are none."""
    task = None if attempt_number is None else RunningTask(attempt_number, Path("/executor"))
    assert ProcessCache(lambda: task).is_retry is is_retry
