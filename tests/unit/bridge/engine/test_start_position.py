"""Where a table without progress begins."""

from __future__ import annotations

from uuid import UUID

import pytest

from bridge.engine.start_position import first_cursor
from bridge.errors import NoGenerationError, StartupError
from bridge.model.times import timeuuid_of
from tests.unit.bridge.engine.planner_fakes import G1, G2, G3, Cluster, at, config, planner_of


@pytest.mark.parametrize(
    ("start", "ttl_s", "since"),
    [
        ("1970-01-01T00:17:00Z", 20, "1970-01-01T00:17:00.000000Z"),
        ("1970-01-01T00:16:00Z", 20, "1970-01-01T00:16:35.000000Z"),
        ("1970-01-01T00:17:00Z", 60, None),
        ("1970-01-01T00:17:00Z", 0, None),
        ("earliest", 20, None),
    ],
)
def test_start_from_before_the_ttl_is_logged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, start: str, ttl_s: int, since: str | None
) -> None:
    """A table begins at a given instant, whether or not changes are left there. Before the log there were none."""
    cluster.now_us, cluster.ttl_s = at(G1, 50).time_us, ttl_s
    cluster.log_id = UUID(bytes=timeuuid_of(at(G1, -5).time_us, bytes(8)))
    reached = planner_of(cluster, None, start=start).first_offset().next
    assert start == "earliest" or reached == max(at(G1, 0), at(G1, 20 if "17:00" in start else 0))
    said = [message.split("what was written ")[1] for message in caplog.messages]
    assert said == (
        [f"between {since} and 1970-01-01T00:17:10.000000Z may have expired; what is still there of it is read"]
        if since
        else []
    )


def test_earliest_skips_generations_that_ended_before_the_ttl(cluster: Cluster) -> None:
    """Their changes have expired. Without a TTL everything is read; without a generation nothing can be."""
    cluster.starts, cluster.now_us = [G1, G2, G3], at(G3, 30).time_us
    assert first_cursor(config(), cluster) == at(G1, 0)
    cluster.ttl_s = 40
    assert first_cursor(config(), cluster) == at(G2, 50)
    cluster.starts = []
    with pytest.raises(NoGenerationError, match=r'a:1 has no CDC generation yet.*"could not find any CDC stream"'):
        first_cursor(config(), cluster)


def test_start_that_has_not_come_yet_is_refused(cluster: Cluster) -> None:
    """It is more likely a mistake than a wish. An instant that has just passed is accepted."""
    with pytest.raises(StartupError, match=r"ks\.t: its start .*, 1970-01-01T00:17:11.000000Z, has not come yet"):
        first_cursor(config(start="1970-01-01T00:17:11Z"), cluster)
    assert first_cursor(config(start="1970-01-01T00:17:10Z"), cluster) == at(G1, 30)
