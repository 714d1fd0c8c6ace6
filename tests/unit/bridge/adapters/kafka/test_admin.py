"""The Kafka administration client, with a stand-in for the library's."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

from bridge.adapters.kafka import admin as admin_module
from bridge.adapters.kafka import client_events
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.client import KafkaClient
from bridge.config.document import KafkaSettings
from bridge.errors import AccessError, RetriableError
from bridge.publishing.topic_identity import CurrentTopic


def test_topic_created_by_another_job_at_the_same_time_grows() -> None:
    """It did not exist, could not be created, and then has one partition of four."""
    admin = KafkaAdmin.__new__(KafkaAdmin)
    partitions = {"orders": 0}

    def lost(_timeout: float) -> None:
        partitions["orders"] = 1
        raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))

    def grown(new: list[Any]) -> dict[str, Any]:
        partitions["orders"] = new[0].new_total_count
        return {"orders": SimpleNamespace(result=lambda _timeout: None)}

    stand_in: Any = admin
    KafkaClient.__init__(stand_in, KafkaSettings(bootstrap_servers=("a:1",)))
    stand_in.partitions = partitions.__getitem__
    stand_in._client = SimpleNamespace(
        create_topics=lambda *_, **__: {"orders": SimpleNamespace(result=lost)}, create_partitions=grown
    )
    assert admin.ensure_topic("orders", 4, {}, grow=True)
    assert partitions == {"orders": 4}


def admin_of(**client: Any) -> KafkaAdmin:
    """An administration client with a stand-in for the library's client."""
    admin = KafkaAdmin.__new__(KafkaAdmin)
    stand_in: Any = admin
    KafkaClient.__init__(stand_in, KafkaSettings(bootstrap_servers=("a:1",)))
    stand_in._client = SimpleNamespace(**client)
    return admin


def completed(answer: Any) -> Future[Any]:
    """A completed future."""
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def test_topic_ids_are_read() -> None:
    """As Kafka's tools print them; without topics that do not exist, are hidden, or have no id."""
    answers = {
        "ours": SimpleNamespace(topic_id=Uuid(-5, 7), partitions=[1, 2]),
        "old": SimpleNamespace(topic_id=Uuid(0, 0), partitions=[1]),
        "none": KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
        "hidden": KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
    }

    def describe_topics(asked: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        return {name: completed(answers[name]) for name in asked.topic_names}

    found = admin_of(describe_topics=describe_topics).topics_now(list(answers))
    assert found == {"ours": CurrentTopic("__________sAAAAAAAAABw", 2)}


@pytest.mark.parametrize(("ends", "holds"), [([0, 0, 0], False), ([0, 7, 0], True), ([], False)])
def test_topic_with_records_is_recognized_by_its_partitions_ends(ends: list[int], *, holds: bool) -> None:
    """Also one whose records Kafka has deleted since. A topic that does not exist has none."""

    def list_offsets(asked: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        return {place: completed(SimpleNamespace(offset=ends[place.partition])) for place in asked}

    admin: Any = admin_of(list_offsets=list_offsets)
    admin.partitions = {"t": len(ends)}.__getitem__
    assert admin.has_records("t") is holds


def test_answer_is_not_awaited_once_the_login_is_refused() -> None:
    """The client reports the refusal by a callback only, and would retry until the timeout."""
    turns_s: list[float] = []
    refused = SimpleNamespace(name=lambda: "_AUTHENTICATION", str=lambda: "wrong password")

    def list_topics(*, timeout: float) -> None:
        turns_s.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    admin = admin_of(describe_configs=lambda asked, **_: {asked[0]: Future()}, list_topics=list_topics)
    client: Any = admin._client
    client.poll = lambda _timeout: admin._errors(refused)
    with pytest.raises(AccessError, match="wrong password"):
        admin.topic_settings(["t"])
    admin._errors.clear()
    with pytest.raises(AccessError, match="wrong password"):
        admin.partitions("t")
    assert turns_s == [pytest.approx(0.5)]


def test_missing_answer_is_retriable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the form of Kafka's other failures."""
    now_s = iter([0.0, 5.0, 15.5])
    monkeypatch.setattr(admin_module, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(admin_module, "_POLL_S", 0.0)
    admin = admin_of(describe_configs=lambda asked, **_: {asked[0]: Future()}, poll=lambda _timeout: None)
    with pytest.raises(RetriableError, match=r"^Kafka at a:1 gave no answer in 15 s$"):
        admin.topic_settings(["t"])


def test_repeated_login_is_retriable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the call itself fails with it."""
    monkeypatch.setattr(client_events, "_accepted_logins", set())
    admin = admin_of()
    refused = KafkaException(KafkaError(KafkaError._AUTHENTICATION, "broker's supported mechanisms: (after 1ms)"))
    assert isinstance(admin._translate(refused, "asking"), AccessError)
    admin._errors.login_accepted()
    meant = admin._translate(refused, "asking")
    assert type(meant) is RetriableError
    assert str(meant).startswith("Kafka at a:1 refused a second login")


def test_answers_show_that_a_login_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of every kind do."""
    for ask in (lambda admin: admin.partitions("t"), lambda admin: admin.topic_settings(["t"])):
        monkeypatch.setattr(client_events, "_accepted_logins", set())
        admin = admin_of(
            list_topics=lambda **_: SimpleNamespace(topics={}),
            describe_configs=lambda asked, **_: {asked[0]: completed({})},
        )
        assert client_events._accepted_logins == set()
        ask(admin)
        assert client_events._accepted_logins == {(("a:1",), None)}


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_client_does_not_log_unreachable_brokers(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    """The watch of change topics makes a client every half minute; the table's own clients report what is wrong."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(admin_module, "AdminClient", made.append)
    KafkaAdmin(KafkaSettings(bootstrap_servers=("a:1",)), quiet=quiet)
    (properties,) = made
    assert (properties["logger"] is not logging.getLogger("librdkafka")) is quiet
    assert not quiet or not properties["logger"].isEnabledFor(logging.CRITICAL)
