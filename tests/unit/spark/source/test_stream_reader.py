"""The planner's side of the source, without Spark: what it makes of Kafka's word, of the metadata, and of gaps."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bridge.adapters.planner_signals import ActivityFile, Asked
from bridge.config.document import ScyllaSettings, SourceConfig
from bridge.engine import process_cache
from bridge.engine.start_position import edge_us, first_cursor, oldest_us
from bridge.errors import DataLossError, NoGenerationError, RetriableError, StartupError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress, StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.server_clock import ServerTime
from bridge.planning.table_watch import CdcOptions, TableState
from bridge.publishing.protocol import LaneTask, remainder
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from spark.source import stream_reader
from spark.source.stream_reader import ScyllaCdcStreamReader

SECOND = 1_000_000
G1, G2, G3 = UnixMillis(1_000_000), UnixMillis(1_060_000), UnixMillis(1_120_000)


def at(generation: UnixMillis, seconds: float) -> Cursor:
    return Cursor(generation, UnixMicros(generation * 1000 + int(seconds * SECOND)))


LAYOUT = Layout(2, at(G1, 0))
LIMIT = ReadAllAvailable()
LOG = UUID(int=1)


@dataclass
class Cluster:
    """What the planner is told."""

    starts: list[UnixMillis] = field(default_factory=lambda: [G1, G2])
    now_us: int = at(G1, 30).time_us
    ttl_s: int = 0
    may_lag: bool = False
    log_id: UUID | None = LOG
    streams: int | dict[UnixMillis, int] = 0
    own_ahead_us: int = 0

    @property
    def session(self) -> SimpleNamespace:
        return SimpleNamespace(address="a:1")

    def table_state(self, *_: str) -> TableState:
        options = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=self.ttl_s)
        return TableState(self.log_id, None, options if self.log_id else None)

    def cdc_options(self, *_: str) -> CdcOptions | None:
        return self.table_state().options

    def generations(self) -> list[GenerationStart]:
        return [GenerationStart(start) for start in self.starts]

    def count(self, generation_ms: UnixMillis) -> int:
        return self.streams if isinstance(self.streams, int) else self.streams[generation_ms]

    def time(self) -> ServerTime:
        """As of an answer that came just now; its last ms may just be over."""
        own_us = UnixMicros(self.now_us + self.own_ahead_us)
        return ServerTime(lambda: UnixMicros(self.now_us - 1000), lambda: own_us, lambda: 0.0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(process_cache, "stream_metadata", lambda *_: made)
    monkeypatch.setattr(process_cache, "change_log", lambda _: made)
    monkeypatch.setattr(process_cache, "server_time", lambda _: made.time())
    monkeypatch.setattr(stream_reader, "_now_us", lambda: made.now_us + made.own_ahead_us)
    monkeypatch.setattr(stream_reader, "_GENERATIONS_EVERY_S", 0)
    monkeypatch.setattr(stream_reader, "LOOK_EVERY_S", 0)
    return made


def config(*, sharing: int = 1, **reading: Any) -> SourceConfig:
    scylla = ScyllaSettings(contact_points=("a:1",), requests_per_second=100)
    return SourceConfig.model_validate(
        {"scylla": scylla, "table": "ks.t", "reading": reading, "lanes": 2, "sharing": sharing}
    )


def reader(
    start: TableStart | None, *, activity: str | None = None, sharing: int = 1, **reading: Any
) -> ScyllaCdcStreamReader:
    return ScyllaCdcStreamReader(config(sharing=sharing, **reading), start, activity=activity)


def offset(batch: PlannedBatch, turn: int = 5) -> dict[str, Any]:
    return StreamOffset(batch.next, batch, turn).to_json()


def test_planning_begins_where_kafka_says(cluster: Cluster) -> None:
    """Without a checkpoint, and with one that ends elsewhere."""
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    first = planner.initialOffset()
    assert StreamOffset.from_json(first) == StreamOffset(at(G1, 10), None)
    elsewhere = offset(PlannedBatch(at(G1, 0), at(G1, 7), LAYOUT))
    for start in (first, elsewhere):
        planned = StreamOffset.from_json(reader(TableStart(LAYOUT, at(G1, 10))).latestOffset(start, LIMIT))
        assert planned.batch == PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)
    end = planner.latestOffset(first, LIMIT)
    assert [partition.lane for partition in planner.partitions(first, end)] == [0, 1]
    assert planner.latestOffset(end, LIMIT) == end


def test_checkpoint_that_kafka_does_not_bear_out_is_passed_over(cluster: Cluster) -> None:
    """Its micro-batch has no partitions; the interrupted one comes next, and when settling nothing more."""
    interrupted = PlannedBatch(at(G1, 10), at(G1, 15), LAYOUT)
    other = offset(PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT))
    planner = reader(TableStart(LAYOUT, at(G1, 10), interrupted, recover=True))
    assert planner.partitions({}, other) == []
    planned = planner.latestOffset(other, LIMIT)
    assert StreamOffset.from_json(planned).batch == interrupted
    assert len(planner.partitions(other, planned)) == 2
    assert planner.latestOffset(planned, LIMIT) == planned


def test_falling_behind_the_ttl_stops_the_table(cluster: Cluster) -> None:
    """Unless it was begun at that very edge, or the loss is accepted."""
    cluster.ttl_s = 18
    level = TableStart(LAYOUT, at(G1, 10))
    somewhere = offset(PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    with pytest.raises(DataLossError, match=r"ks\.t: the log's TTL has passed: changes written between 1970"):
        reader(level).latestOffset(somewhere, LIMIT)
    assert reader(level, accept_data_loss=True).latestOffset(somewhere, LIMIT) != somewhere
    with pytest.raises(DataLossError, match="TTL has passed"):
        # Also with a checkpoint that was lost.
        reader(level).latestOffset(reader(level).initialOffset(), LIMIT)
    begun = reader(replace(level, at_edge=True))
    start = begun.initialOffset()
    end = begun.latestOffset(start, LIMIT)
    assert end != start
    cluster.now_us += 5 * SECOND
    end = begun.latestOffset(end, LIMIT)
    cluster.now_us += 60 * SECOND
    with pytest.raises(DataLossError, match="TTL has passed"):
        begun.latestOffset(end, LIMIT)


def drain(planner: ScyllaCdcStreamReader, cluster: Cluster, end: dict[str, Any], took_s: list[float]) -> dict[str, Any]:
    """Have so many micro-batches worked, each for so long."""
    for seconds in took_s:
        following = planner.latestOffset(end, LIMIT)
        assert following != end
        end = following
        cluster.now_us += int(seconds * SECOND)
    return end


def test_drain_that_is_slower_than_the_log_expires_says_what_it_passes_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """From the second micro-batch on; it goes on, and when it has left that place it says how much it was."""
    cluster.starts, cluster.ttl_s = [G1], 3600
    cluster.now_us = at(G1, 10_000).time_us
    begun = decide_start({}, 2, first_cursor(config()), oldest_us(config()))
    planner = reader(begun, max_window_ms=10_000)
    cluster.now_us += 3 * SECOND
    end = drain(planner, cluster, planner.initialOffset(), [13])
    assert caplog.messages == []  # [6400, 6410) of the log, while the edge went from 6403 to 6416
    end = drain(planner, cluster, end, [13] * 4)
    words = "the reading is behind the log's TTL: what was written between 1970-01-01T02:0"
    assert [message[len("ks.t: ") :].startswith(words) for message in caplog.messages] == [True, True]
    assert "between 1970-01-01T02:03:30.000000Z and 1970-01-01T02:03:36" in caplog.text  # 6410 to 6416
    assert "between 1970-01-01T02:03:36.000000Z and 1970-01-01T02:04:15" in caplog.text  # to 6455
    caplog.clear()
    end = drain(planner, cluster, end, [1] * 10)
    *_, last = caplog.messages
    # From 6470 on when the edge was there.
    assert "the reading is ahead of the log's TTL now; of what was written between 1970-01-01T02:03:30.0" in last
    assert last.endswith("1970-01-01T02:04:30.000000Z, 60.0 s may have expired unread")
    end = drain(planner, cluster, end, [1] * 50)
    caplog.clear()
    end = drain(planner, cluster, end, [1] * 50)
    assert caplog.messages == []
    cluster.now_us += 1000 * SECOND
    with pytest.raises(DataLossError, match="TTL has passed"):
        planner.latestOffset(end, LIMIT)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("earliest", None),
        ("latest", "1970-01-01T03:03:10.000000Z and 1970-01-01T03:03:10"),
        ("1970-01-01T00:16:40Z", "1970-01-01T00:16:40.000000Z and 1970-01-01T03:03:10"),
    ],
)
@pytest.mark.parametrize("by_itself", [True, False])
def test_only_earliest_may_lose_of_its_first_micro_batch_in_silence(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, start: str, said: str | None, by_itself: bool
) -> None:
    """Also where the source is somebody else's; an instant's first words are another matter (`beginning`)."""
    cluster.starts, cluster.ttl_s, cluster.now_us = [G1], 21, at(G1, 10_000).time_us
    source = config(start=start)
    first = first_cursor(source)
    begun = None if by_itself else decide_start({}, 2, first, edge_us(source, first, oldest_us(source)))
    planner = ScyllaCdcStreamReader(source, begun)
    end = planner.initialOffset()
    caplog.clear()
    cluster.now_us += SECOND
    drain(planner, cluster, end, [10.5, 0])
    found = re.findall(r"while it was read: what was written between (.*)\.\d+Z may have", caplog.text)
    found += re.findall(r"going on|is behind the log's TTL: what was written between (.*)\.\d+Z may have", caplog.text)
    assert [one for one in found if one] == ([] if said is None else [said])


def test_restart_in_the_first_micro_batch_at_the_edge_goes_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """What has expired by then is said."""
    cluster.starts, cluster.ttl_s = [G1], 3600
    cluster.now_us = at(G1, 10_000).time_us
    begun = decide_start({}, 2, first_cursor(config()))
    planner = reader(begun)
    batch = StreamOffset.from_json(planner.latestOffset(planner.initialOffset(), LIMIT)).batch
    assert batch is not None
    edge_us = begun.cursor.time_us
    laid = {lane: LaneProgress(lane, begun.layout, begun.cursor, first=True, edge_us=edge_us) for lane in (0, 1)}
    finished = remainder(LaneTask("ks", "t", 1, batch), laid[1], "progress").completed()
    cluster.now_us += 70 * SECOND
    again = reader(decide_start({0: laid[0], 1: finished}, 2, None))
    end = drain(again, cluster, again.initialOffset(), [0, 0])
    assert "between 1970-01-01T02:03:20.000000Z and 1970-01-01T02:04:30.000000Z may have expired" in caplog.text
    assert StreamOffset.from_json(end).next > batch.next


def test_what_expires_while_it_is_read_is_said(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A cursor is held against the TTL when a micro-batch is planned; how long nothing was read does not matter."""
    cluster.starts, cluster.ttl_s = [G1], 21
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    end = drain(planner, cluster, planner.initialOffset(), [9])  # [10, 20), when all from before 18 had expired
    drain(planner, cluster, end, [0])
    assert caplog.messages == [
        "ks.t: the log's TTL has overtaken a micro-batch while it was read: what was written between "
        "1970-01-01T00:16:50.000000Z and 1970-01-01T00:16:58.000000Z may have expired unread"
    ]
    caplog.clear()
    calm = reader(TableStart(LAYOUT, at(G1, 20)))
    calm.prepareForTriggerAvailableNow()
    end = drain(calm, cluster, calm.initialOffset(), [1])  # [20, 29)
    for pause_s in (8, 0):
        assert calm.latestOffset(end, LIMIT) == end
        cluster.now_us += pause_s * SECOND
    assert caplog.messages == []


def slow_reader(cluster: Cluster, *, once: bool) -> tuple[ScyllaCdcStreamReader, dict[str, Any]]:
    """One that has been overtaken in two micro-batches, of which it has said the first, and where it stands."""
    cluster.starts, cluster.ttl_s = [G1], 100
    cluster.now_us = at(G1, 160).time_us
    planner = reader(TableStart(LAYOUT, at(G1, 61)), max_window_ms=45_000)
    if once:
        planner.prepareForTriggerAvailableNow()
    end = drain(planner, cluster, planner.initialOffset(), [28])  # [61, 106), when all from before 88 had expired
    return planner, drain(planner, cluster, end, [24])  # [106, 150) in a run, when all from before 112 had


def unread(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Seconds of the minutes that are said to have expired unread."""
    said = re.findall(r"written between \S+:(\d\d)\.0\S+ and \S+:(\d\d)\.0\S+ may have expired", caplog.text)
    return [f"{since} {until}" for since, until in said]


@pytest.mark.parametrize("end_of_it", ["all is read", "it was dropped", "a gap", "a look that fails", "a stop"])
def test_what_has_expired_is_said_before_nobody_asks_any_more(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, end_of_it: str
) -> None:
    """It is kept back for a while where there is more of it all the time."""
    planner, end = slow_reader(cluster, once=end_of_it not in ("a gap", "a look that fails"))
    assert unread(caplog) == ["41 08"]
    if end_of_it == "a gap":
        cluster.starts = [G2]
        with pytest.raises(DataLossError, match="are forgotten"):
            planner.latestOffset(end, LIMIT)
    elif end_of_it == "a look that fails":

        def away(*_: object) -> None:
            raise RetriableError("the cluster is away")

        monkeypatch.setattr(cluster, "table_state", away)
        with pytest.raises(RetriableError):
            planner.latestOffset(end, LIMIT)
    elif end_of_it == "a stop":
        monkeypatch.setattr(process_cache, "drop_cluster", lambda _settings: None)
        planner._expiry.done(planner._oldest_us())
        planner.stop()
    else:
        cluster.log_id = None if end_of_it == "it was dropped" else cluster.log_id
        for _ in range(2):
            assert planner.latestOffset(end, LIMIT) == end
    assert unread(caplog) == ["41 08", "26 32"]


def test_accepted_loss_goes_on_being_said(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """As long as the reading is behind the TTL; and how much it was in all."""
    cluster.starts, cluster.ttl_s = [G1], 18
    planner = reader(TableStart(LAYOUT, at(G1, 10)), accept_data_loss=True, max_window_ms=1000, confidence_ms=0)
    drain(planner, cluster, planner.initialOffset(), [31, 0])
    assert [message.split(" between ")[0] for message in caplog.messages] == [
        "ks.t: the log's TTL has passed: changes written",
        "ks.t: the reading is behind the log's TTL: what was written",
    ]
    planner = reader(TableStart(LAYOUT, at(G1, 42)), accept_data_loss=True, max_window_ms=1000, confidence_ms=0)
    caplog.clear()
    drain(planner, cluster, planner.initialOffset(), [0, 0, 0])
    assert caplog.messages[1:] == [
        "ks.t: the reading is ahead of the log's TTL now; of what was written between 1970-01-01T00:17:22.000000Z and "
        "1970-01-01T00:17:23.000000Z, 1.0 s may have expired unread"
    ]


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
def test_start_from_before_the_ttl_is_said(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, start: str, ttl_s: int, since: str | None
) -> None:
    """An instant is where the table begins, whatever is left there; of before the log there was nothing."""
    cluster.now_us, cluster.ttl_s = at(G1, 50).time_us, ttl_s
    cluster.log_id = UUID(bytes=timeuuid_of(at(G1, -5).time_us, bytes(8)))
    planner = ScyllaCdcStreamReader(config(start=start), None)
    reached = StreamOffset.from_json(planner.initialOffset()).next
    assert start == "earliest" or reached == max(at(G1, 0), at(G1, 20 if "17:00" in start else 0))
    said = [message.split("what was written ")[1] for message in caplog.messages]
    assert said == (
        [f"between {since} and 1970-01-01T00:17:10.000000Z may have expired; what is still there of it is read"]
        if since
        else []
    )


def test_earliest_skips_generations_that_ended_before_the_ttl(cluster: Cluster) -> None:
    """Their changes have expired; without a TTL everything is read, and without a generation there is no beginning."""
    cluster.starts, cluster.now_us = [G1, G2, G3], at(G3, 30).time_us
    assert first_cursor(config()) == at(G1, 0)
    cluster.ttl_s = 40
    assert first_cursor(config()) == at(G2, 50)
    cluster.starts = []
    with pytest.raises(NoGenerationError, match=r'a:1 has no CDC generation yet.*"could not find any CDC stream"'):
        first_cursor(config())


def test_ttl_that_was_raised_does_not_bring_back_what_had_expired(cluster: Cluster) -> None:
    """What was written before keeps its TTL, so a reading that lags has lost it all the same."""
    cluster.ttl_s = 30
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    start = StreamOffset(at(G1, 10), None).to_json()
    end = planner.latestOffset(start, LIMIT)
    cluster.ttl_s = 3600
    cluster.now_us += 5 * SECOND
    end = planner.latestOffset(end, LIMIT)
    cluster.now_us = at(G1, 62).time_us
    with pytest.raises(DataLossError, match=r"written between 1970-01-01T00:17:05\S+ and 1970-01-01T00:17:12\S+ are"):
        planner.latestOffset(end, LIMIT)


def test_table_made_anew_names_the_span_that_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even when the planner has not looked at the table since: a gap makes it look."""
    cluster.log_id = UUID(bytes=timeuuid_of(at(G1, 5).time_us, bytes(8)))
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    end = planner.latestOffset(StreamOffset(at(G1, 10), None).to_json(), LIMIT)
    monkeypatch.setattr(stream_reader, "LOOK_EVERY_S", 3600)
    cluster.log_id, cluster.starts = UUID(bytes=timeuuid_of(at(G2, 5).time_us, bytes(8))), [G2]
    cluster.now_us = at(G2, 30).time_us
    with pytest.raises(DataLossError, match=r"made anew .* between 1970\S+T00:17:00\S+ and 1970\S+T00:17:45\S+ are"):
        planner.latestOffset(end, LIMIT)
    assert "the table was dropped and made anew" in caplog.text
    cluster.log_id = None
    assert planner.latestOffset(end, LIMIT) == end


def test_forgotten_streams_stop_the_table(cluster: Cluster) -> None:
    """With accepted loss it starts anew, for only a start can move the lanes; a lagging node is asked again."""
    level = TableStart(LAYOUT, at(G1, 10))
    start = StreamOffset(at(G1, 10), None).to_json()
    cluster.starts = [G2]
    with pytest.raises(DataLossError, match="are forgotten"):
        reader(level).latestOffset(start, LIMIT)
    with pytest.raises(RetriableError, match="starts anew and goes on"):
        reader(level, accept_data_loss=True).latestOffset(start, LIMIT)
    beyond = TableStart(LAYOUT, at(G3, 10))
    with pytest.raises(DataLossError, match="another cluster"):
        reader(beyond).latestOffset(start, LIMIT)
    cluster.may_lag = True
    with pytest.raises(RetriableError, match="lags behind"):
        reader(beyond).latestOffset(start, LIMIT)


def test_generation_out_of_order_stops_the_table(cluster: Cluster) -> None:
    """It would be skipped in silence else."""
    cluster.starts, cluster.now_us = [G1, G3], at(G3, 30).time_us
    planner = reader(TableStart(LAYOUT, at(G3, 0)))
    end = planner.latestOffset(planner.initialOffset(), LIMIT)
    cluster.starts = [G1, G2, G3]
    with pytest.raises(DataLossError, match=f"generation {G2} was published after"):
        planner.latestOffset(end, LIMIT)


def test_generation_out_of_order_is_noticed_by_the_next_start(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka has kept from which generation the present one was entered; an accepted loss is said once."""
    cluster.now_us = at(G3, 30).time_us
    cluster.starts = [G1, G2, G3]
    start = TableStart(LAYOUT, at(G3, 0), entered_from_ms=G1)
    first = StreamOffset(at(G3, 0), None).to_json()
    with pytest.raises(DataLossError, match=f"generation {G2} was published after .* reading.accept_data_loss"):
        reader(start).latestOffset(first, LIMIT)
    accepting = reader(start, accept_data_loss=True)
    end = accepting.latestOffset(first, LIMIT)
    assert end != first
    cluster.now_us += 10 * SECOND
    assert accepting.latestOffset(end, LIMIT) != end
    assert caplog.text.count("going on without them") == 1
    assert reader(replace(start, entered_from_ms=G2)).latestOffset(first, LIMIT) != first


@pytest.mark.parametrize(("own_ahead_s", "reached_s"), [(0, 20), (3600, 20), (-5, 15)])
def test_windows_are_planned_by_the_earlier_of_two_clocks(cluster: Cluster, own_ahead_s: int, reached_s: int) -> None:
    """A machine whose clock is ahead would read windows that the servers still write to; also in a run that ends."""
    cluster.own_ahead_us = own_ahead_s * SECOND
    for ending in (False, True):
        planner = reader(TableStart(LAYOUT, at(G1, 10)))
        if ending:
            planner.prepareForTriggerAvailableNow()
        end = planner.latestOffset(planner.initialOffset(), LIMIT)
        assert StreamOffset.from_json(end).next == at(G1, reached_s)
    assert first_cursor(config(start="latest")) == at(G1, reached_s)


def test_servers_are_asked_for_their_time_over_the_planners_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all that wants to know within some seconds; over the session that there is by then."""
    asked = []

    def change_log(settings: ScyllaSettings) -> SimpleNamespace:
        asked.append(settings)
        return SimpleNamespace(node_time_us=lambda: UnixMicros(time.time_ns() // 1000 - 3600 * SECOND))

    monkeypatch.setattr(process_cache, "change_log", change_log)
    monkeypatch.setattr(process_cache, "_times", {})
    settings = ScyllaSettings(contact_points=("a:1",))
    for _ in range(3):
        assert process_cache.server_time(settings).ahead_us() == pytest.approx(3600 * SECOND, abs=2 * SECOND)
    assert asked == [settings]


def test_cursor_ahead_of_the_servers_is_said_with_its_numbers(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """What they write until then would come behind the reading."""
    planner = reader(TableStart(LAYOUT, at(G1, 42)))
    first = planner.initialOffset()
    assert planner.latestOffset(first, LIMIT) == planner.latestOffset(first, LIMIT) == first
    (words,) = caplog.messages
    assert "everything before 1970-01-01T00:17:22.000000Z counts as read" in words
    assert "in the next 12.0 s" in words


def test_expiry_goes_by_the_servers_clocks(cluster: Cluster) -> None:
    """They drop changes, whatever this machine's clock says."""
    cluster.ttl_s = 25
    cluster.own_ahead_us = 3600 * SECOND
    level = TableStart(LAYOUT, at(G1, 10))
    somewhere = offset(PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    assert reader(level).latestOffset(somewhere, LIMIT) != somewhere
    assert first_cursor(config()).time_us == pytest.approx(at(G1, 5).time_us, abs=1000)
    cluster.own_ahead_us, cluster.ttl_s = -3600 * SECOND, 18
    with pytest.raises(DataLossError, match="TTL has passed"):
        reader(level).latestOffset(somewhere, LIMIT)


def test_start_that_has_not_come_yet_is_refused(cluster: Cluster) -> None:
    """It is a mistake more likely than a wish; one that has just passed is none."""
    with pytest.raises(StartupError, match=r"ks\.t: its start .*, 1970-01-01T00:17:11.000000Z, has not come yet"):
        first_cursor(config(start="1970-01-01T00:17:11Z"))
    assert first_cursor(config(start="1970-01-01T00:17:10Z")) == at(G1, 30)


def test_log_made_anew_forgets_the_ttl_of_the_former(cluster: Cluster) -> None:
    """What is in the new one was written under its own."""
    cluster.ttl_s = 30
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    end = planner.latestOffset(planner.initialOffset(), LIMIT)
    cluster.ttl_s, cluster.log_id = 3600, UUID(int=2)
    cluster.now_us = at(G1, 52).time_us  # under the former TTL, what was written until second 22 has expired
    assert planner.latestOffset(end, LIMIT) != end


@pytest.mark.parametrize(("seen_away", "back_s"), [(True, 1000), (False, 160)])
def test_table_that_was_made_anew_after_long_has_lost_nothing_to_the_ttl(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, seen_away: bool, back_s: int
) -> None:
    """What was read of the former log is held against that one's TTL, and nothing of the new one has expired."""
    cluster.starts, cluster.ttl_s = [G1], 100
    cluster.now_us = at(G1, 150).time_us
    planner = reader(TableStart(LAYOUT, at(G1, 130)))
    end = planner.latestOffset(planner.initialOffset(), LIMIT)
    cluster.now_us += SECOND
    if seen_away:
        cluster.log_id = None
        assert planner.latestOffset(end, LIMIT) == end
    cluster.now_us, cluster.ttl_s = at(G1, back_s).time_us, 5
    cluster.log_id = UUID(bytes=timeuuid_of(at(G1, back_s - 1).time_us, bytes(8)))
    assert planner.latestOffset(end, LIMIT) != end
    assert "may have expired" not in caplog.text
    assert "between 1970-01-01T00:19:00.000000Z, up to where it was read, and 1970" in caplog.text


def test_nothing_is_planned_while_the_table_is_missing(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Said with the instant up to which Kafka says it was read, whatever the checkpoint says."""
    cluster.log_id = None
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    elsewhere = offset(PlannedBatch(at(G1, 0), at(G1, 7), LAYOUT))
    assert planner.latestOffset(elsewhere, LIMIT) == elsewhere
    (words,) = caplog.messages
    assert "what was written after 1970-01-01T00:16:50" in words


@dataclass
class Clock:
    """Of the planner's process, in s."""

    now_s: float = 1000.0
    slept_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.now_s += seconds


@pytest.fixture
def clock(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stream_reader, "_clock_s", lambda: made.now_s)
    monkeypatch.setattr(stream_reader, "_pause", made.sleep)
    cluster.starts, cluster.now_us = [G1], at(G1, 1000).time_us
    return made


def plans(planner: ScyllaCdcStreamReader, cluster: Cluster, clock: Clock, for_s: float, step_s: float = 0.5) -> int:
    """How many micro-batches a planner that is asked every so often plans in this time."""
    count, end, began_s, began_us = 0, planner.initialOffset(), clock.now_s, cluster.now_us
    while clock.now_s < began_s + for_s:
        following = planner.latestOffset(end, LIMIT)
        count, end = count + (following != end), following
        clock.now_s += step_s
        cluster.now_us = UnixMicros(began_us + int((clock.now_s - began_s) * SECOND))
    return count


@pytest.mark.parametrize(("sharing", "count"), [(1, 10), (2, 5)])
def test_load_is_bounded(
    cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture, sharing: int, count: int
) -> None:
    """400 streams at 100 requests/s, or at its share where other tables have theirs; long intervals are said."""
    cluster.streams = 400
    planner = reader(TableStart(LAYOUT, at(G1, 980)), sharing=sharing, confidence_ms=0)
    assert plans(planner, cluster, clock, 38.5, step_s=0.05) == count
    assert not caplog.messages
    cluster.streams = 4000
    assert plans(reader(TableStart(LAYOUT, at(G1, 980))), cluster, clock, 78.5) == 2
    assert "4000 streams are looked at every 40 s" in caplog.text


def test_closing_micro_batch_counts_by_the_streams_that_it_asks(cluster: Cluster, clock: Clock) -> None:
    """Those of the generation that it leaves, however many the next one has."""
    cluster.starts = [G1, G2]
    cluster.streams = {G1: 400, G2: 4000}
    cluster.now_us = at(G2, 30).time_us
    planner = reader(TableStart(LAYOUT, at(G1, 50)))
    closing = planner.latestOffset(planner.initialOffset(), LIMIT)
    assert StreamOffset.from_json(closing).next == Cursor.at_start_of(G2)
    clock.now_s += 2.5
    assert planner.latestOffset(closing, LIMIT) == closing
    opening = planner.latestOffset(closing, LIMIT)
    assert opening != closing
    clock.now_s += 38
    cluster.now_us += 38 * SECOND
    assert planner.latestOffset(opening, LIMIT) == opening


def test_query_that_is_started_again_waits_its_turn(cluster: Cluster, clock: Clock) -> None:
    """A planner that ended has asked all streams just now; a micro-batch of the checkpoint counts as well."""
    cluster.streams = 400
    file = ActivityFile()
    level = TableStart(LAYOUT, at(G1, 900))
    ended = reader(level, activity=file.path, max_window_ms=1000)
    planned = ended.latestOffset(ended.initialOffset(), LIMIT)
    assert planned != ended.initialOffset()
    clock.now_s += 1
    assert Asked(file.path).counts_for_s(clock.now_s) == pytest.approx(3)
    again = reader(level, activity=file.path, max_window_ms=1000)
    assert again.latestOffset(again.initialOffset(), LIMIT) == again.initialOffset()
    clock.now_s += 3.1
    # Spark has it worked without asking for a plan.
    assert len(again.partitions(again.initialOffset(), planned)) == 2
    assert len(again.partitions(again.initialOffset(), planned)) == 2
    assert Asked(file.path).counts_for_s(clock.now_s) == pytest.approx(4)
    clock.now_s += 2
    assert again.latestOffset(planned, LIMIT) == planned
    clock.now_s += 2.1
    assert again.latestOffset(planned, LIMIT) != planned
    file.close()


def test_table_that_is_looked_at_seldom_keeps_up(cluster: Cluster, clock: Clock) -> None:
    """However slow its micro-batches: windows grow with the time from one to the next, so that nothing piles up."""
    cluster.starts, cluster.streams = [G1], 3000
    cluster.now_us = at(G1, 100).time_us
    planner = reader(TableStart(LAYOUT, at(G1, 90)), confidence_ms=0)
    end, behind = planner.initialOffset(), 0.0
    for _ in range(3_600):
        following = planner.latestOffset(end, LIMIT)
        passed_s = 1 if following == end else 8
        end = following
        clock.now_s += passed_s
        cluster.now_us += passed_s * SECOND
        reached = StreamOffset.from_json(end).next.time_us
        behind = max(behind, (cluster.now_us - reached) / SECOND)
    assert behind < 3 * 30


def test_run_that_is_to_end_waits_for_its_turn(cluster: Cluster, clock: Clock) -> None:
    """An offset that does not move would end it, with changes unread."""
    cluster.streams = 400
    planner = reader(TableStart(LAYOUT, at(G1, 0)), max_window_ms=100_000, confidence_ms=0)
    planner.prepareForTriggerAvailableNow()
    count, end = 0, planner.initialOffset()
    while (following := planner.latestOffset(end, LIMIT)) != end:
        count, end = count + 1, following
    assert StreamOffset.from_json(end).next == at(G1, 1000)
    assert clock.slept_s == pytest.approx(4 * (count - 1))


def test_planner_waits_a_little_for_what_will_be_due(cluster: Cluster, clock: Clock) -> None:
    """Each question costs: one that comes a little early gets its micro-batch late, others get none the later."""
    cluster.streams = 400
    planner = reader(TableStart(LAYOUT, at(G1, 980)), confidence_ms=0)
    end = planner.latestOffset(planner.initialOffset(), LIMIT)
    cluster.now_us += 4 * SECOND
    clock.now_s += 2.5
    assert planner.latestOffset(end, LIMIT) == end
    assert clock.slept_s == pytest.approx(1.0)
    clock.now_s += 0.1
    assert planner.latestOffset(end, LIMIT) != end
    assert clock.slept_s == pytest.approx(1.4)


def test_changes_that_came_end_the_wait(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The word of them comes a moment after their micro-batch: the next one is not put off by a former silence."""
    file = tmp_path / "changes-came"
    file.touch()
    planner = reader(TableStart(LAYOUT, at(G1, 990)), activity=str(file), confidence_ms=0)
    clock.now_s += 600
    end = planner.latestOffset(planner.initialOffset(), LIMIT)
    cluster.now_us += 10 * SECOND
    clock.now_s += 10
    assert planner.latestOffset(end, LIMIT) == end
    assert clock.slept_s == pytest.approx(1.0)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.slept_s > 1.4:
            os.utime(file, ns=(1, 1))

    monkeypatch.setattr(stream_reader, "_pause", sleep)
    assert planner.latestOffset(end, LIMIT) != end
    assert clock.slept_s == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("took_s", "backlog_s", "max_window_s", "behind_s"),
    [
        # Micro-batches that are slow by their fixed cost: their windows are far shorter than the pause.
        (7.0, 0, 3600, 60),
        (10.0, 0, 3600, 60),
        (0.2, 0, 10, 45),
        # Nothing was written for long before the start, either.
        (0.2, 24 * 3600, 3600, 45),
    ],
)
def test_silence_is_no_reason_to_fall_behind(
    cluster: Cluster, clock: Clock, tmp_path: Path, took_s: float, backlog_s: int, max_window_s: int, behind_s: float
) -> None:
    """It is waited only where the present is reached: an hour of it leaves no table further behind than a pause."""
    file = tmp_path / "changes-came"
    file.touch()
    cluster.now_us = at(G1, 1000 + backlog_s).time_us
    planner = reader(TableStart(LAYOUT, at(G1, 985)), activity=str(file), max_window_ms=max_window_s * 1000)
    end, began_s, began_us, count = planner.initialOffset(), clock.now_s, cluster.now_us, 0
    reached_us = StreamOffset.from_json(end).next.time_us
    while clock.now_s < began_s + 3600:
        following = planner.latestOffset(end, LIMIT)
        if following != end:
            count += 1
            reached_us = StreamOffset.from_json(following).next.time_us
        clock.now_s += 0.1 if following == end else took_s
        cluster.now_us = UnixMicros(began_us + int((clock.now_s - began_s) * SECOND))
        end = following
        if clock.now_s > began_s + 60:
            assert (cluster.now_us - reached_us) / SECOND < behind_s
    # A pause of 30 s is worth its micro-batch, and no more where windows may be as long.
    assert count < (600 if max_window_s == 10 else 200)


def test_next_job_knows_the_ttl_that_was(cluster: Cluster, clock: Clock, tmp_path: Path) -> None:
    """A log that kept changes for half a minute only, while a job looked on, has lost them though it keeps them now."""
    file = tmp_path / "changes-came"
    file.touch()
    start = TableStart(LAYOUT, at(G1, 998))
    first = reader(start, activity=str(file), confidence_ms=0)
    cluster.ttl_s = 3600
    end = first.latestOffset(first.initialOffset(), LIMIT)
    cluster.ttl_s = 30
    cluster.now_us = at(G1, 1002).time_us
    first.latestOffset(end, LIMIT)
    cluster.ttl_s = 3600
    cluster.now_us = at(G1, 1200).time_us
    clock.now_s += 200
    again = reader(start, activity=str(file), confidence_ms=0)
    with pytest.raises(DataLossError, match="the log's TTL has passed: changes written between 1970-01-01T00:33:18"):
        again.latestOffset(again.initialOffset(), LIMIT)
    cluster.log_id = UUID(int=9)
    fresh = reader(start, activity=str(file), confidence_ms=0)
    fresh.latestOffset(fresh.initialOffset(), LIMIT)


def test_silent_table_is_looked_at_often_enough_for_its_ttl(cluster: Cluster, clock: Clock, tmp_path: Path) -> None:
    """A pause as long as the log keeps changes would lose some, and make a gap of nothing."""
    file = tmp_path / "changes-came"
    file.touch()
    cluster.ttl_s = 20
    planner = reader(TableStart(LAYOUT, at(G1, 995)), activity=str(file), confidence_ms=0)
    assert plans(planner, cluster, clock, 600) in range(115, 130)


def test_silence_makes_it_look_less_often(cluster: Cluster, clock: Clock, tmp_path: Path) -> None:
    """Until changes come, or streams change."""
    file = tmp_path / "changes-came"
    file.touch()
    planner = reader(TableStart(LAYOUT, at(G1, 980)), activity=str(file), idle_interval_ms=10_000, confidence_ms=0)
    assert plans(planner, cluster, clock, 40) in range(8, 14)  # ever more seldom
    assert plans(planner, cluster, clock, 100) in range(9, 12)
    os.utime(file, (1, 1))
    assert plans(planner, cluster, clock, 1) == 2  # at once
    assert plans(planner, cluster, clock, 100) < 30
    cluster.starts.append(UnixMillis(cluster.now_us // 1000 + 15_000))
    assert plans(planner, cluster, clock, 10) >= 19
