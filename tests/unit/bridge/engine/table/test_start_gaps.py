"""Where a table starts when changes have expired before they were read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.errors import DataLossError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from tests.unit.bridge.engine.table.start_fakes import Table, at


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_table_that_has_published_nothing_begins_anew_behind_a_gap(
    table: Table, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    """At the first change that can still be read, however long ago that was; the log names what is left out."""
    table.restart_job(start)
    table.stand_at_layout(first=True)
    table.expire_before(9_000_000)
    assert table.start().layout == Layout(3, at(9_000_000))
    assert {one.layout for one in table.progress.values()} == {Layout(3, at(9_000_000))}
    assert (
        "the log's TTL has passed: changes written between 1970-01-01T00:00:02.000000Z and 1970-01-01T00:00:09.000000Z "
        "are affected; nothing was published yet, so the table starts again behind them"
    ) in caplog.text
    assert all(one.first and one.edge_us == 9_000_000 for one in table.progress.values())


@pytest.mark.parametrize(
    ("edge_us", "start", "reached_us"),
    [(None, "earliest", 5_000_000), (9_000_000, "earliest", 9_000_000), (9_000_000, "1970-01-01T00:00:02Z", 5_000_000)],
)
def test_generation_that_is_forgotten_does_not_stop_a_table_that_has_published_nothing(
    table: Table, caplog: pytest.LogCaptureFixture, edge_us: int | None, start: str, reached_us: int
) -> None:
    """It starts again with the oldest streams that are known."""
    table.restart_job(start)
    table.stand_at_layout(first=True)
    if edge_us is not None:
        table.expire_before(edge_us)
    table.cluster.starts = [UnixMillis(5_000)]
    layout = Layout(3, Cursor(UnixMillis(5_000), UnixMicros(reached_us)))
    assert table.start().layout == layout
    assert {one.layout for one in table.progress.values()} == {layout}
    assert f"and 1970-01-01T00:00:0{reached_us // 10**6}.000000Z are affected; nothing was published yet" in caplog.text
    assert all(one.first for one in table.progress.values())


def test_instant_from_before_the_ttl_stays_where_the_table_begins(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """What was written under a longer TTL may still be there, so the table does not start again."""
    table.restart_job("1970-01-01T00:00:02Z")
    layout = table.stand_at_layout(first=True)
    table.expire_before(9_000_000)
    start = table.start()
    assert (start.layout, start.assign) == (layout, False)
    assert "00:00:09.000000Z are affected; the table has only just begun there, and goes on" in caplog.text
    assert "starts again" not in caplog.text


def test_lanes_that_were_assigned_again_do_not_begin_anew(table: Table) -> None:
    """They have no micro-batch either, but one was done before; what has expired unread since is lost."""
    table.stand_at_layout(first=False)
    table.expire_before(9_000_000)
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start()


def test_table_that_is_still_in_its_first_micro_batch_goes_on_behind_the_ttl(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """It began where changes expire: a crash there is no reason to stop."""
    layout = table.stand_at_layout(first=True)
    batch = PlannedBatch(layout.since, at(3_000_000), layout)
    table.commit({1: LaneProgress.completed(1, batch, edge_us=layout.since.time_us)})
    table.expire_before(2_500_000)
    start = table.start()
    assert (start.layout, start.interrupted) == (layout, batch)
    assert "and 1970-01-01T00:00:02.500000Z are affected; the table has only just begun there" in caplog.text
    # Only what expires during one restart is excused.
    table.expire_before(603_000_001)
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start()
    table.expire_before(603_000_000)
    table.start()
    # A table that was assigned elsewhere (`latest`) did not begin where changes expire.
    table.commit({1: LaneProgress.completed(1, batch)})
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start()


@pytest.mark.parametrize("lanes", [3, 2])
def test_table_that_has_done_its_first_micro_batch_stops_at_a_gap_behind_it(table: Table, lanes: int) -> None:
    """Wherever it had begun, and also with a new number of lanes: the job has promised what has expired since."""
    layout = Layout(lanes, at(2_000_000))
    batch = PlannedBatch(layout.since, at(3_000_000), layout)
    done = {lane: LaneProgress.completed(lane, batch, edge_us=at(2_000_000).time_us) for lane in range(lanes)}
    table.commit(done)
    table.expire_before(9_000_000)
    with pytest.raises(DataLossError, match=r"written between 1970-01-01T00:00:03\.0.* and 1970-01-01T00:00:09"):
        table.start()
    assert {one.cursor for one in table.progress.values()} == {batch.next}


@pytest.mark.parametrize(
    ("start", "edge_us"),
    [
        ("earliest", 980_000_000),
        ("latest", None),
        ("1970-01-01T00:16:19Z", 980_000_000),
        ("1970-01-01T00:16:21Z", None),
    ],
)
def test_lanes_know_whether_they_were_assigned_where_changes_expire(
    table: Table, start: str, edge_us: int | None
) -> None:
    """At 16:40 of the servers' clock, with a TTL of 20 s; all lanes, and also when they are assigned once more."""
    table.restart_job(start)
    table.cluster.ttl_s = 20
    table.start()
    assert {one.edge_us for one in table.progress.values()} == {edge_us}
    assert all(one.first for one in table.progress.values())
    layout = Layout(2, table.progress[0].cursor)
    table.commit({lane: replace(one, layout=layout) for lane, one in table.progress.items()})
    table.start()
    assert {(one.layout.lanes, one.edge_us, one.first) for one in table.progress.values()} == {(3, edge_us, True)}


def test_first_start_from_an_instant_before_the_ttl_is_logged(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """With the span that may be gone, and not again once there is progress."""
    table.restart_job("1970-01-01T00:00:02Z")
    table.expire_before(9_000_000)
    words = "between 1970-01-01T00:00:02.000000Z and 1970-01-01T00:00:09.000000Z may have expired"
    for _ in range(2):
        table.start()
        assert caplog.text.count(words) == 1
    assert table.progress
