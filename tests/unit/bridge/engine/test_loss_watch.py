"""What the planner logs, and when it stops, where changes expire before they are read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from uuid import UUID

import pytest

from bridge.engine.planner import Planner
from bridge.engine.start_position import edge_us, first_cursor, oldest_us
from bridge.errors import DataLossError, RetriableError
from bridge.model.kept_formats import LaneProgress, StreamOffset, canonical_json
from bridge.model.micro_batch import PlannedBatch
from bridge.model.table_facts import TableFacts
from bridge.model.times import timeuuid_of
from bridge.publishing.lane_recovery import LaneTask, remainder
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from tests.unit.bridge.engine.planner_fakes import (
    G1,
    G2,
    LAYOUT,
    SECOND,
    Clock,
    Cluster,
    at,
    config,
    drain,
    offset_of,
    planned,
    planner_of,
)


def test_falling_behind_the_ttl_stops_the_table(cluster: Cluster) -> None:
    """Unless the table began at that very edge, or the loss is accepted."""
    cluster.ttl_s = 18
    level = TableStart(LAYOUT, at(G1, 10))
    somewhere = offset_of(PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    with pytest.raises(DataLossError, match=r"ks\.t: the log's TTL has passed: changes written between 1970"):
        planner_of(cluster, level).next_offset(somewhere)
    assert planner_of(cluster, level, accept_data_loss=True).next_offset(somewhere) is not None
    with pytest.raises(DataLossError, match="TTL has passed"):
        # Also when the checkpoint was lost.
        planner_of(cluster, level).next_offset(planner_of(cluster, level).first_offset())
    begun = planner_of(cluster, replace(level, at_edge=True))
    end = planned(begun, begun.first_offset())
    cluster.now_us += 5 * SECOND
    end = planned(begun, end)
    cluster.now_us += 60 * SECOND
    with pytest.raises(DataLossError, match="TTL has passed"):
        begun.next_offset(end)


def test_drain_that_is_slower_than_expiry_logs_what_it_loses(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The planner logs losses from the second micro-batch on and keeps reading. At the end it logs the whole loss."""
    cluster.starts, cluster.ttl_s = [G1], 3600
    cluster.now_us = at(G1, 10_000).time_us
    begun = decide_start({}, 2, first_cursor(config(), cluster), oldest_us(config(), cluster))
    planner = planner_of(cluster, begun, max_window_ms=10_000)
    cluster.now_us += 3 * SECOND
    end = drain(planner, cluster, planner.first_offset(), [13])
    assert caplog.messages == []  # [6400, 6410) of the log, while the edge went from 6403 to 6416
    end = drain(planner, cluster, end, [13] * 4)
    words = "the reading is behind the log's TTL: changes written between 1970-01-01T02:0"
    assert [message[len("ks.t: ") :].startswith(words) for message in caplog.messages] == [True, True]
    assert "between 1970-01-01T02:03:30.000000Z and 1970-01-01T02:03:36" in caplog.text  # 6410 to 6416
    assert "between 1970-01-01T02:03:36.000000Z and 1970-01-01T02:04:15" in caplog.text  # to 6455
    caplog.clear()
    end = drain(planner, cluster, end, [1] * 10)
    *_, last = caplog.messages
    # From 6470 on when the edge was there.
    assert "the reading is ahead of the log's TTL again; of the changes written between 1970-01-01T02:03:30.0" in last
    assert last.endswith("1970-01-01T02:04:30.000000Z, 60.0 s may have expired unread")
    end = drain(planner, cluster, end, [1] * 50)
    caplog.clear()
    end = drain(planner, cluster, end, [1] * 50)
    assert caplog.messages == []
    cluster.now_us += 1000 * SECOND
    with pytest.raises(DataLossError, match="TTL has passed"):
        planner.next_offset(end)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("earliest", None),
        ("latest", "1970-01-01T03:03:10.000000Z and 1970-01-01T03:03:10"),
        ("1970-01-01T00:16:40Z", "1970-01-01T00:16:40.000000Z and 1970-01-01T03:03:10"),
    ],
)
@pytest.mark.parametrize("by_itself", [True, False])
def test_only_earliest_loses_part_of_its_first_micro_batch_without_a_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, start: str, said: str | None, by_itself: bool
) -> None:
    """In a job and in a query of one's own. `start_position` warns of an instant that lies before the TTL."""
    cluster.starts, cluster.ttl_s, cluster.now_us = [G1], 21, at(G1, 10_000).time_us
    source = config(start=start)
    first = first_cursor(source, cluster)
    begun = None if by_itself else decide_start({}, 2, first, edge_us(source, first, oldest_us(source, cluster)))
    planner = planner_of(cluster, begun, start=start)
    end = planner.first_offset()
    caplog.clear()
    cluster.now_us += SECOND
    drain(planner, cluster, end, [10.5, 0])
    found = re.findall(r"while it was read: changes written between (.*)\.\d+Z may have", caplog.text)
    found += re.findall(r"going on|is behind the log's TTL: changes written between (.*)\.\d+Z may have", caplog.text)
    assert [one for one in found if one] == ([] if said is None else [said])


def test_restart_in_the_first_micro_batch_at_the_edge_goes_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The planner logs what has expired by then."""
    cluster.starts, cluster.ttl_s = [G1], 3600
    cluster.now_us = at(G1, 10_000).time_us
    begun = decide_start({}, 2, first_cursor(config(), cluster))
    planner = planner_of(cluster, begun)
    batch = planned(planner, planner.first_offset()).batch
    assert batch is not None
    made_at_us = begun.cursor.time_us
    laid = {lane: LaneProgress(lane, begun.layout, begun.cursor, first=True, edge_us=made_at_us) for lane in (0, 1)}
    finished = remainder(LaneTask("ks", "t", 1, batch), laid[1], "progress").completed()
    cluster.now_us += 70 * SECOND
    again = planner_of(cluster, decide_start({0: laid[0], 1: finished}, 2, None))
    end = drain(again, cluster, again.first_offset(), [0, 0])
    assert "between 1970-01-01T02:03:20.000000Z and 1970-01-01T02:04:30.000000Z may have expired" in caplog.text
    assert end.next > batch.next


def test_changes_that_expire_while_they_are_read_are_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The time that a micro-batch takes counts; the time in which there is nothing to read does not."""
    cluster.starts, cluster.ttl_s = [G1], 21
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)))
    end = drain(planner, cluster, planner.first_offset(), [9])  # [10, 20), when all from before 18 had expired
    drain(planner, cluster, end, [0])
    assert caplog.messages == [
        "ks.t: the log's TTL has overtaken a micro-batch while it was read: changes written between "
        "1970-01-01T00:16:50.000000Z and 1970-01-01T00:16:58.000000Z may have expired unread"
    ]
    caplog.clear()
    calm = planner_of(cluster, TableStart(LAYOUT, at(G1, 20)))
    calm.end_at_present()
    end = drain(calm, cluster, calm.first_offset(), [1])  # [20, 29)
    for pause_s in (8, 0):
        assert calm.next_offset(end) is None
        cluster.now_us += pause_s * SECOND
    assert caplog.messages == []


def slow_reader(cluster: Cluster, *, once: bool) -> tuple[Planner, StreamOffset]:
    """A planner that lost changes in two micro-batches and has logged the first loss, and its offset."""
    cluster.starts, cluster.ttl_s = [G1], 100
    cluster.now_us = at(G1, 160).time_us
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 61)), max_window_ms=45_000)
    if once:
        planner.end_at_present()
    end = drain(planner, cluster, planner.first_offset(), [28])  # [61, 106), when all from before 88 had expired
    return planner, drain(planner, cluster, end, [24])  # [106, 150) in a run, when all from before 112 had


def unread(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The seconds of the minutes between which, by the log lines, changes have expired unread."""
    said = re.findall(r"written between \S+:(\d\d)\.0\S+ and \S+:(\d\d)\.0\S+ may have expired", caplog.text)
    return [f"{since} {until}" for since, until in said]


@pytest.mark.parametrize("end_of_it", ["all is read", "it was dropped", "a gap", "a look that fails", "a stop"])
def test_expired_changes_are_logged_before_the_planner_ends(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, end_of_it: str
) -> None:
    """A line is held back for a while, because more changes may expire."""
    planner, end = slow_reader(cluster, once=end_of_it not in ("a gap", "a look that fails"))
    assert unread(caplog) == ["41 08"]
    if end_of_it == "a gap":
        cluster.starts = [G2]
        with pytest.raises(DataLossError, match="has forgotten the streams"):
            planner.next_offset(end)
    elif end_of_it == "a look that fails":
        cluster.failure = RetriableError("the cluster is away")
        with pytest.raises(RetriableError):
            planner.next_offset(end)
    elif end_of_it == "a stop":
        planner._losses.batch_is_done()
        planner.close()
    else:
        cluster.log_id = None if end_of_it == "it was dropped" else cluster.log_id
        for _ in range(2):
            assert planner.next_offset(end) is None
    assert unread(caplog) == ["41 08", "26 32"]


def test_accepted_loss_is_logged_while_it_lasts(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """As long as the reading is behind the TTL, and once more in all when it is ahead again."""
    cluster.starts, cluster.ttl_s = [G1], 18
    planner = planner_of(
        cluster, TableStart(LAYOUT, at(G1, 10)), accept_data_loss=True, max_window_ms=1000, confidence_ms=0
    )
    drain(planner, cluster, planner.first_offset(), [31, 0])
    assert [message.split(" between ")[0] for message in caplog.messages] == [
        "ks.t: the log's TTL has passed: changes written",
        "ks.t: the reading is behind the log's TTL: changes written",
    ]
    planner = planner_of(
        cluster, TableStart(LAYOUT, at(G1, 42)), accept_data_loss=True, max_window_ms=1000, confidence_ms=0
    )
    caplog.clear()
    drain(planner, cluster, planner.first_offset(), [0, 0, 0])
    assert caplog.messages[1:] == [
        "ks.t: the reading is ahead of the log's TTL again; of the changes written between "
        "1970-01-01T00:17:22.000000Z and 1970-01-01T00:17:23.000000Z, 1.0 s may have expired unread"
    ]


def test_raised_ttl_does_not_bring_back_expired_changes(cluster: Cluster) -> None:
    """Changes keep the TTL that they were written under."""
    cluster.ttl_s = 30
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)))
    start = StreamOffset(at(G1, 10), None)
    end = planned(planner, start)
    cluster.ttl_s = 3600
    cluster.now_us += 5 * SECOND
    end = planned(planner, end)
    cluster.now_us = at(G1, 62).time_us
    with pytest.raises(DataLossError, match=r"written between 1970-01-01T00:17:05\S+ and 1970-01-01T00:17:12\S+ are"):
        planner.next_offset(end)


def test_expiry_follows_the_servers_clocks(cluster: Cluster) -> None:
    """This machine's clock does not matter."""
    cluster.ttl_s = 25
    cluster.own_ahead_us = 3600 * SECOND
    level = TableStart(LAYOUT, at(G1, 10))
    somewhere = offset_of(PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    assert planner_of(cluster, level).next_offset(somewhere) is not None
    assert first_cursor(config(), cluster).time_us == pytest.approx(at(G1, 5).time_us, abs=1000)
    cluster.own_ahead_us, cluster.ttl_s = -3600 * SECOND, 18
    with pytest.raises(DataLossError, match="TTL has passed"):
        planner_of(cluster, level).next_offset(somewhere)


def test_new_log_has_its_own_ttl(cluster: Cluster) -> None:
    """The TTL of the former log says nothing about changes in the new one."""
    cluster.ttl_s = 30
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 10)))
    end = planned(planner, planner.first_offset())
    cluster.ttl_s, cluster.log_id = 3600, UUID(int=2)
    cluster.now_us = at(G1, 52).time_us  # under the former TTL, what was written until second 22 has expired
    assert planner.next_offset(end) is not None


@pytest.mark.parametrize(("seen_away", "back_s"), [(True, 1000), (False, 160)])
def test_table_that_was_created_again_has_lost_nothing_to_the_ttl(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, seen_away: bool, back_s: int
) -> None:
    """The former log's TTL applies to what was read of it, and nothing of the new log has expired."""
    cluster.starts, cluster.ttl_s = [G1], 100
    cluster.now_us = at(G1, 150).time_us
    planner = planner_of(cluster, TableStart(LAYOUT, at(G1, 130)))
    end = planned(planner, planner.first_offset())
    cluster.now_us += SECOND
    if seen_away:
        cluster.log_id = None
        assert planner.next_offset(end) is None
    cluster.now_us, cluster.ttl_s = at(G1, back_s).time_us, 5
    cluster.log_id = UUID(bytes=timeuuid_of(at(G1, back_s - 1).time_us, bytes(8)))
    assert planner.next_offset(end) is not None
    assert "may have expired" not in caplog.text
    assert "between 1970-01-01T00:19:00.000000Z, up to where it was read, and 1970" in caplog.text


def test_next_planner_knows_the_former_ttl(cluster: Cluster, clock: Clock) -> None:
    """Changes that were written under a TTL of 30 s are lost, although the log now keeps changes for longer."""
    start = TableStart(LAYOUT, at(G1, 998))
    first = planner_of(cluster, start, confidence_ms=0)
    cluster.ttl_s = 3600
    end = planned(first, first.first_offset())
    cluster.ttl_s = 30
    cluster.now_us = at(G1, 1002).time_us
    first.next_offset(end)
    cluster.ttl_s = 3600
    cluster.now_us = at(G1, 1200).time_us
    clock.now_s += 200
    start = replace(start, facts=TableFacts.from_json(json.loads(canonical_json(first.facts.to_json()))))
    again = planner_of(cluster, start, confidence_ms=0)
    with pytest.raises(DataLossError, match="the log's TTL has passed: changes written between 1970-01-01T00:33:18"):
        again.next_offset(again.first_offset())
    cluster.log_id = UUID(int=9)
    fresh = planner_of(cluster, start, confidence_ms=0)
    fresh.next_offset(fresh.first_offset())
