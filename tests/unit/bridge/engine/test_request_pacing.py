"""How often the planner lets a table be read: its share of requests, idle tables, and long micro-batches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.adapters.planner_signals import LastPoll, SignalFolder
from bridge.engine.planner import Planner
from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing.table_start import TableStart
from tests.unit.bridge.engine.planner_fakes import (
    G1,
    G2,
    LAYOUT,
    SECOND,
    Clock,
    Cluster,
    at,
    planned,
    planner_of,
)


def plans(planner: Planner, cluster: Cluster, clock: Clock, for_s: float, step_s: float = 0.5) -> int:
    """How many micro-batches a planner plans in `for_s`, when it is called every `step_s`."""
    count, end, began_s, began_us = 0, planner.first_offset(), clock.now_s, cluster.now_us
    while clock.now_s < began_s + for_s:
        if (following := planner.next_offset(end)) is not None:
            count, end = count + 1, following
        clock.now_s += step_s
        cluster.now_us = UnixMicros(began_us + int((clock.now_s - began_s) * SECOND))
    return count


class SignallingClock(Clock):
    """Signals changes when the planner has slept for more than 1.4 s in all."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.slept_s > 1.4:
            os.utime(self._file, ns=(1, 1))


@pytest.mark.parametrize(("sharing", "count"), [(1, 10), (2, 5)])
def test_micro_batches_keep_to_the_share_of_requests(
    cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture, sharing: int, count: int
) -> None:
    """400 streams at 100 requests/s, or at half of them for one of two tables. Long intervals are logged."""
    cluster.streams = 400
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 980)), clock=clock, sharing=sharing, confidence_ms=0)
    assert plans(planner, cluster, clock, 38.5, step_s=0.05) == count
    assert not caplog.messages
    cluster.streams = 4000
    assert plans(planner_of(cluster, TableStart(LAYOUT, at(G1, 980)), clock=clock), cluster, clock, 78.5) == 2
    assert "4000 streams are looked at every 40 s" in caplog.text


def test_closing_micro_batch_counts_the_streams_that_it_reads(cluster: Cluster, clock: Clock) -> None:
    """They are those of the generation that it leaves, however many the next one has."""
    cluster.starts = [G1, G2]
    cluster.streams = {G1: 400, G2: 4000}
    cluster.now_us = at(G2, 30).time_us
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 50)), clock=clock)
    closing = planned(planner, planner.first_offset())
    assert closing.next == Cursor.at_start_of(G2)
    clock.now_s += 2.5
    assert planner.next_offset(closing) is None
    opening = planned(planner, closing)
    clock.now_s += 38
    cluster.now_us += 38 * SECOND
    assert planner.next_offset(opening) is None


def test_query_that_is_started_again_waits_its_turn(cluster: Cluster, clock: Clock) -> None:
    """The requests of the planner before count, and so does a micro-batch of the checkpoint, once."""
    cluster.streams = 400
    file = SignalFolder()
    level = TableStart(LAYOUT, at(G1, 900))
    ended = planner_of(cluster, level, clock=clock, signals=file.path, max_window_ms=1000)
    end = planned(ended, ended.first_offset())
    clock.now_s += 1
    assert LastPoll(file.path).remaining_s(clock.now_s) == pytest.approx(3)
    again = planner_of(cluster, level, clock=clock, signals=file.path, max_window_ms=1000)
    assert again.next_offset(again.first_offset()) is None
    clock.now_s += 3.1
    # Spark runs a checkpoint's micro-batch without a call of `next_offset`.
    for _ in range(2):
        assert again.begin(end) == end.batch
    assert LastPoll(file.path).remaining_s(clock.now_s) == pytest.approx(4)
    clock.now_s += 2
    assert again.next_offset(end) is None
    clock.now_s += 2.1
    assert again.next_offset(end) is not None
    file.close()


def test_table_that_is_read_seldom_keeps_up(cluster: Cluster, clock: Clock) -> None:
    """Windows grow with the time from one micro-batch to the next, however slow the micro-batches are."""
    cluster.starts, cluster.streams = [G1], 3000
    cluster.now_us = at(G1, 100).time_us
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 90)), clock=clock, confidence_ms=0)
    end, behind = planner.first_offset(), 0.0
    for _ in range(3_600):
        following = planner.next_offset(end)
        passed_s = 1 if following is None else 8
        end = following or end
        clock.now_s += passed_s
        cluster.now_us += passed_s * SECOND
        reached = end.next.time_us
        behind = max(behind, (cluster.now_us - reached) / SECOND)
    assert behind < 3 * 30


def test_run_that_ends_waits_for_its_turn(cluster: Cluster, clock: Clock) -> None:
    """An offset that does not advance would end the run, with changes unread."""
    cluster.streams = 400
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 0)), clock=clock, max_window_ms=100_000, confidence_ms=0)
    planner.end_at_present()
    count, end = 0, planner.first_offset()
    while (following := planner.next_offset(end)) is not None:
        count, end = count + 1, following
    assert end.next == at(G1, 1000)
    assert clock.slept_s == pytest.approx(4 * (count - 1))


def test_planner_waits_a_little_for_a_micro_batch_that_is_almost_due(cluster: Cluster, clock: Clock) -> None:
    """A call that comes a little early waits, up to 1 s, because each call of Spark's costs CPU."""
    cluster.streams = 400
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 980)), clock=clock, confidence_ms=0)
    end = planned(planner, planner.first_offset())
    cluster.now_us += 4 * SECOND
    clock.now_s += 2.5
    assert planner.next_offset(end) is None
    assert clock.slept_s == pytest.approx(1.0)
    clock.now_s += 0.1
    assert planner.next_offset(end) is not None
    assert clock.slept_s == pytest.approx(1.4)


def test_signalled_changes_end_the_wait(cluster: Cluster, tmp_path: Path) -> None:
    """The signal comes a moment after the micro-batch with the changes. The next one is not delayed as if idle."""
    cluster.starts, cluster.now_us = [G1], at(G1, 1000).time_us
    clock = SignallingClock(tmp_path / "changes-came")
    file = tmp_path / "changes-came"
    file.touch()
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 990)), clock=clock, signals=str(file), confidence_ms=0)
    clock.now_s += 600
    end = planned(planner, planner.first_offset())
    cluster.now_us += 10 * SECOND
    clock.now_s += 10
    assert planner.next_offset(end) is None
    assert clock.slept_s == pytest.approx(1.0)
    assert planner.next_offset(end) is not None
    assert clock.slept_s == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("took_s", "backlog_s", "max_window_s", "behind_s"),
    [
        # Micro-batches that are slow by their fixed cost; their windows are far shorter than the pause.
        (7.0, 0, 3600, 60),
        (10.0, 0, 3600, 60),
        (0.2, 0, 10, 45),
        # A day without changes before the start.
        (0.2, 24 * 3600, 3600, 45),
    ],
)
def test_idle_table_does_not_fall_behind(
    cluster: Cluster, clock: Clock, tmp_path: Path, took_s: float, backlog_s: int, max_window_s: int, behind_s: float
) -> None:
    """The planner pauses only where the reading has reached the present, so it is never further behind than a pause."""
    file = tmp_path / "changes-came"
    file.touch()
    cluster.now_us = at(G1, 1000 + backlog_s).time_us
    planner = planner_of(
        cluster, TableStart(LAYOUT, at(G1, 985)), clock=clock, signals=str(file), max_window_ms=max_window_s * 1000
    )
    end, began_s, began_us, count = planner.first_offset(), clock.now_s, cluster.now_us, 0
    reached_us = end.next.time_us
    while clock.now_s < began_s + 3600:
        following = planner.next_offset(end)
        if following is not None:
            count += 1
            reached_us = following.next.time_us
        clock.now_s += 0.1 if following is None else took_s
        cluster.now_us = UnixMicros(began_us + int((clock.now_s - began_s) * SECOND))
        end = following or end
        if clock.now_s > began_s + 60:
            assert (cluster.now_us - reached_us) / SECOND < behind_s
    # Where windows may be long, each pause of 30 s ends with one micro-batch.
    assert count < (600 if max_window_s == 10 else 200)


def test_idle_table_is_read_often_enough_for_its_ttl(cluster: Cluster, clock: Clock, tmp_path: Path) -> None:
    """A pause as long as the log's TTL would lose changes, and report a gap where there is none."""
    file = tmp_path / "changes-came"
    file.touch()
    cluster.ttl_s = 20
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 995)), clock=clock, signals=str(file), confidence_ms=0)
    assert plans(planner, cluster, clock, 600) in range(115, 130)


def test_idle_table_is_read_less_often(cluster: Cluster, clock: Clock, tmp_path: Path) -> None:
    """Until changes come, or streams change."""
    file = tmp_path / "changes-came"
    file.touch()
    planner = planner_of(
        cluster,
        TableStart(LAYOUT, at(G1, 980)),
        clock=clock,
        signals=str(file),
        idle_interval_ms=10_000,
        confidence_ms=0,
    )
    assert plans(planner, cluster, clock, 40) in range(8, 14)  # ever more seldom
    assert plans(planner, cluster, clock, 100) in range(9, 12)
    os.utime(file, (1, 1))
    assert plans(planner, cluster, clock, 1) == 2  # at once
    assert plans(planner, cluster, clock, 100) < 30
    cluster.starts.append(UnixMillis(cluster.now_us // 1000 + 15_000))
    assert plans(planner, cluster, clock, 10) >= 19
