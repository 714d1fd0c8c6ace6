"""What looking at a table costs a real server, by its own count; planner and tasks without Spark between them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bridge.adapters.planner_signals import SignalFolder
from bridge.adapters.scylla.change_log import ChangeLog
from bridge.config.document import SourceConfig
from bridge.model.micro_batch import Window
from bridge.model.streams import MAX_TOKEN, TokenRange
from bridge.model.times import UnixMicros
from bridge.monitoring.counters import process_counters
from bridge.reading.stream_probe import STREAMS_PER_PROBE
from sandbox.scylla.write_times import system_clock_us
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from spark.source.source import SourceOptions, open_reader
from spark.source.stream_reader import ScyllaCdcStreamReader
from tests.integration.support.cql_proxy import CqlProxy
from tests.integration.support.histories import LAST_MINUTE, history

pytestmark = pytest.mark.integration

CHANGES = 300
WHOLE = TokenRange(None, MAX_TOKEN)
LANES = 3
REQUESTS_PER_S = 40
"""Two tables' share of this is 20, and the simulated cluster has 64 streams: a look every 3.2 s."""
SCHEMA = TableSchema(
    "load",
    "t",
    (
        Column("a", parse("text"), ColumnKind.PARTITION_KEY, 0),
        Column("b", parse("int"), ColumnKind.PARTITION_KEY, 1),
        Column("v", parse("text"), ColumnKind.REGULAR),
    ),
)


@pytest.fixture
def written(session: WritingSession) -> int:
    """How many changes the log holds, in two generations."""
    return len(history(session, SCHEMA, seed=1, changes=CHANGES, keys=100, generations_s_ago=LAST_MINUTE))


def source(
    session: WritingSession, integrity: str = "always", *, signals: str | None = None, **scylla: Any
) -> ScyllaCdcStreamReader:
    settings = {"contact_points": session.address, "consistency": "ONE"} | scylla
    reading = {"confidence_ms": 0, "leeway_ms": 0, "integrity": integrity, "idle_interval_ms": 0}
    config = SourceConfig.model_validate(
        {"scylla": settings, "table": "load.t", "lanes": LANES, "reading": reading, "sharing": 2}
    )
    return open_reader(SourceOptions(config, None, signals=signals))


def work(reader: ScyllaCdcStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the source's position after the next micro-batch, if one is due, and the rows of that batch."""
    end = reader.latestOffset(start, ReadAllAvailable())
    partitions = reader.partitions(start, end) if end != start else []
    return end, [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]


def test_an_idle_log_is_asked_no_more_often_than_allowed(session: WritingSession, written: int) -> None:
    """Every key is checked against the metadata tables on the way; then the server counts reads of the idle log.

    Each of these looks is another planner's, as if the query had failed just then.
    """
    log = ChangeLog(session)
    before_us, node_us, after_us = system_clock_us(), log.node_time().time_us, system_clock_us()
    assert before_us - 1000 <= node_us <= after_us
    reader = source(session)
    process_counters.take()
    reader.prepareForTriggerAvailableNow()
    at, found = reader.initialOffset(), []
    while (step := work(reader, at))[0] != at:
        at = step[0]
        found += step[1]
    assert len(found) == written
    counted = [one for _, _, one in process_counters.take()]
    assert sum(one.keys_checked for one in counted) == written
    assert sum(one.keys_misplaced for one in counted) == 0

    file = SignalFolder()
    looking: dict[str, Any] = {"signals": file.path, "requests_per_second": REQUESTS_PER_S}
    reader = source(session, **looking)
    at, looks = work(reader, at)[0], 0
    before, begun_s = reads_of_the_log(session), time.monotonic()
    while looks < 3:
        end, _ = work(reader, at)
        if end != at:
            at, looks, reader = end, looks + 1, source(session, **looking)
        assert time.monotonic() < begun_s + 60, f"{looks} micro-batches"
        time.sleep(0.05)  # as Spark's trigger
    took_s = time.monotonic() - begun_s
    asked = reads_of_the_log(session) - before
    file.close()
    observer = reader._planner._observer
    streams = observer.stream_count(observer.known_generations()[-1].start_ms)
    assert asked == looks * streams
    # One may have been due just when this began.
    assert asked <= REQUESTS_PER_S / 2 * took_s + streams


@pytest.mark.parametrize("allowed", [4, 16])
def test_no_more_requests_are_under_way_than_allowed(session: WritingSession, written: int, allowed: int) -> None:
    """As a proxy counts them; and that many there are, so that it would have seen more."""
    with CqlProxy(session.address, wait_for=allowed) as proxy:
        # Whose keys the streams hold is asked besides.
        reader = source(session, "off", contact_points=proxy.address, requests_in_flight=allowed, page_rows=10)
        try:
            reader.prepareForTriggerAvailableNow()
            at, found = reader.initialOffset(), 0
            while (step := work(reader, at))[0] != at:
                at = step[0]
                found += len(step[1])
        finally:
            reader.stop()
    assert found == written
    assert proxy.statements > CHANGES / 10
    assert proxy.most == allowed


def test_streams_that_have_rows_are_those_with_pages(session: WritingSession, written: int) -> None:
    """As a real server answers for several at once, for any window; ScyllaDB's own paging this can't tell."""
    log = ChangeLog(session)
    reader = log.log_reader("load", "t")
    metadata = log.stream_metadata("load", "t")
    streams = sorted(
        {one for known in metadata.generations() for one in metadata.streams(known.start_ms, WHOLE)},
        key=lambda one: one.token,
    )
    assert len(streams) > 2 * STREAMS_PER_PROBE
    now_us = system_clock_us()
    spans = [(now_us - 10**9, now_us), *((now_us - at_us, now_us - at_us + 10**6) for at_us in range(0, 10**8, 10**7))]
    shares: set[int] = set()
    for start_us, end_us in spans:
        window = Window(UnixMicros(start_us), UnixMicros(end_us))
        for at in range(0, len(streams), STREAMS_PER_PROBE):
            group = streams[at : at + STREAMS_PER_PROBE]
            pages = [reader.page(one, window, page_rows=10) for one in group]
            expected = [one for one, page in zip(group, pages, strict=True) if page.result(timeout=10).rows]
            answer = reader.streams_of_rows(group, window, page_rows=1000).result(timeout=10)
            assert answer.paging_state is None
            assert sorted({one.raw for one in expected}) == sorted({raw for (raw,) in answer.rows})
            short = reader.streams_of_rows(group, window, page_rows=3).result(timeout=10)
            assert (short.paging_state is not None) >= (len(answer.rows) > 3)
            shares.add(len(expected))
    assert min(shares) == 0
    assert len(shares) > 2


def reads_of_the_log(session: WritingSession) -> int:
    """How many the server has counted."""
    counts = session.prepare(
        "SELECT count FROM system_views.coordinator_read_latency WHERE keyspace_name = 'load' "
        "AND table_name = 't_scylla_cdc_log'"
    )
    ((cell,),) = session.page(counts, (), page_rows=10).result(timeout=10).rows
    assert cell is not None
    return int.from_bytes(cell, "big")
