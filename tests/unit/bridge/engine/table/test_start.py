"""How a table starts: its topics, its lanes, its checkpoint, and the facts of earlier jobs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from bridge.errors import DataLossError, RetriableError, StartupError
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.table_facts import KnownTopic, TableFacts
from bridge.model.times import UnixMicros, timeuuid_of
from bridge.publishing.topic_identity import CurrentTopic
from tests.unit.bridge.engine.planner_fakes import LOG
from tests.unit.bridge.engine.table.start_fakes import BATCH, FORMER, LEVEL, UNEVEN, Table, warnings_of


def test_lanes_are_recovered_before_they_are_assigned(table: Table) -> None:
    """An interrupted micro-batch is finished under its own layout first; nothing is assigned before that."""
    table.commit(UNEVEN)
    start = table.start()
    assert (start.recover, start.layout, start.interrupted) == (True, FORMER, BATCH)
    assert {one.layout for one in table.progress.values()} == {FORMER}
    table.commit(LEVEL)
    first_owners = {*table.owners}
    table.owners.clear()
    start = table.start(recovered=True)
    new = Layout(3, BATCH.next)
    assert (start.recover, start.layout, start.interrupted) == (False, new, None)
    assert {one.layout for one in table.progress.values()} == {new}
    # Tasks of the first query publish nothing more.
    assert len(first_owners) == 1
    assert not first_owners & {*table.owners}


def test_lanes_that_do_not_stand_level_are_not_recovered_again_at_once(table: Table) -> None:
    """The query ended and the lanes stand apart: another job is at work, or it takes a moment."""
    table.commit(UNEVEN)
    with pytest.raises(RetriableError, match=r"ks\.t: its 2 lanes do not stand level yet"):
        table.start(recovered=True)
    assert {one.layout for one in table.progress.values()} == {FORMER}
    assert table.start().recover


def test_progress_that_is_gone_stops_the_table(table: Table) -> None:
    """The checkpoint shows that there was some: a new beginning would publish again, or leave changes out."""
    table.plan.has_commits = True
    with pytest.raises(
        DataLossError,
        match=r"^ks\.t: the progress topic job\.progress\.ks\.t holds no cursor, but the checkpoint c shows that "
        r"changes were published\. Was the topic deleted\? If so, stop the job, delete the checkpoint, too, and delete "
        r"the change topic, or set reading\.accept_data_loss for the next start if what the change topic holds may be "
        r"published again: the table then starts again at reading\.start$",
    ):
        table.start()
    assert table.progress == {}


def test_progress_that_is_gone_before_the_first_micro_batch_stops_the_table(table: Table) -> None:
    """The checkpoint has no commit yet, but transactions may have been committed since the start."""
    table.commit(LEVEL)
    table.start()
    table.broker.markers.clear()
    with pytest.raises(DataLossError, match=r"the progress topic job\.progress\.ks\.t holds no cursor"):
        table.start()
    assert table.progress == {}


def test_progress_and_checkpoint_that_are_gone_stop_the_table(table: Table) -> None:
    """The table's own records in the change topic show that it was published before."""
    table.topics.filled, table.has_key_schema = {"ks.t"}, True
    with pytest.raises(
        DataLossError,
        match=r"^ks\.t: the progress topic job\.progress\.ks\.t holds no cursor and the checkpoint c no micro-batch, "
        r"but the change topic ks\.t has records, and the schema registry has the schema of the table's keys for it: "
        r"the table seems to have been published before\. Was the progress topic deleted, or were `name` or "
        r"publishing\.progress_topic changed\? Undo that; or stop the job and delete the change topic, or set "
        r"reading\.accept_data_loss for the next start if what the change topic holds may be published again: the "
        r"table then starts again at reading\.start$",
    ):
        table.start()
    assert table.progress == {}


@pytest.mark.parametrize(("filled", "has_key_schema"), [(True, False), (False, True)])
def test_first_start_on_a_topic_without_records_of_the_table(
    table: Table, caplog: pytest.LogCaptureFixture, *, filled: bool, has_key_schema: bool
) -> None:
    """Others may publish to the topic, and schemas may be registered beforehand."""
    table.topics.filled, table.has_key_schema = {"ks.t"} if filled else set(), has_key_schema
    assert table.start().first
    assert len(table.progress) == 3
    assert warnings_of(caplog) == []


def test_table_begins_anew_if_the_repetition_is_accepted(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so."""
    table.topics.filled, table.has_key_schema = {"ks.t"}, True
    table.restart_job(accept_data_loss=True)
    assert table.start().first
    (warning,) = warnings_of(caplog)
    assert warning.endswith("it starts again at reading.start, because reading.accept_data_loss is set")


def test_checkpoint_that_shows_lost_progress_is_kept(table: Table) -> None:
    """It is the only evidence."""
    table.plan.has_commits = True
    for _ in range(2):
        table.starter.note_failure(by_spark=True, has_query=False, has_worked=False)
    with pytest.raises(DataLossError):
        table.start()
    assert table.plan.begun_anew == 0


def test_checkpoint_that_spark_can_not_use_is_begun_anew(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged checkpoint is deleted: Spark would refuse it each time, and it holds only a plan."""
    table.commit(UNEVEN)
    table.starter.note_failure(by_spark=True, has_query=True, has_worked=False)
    assert table.start().recover
    assert table.plan.begun_anew == 0
    assert warnings_of(caplog) == []
    table.starter.note_failure(by_spark=True, has_query=False, has_worked=False)
    assert table.start().recover
    assert warnings_of(caplog) == [
        "ks.t: Spark cannot use the checkpoint c. The job recreates it and goes on from the progress topic"
    ]
    table.starter.note_failure(by_spark=True, has_query=True, has_worked=False)
    table.start()
    assert table.plan.begun_anew == 1


def test_topic_that_was_missing_is_logged(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """What it held is not published again: logged where the table was published before, and only there."""
    table.topics.missing = {"ks.t"}
    table.plan.has_commits = True
    with pytest.raises(DataLossError):
        table.start()
    assert caplog.messages == []
    table.commit(LEVEL)
    table.start()
    words = (
        "ks.t: the change topic ks.t did not exist, although the progress topic job.progress.ks.t shows that the table "
        "was published before. The bridge has created it and goes on publishing: what a deleted topic held is not "
        "published again. To publish all that the log still holds, stop the job, delete the change topic, the progress "
        "topic job.progress.ks.t and the checkpoint c, and start it again"
    )
    assert caplog.messages.count(words) == 1


def test_topic_that_was_replaced_is_logged(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """The lanes' progress names the former topic, with or without a checkpoint; Kafka may refuse to describe topics."""
    former = TableFacts(LOG, (), KnownTopic("ks.t", "old", UnixMicros(0)))
    table.commit({lane: replace(one, facts=former) for lane, one in LEVEL.items()})
    table.topics.refusal = StartupError("no right Describe")
    facts = table.start().facts
    assert facts is not None
    assert facts.topic == former.topic
    assert warnings_of(caplog) == []
    table.topics.refusal, table.topics.current = None, {"ks.t": CurrentTopic("new", 12)}
    table.start()
    start = table.start()
    assert [message.partition(" (")[0] for message in warnings_of(caplog)] == [
        "ks.t: the change topic ks.t is not the one of 1970-01-01T00:00:00.000000Z"
    ]
    assert start.facts is not None
    assert start.facts.topic == KnownTopic("ks.t", "new", UnixMicros(5))
    # The next job gets it with the progress, and does not warn again.
    caplog.clear()
    table.commit({lane: replace(one, facts=start.facts) for lane, one in table.progress.items()})
    table.restart_job()
    table.start()
    assert warnings_of(caplog) == []


def test_first_start_writes_its_facts_to_every_lane(table: Table) -> None:
    """A job that dies before its first micro-batch leaves them behind, too."""
    table.cluster.ttl_s, table.topics.current = 60, {"ks.t": CurrentTopic("a", 12)}
    start = table.start()
    facts = TableFacts(LOG, ((UnixMicros(10**9), 60),), KnownTopic("ks.t", "a", UnixMicros(5)))
    assert start.facts == facts
    assert {one.facts for one in table.progress.values()} == {facts}


def test_ttl_of_earlier_runs_is_known_without_a_checkpoint(table: Table) -> None:
    """A change keeps the TTL that it was written under, so a TTL that is raised later does not save it."""
    table.cluster.ttl_s = 60
    layout = table.start().layout
    table.cluster.now_us += 5 * 10**6
    batch_start = layout.since
    table.commit({lane: replace(one, cursor=batch_start, first=False) for lane, one in table.progress.items()})
    table.restart_job()
    table.cluster.ttl_s, table.cluster.now_us = 86_400, table.cluster.now_us + 100 * 10**6
    with pytest.raises(DataLossError, match="the log's TTL has passed"):
        table.start()
    # Without the facts of the earlier run the loss would not be found.
    table.commit({lane: replace(one, facts=None) for lane, one in table.progress.items()})
    table.restart_job()
    assert table.start().facts is not None


def test_lowered_ttl_counts_from_the_last_known_moment(table: Table) -> None:
    """When the TTL was lowered is unknown; what was written before it keeps the longer one."""
    table.cluster.ttl_s = 86_400
    table.start()
    table.restart_job()
    table.cluster.ttl_s, table.cluster.now_us = 60, table.cluster.now_us + 10**6
    facts = table.start().facts
    assert facts is not None
    assert facts.ttls == ((UnixMicros(10**9), 86_400), (UnixMicros(10**9 + 1), 60))


def test_table_that_was_created_anew_while_the_job_stood_still_goes_on(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the lost changes of the former table, and comes once although the checkpoint is lost."""
    layout = table.stand_at_layout(first=False)
    known = TableFacts(UUID(int=5), ((UnixMicros(1), 7),))
    table.commit({lane: replace(one, facts=known) for lane, one in table.progress.items()})
    table.expire_before(9_000_000)
    log_id = UUID(bytes=timeuuid_of(UnixMicros(9_500_000), bytes(8)))
    table.cluster.log_id = log_id
    start = table.start()
    assert (start.layout, start.cursor) == (layout, layout.since)
    assert "between 1970-01-01T00:00:02.000000Z, up to where it was read, and 1970-01-01T00:00:09.5" in caplog.text
    # The former log's TTLs say nothing about this one.
    assert start.facts == TableFacts(log_id, ((UnixMicros(table.cluster.now_us), 991),))
    caplog.clear()
    table.start()
    assert warnings_of(caplog) == []


def test_changes_of_a_table_are_described(table: Table) -> None:
    """Nothing is known before the first start."""
    assert table.starter.describe_changes() == ""
    table.start()
    assert table.starter.describe_changes() == ""
    table.cluster.failure = RetriableError("ScyllaDB is away")
    assert table.starter.describe_changes() == ""


def test_facts_of_the_furthest_lane_count() -> None:
    """The others have not committed the micro-batch that carried them."""
    table = Table()
    old, new = TableFacts(UUID(int=5)), TableFacts(LOG)
    uneven = {0: replace(UNEVEN[0], facts=new), 1: replace(UNEVEN[1], facts=old)}
    table.commit(uneven)
    start = table.start()
    assert isinstance(table.progress[1], LaneProgress)
    assert start.facts is not None
    assert start.facts.log_id == LOG
