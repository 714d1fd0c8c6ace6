"""Signals between the job and its planners."""

from __future__ import annotations

import pytest

from bridge.adapters.planner_signals import ChangeWatcher, LastPoll, SignalFolder, signal_changes
from bridge.planning.poll_rate import PollLimits, PollRate


def test_signal_of_changes_is_seen_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without the file there is a warning and no error."""
    folder = SignalFolder()
    watcher = ChangeWatcher(folder.path)
    assert not watcher.saw_changes()
    signal_changes(folder.path)
    assert watcher.saw_changes()
    assert not watcher.saw_changes()
    assert not caplog.messages
    folder.close()
    folder.close()
    signal_changes(folder.path)
    watcher.saw_changes()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_request_rate_outlives_the_planner(caplog: pytest.LogCaptureFixture) -> None:
    """The next planner waits for the rest of the time; without the file there is a warning and no wait."""
    folder = SignalFolder()
    last_poll = LastPoll(folder.path)
    assert last_poll.remaining_s(100) == 0
    former = PollRate(PollLimits(1000, 10), 0)
    last_poll.record(100, former.record_batch(100, 8000))
    assert [last_poll.remaining_s(at_s) for at_s in (100, 103, 108, 200)] == [8, 5, 0, 0]
    assert last_poll.remaining_s(5) == 8  # the machine was restarted; the wait is never longer than the poll counts
    following = PollRate(PollLimits(1000, 10), 103, wait_s=last_poll.remaining_s(103))
    assert following.due_in_s(104, idle=False) == 4
    assert following.due_in_s(108, idle=False) == 0
    assert PollRate(PollLimits(1000, 10), 103, wait_s=0).due_in_s(103, idle=False) == 0
    assert not caplog.messages
    folder.close()
    last_poll.record(100, 8)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert last_poll.remaining_s(100) == 0
