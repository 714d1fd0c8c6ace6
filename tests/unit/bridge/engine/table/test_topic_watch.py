"""Whether the job notices that a change topic was deleted and created again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge.engine.table.topic_watch import ChangeTopic, TopicWatch
from bridge.errors import RetriableError
from bridge.model.table_facts import KnownTopic
from bridge.model.times import UnixMicros
from bridge.publishing.topic_identity import ChangeTopicMessages, CurrentTopic

MESSAGES = ChangeTopicMessages("ks.t", "changes", 12, "job.progress.ks.t", "c")
ADVICE = (
    "To publish all that the log still holds, stop the job, delete the change topic, the progress topic "
    "job.progress.ks.t and the checkpoint c, and start it again"
)
NOON_US = UnixMicros(43_200_000_000)
FORMER = KnownTopic("changes", "a", UnixMicros(0))


def topic_of(handed: list[KnownTopic] | None = None) -> ChangeTopic:
    """A change topic at noon; what it hands over is appended to `handed`."""
    return ChangeTopic(MESSAGES, hand_over=([] if handed is None else handed).append, clock=lambda: NOON_US)


def test_topic_that_is_replaced_under_a_running_table_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The warning has both ids, the time, what is lost and what to do; then the new topic is the known one."""
    handed: list[KnownTopic] = []
    topic = topic_of(handed)
    topic.begin(CurrentTopic("a", 12), None, created=False, published=True)
    topic.look(CurrentTopic("a", 12))
    for now in (CurrentTopic("b", 1), None, CurrentTopic("b", 1)):
        topic.look(now)
    assert [one.id for one in handed] == ["a", "b"]
    assert handed[-1] == KnownTopic("changes", "b", NOON_US)
    for now in (CurrentTopic("a", 12), CurrentTopic("b", 1)):
        topic.look(now)
    assert caplog.messages == [
        "ks.t: the change topic changes is not the one of 1970-01-01T12:00:00.000000Z (its id was a, and is b). Unless "
        "this is another Kafka cluster, the topic was deleted and created again with 1 of 12 partitions "
        "(kafka.partitions). The table goes on publishing to it: what the deleted topic held is not published again. "
        f"{ADVICE}"
    ]
    assert handed[-1].id == "b"


def test_topic_that_is_missing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A table without changes does not fail. One look without the topic, or brokers that tell no id, mean nothing."""
    topic = topic_of()
    assert topic.begin(None, FORMER, created=False, published=True) == FORMER
    for _ in range(3):
        topic.look(None)
    topic.begin(CurrentTopic("a", 12), FORMER, created=False, published=True)
    topic.look(None)
    topic.look(CurrentTopic("a", 12))
    topic.look(None)
    assert caplog.messages == []
    for _ in range(3):
        topic.look(None)
    assert caplog.messages == [
        "ks.t: the change topic changes is missing: it was deleted, or the job has lost the right Describe on it. The "
        "table's next change, or its next start, creates a deleted topic again; what it held is not published again. "
        f"{ADVICE}"
    ]
    topic.look(CurrentTopic("a", 12))
    for _ in range(2):
        topic.look(None)
    assert len(caplog.messages) == 2


def test_topic_that_was_replaced_while_the_job_stood_still_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The progress names the former topic. The next job gets the new one, and does not warn again."""
    topic = topic_of()
    known = topic.begin(CurrentTopic("b", 12), FORMER, created=False, published=True)
    # The lanes' progress names the former topic until the first micro-batch.
    assert topic.begin(CurrentTopic("b", 12), FORMER, created=False, published=True) == known
    topic_of().begin(CurrentTopic("b", 12), known, created=False, published=True)
    assert [one.partition(". The table")[0] for one in caplog.messages] == [
        "ks.t: the change topic changes is not the one of 1970-01-01T00:00:00.000000Z (its id was a, and is b). Unless "
        "this is another Kafka cluster, the topic was deleted and created again"
    ]


def test_topic_that_the_bridge_has_created_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """There is no second warning because its id differs from the known one."""
    topic = topic_of()
    topic.begin(CurrentTopic("b", 2), FORMER, created=True, published=True)
    topic.begin(CurrentTopic("b", 2), FORMER, created=False, published=True)
    topic.look(CurrentTopic("b", 2))
    assert caplog.messages == [
        "ks.t: the change topic changes did not exist, although the progress topic job.progress.ks.t shows that the "
        "table was published before. The bridge has created it with 2 of 12 partitions (kafka.partitions) and goes on "
        f"publishing: what a deleted topic held is not published again. {ADVICE}"
    ]


@pytest.mark.parametrize("before", [None, KnownTopic("other", "a", UnixMicros(0))])
def test_topic_without_a_known_predecessor_is_not_logged(
    caplog: pytest.LogCaptureFixture, before: KnownTopic | None
) -> None:
    """Nothing is logged for a first topic, another name, a topic without records, or brokers without topic ids."""
    known = topic_of().begin(CurrentTopic("b", 1), before, created=False, published=True)
    assert known == KnownTopic("changes", "b", NOON_US)
    assert topic_of().begin(None, FORMER, created=False, published=True) == FORMER
    topic_of().begin(CurrentTopic("c", 12), FORMER, created=True, published=False)
    topic_of().begin(CurrentTopic("d", 12), FORMER, created=False, published=False)
    assert caplog.messages == []


def test_watch_asks_for_all_topics_at_once_and_never_waits() -> None:
    """It asks every 30 s, one question at a time; brokers that don't answer are asked again."""
    now_s, asked, hold = [0.0], list[list[str]](), threading.Event()

    def describe(topics: Any) -> dict[str, CurrentTopic]:
        asked.append(list(topics))
        hold.wait(60)
        if len(asked) == 1:
            raise RetriableError("no broker answers")
        return {"changes": CurrentTopic("a", 12)}

    handed: list[KnownTopic] = []
    topics = [topic_of(handed), topic_of()]
    watch = TopicWatch(describe, clock=lambda: now_s[0])

    def look() -> None:
        watch.look(lambda: topics)
        if hold.is_set() and watch._looking is not None:
            watch._looking.exception(60)
            watch.look(lambda: topics)

    look()
    assert watch._looking is None
    now_s[0] = 30.0
    look()
    look()
    hold.set()
    look()
    assert asked == [["changes", "changes"]]
    assert handed == []
    look()
    assert len(asked) == 1
    now_s[0] = 60.0
    look()
    assert len(asked) == 2
    assert [one.id for one in handed] == ["a"]


def test_watch_asks_nothing_while_no_table_runs() -> None:
    """There is no topic to describe."""
    now_s = [0.0]

    def describe(_topics: Any) -> dict[str, CurrentTopic]:
        raise AssertionError("asked")

    watch = TopicWatch(describe, clock=lambda: now_s[0])
    now_s[0] = 30.0
    watch.look(list)
    assert watch._looking is not None
    assert watch._looking.exception(60) is None
