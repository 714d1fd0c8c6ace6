"""When a failed table starts again, and when its checkpoint is doubted."""

from __future__ import annotations

import pytest

from bridge.engine.table.restart_policy import CheckpointTrust, RestartPolicy


def test_pauses_grow_to_the_longest_one() -> None:
    """Each failure in a row doubles the pause, and a start that uses up the share of requests waits for it."""
    now_s = [100.0]
    policy = RestartPolicy(clock=lambda: now_s[0])
    assert policy.is_due
    assert [policy.note_failure(0.0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.note_failure(45.0) == 45
    now_s[0] = 144.9
    assert not policy.is_due
    now_s[0] = 145.0
    assert policy.is_due
    for _ in range(2000):
        policy.note_failure(0.0)
    assert policy.note_failure(0.0) == 30


def test_calm_run_forgets_the_failures() -> None:
    """A minute without a failure."""
    policy = RestartPolicy()
    policy.note_failure(0.0)
    policy.note_running(60.0)
    assert policy.failures == 1
    policy.note_running(60.1)
    assert policy.failures == 0
    assert policy.note_failure(0.0) == 1


IDLE, BUSY, NONE = (True, False), (True, True), (False, False)


@pytest.mark.parametrize(
    ("failures", "lost"),
    [
        ([(True, IDLE)], False),
        ([(True, IDLE), (True, IDLE)], True),
        ([(True, NONE), (True, IDLE)], True),
        # A query that has reported progress could use its checkpoint.
        ([(True, IDLE), (True, BUSY), (True, NONE)], False),
        ([(True, IDLE), (False, IDLE), (True, IDLE)], False),
        # A start that failed before Spark is no evidence about the checkpoint.
        ([(True, IDLE), (False, NONE), (True, IDLE)], True),
    ],
)
def test_checkpoint_is_doubted_after_two_failures_of_spark(
    failures: list[tuple[bool, tuple[bool, bool]]], lost: bool
) -> None:
    """The checkpoint is given up after two failures of Spark, which refuses a damaged one each time."""
    trust = CheckpointTrust()
    for by_spark, (has_query, has_worked) in failures:
        trust.note_failure(by_spark=by_spark, has_query=has_query, has_worked=has_worked)
    assert trust.is_lost is lost
    trust.renew()
    assert not trust.is_lost
