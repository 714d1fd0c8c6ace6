"""How one table begins: what Kafka says of its lanes decides what is started."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bridge.adapters.planner_signals import KnownTtl
from bridge.config.document import BridgeConfig, SourceConfig, validate
from bridge.engine import start_position
from bridge.errors import DataLossError, RetriableError, StartupError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.monitoring.state import JobState
from bridge.planning import data_loss
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.retention import LogTtl
from bridge.publishing.table_start import TableStart
from bridge.publishing.topic_identity import CurrentTopic, KnownTopic
from spark.job import table_query
from spark.job.table_query import TableQuery


def at(time_us: int) -> Cursor:
    return Cursor(UnixMillis(1), UnixMicros(time_us))


FORMER = Layout(2, at(1_000_000))
BATCH = PlannedBatch(at(2_000_000), at(3_000_000), FORMER)
UNEVEN = {0: LaneProgress.completed(0, BATCH), 1: LaneProgress(1, FORMER, BATCH.start)}
LEVEL = {lane: LaneProgress.completed(lane, BATCH) for lane in range(2)}

Begins = tuple[TableQuery, dict[int, LaneProgress], list[Any]]


def config_of() -> BridgeConfig:
    return validate(
        {
            "name": "job",
            "scylla": {"contact_points": "127.0.0.1:9042"},
            "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
            "registry": {"url": "http://127.0.0.1:8081"},
            "tables": [{"name": "ks.t", "lanes": 3}],
        }
    )


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begins]:
    """A table with three lanes, what its lanes have committed, and what is done: queries started, layouts laid."""
    progress: dict[int, LaneProgress] = {}
    done: list[Any] = []

    class Lanes:
        def __init__(self, _publisher: object, owner: str) -> None:
            done.append(owner)

        def acquire(self, _count: int) -> dict[int, LaneProgress]:
            return dict(progress)

        def assign(self, laid: dict[int, LaneProgress], _taken: object) -> None:
            done.append({one.layout for one in laid.values()})
            progress.update(laid)

    def query(_self: TableQuery, start: TableStart, *, once: bool) -> Any:
        done.append((start.layout, start.interrupted, once))

    state = SimpleNamespace(exists=True, log_id=None, schema=None, log_made_us=None, options=None)
    metadata = SimpleNamespace(generations=list, may_lag=False)
    admin = SimpleNamespace(ensure_topic=lambda *_, **__: False, partitions=lambda _topic: 3, topics_now=lambda _: {})
    checkpoint = SimpleNamespace(
        log_id=lambda: None,
        change_topic=lambda: None,
        keep_change_topic=lambda _topic: None,
        ttl=LogTtl,
        has_commits=True,
        folder="c",
        begin_anew=lambda: done.append("checkpoint begun anew"),
    )
    monkeypatch.setattr(table_query, "LaneOwnership", Lanes)
    monkeypatch.setattr(TableQuery, "_query", query)
    monkeypatch.setattr(table_query, "KafkaAdmin", lambda _settings: admin)
    monkeypatch.setattr(table_query, "Checkpoint", lambda *_: checkpoint)
    monkeypatch.setattr(table_query, "find_gap", lambda *_, **__: None)
    cluster = SimpleNamespace(
        server_time=SimpleNamespace(servers_us=lambda: UnixMicros(10**9)),
        state=lambda: state,
        cdc_options=lambda: state.options,
        generations=lambda: metadata,
        forget_streams=lambda: None,
    )
    cache: Any = SimpleNamespace(scylla=SimpleNamespace(table=lambda *_: cluster))
    config, session = config_of(), None
    job_state = JobState(config, "0", lambda: 0.0)
    table = TableQuery(session, config, config.tables[0], job_state, cache)  # type: ignore[arg-type]
    try:
        yield table, progress, done
    finally:
        table.close()


def test_lanes_are_settled_before_they_are_laid(begins: Begins) -> None:
    """What was interrupted is finished under the layout of then, by a query that ends; nothing is laid before that."""
    table, progress, done = begins
    progress.update(UNEVEN)
    assert table.start(once=False, settled=False).settles
    first_owner, *did = done
    assert did == [(FORMER, BATCH, True)]
    done.clear()
    progress.update(LEVEL)
    assert not table.start(once=False, settled=True).settles
    new = Layout(3, BATCH.next)
    second_owner, *did = done
    assert did == [{new}, (new, None, False)]
    # What may still be under way of the first query publishes nothing more.
    assert first_owner != second_owner


def test_lanes_that_do_not_stand_level_are_not_settled_again_at_once(begins: Begins) -> None:
    """The query came to its end and the lanes did not: somebody else is at work, or it is to be waited."""
    table, progress, done = begins
    progress.update(UNEVEN)
    with pytest.raises(RetriableError, match=r"ks\.t: its 2 lanes do not stand level yet"):
        table.start(once=True, settled=True)
    assert len(done) == 1
    assert table.start(once=True, settled=False).settles


def test_progress_that_is_gone_is_told(begins: Begins) -> None:
    """The checkpoint knows that there was some: beginning anew would publish again, or leave out."""
    table, _, done = begins
    with pytest.raises(
        DataLossError,
        match=r"^ks\.t: the progress topic job\.progress\.ks\.t holds no cursor, but the checkpoint c says that "
        r"changes were published\. Was the topic deleted\? If so, stop the job and delete the checkpoint, too, and the "
        r"change topic unless what it holds may come again: the table then begins anew, as reading\.start says$",
    ):
        table.start(once=False, settled=False)
    assert len(done) == 1


def test_change_topic_that_is_gone_is_told(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is made anew, and what it held does not come again: said wherever there is progress, and only there."""
    table, progress, _ = begins
    admin = SimpleNamespace(ensure_topic=lambda topic, *_, **__: topic == "ks.t", partitions=lambda _topic: 3)
    admin.topics_now = lambda _topics: {}
    monkeypatch.setattr(table_query, "KafkaAdmin", lambda _settings: admin)
    with pytest.raises(DataLossError):
        table.start(once=False, settled=False)
    assert caplog.messages == []
    progress.update(LEVEL)
    table.start(once=False, settled=False)
    words = (
        "ks.t: there was no change topic ks.t although the progress topic job.progress.ks.t says that the table was "
        "carried before. It was made anew and goes on from there: what a deleted one held does not come again. "
        "To publish all that the log still holds, stop the job, delete the change topic, the progress topic "
        "job.progress.ks.t and the checkpoint c, and start it again"
    )
    assert caplog.messages.count(words) == 1


def test_change_topic_that_is_another_one_is_told(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the checkpoint knows of it is held against what Kafka says, before the table starts; Kafka may refuse."""
    table, progress, _ = begins
    kept: list[KnownTopic] = []

    def refuse(_topics: object) -> Any:
        raise StartupError("no right Describe")

    admin = SimpleNamespace(ensure_topic=lambda *_, **__: False, partitions=lambda _topic: 3, topics_now=refuse)
    monkeypatch.setattr(table_query, "KafkaAdmin", lambda _settings: admin)
    table._checkpoint.change_topic = lambda: KnownTopic("ks.t", "old", UnixMicros(0))  # type: ignore[method-assign]
    table._checkpoint.keep_change_topic = kept.append  # type: ignore[method-assign]
    progress.update(LEVEL)
    table.start(once=False, settled=False)
    assert warnings_of(caplog) == []
    admin.topics_now = lambda topics: {topic: CurrentTopic("new", 12) for topic in topics}
    table.start(once=False, settled=False)
    table.start(once=False, settled=False)
    assert [message.partition(" (")[0] for message in warnings_of(caplog)] == [
        "ks.t: the change topic ks.t is another one than when it was noted last, at 1970-01-01T00:00:00.000000Z"
    ]
    assert [topic.id for topic in kept[-2:]] == ["new", "new"]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_progress_that_is_gone_before_the_first_micro_batch_is_told(begins: Begins) -> None:
    """The checkpoint has no commit yet; but transactions may have been committed since the lanes were laid."""
    table, progress, done = begins
    table._checkpoint.has_commits = False  # type: ignore[misc]
    progress.update(LEVEL)
    table.start(once=False, settled=False)
    progress.clear()
    done.clear()
    with pytest.raises(DataLossError, match=r"the progress topic job\.progress\.ks\.t holds no cursor"):
        table.start(once=False, settled=False)
    assert len(done) == 1


def test_checkpoint_of_which_nothing_comes_is_begun_anew(begins: Begins, caplog: pytest.LogCaptureFixture) -> None:
    """Spark refuses a damaged one for ever, and all that it holds is a plan."""
    table, progress, done = begins
    progress.update(UNEVEN)
    idle: Any = SimpleNamespace(lastProgress=None)
    busy: Any = SimpleNamespace(lastProgress={})

    def begun_anew_after(*failures: tuple[Any, bool]) -> bool:
        done.clear()
        for query, by_spark in failures:
            table.failed(query, by_spark=by_spark)
        assert table.start(once=False, settled=False).settles
        return "checkpoint begun anew" in done

    assert not begun_anew_after((idle, True))
    assert not begun_anew_after((busy, True), (None, True))
    assert not begun_anew_after((idle, False))
    # A start that came to nothing says nothing of the checkpoint, for or against it.
    assert not begun_anew_after((None, False), (idle, True), (None, False))
    assert not begun_anew_after((idle, False))
    assert "begun anew" not in caplog.text
    assert begun_anew_after((None, True), (idle, True))
    assert "Spark makes nothing of the checkpoint c; it is begun anew" in caplog.text
    assert not begun_anew_after((idle, True))


def lay(progress: dict[int, LaneProgress], *, first: bool) -> Layout:
    layout = Layout(3, at(2_000_000))
    progress.update({lane: LaneProgress(lane, layout, layout.since, first=first) for lane in range(3)})
    return layout


def log_of(
    table: TableQuery, monkeypatch: pytest.MonkeyPatch, *, edge_us: int | None, generations: tuple[int, ...] = (1,)
) -> None:
    """A log from which what was written before the edge has expired, and the generations that are known."""
    monkeypatch.setattr(table_query, "find_gap", data_loss.find_gap)
    monkeypatch.setattr(LogTtl, "oldest_us", lambda *_: edge_us)
    known = [GenerationStart(UnixMillis(start_ms)) for start_ms in generations]
    metadata = SimpleNamespace(generations=lambda: known, may_lag=False)
    cluster: Any = table._cluster
    cluster.generations = lambda: metadata
    table._checkpoint.has_commits = False  # type: ignore[misc]


def begin_with(table: TableQuery, start: str) -> None:
    reading = {"reading": {**table._source.reading.model_dump(), "start": start}}
    table._source = SourceConfig.model_validate({**table._source.model_dump(), **reading})


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_table_that_has_published_nothing_begins_anew_behind_a_gap(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    """At the first of what can still be read, however long ago that was, and it says what is left out."""
    table, progress, done = begins
    lay(progress, first=True)
    log_of(table, monkeypatch, edge_us=9_000_000)
    begin_with(table, start)
    table.start(once=False, settled=False)
    assert done[1:] == [{Layout(3, at(9_000_000))}, (Layout(3, at(9_000_000)), None, False)]
    assert (
        "the log's TTL has passed: changes written between 1970-01-01T00:00:02.000000Z and 1970-01-01T00:00:09.000000Z "
        "are affected; nothing was published yet, so the table begins anew, behind them"
    ) in caplog.text
    assert all(one.first and one.edge_us == 9_000_000 for one in progress.values())


@pytest.mark.parametrize(
    ("edge_us", "start", "reached_us"),
    [(None, "earliest", 5_000_000), (9_000_000, "earliest", 9_000_000), (9_000_000, "1970-01-01T00:00:02Z", 5_000_000)],
)
def test_generation_that_is_forgotten_does_not_stop_a_table_that_has_published_nothing(
    begins: Begins,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    edge_us: int | None,
    start: str,
    reached_us: int,
) -> None:
    """It begins anew with the oldest streams that are known."""
    table, progress, done = begins
    lay(progress, first=True)
    log_of(table, monkeypatch, edge_us=edge_us, generations=(5_000,))
    begin_with(table, start)
    table.start(once=False, settled=False)
    layout = Layout(3, Cursor(UnixMillis(5_000), UnixMicros(reached_us)))
    assert done[1:] == [{layout}, (layout, None, False)]
    assert f"and 1970-01-01T00:00:0{reached_us // 10**6}.000000Z are affected; nothing was published yet" in caplog.text
    assert all(one.first for one in progress.values())


def test_instant_from_before_the_ttl_stays_where_the_table_begins(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was written under a longer TTL may still be there; so nothing is begun anew, and nothing says so."""
    table, progress, done = begins
    layout = lay(progress, first=True)
    log_of(table, monkeypatch, edge_us=9_000_000)
    begin_with(table, "1970-01-01T00:00:02Z")
    table.start(once=False, settled=False)
    assert done[1:] == [(layout, None, False)]
    assert "00:00:09.000000Z are affected; the table is only just beginning there, and goes on" in caplog.text
    assert "anew" not in caplog.text


def test_lanes_that_were_laid_anew_do_not_begin_anew(begins: Begins, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no micro-batch either, but one was behind them; what has expired unread since is lost then."""
    table, progress, _ = begins
    lay(progress, first=False)
    log_of(table, monkeypatch, edge_us=9_000_000)
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start(once=False, settled=False)


def test_table_that_is_still_in_its_first_micro_batch_goes_on_behind_the_ttl(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It began where changes expire: a crash there is no reason to stop."""
    table, progress, done = begins
    layout = lay(progress, first=True)
    batch = PlannedBatch(layout.since, at(3_000_000), layout)
    progress[1] = LaneProgress.completed(1, batch, edge_us=layout.since.time_us)
    log_of(table, monkeypatch, edge_us=2_500_000)
    table.start(once=False, settled=False)
    assert done[1:] == [(layout, batch, False)]
    assert "and 1970-01-01T00:00:02.500000Z are affected; the table is only just beginning there" in caplog.text
    # What it would have read since, had it been there, is another matter than what a restart takes.
    log_of(table, monkeypatch, edge_us=603_000_001)
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start(once=False, settled=False)
    log_of(table, monkeypatch, edge_us=603_000_000)
    table.start(once=False, settled=False)
    # Nor does it begin where changes expire if it was not laid there (`latest`).
    progress[1] = LaneProgress.completed(1, batch)
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start(once=False, settled=False)


@pytest.mark.parametrize("lanes", [3, 2])
def test_table_that_has_done_its_first_micro_batch_stops_at_a_gap_behind_it(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    """Wherever it had begun, and also where lanes are laid anew: what has expired since was to be published."""
    table, progress, done = begins
    layout = Layout(lanes, at(2_000_000))
    batch = PlannedBatch(layout.since, at(3_000_000), layout)
    progress.update({lane: LaneProgress.completed(lane, batch, edge_us=at(2_000_000).time_us) for lane in range(lanes)})
    log_of(table, monkeypatch, edge_us=9_000_000)
    with pytest.raises(DataLossError, match=r"written between 1970-01-01T00:00:03\.0.* and 1970-01-01T00:00:09"):
        table.start(once=True, settled=False)
    assert len(done) == 1


@pytest.mark.parametrize(
    ("start", "edge_us"),
    [
        ("earliest", 980_000_000),
        ("latest", None),
        ("1970-01-01T00:16:19Z", 980_000_000),
        ("1970-01-01T00:16:21Z", None),
    ],
)
def test_lanes_know_whether_they_were_laid_where_changes_expire(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, start: str, edge_us: int | None
) -> None:
    """At 16:40 of the servers' clock, with a TTL of 20 s; all lanes, and also when they are laid once more."""
    table, progress, _ = begins
    log_of(table, monkeypatch, edge_us=None)
    begin_with(table, start)
    cluster: Any = table._cluster
    cluster.cdc_options = lambda: SimpleNamespace(ttl_s=20)
    cluster.server_time = SimpleNamespace(servers_us=lambda: 10**9, earlier_us=lambda: 10**9)
    table.start(once=False, settled=False)
    assert {one.edge_us for one in progress.values()} == {edge_us}
    assert all(one.first for one in progress.values())
    layout = Layout(2, progress[0].cursor)
    progress.update({lane: replace(one, layout=layout) for lane, one in progress.items()})
    table.start(once=False, settled=False)
    assert {(one.layout.lanes, one.edge_us, one.first) for one in progress.values()} == {(3, edge_us, True)}


@pytest.mark.parametrize("known", [None, UUID(int=5)])
def test_table_that_was_made_anew_while_the_job_stood_still_for_long_goes_on(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, known: UUID | None
) -> None:
    """It says what of the former one is lost, also where no checkpoint knows that there was another log."""
    table, progress, done = begins
    layout = lay(progress, first=False)
    log_of(table, monkeypatch, edge_us=9_000_000)
    made_us = UnixMicros(9_500_000)
    state: Any = table._state()
    state.log_id, state.log_made_us = UUID(bytes=timeuuid_of(made_us, bytes(8))), made_us
    table._checkpoint.log_id = lambda: known  # type: ignore[method-assign]
    table._checkpoint.keep_log_id = lambda _id: None  # type: ignore[method-assign]
    table.start(once=False, settled=False)
    assert done[1:] == [(layout, None, False)]
    assert "between 1970-01-01T00:00:02.000000Z, up to where it was read, and 1970-01-01T00:00:09.5" in caplog.text
    caplog.clear()
    table.start(once=False, settled=False)
    assert warnings_of(caplog) == []


def test_first_start_from_an_instant_before_the_ttl_is_said(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the span that may be gone, and not again once there is progress."""
    table, progress, _ = begins
    log_of(table, monkeypatch, edge_us=None)
    begin_with(table, "1970-01-01T00:00:02Z")
    monkeypatch.setattr(start_position, "oldest_us", lambda *_: UnixMicros(9_000_000))
    table.start(once=False, settled=False)
    words = "between 1970-01-01T00:00:02.000000Z and 1970-01-01T00:00:09.000000Z may have expired"
    assert caplog.text.count(words) == 1
    assert progress
    table.start(once=False, settled=False)
    assert caplog.text.count(words) == 1


def test_ttl_that_the_planner_has_seen_is_kept_for_the_next_job(
    begins: Begins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be written is written later, and at the stop at the latest."""
    table, progress, _ = begins
    kept: list[LogTtl] = []
    away = [RetriableError("no space left")]

    def keep(ttl: LogTtl) -> None:
        if away:
            raise away.pop()
        kept.append(ttl)

    table._checkpoint.keep_ttl = keep  # type: ignore[method-assign]
    progress.update(LEVEL)
    table.start(once=False, settled=False)
    table.stopped()
    assert kept == []
    short = LogTtl().seen(30, UnixMicros(5))
    KnownTtl(table._activity.path).note(short)
    monkeypatch.setattr(table_query, "_KEEP_AGAIN_AFTER_S", 0)
    table.stopped()
    assert kept == [short]
    assert "the next job does not know the log's TTL yet" in caplog.text
    longer = short.seen(90, UnixMicros(9))
    KnownTtl(table._activity.path).note(longer)
    table.stopped()
    assert kept == [short, longer]


def test_checkpoint_that_shows_lost_progress_is_kept(begins: Begins) -> None:
    """It is the only witness."""
    table, _, done = begins
    table.failed(None, by_spark=True)
    table.failed(None, by_spark=True)
    with pytest.raises(DataLossError):
        table.start(once=False, settled=False)
    assert "checkpoint begun anew" not in done
