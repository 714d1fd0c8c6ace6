"""What the job's first process gathers."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest

from bridge.adapters.scylla.stream_metadata import Streams
from bridge.config.document import BridgeConfig, validate
from bridge.errors import RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Layout, Window
from bridge.model.streams import StreamId, Token, TokenRange
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.counters import LaneFigures, Store
from bridge.monitoring.measured_log import ObservedLog
from bridge.monitoring.monitor import MessageHandler
from bridge.monitoring.reports import LaneReport
from bridge.monitoring.snapshot import TableStreams, Topology
from bridge.monitoring.state import Board
from bridge.monitoring.topology import TopologyLook
from bridge.planning.micro_batches import GenerationStart

G = UnixMillis(1_000)


class Clock:
    """Tells what it is told."""

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
    return [LaneReport("ks.t", lane, at(seconds), [("ks.t", lane, LaneFigures(changes=5))]) for lane in lanes]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    made = Board(config(), "1.0", clock)
    layout = Layout(2, at(50))
    made.laid("ks.t", layout, {0: LaneProgress(0, layout, at(60))})
    return made


def test_lanes_begin_where_their_progress_stands(board: Board) -> None:
    """A lane without progress of the layout stands where the layout begins."""
    (table,) = board.view().tables
    assert [lane.cursor for lane in table.lanes] == [at(60), at(50)]
    assert (table.lag_s(100.0), table.advanced_s) == (50.0, None)


def test_table_advances_with_its_slowest_lane(board: Board, clock: Clock) -> None:
    """A lane that failed keeps the table where it was, though the others have gone on."""
    board.report(reached(70, 0, 1))
    assert board.view().tables[0].advanced_s == 100.0
    clock.now_s = 130.0
    board.report(reached(90, 0))
    (table,) = board.view().tables
    assert (table.advanced_s, table.lag_s(130.0)) == (100.0, 60.0)
    assert [lane.figures.changes for lane in table.lanes] == [10, 5]
    board.report(reached(90, 1))
    assert board.view().tables[0].advanced_s == 130.0


def test_new_layout_keeps_what_was_counted(board: Board) -> None:
    """Counters of a lane number go on under another layout."""
    board.report(reached(70, 0, 1))
    board.laid("ks.t", Layout(3, at(70)), {})
    (table,) = board.view().tables
    assert [(lane.cursor, lane.figures.changes) for lane in table.active] == [(at(70), 5), (at(70), 5), (at(70), 0)]


def test_view_does_not_change(board: Board) -> None:
    """What is being shown stays as it was."""
    before = board.view()
    board.report(reached(70, 0, 1))
    board.running("ks.t")
    board.batch("ks.t", lambda batches: batches.durations.observe(1.0))
    (table,) = before.tables
    assert (table.state, table.total.changes, table.batches.durations.count) == ("starting", 0, 0)


def test_states(board: Board, clock: Clock) -> None:
    """Each turn is noted with its reason and its time."""
    board.starting("ks.t")
    board.running("ks.t")
    clock.now_s = 110.0
    board.retrying("ks.t", "Kafka is away", 8.0)
    (table,) = board.view().tables
    assert (table.state, table.reason, table.again_at_s, table.since_s) == ("retrying", "Kafka is away", 118.0, 110.0)
    board.stopped("ks.t", "poison")
    (table,) = board.view().tables
    assert (table.state, table.starts, table.failures, table.again_at_s) == ("stopped", 1, 2, None)


def test_samples_are_taken_every_few_seconds(board: Board, clock: Clock) -> None:
    """The last quarter of an hour is kept, however often the supervisor ticks."""
    for tick in range(20_000):
        clock.now_s = 100.0 + tick * 0.2
        board.tick()
    samples = board.view().samples
    assert len(samples) == 181
    assert samples[-1].at_s - samples[0].at_s == pytest.approx(900, abs=1)


def test_warnings_are_kept_and_repetitions_counted(board: Board) -> None:
    """Fifty lines that say the same take one line of the page; what is no warning takes none."""
    logger = logging.getLogger("bridge.test_board")
    handler = MessageHandler(board)
    logger.addHandler(handler)
    try:
        for _ in range(50):
            logger.error("%s has stopped", "ks.t")
        logger.warning("slow")
        logger.info("fine")
    finally:
        logger.removeHandler(handler)
    view = board.view()
    assert [(one.level, one.text, one.times) for one in view.messages] == [
        ("error", "ks.t has stopped", 50),
        ("warning", "slow", 1),
    ]
    assert view.message_counts == {"warning": 1, "error": 50}


def test_topology_that_can_not_be_read_stays_as_it_was(board: Board) -> None:
    """The last known generations are shown, with what is wrong, until they can be read again."""
    known = Topology({"ks.t": TableStreams((G,))})
    board.topology(known)
    board.topology_failed("no answer")
    topology = board.view().topology
    assert (topology.streams, topology.failures, topology.problem) == (known.streams, 1, "no answer")
    board.topology(known)
    assert (board.view().topology.failures, board.view().topology.problem) == (1, None)


class Metadata:
    """A table's streams: two of one vnode, or of one tablet each; and what was asked for."""

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
    """A cluster's CDC tables, and how often each was asked for."""

    def __init__(self, *, vnodes: bool) -> None:
        self.vnodes = vnodes
        self.asked: list[str] = []

    def stream_metadata(self, *_: str) -> Metadata:
        return Metadata(self.asked, shared=self.vnodes)

    def cdc_options(self, *_: str) -> Any:
        self.asked.append("options")

    def node_time_us(self) -> UnixMicros:
        return UnixMicros(time.time_ns() // 1000 - 90_000_000)


@pytest.mark.parametrize(("vnodes", "sets"), [(True, ((7, 2),)), (False, ((5, 1), (7, 1)))])
def test_streams_are_read_once_a_generation(vnodes: bool, sets: tuple[tuple[int, int], ...]) -> None:
    """The ring is that of the generation that has begun; a coming one is not read before its time.

    Tables in vnode keyspaces share their streams, each in a tablets keyspace has its own.
    """
    log: Any = Log(vnodes=vnodes)
    look = TopologyLook(validate(config().model_dump(mode="json", exclude={"tables"}) | {"tables": ["ks.t", "ks.u"]}))
    for now_s in (100.0, 105.0, 200.0, 205.0):
        topology = look.read(log, now_s)
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
    assert (ring.generation_ms, ring.sets, topology.ttl_s) == (200_000, sets, {})
    assert topology.clock_ahead_s == pytest.approx(90, abs=2)


class Pages:
    """Pages that arrive when told."""

    def __init__(self) -> None:
        self.asked: list[Future[Page]] = []

    def page(self, *_: object, **__: object) -> Future[Page]:
        self.asked.append(Future())
        return self.asked[-1]

    streams_of_rows = page


def test_questions_for_rows_are_counted_as_requests() -> None:
    """With no rows of the log, whatever they answer; each stream of one is under way, as each is read."""
    pages: Any = Pages()
    store = Store()
    observed = ObservedLog(pages, store, "ks.t", 2)
    window = Window(UnixMicros(0), UnixMicros(1))
    streams = [StreamId(bytes(16)), StreamId(bytes(15) + b"1")]
    answers = [observed.streams_of_rows(streams, window, page_rows=10) for _ in range(2)]
    answer = Page((), [(), ()], None)
    pages.asked[0].set_result(answer)
    pages.asked[1].set_exception(RetriableError("no answer"))
    assert answers[0].result() is answer
    ((_, _, figures),) = store.take()
    assert (figures.pages.count, figures.page_errors, figures.log_rows, figures.most_in_flight) == (2, 1, 0, 4)


def test_a_request_that_can_not_be_sent_has_failed() -> None:
    """And is not under way any more."""
    store = Store()
    pages: Any = Mock(page=Mock(side_effect=RetriableError("away")))
    observed = ObservedLog(pages, store, "ks.t", 2)
    window = Window(UnixMicros(0), UnixMicros(1))
    for _ in range(3):
        with pytest.raises(RetriableError):
            observed.page(StreamId(bytes(16)), window, page_rows=10)
    ((_, _, figures),) = store.take()
    assert (figures.pages.count, figures.page_errors, figures.most_in_flight) == (3, 3, 1)


def test_pages_are_counted_on_their_way() -> None:
    """Requests, rows, failures, and how many were under way at once."""
    pages: Any = Pages()
    store = Store()
    observed = ObservedLog(pages, store, "ks.t", 2)
    window = Window(UnixMicros(0), UnixMicros(1))
    for _ in range(3):
        observed.page(StreamId(bytes(16)), window, page_rows=10)
    pages.asked[0].set_result(Page((), [(), ()], None))
    observed.page(StreamId(bytes(16)), window, page_rows=10)
    pages.asked[1].set_exception(RetriableError("no answer"))
    for one in pages.asked[2:]:
        one.set_result(Page((), [()], None))
    ((table, lane, figures),) = store.take()
    assert (table, lane, figures.pages.count, figures.page_errors) == ("ks.t", 2, 4, 1)
    assert (figures.log_rows, figures.most_in_flight) == (4, 3)
