"""Whether it is noticed, and told, that a change topic was deleted and made anew."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config.document import KafkaSettings
from bridge.errors import RetriableError
from bridge.model.times import UnixMicros
from bridge.publishing.topic_identity import ChangeTopicMessages, CurrentTopic, KnownTopic
from spark.job import topic_watch
from spark.job.topic_watch import ChangeTopic, TopicWatch

WORDS = ChangeTopicMessages("ks.t", "changes", 12, "job.progress.ks.t", "c")
ADVICE = (
    "To publish all that the log still holds, stop the job, delete the change topic, the progress topic "
    "job.progress.ks.t and the checkpoint c, and start it again"
)
NOON_US = 43_200_000_000


class Kept:
    """In a checkpoint's place: the topic that is known, and what is wrong with the file system."""

    def __init__(self, topic: KnownTopic | None = None) -> None:
        self.topic = topic
        self.writes = 0
        self.away = False

    def change_topic(self) -> KnownTopic | None:
        if self.away:
            raise RetriableError("no such bucket")
        return self.topic

    def keep_change_topic(self, topic: KnownTopic) -> None:
        if self.away:
            raise RetriableError("no such bucket")
        self.topic, self.writes = topic, self.writes + 1


def topic_of(kept: Any) -> ChangeTopic:
    return ChangeTopic(WORDS, kept)


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "time", SimpleNamespace(time_ns=lambda: NOON_US * 1000))


def test_topic_that_is_made_anew_under_a_running_table_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With both ids, since when, what is gone, and what to do; then it is the topic that is known."""
    kept = Kept()
    topic = topic_of(kept)
    topic.begin(CurrentTopic("a", 12), made=False, carried=True)
    topic.look(CurrentTopic("a", 12))
    assert kept.writes == 1
    for now in (CurrentTopic("b", 1), None, CurrentTopic("b", 1), CurrentTopic("a", 12), CurrentTopic("b", 1)):
        topic.look(now)
    assert caplog.messages == [
        "ks.t: the change topic changes is another one than when it was noted last, at 1970-01-01T12:00:00.000000Z "
        "(its id was a, and is b). Unless this is another Kafka cluster, it was deleted since, made anew with 1 of 12 "
        "partitions (kafka.partitions), and the table goes on in it: what "
        f"the deleted one held does not come again. {ADVICE}"
    ]
    assert kept.topic == KnownTopic("changes", "b", UnixMicros(NOON_US))


def test_topic_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody else notices while nothing is written; but not one that is made anew, or of which brokers tell no id."""
    topic = topic_of(Kept(KnownTopic("changes", "a", UnixMicros(0))))
    for _ in range(3):
        topic.look(None)
    topic.begin(CurrentTopic("a", 12), made=False, carried=True)
    topic.look(None)
    topic.look(CurrentTopic("a", 12))
    topic.look(None)
    assert caplog.messages == []
    for _ in range(3):
        topic.look(None)
    assert caplog.messages == [
        "ks.t: the change topic changes is not found any more: it was deleted, or the right Describe on it was taken "
        "away. With the table's next change, or at its next start, it is made anew; what a deleted one held does not "
        f"come again. {ADVICE}"
    ]
    topic.look(CurrentTopic("a", 12))
    for _ in range(2):
        topic.look(None)
    assert len(caplog.messages) == 2


def test_topic_that_was_made_anew_while_the_job_stood_still_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """By what the checkpoint knows; each job says it once."""
    kept = Kept(KnownTopic("changes", "a", UnixMicros(0)))
    for _ in range(2):
        topic = topic_of(kept)
        for _ in range(2):
            topic.begin(CurrentTopic("b", 12), made=False, carried=True)
    assert [one.partition(", and the table")[0] for one in caplog.messages] == [
        "ks.t: the change topic changes is another one than when it was noted last, at 1970-01-01T00:00:00.000000Z "
        "(its id was a, and is b). Unless this is another Kafka cluster, it was deleted since, made anew"
    ]


def test_topic_that_the_bridge_has_made_anew_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not a second time, because it is another one than that which is known."""
    topic = topic_of(Kept(KnownTopic("changes", "a", UnixMicros(0))))
    topic.begin(CurrentTopic("b", 2), made=True, carried=True)
    topic.begin(CurrentTopic("b", 2), made=False, carried=True)
    topic.look(CurrentTopic("b", 2))
    assert caplog.messages == [
        "ks.t: there was no change topic changes although the progress topic job.progress.ks.t says that the table was "
        "carried before. It was made anew with 2 of 12 partitions (kafka.partitions) and goes on from there: what a "
        f"deleted one held does not come again. {ADVICE}"
    ]


@pytest.mark.parametrize("before", [None, KnownTopic("other", "a", UnixMicros(0))])
def test_topic_of_which_nothing_is_known_is_not_told(
    caplog: pytest.LogCaptureFixture, before: KnownTopic | None
) -> None:
    """Neither a first one, nor one of another name; nor where nothing was carried, or brokers tell no ids."""
    kept = Kept(before)
    topic_of(kept).begin(CurrentTopic("b", 1), made=False, carried=True)
    assert kept.topic is not None
    assert kept.topic.id == "b"
    kept.topic = KnownTopic("changes", "a", UnixMicros(0))
    topic_of(kept).begin(None, made=False, carried=True)
    topic_of(kept).begin(CurrentTopic("c", 12), made=True, carried=False)
    topic_of(kept).begin(CurrentTopic("d", 12), made=False, carried=False)
    assert caplog.messages == []


def test_checkpoint_that_is_away_costs_the_table_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """As soon as it is back, what it knows counts, and it learns what is new."""
    kept = Kept(KnownTopic("changes", "a", UnixMicros(0)))
    kept.away = True
    topic = topic_of(kept)
    topic.begin(CurrentTopic("b", 12), made=False, carried=True)
    assert caplog.messages == []
    kept.away = False
    topic.look(CurrentTopic("b", 12))
    assert len(caplog.messages) == 1
    kept.away = True
    topic.look(CurrentTopic("c", 12))
    kept.away = False
    topic.look(CurrentTopic("c", 12))
    assert len(caplog.messages) == 2
    assert kept.topic is not None
    assert kept.topic.id == "c"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topic": "t", "id": "a"}'])
def test_torn_note_is_as_good_as_none(text: str) -> None:
    """What a killed job had half written."""
    assert KnownTopic.from_text(text) is None
    before = KnownTopic("t", "a", UnixMicros(5))
    assert KnownTopic.from_text(before.to_text()) == before


def test_watch_asks_for_all_topics_at_once_and_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 30 s, one question at a time; brokers that don't answer are asked again, by a new client."""
    now_s, asked, hold = [0.0], list[list[str]](), threading.Event()

    def admin(_settings: object, *, quiet: bool) -> Any:
        assert quiet

        def topics_now(topics: list[str]) -> dict[str, CurrentTopic]:
            asked.append(topics)
            hold.wait(60)
            if len(asked) == 1:
                raise RetriableError("no broker answers")
            return {"changes": CurrentTopic("a", 12)}

        return SimpleNamespace(topics_now=topics_now)

    monkeypatch.setattr(topic_watch, "KafkaAdmin", admin)
    kept = Kept()
    topics = [topic_of(kept), topic_of(Kept())]
    watch = TopicWatch(KafkaSettings(bootstrap_servers=("a:1",)), clock=lambda: now_s[0])

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
    assert kept.topic is None
    look()
    assert len(asked) == 1
    now_s[0] = 60.0
    look()
    assert len(asked) == 2
    assert kept.topic is not None


def test_watch_goes_on_for_the_others_when_one_table_fails_or_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint's file system may do both; one that hangs is not asked a second time."""
    now_s, hold, asked = [0.0], threading.Event(), list[str]()
    found = {"changes": CurrentTopic("a", 12)}
    monkeypatch.setattr(topic_watch, "KafkaAdmin", lambda *_, **__: SimpleNamespace(topics_now=lambda _topics: found))
    monkeypatch.setattr(topic_watch, "_TOLD_WITHIN_S", 0.2)

    class Hangs(Kept):
        def change_topic(self) -> KnownTopic | None:
            asked.append("hangs")
            hold.wait(60)
            return None

    class Fails(Kept):
        def change_topic(self) -> KnownTopic | None:
            asked.append("fails")
            raise OSError("no JVM")

    well = Kept()
    topics = [topic_of(Fails()), topic_of(Hangs()), topic_of(well)]
    watch = TopicWatch(KafkaSettings(bootstrap_servers=("a:1",)), clock=lambda: now_s[0])
    for _ in range(2):
        now_s[0] += 30.0
        watch.look(lambda: topics)
        assert watch._looking is not None
        assert watch._looking.exception(60) is None
        watch.look(lambda: topics)
        assert well.topic is not None
        found["changes"] = CurrentTopic("b", 12)
    assert well.topic.id == "b"
    assert sorted(asked) == ["fails", "fails", "hangs"]
    hold.set()
