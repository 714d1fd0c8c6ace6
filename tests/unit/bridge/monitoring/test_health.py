"""Answers of the probes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.monitoring import health
from bridge.monitoring.server import Answers
from bridge.monitoring.snapshot import JobSnapshot
from tests.unit.bridge.monitoring import jobs

NOW_S = jobs.NOW_S


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, None),
        ({"state": "retrying", "reason": "Kafka is away"}, None),  # its cursors have just moved
        ({"state": "retrying", "reason": "Kafka is away", "lag_s": 90.0, "advanced_s": NOW_S - 80}, "Kafka is away"),
        ({"lag_s": 90.0, "advanced_s": NOW_S - 80}, "not advanced for 80 s and are 90 s behind"),
        ({"lag_s": 14.0, "advanced_s": NOW_S - 80}, None),  # no change is old enough to be read
        ({"lag_s": 90.0, "advanced_s": None}, "not advanced since the start"),
        ({"state": "starting", "layout": None}, "not assigned yet"),
        ({"state": "waiting", "reason": "no generation", "layout": None}, None),
        ({"state": "finished", "lag_s": 900.0, "advanced_s": NOW_S - 800}, None),
        ({"state": "stopped", "reason": "too old"}, "stopped: too old"),
    ],
)
def test_ready_means_that_cursors_advance_or_nothing_is_to_be_read(table: dict[str, Any], problem: str | None) -> None:
    """A table is ready if its cursors advance or there is nothing to read."""
    job = jobs.running()
    found = health.why_not_ready(job, jobs.table("ks.t", **table))
    assert found is None if problem is None else found is not None and problem in found


def test_one_table_that_is_not_ready_makes_the_job_not_ready() -> None:
    """The answer has a line for each table."""
    status, _, body = Answers(jobs.failing).to("/readyz", "")
    assert status == 503
    lines = body.decode().splitlines()
    assert lines[0].startswith("shop.orders: not ready: stopped: shop.orders: the log keeps")
    assert lines[1:] == ["shop.line_items: ready", "crm.contacts: ready"]
    assert Answers(jobs.running).to("/readyz", "")[0] == 200


def test_live_means_that_the_supervisor_ticks() -> None:
    """A hanging supervisor makes the job dead; a stopped table does not."""
    assert Answers(jobs.failing).to("/healthz", "")[0] == 200
    hanging = replace(jobs.running(), tick_s=NOW_S - 301)
    status, _, body = Answers(lambda: hanging).to("/healthz", "")
    assert (status, body) == (
        503,
        b"orders-bridge: the supervisor has not checked the queries for 301 s\n",
    )


def test_unknown_path() -> None:
    """The answer to an unknown path lists the known ones."""
    assert Answers(jobs.running).to("/metric", "")[::2] == (404, b"there are /, /metrics, /healthz and /readyz\n")


def test_fresh_start_is_not_stalled() -> None:
    """Right after a start, a table is not stalled."""
    job = jobs.running()
    assert not health.is_stalled(job, jobs.table("ks.t", lag_s=9e4, advanced_s=None, since_s=NOW_S - 10))
    assert health.is_stalled(job, jobs.table("ks.t", lag_s=9e4, advanced_s=None, since_s=NOW_S - 61))


def with_clock(job: JobSnapshot, ahead_s: float) -> JobSnapshot:
    return replace(job, topology=replace(job.topology, clock_ahead_s=ahead_s))


@pytest.mark.parametrize(
    ("ahead_s", "lag_s", "problem"),
    [
        (0.0, 11.2, None),
        (3600.0, 3611.2, None),  # windows are planned by the servers' time
        (3600.0, 11.2, "its cursor is 3588.8 s ahead of the ScyllaDB servers' time"),
        (0.0, -0.9, None),
        (0.0, -1.1, "its cursor is 1.1 s ahead"),
        (-50.0, 11.2, None),
        (-90.0, 11.2, "this machine's clock is 90 s behind the ScyllaDB servers'"),
    ],
)
def test_clocks_that_differ_so_that_changes_are_lost_or_late(ahead_s: float, lag_s: float, problem: str | None) -> None:
    """A table is not ready if its cursor is in the servers' future, or if this machine's clock is far behind."""
    job = with_clock(jobs.running(), ahead_s)
    found = health.why_not_ready(job, jobs.table("shop.orders", lag_s=lag_s))
    assert found is None if problem is None else found is not None and problem in found


def test_lag_goes_by_the_servers_time() -> None:
    """A clock that is an hour ahead does not add an hour to the lag."""
    job = with_clock(jobs.running(), 3600.0)
    standing = jobs.table("shop.orders", lag_s=3611.2, advanced_s=NOW_S - 80)
    assert health.why_not_ready(job, standing) is None
    assert standing.lag_s(job.servers_s) == pytest.approx(11.2)


def test_table_with_rare_micro_batches_is_not_stalled() -> None:
    """With 768 streams and 3 requests/s for 3 tables, a table has a micro-batch every 768 s."""
    job = replace(jobs.running(), requests_per_s=3.0)
    for standing_s, ready in ((800.0, True), (830.0, False)):
        table = jobs.table("shop.orders", lag_s=standing_s + 11, advanced_s=NOW_S - standing_s)
        assert (health.why_not_ready(job, table) is None) == ready
        assert health.is_stalled(job, table) != ready
    assert job.batch_interval_s(table) == pytest.approx(768)
    assert job.stall_bound_s(table) == pytest.approx(10 + 5 + 2 * 768)
    unread = replace(job, topology=replace(job.topology, streams={}))
    assert unread.batch_interval_s(table) is None
    assert unread.stall_bound_s(table) is None
