"""The state of the job that the driver process collects."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest

from bridge.config.document import BridgeConfig, validate
from bridge.errors import RetriableError
from bridge.model.counters import LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Layout, Window
from bridge.model.streams import StreamId, Streams, Token, TokenRange
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.counters import CounterStore
from bridge.monitoring.measured_log import MeasuredLog
from bridge.monitoring.monitor import MessageHandler
from bridge.monitoring.reports import LaneReport
from bridge.monitoring.snapshot import TableStreams, Topology
from bridge.monitoring.state import JobState
from bridge.monitoring.topology import TopologyReader
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.server_clock import NodeTime

G = UnixMillis(1_000)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def config() -> BridgeConfig:
    return validate(
        {
            "name": "job",
            "scylla": {"contact_points": "127.0.0.1:9042"},
            "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
            "registry": {"url": "http://127.0.0.1:8081"},
            "tables": ["ks.t"],
        }
    )


def at(seconds: float) -> Cursor:
    return Cursor(G, UnixMicros(int(seconds * 1e6)))


def reached(seconds: float, *lanes: int) -> list[LaneReport]:
    return [LaneReport("ks.t", lane, at(seconds), [("ks.t", lane, LaneCounters(changes=5))]) for lane in lanes]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job_state(clock: Clock) -> JobState:
    made = JobState(config(), "1.0", clock)
    layout = Layout(2, at(50))
    made.assign_lanes("ks.t", layout, {0: LaneProgress(0, layout, at(60))})
    return made


def test_lanes_begin_at_their_progress(job_state: JobState) -> None:
    """A lane without progress in the layout begins where the layout begins."""
    (table,) = job_state.snapshot().tables
    assert [lane.cursor for lane in table.lanes] == [at(60), at(50)]
    assert (table.lag_s(100.0), table.advanced_s) == (50.0, None)


def test_table_advances_with_its_slowest_lane(job_state: JobState, clock: Clock) -> None:
    """A lane that does not advance determines the table's lag."""
    job_state.add_reports(reached(70, 0, 1))
    assert job_state.snapshot().tables[0].advanced_s == 100.0
    clock.now_s = 130.0
    job_state.add_reports(reached(90, 0))
    (table,) = job_state.snapshot().tables
    assert (table.advanced_s, table.lag_s(130.0)) == (100.0, 60.0)
    assert [lane.counters.changes for lane in table.lanes] == [10, 5]
    job_state.add_reports(reached(90, 1))
    assert job_state.snapshot().tables[0].advanced_s == 130.0


def test_new_layout_keeps_counters(job_state: JobState) -> None:
    """A lane that both layouts have keeps its counters."""
    job_state.add_reports(reached(70, 0, 1))
    job_state.assign_lanes("ks.t", Layout(3, at(70)), {})
    (table,) = job_state.snapshot().tables
    assert [(lane.cursor, lane.counters.changes) for lane in table.assigned_lanes] == [
        (at(70), 5),
        (at(70), 5),
        (at(70), 0),
    ]


def test_snapshot_does_not_change(job_state: JobState) -> None:
    """Later reports do not change a snapshot."""
    before = job_state.snapshot()
    job_state.add_reports(reached(70, 0, 1))
    job_state.set_running("ks.t")
    job_state.update_batches("ks.t", lambda batches: batches.durations.observe(1.0))
    (table,) = before.tables
    assert (table.state, table.total.changes, table.batches.durations.count) == ("starting", 0, 0)


def test_states(job_state: JobState, clock: Clock) -> None:
    """Each state has its reason and the time when it began."""
    job_state.set_starting("ks.t")
    job_state.set_running("ks.t")
    clock.now_s = 110.0
    job_state.set_retrying("ks.t", "Kafka is away", 8.0)
    (table,) = job_state.snapshot().tables
    assert (table.state, table.reason, table.again_at_s, table.since_s) == ("retrying", "Kafka is away", 118.0, 110.0)
    job_state.set_stopped("ks.t", "too old")
    (table,) = job_state.snapshot().tables
    assert (table.state, table.starts, table.failures, table.again_at_s) == ("stopped", 1, 2, None)


def test_samples_are_taken_every_few_seconds(job_state: JobState, clock: Clock) -> None:
    """The samples of the last quarter of an hour are kept, however often the supervisor ticks."""
    for tick in range(20_000):
        clock.now_s = 100.0 + tick * 0.2
        job_state.tick()
    samples = job_state.snapshot().samples
    assert len(samples) == 181
    assert samples[-1].at_s - samples[0].at_s == pytest.approx(900, abs=1)


def test_warnings_are_kept_and_repetitions_counted(job_state: JobState) -> None:
    """Equal messages in a row are kept once with their number; lower levels are not kept."""
    logger = logging.getLogger("bridge.test_state")
    handler = MessageHandler(job_state)
    logger.addHandler(handler)
    try:
        for _ in range(50):
            logger.error("%s has stopped", "ks.t")
        logger.warning("slow")
        logger.info("fine")
    finally:
        logger.removeHandler(handler)
    snapshot = job_state.snapshot()
    assert [(message.level, message.text, message.times) for message in snapshot.messages] == [
        ("error", "ks.t has stopped", 50),
        ("warning", "slow", 1),
    ]
    assert snapshot.message_counts == {"warning": 1, "error": 50}


def test_topology_that_can_not_be_read_stays_as_it_was(job_state: JobState) -> None:
    """The last known generations stay, with the problem, until they can be read again."""
    known = Topology({"ks.t": TableStreams((G,))})
    job_state.set_topology(known)
    job_state.set_topology_failed("no answer")
    topology = job_state.snapshot().topology
    assert (topology.streams, topology.failures, topology.problem) == (known.streams, 1, "no answer")
    job_state.set_topology(known)
    assert (job_state.snapshot().topology.failures, job_state.snapshot().topology.problem) == (1, None)


class Metadata:
    """A table's streams: two of one vnode, or one of each of two tablets. Records the requests."""

    may_lag = False

    def __init__(self, asked: list[str], *, shared: bool) -> None:
        self.asked, self.shared = asked, shared

    def generations(self) -> list[GenerationStart]:
        self.asked.append("generations")
        return [GenerationStart(UnixMillis(1_000)), GenerationStart(UnixMillis(200_000))]

    def streams(self, generation_ms: UnixMillis, within: TokenRange) -> Streams:
        self.asked.append(f"streams {generation_ms}")
        both = [StreamId.build(Token(token), 3, 0) for token in (5, 7)]
        return dict.fromkeys([stream for stream in both if stream.token in within], generation_ms)


class Log:
    """A cluster's logs. Records the requests."""

    def __init__(self, *, vnodes: bool) -> None:
        self.vnodes = vnodes
        self.asked: list[str] = []

    def stream_metadata(self, *_: str) -> Metadata:
        return Metadata(self.asked, shared=self.vnodes)

    def cdc_options(self, *_: str) -> Any:
        self.asked.append("options")

    def node_time(self) -> NodeTime:
        return NodeTime("a", UnixMicros(time.time_ns() // 1000 - 90_000_000), {"a"})


@pytest.mark.parametrize(("vnodes", "groups"), [(True, ((7, 2),)), (False, ((5, 1), (7, 1)))])
def test_streams_are_read_once_for_each_generation(vnodes: bool, groups: tuple[tuple[int, int], ...]) -> None:
    """The ring has the streams of the latest generation that has started; future ones are not read.

    Tables in vnode keyspaces share their streams; each table in a tablets keyspace has its own.
    """
    log: Any = Log(vnodes=vnodes)
    reader = TopologyReader(
        validate(config().model_dump(mode="json", exclude={"tables"}) | {"tables": ["ks.t", "ks.u"]})
    )
    for now_s in (100.0, 105.0, 200.0, 205.0):
        topology = reader.read(log, now_s)
    times = 1 if vnodes else 2
    assert [what for what in log.asked if what != "generations"] == [
        *["options"] * 2,
        *["streams 1000"] * times,
        *["options"] * 2,
        *["streams 200000"] * times,
    ]
    assert topology.streams["ks.t"] == topology.streams["ks.u"]
    assert (topology.streams["ks.t"] is topology.streams["ks.u"]) == vnodes
    ring = topology.streams["ks.t"].ring
    assert ring is not None
    assert (ring.generation_ms, ring.groups, topology.ttl_s) == (200_000, groups, {})
    assert topology.clock_ahead_s == pytest.approx(90, abs=2)


class Pages:
    """Pages that arrive when the test sets them."""

    def __init__(self) -> None:
        self.asked: list[Future[Page]] = []

    def page(self, *_: object, **__: object) -> Future[Page]:
        self.asked.append(Future())
        return self.asked[-1]

    streams_of_rows = page


def test_requests_for_streams_of_rows() -> None:
    """Such a request counts no rows, and counts as one request under way for each of its streams."""
    pages: Any = Pages()
    store = CounterStore()
    measured = MeasuredLog(pages, store, "ks.t", 2)
    window = Window(UnixMicros(0), UnixMicros(1))
    streams = [StreamId(bytes(16)), StreamId(bytes(15) + b"1")]
    answers = [measured.streams_of_rows(streams, window, page_rows=10) for _ in range(2)]
    answer = Page((), [(), ()], None)
    pages.asked[0].set_result(answer)
    pages.asked[1].set_exception(RetriableError("no answer"))
    assert answers[0].result() is answer
    ((_, _, counters),) = store.take()
    assert (counters.pages.count, counters.page_errors, counters.log_rows, counters.most_in_flight) == (2, 1, 0, 4)


def test_request_that_cannot_be_sent() -> None:
    """It counts as failed, and not as under way."""
    store = CounterStore()
    pages: Any = Mock(page=Mock(side_effect=RetriableError("away")))
    measured = MeasuredLog(pages, store, "ks.t", 2)
    window = Window(UnixMicros(0), UnixMicros(1))
    for _ in range(3):
        with pytest.raises(RetriableError):
            measured.page(StreamId(bytes(16)), window, page_rows=10)
    ((_, _, counters),) = store.take()
    assert (counters.pages.count, counters.page_errors, counters.most_in_flight) == (3, 3, 1)


def test_requests_for_pages() -> None:
    """Requests, rows, failures, and the maximum under way at once are counted."""
    pages: Any = Pages()
    store = CounterStore()
    measured = MeasuredLog(pages, store, "ks.t", 2)
    window = Window(UnixMicros(0), UnixMicros(1))
    for _ in range(3):
        measured.page(StreamId(bytes(16)), window, page_rows=10)
    pages.asked[0].set_result(Page((), [(), ()], None))
    measured.page(StreamId(bytes(16)), window, page_rows=10)
    pages.asked[1].set_exception(RetriableError("no answer"))
    for one in pages.asked[2:]:
        one.set_result(Page((), [()], None))
    ((table, lane, counters),) = store.take()
    assert (table, lane, counters.pages.count, counters.page_errors) == ("ks.t", 2, 4, 1)
    assert (counters.log_rows, counters.most_in_flight) == (4, 3)
