"""The probes' answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.monitoring import health
from bridge.monitoring.server import Answers
from tests.unit.bridge.monitoring import jobs

NOW_S = jobs.NOW_S


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, None),
        ({"state": "retrying", "reason": "Kafka is away"}, None),  # for a while: its cursors have just moved
        ({"state": "retrying", "reason": "Kafka is away", "lag_s": 90.0, "advanced_s": NOW_S - 80}, "Kafka is away"),
        ({"lag_s": 90.0, "advanced_s": NOW_S - 80}, "stood for 80 s, 90 s behind"),
        ({"lag_s": 14.0, "advanced_s": NOW_S - 80}, None),  # nothing that is old enough to be read
        ({"lag_s": 90.0, "advanced_s": None}, "not advanced since the start"),
        ({"state": "starting", "layout": None}, "not opened yet"),
        ({"state": "waiting", "reason": "no generation", "layout": None}, None),
        ({"state": "finished", "lag_s": 900.0, "advanced_s": NOW_S - 800}, None),
        ({"state": "stopped", "reason": "poison"}, "stopped: poison"),
    ],
)
def test_ready_means_that_cursors_advance_or_nothing_is_to_be_read(table: dict[str, Any], problem: str | None) -> None:
    """The one place where ready is defined."""
    job = jobs.running()
    found = health.why_not_ready(job, jobs.table("ks.t", **table))
    assert found is None if problem is None else found is not None and problem in found


def test_one_table_that_is_not_ready_makes_the_job_not_ready() -> None:
    """Each table is named in the answer."""
    status, _, body = Answers(jobs.failing).to("/readyz", "")
    assert status == 503
    lines = body.decode().splitlines()
    assert lines[0].startswith("shop.orders: not ready: stopped: shop.orders: the log keeps")
    assert lines[1:] == ["shop.line_items: ready", "crm.contacts: ready"]
    assert Answers(jobs.running).to("/readyz", "")[0] == 200


def test_live_means_that_the_supervisor_ticks() -> None:
    """A stopped table does not make the job dead; a supervisor that hangs does."""
    assert Answers(jobs.failing).to("/healthz", "")[0] == 200
    hanging = replace(jobs.running(), tick_s=NOW_S - 301)
    status, _, body = Answers(lambda: hanging).to("/healthz", "")
    assert (status, body) == (
        503,
        b"orders-bridge: the supervisor has not looked at the queries for 301 s\n",
    )


def test_other_paths_are_told_of() -> None:
    """Whoever mistypes learns what there is."""
    assert Answers(jobs.running).to("/metric", "")[::2] == (404, b"there are /, /metrics, /healthz and /readyz\n")


def test_fresh_start_is_not_stalled() -> None:
    """A table has time to advance before the page calls it stalled."""
    job = jobs.running()
    assert not health.stalled(job, jobs.table("ks.t", lag_s=9e4, advanced_s=None, since_s=NOW_S - 10))
    assert health.stalled(job, jobs.table("ks.t", lag_s=9e4, advanced_s=None, since_s=NOW_S - 61))
