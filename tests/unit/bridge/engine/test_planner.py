"""The planner without Spark: where it begins, which generations it follows, and what stops it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from bridge.engine.start_position import first_cursor
from bridge.engine.table_observer import ObservationIntervals
from bridge.errors import DataLossError, RetriableError
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import PlannedBatch
from bridge.model.times import timeuuid_of
from bridge.publishing.table_start import TableStart
from tests.unit.bridge.engine.planner_fakes import (
    G1,
    G2,
    G3,
    LAYOUT,
    SECOND,
    Cluster,
    at,
    config,
    offset_of,
    planned,
    planner_of,
)


def test_planning_begins_at_kafkas_progress(cluster: Cluster) -> None:
    """Without a checkpoint, and with a checkpoint that ends elsewhere."""
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)))
    first = planner.first_offset()
    assert first == StreamOffset(at(G1, 10), None)
    elsewhere = offset_of(PlannedBatch(at(G1, 0), at(G1, 7), LAYOUT))
    for start in (first, elsewhere):
        end = planned(planner_of(cluster, TableStart(LAYOUT, at(G1, 10))), start)
        assert end.batch == PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)
    end = planned(planner, first)
    assert planner.begin(end) == end.batch
    assert planner.next_offset(end) is None


def test_checkpoint_that_contradicts_kafka_is_ignored(cluster: Cluster) -> None:
    """Its micro-batch is not read. The interrupted one comes next, and nothing after it while lanes are settled."""
    interrupted = PlannedBatch(at(G1, 10), at(G1, 15), LAYOUT)
    other = offset_of(PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT))
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10), interrupted, recover=True))
    assert planner.begin(other) is None
    end = planned(planner, other)
    assert end.batch == interrupted
    assert planner.begin(end) == interrupted
    assert planner.next_offset(end) is None


def test_forgotten_streams_stop_the_table(cluster: Cluster) -> None:
    """If the loss is accepted, the table starts again: only a start moves lanes. A lagging node is retried."""
    level = TableStart(LAYOUT, at(G1, 10))
    start = StreamOffset(at(G1, 10), None)
    cluster.starts = [G2]
    with pytest.raises(DataLossError, match="has forgotten the streams"):
        planner_of(cluster, level).next_offset(start)
    with pytest.raises(RetriableError, match="starts again and goes on"):
        planner_of(cluster, level, accept_data_loss=True).next_offset(start)
    beyond = TableStart(LAYOUT, at(G3, 10))
    with pytest.raises(DataLossError, match="another cluster"):
        planner_of(cluster, beyond).next_offset(start)
    cluster.may_lag = True
    with pytest.raises(RetriableError, match="lags behind"):
        planner_of(cluster, beyond).next_offset(start)


def test_generation_out_of_order_stops_the_table(cluster: Cluster) -> None:
    """Otherwise its changes would be skipped silently."""
    cluster.starts, cluster.now_us = [G1, G3], at(G3, 30).time_us
    planner = planner_of(cluster, TableStart(LAYOUT, at(G3, 0)))
    end = planned(planner, planner.first_offset())
    cluster.starts = [G1, G2, G3]
    with pytest.raises(DataLossError, match=f"generation {G2} was published after"):
        planner.next_offset(end)


def test_next_start_notices_a_generation_out_of_order(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka keeps which generation was read before the present one. An accepted loss is logged once."""
    cluster.now_us = at(G3, 30).time_us
    cluster.starts = [G1, G2, G3]
    start = TableStart(LAYOUT, at(G3, 0), entered_from_ms=G1)
    first = StreamOffset(at(G3, 0), None)
    with pytest.raises(DataLossError, match=f"generation {G2} was published after .* reading.accept_data_loss"):
        planner_of(cluster, start).next_offset(first)
    accepting = planner_of(cluster, start, accept_data_loss=True)
    end = planned(accepting, first)
    assert end != first
    cluster.now_us += 10 * SECOND
    assert accepting.next_offset(end) is not None
    assert caplog.text.count("going on without them") == 1
    assert planner_of(cluster, replace(start, entered_from_ms=G2)).next_offset(first) is not None


@pytest.mark.parametrize(("own_ahead_s", "reached_s"), [(0, 20), (3600, 20), (-5, 15)])
def test_windows_are_planned_by_the_earlier_of_two_clocks(cluster: Cluster, own_ahead_s: int, reached_s: int) -> None:
    """A machine whose clock is ahead would read windows that the servers still write to, in runs that end as well."""
    cluster.own_ahead_us = own_ahead_s * SECOND
    for ending in (False, True):
        planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)))
        if ending:
            planner.end_at_present()
        end = planned(planner, planner.first_offset())
        assert end.next == at(G1, reached_s)
    assert first_cursor(config(start="latest"), cluster) == at(G1, reached_s)


def test_cursor_ahead_of_the_servers_is_logged_once_with_its_numbers(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes that they write until then are never read."""
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 42)))
    first = planner.first_offset()
    assert planner.next_offset(first) is planner.next_offset(first) is None
    (words,) = caplog.messages
    assert "everything before 1970-01-01T00:17:22.000000Z counts as read" in words
    assert "in the next 12.0 s" in words


def test_nothing_is_planned_while_the_table_is_missing(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the instant that Kafka's progress records give, and not the checkpoint's."""
    cluster.log_id = None
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)))
    elsewhere = offset_of(PlannedBatch(at(G1, 0), at(G1, 7), LAYOUT))
    assert planner.next_offset(elsewhere) is None
    (words,) = caplog.messages
    assert "changes written after 1970-01-01T00:16:50" in words


def test_gap_makes_the_planner_look_at_the_table_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The error then names the span that a table lost when it was dropped and created again."""
    cluster.log_id = UUID(bytes=timeuuid_of(at(G1, 5).time_us, bytes(8)))
    seldom = ObservationIntervals(state_s=3600, generations_s=0)
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)), intervals=seldom)
    end = planned(planner, StreamOffset(at(G1, 10), None))
    cluster.log_id, cluster.starts = UUID(bytes=timeuuid_of(at(G2, 5).time_us, bytes(8))), [G2]
    cluster.now_us = at(G2, 30).time_us
    with pytest.raises(DataLossError, match=r"created again .*between 1970\S+T00:17:00\S+ and 1970\S+T00:17:45\S+ "):
        planner.next_offset(end)
    assert "the table was dropped and created again" in caplog.text
    cluster.log_id = None
    assert planner.next_offset(end) is None
