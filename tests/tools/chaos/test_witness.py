"""The consumer that judges: it finds each kind of flaw, and the plan of faults comes from the seed alone."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.chaos import witness as witness_module
from tests.chaos.plan import KINDS, plan
from tests.chaos.witness import Columns, Counts, Topics, Witness

TABLE = Columns((("pk", "int"),), (("ck", "int"),), (("v", "text"),))
TOPIC = "topic.ks.t"
SOURCE = {"k": "keyspace", "t": "table", "w": "timestamp_us", "o": "operation"}
"""What the oracle's line and the record both say."""
Record = tuple[int, bytes, dict[str, Any]]


def change(pk: int, at: int, seq: int = 0, generation: int = 1) -> dict[str, Any]:
    return {
        "k": "ks", "t": "t", "p": [f"{pk:08x}"], "c": ["00000007"], "o": 2, "x": {"v": b"text".hex()}, "l": None,
        "s": f"{pk:032x}", "u": UUID(fields=(at, 0, 0x1000, 0x80, 0, 0)).hex, "w": at, "b": seq, "e": True,
        "g": generation,
    }  # fmt: skip


def record(of: dict[str, Any], **told: Any) -> Record:
    pk = int(of["p"][0], 16)
    source = {
        "stream_id": bytes.fromhex(of["s"]),
        "time": bytes.fromhex(of["u"]),
        "batch_seq_no": of["b"],
        **{name: of[letter] for letter, name in SOURCE.items()},
    }
    value = {"op": "insert", "key": {"pk": pk, "ck": 7}, "columns": {"v": {"value": "text"}}, "ttl": None}
    return 0, str(pk).encode(), value | told | {"source": source}


WRITTEN = [change(1, 10), change(1, 20), change(1, 20, 1), change(2, 15)]


def judged(records: list[Record], topic: str = TOPIC, **settings: Any) -> Counts:
    witness = Witness({"ks.t": TABLE}, map(json.dumps, WRITTEN), **settings)
    for one in records:
        witness.see(topic, *one)
    return witness.close()


def test_what_is_right_is_clean() -> None:
    """Every change once, each key in order."""
    assert judged([record(one) for one in (WRITTEN[3], *WRITTEN[:3])]).clean


@pytest.mark.parametrize(
    ("places", "flaw"),
    [
        ([0, 1, 2], "1 missing"),
        ([0, 1, 3], "1 torn"),
        ([0, 0, 1, 2, 3], "1 doubled"),
        ([1, 0, 2, 3], "1 out of order"),
        ([0, 2, 1, 3], "1 out of order"),
    ],
)
def test_flaws_are_counted(places: list[int], flaw: str) -> None:
    """What is left out, comes twice, too late or in part is counted as such."""
    counts = judged([record(WRITTEN[place]) for place in places])
    assert flaw in str(counts)
    assert not counts.clean


@pytest.mark.parametrize(
    "told",
    [
        {"op": "update"},
        {"key": {"pk": 1, "ck": 8}},
        {"columns": {"v": None}},
        {"columns": {"v": {"value": "other"}}},
        {"ttl": 5},
    ],
)
def test_wrong_records_are_counted(told: dict[str, Any]) -> None:
    """A record that tells another change than was written is wrong."""
    counts = judged([record(WRITTEN[0], **told), *(record(one) for one in WRITTEN[1:])])
    assert (counts.wrong, counts.clean) == (1, False)


@pytest.mark.parametrize("name", SOURCE.values())
def test_wrong_sources_are_counted(name: str) -> None:
    """A wrong field of `source` is found."""
    place, key, value = record(WRITTEN[0])
    value["source"][name] = "other"
    counts = judged([(place, key, value), *(record(one) for one in WRITTEN[1:])])
    assert (counts.wrong, counts.clean) == (1, False)


def test_moved_keys_and_strangers_are_counted() -> None:
    """A key in another partition, and a record that was not written, are found."""
    moved = (1, *record(WRITTEN[1])[1:])
    counts = judged([record(WRITTEN[0]), moved, *(record(one) for one in WRITTEN[2:]), record(change(9, 9))])
    assert (counts.wrong, counts.unexpected) == (1, 1)


def test_keys_are_not_trusted() -> None:
    """The order is that of the writes, for any record keys, and a table's changes are in its topic."""
    keyed = [(0, b"%d" % place, record(WRITTEN[number])[2]) for place, number in enumerate((2, 1, 0, 3))]
    counts = judged(keyed)
    assert (counts.out_of_order, counts.wrong) == (2, 2)
    assert judged([(0, b"same", record(one)[2]) for one in WRITTEN]).wrong == 1
    assert judged([record(one) for one in WRITTEN], topic="topic.ks.other").wrong == 4


def test_late_changes_are_excused_only_when_missing() -> None:
    """What became visible too late may be missing, and may not come twice."""
    place = (WRITTEN[3]["s"], WRITTEN[3]["u"], 0)
    counts = judged([record(one) for one in WRITTEN[:3]], late=[place])
    assert (counts.late, counts.missing, counts.clean) == (1, 0, True)
    assert judged([record(one) for one in (*WRITTEN, WRITTEN[3])], late=[place]).doubled == 1


def test_seed_decides_the_plan() -> None:
    """The same seed gives the same faults, another one others; each kind comes before any comes again."""
    assert plan(7, 2) == plan(7, 2)
    assert plan(7, 2) != plan(8, 2)
    faults = plan(7, 8)
    assert max(Counter(fault.kind for fault in faults[: len(KINDS)]).values()) == 1
    assert len(plan(7, 0.1)) == 5


class Log:
    """What a partition holds: `.` a record, `x` one that is aborted, `|` a marker, in their order."""

    def __init__(self) -> None:
        self.entries = ""
        self.away = False
        self.fetched: list[int] = []


class LogConsumer:
    """A read_committed consumer of one partition, as far as the witness uses one."""

    def __init__(self, log: Log) -> None:
        self._log, self._at, self._told = log, 0, -1

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None})})

    def get_watermark_offsets(self, _place: TopicPartition, timeout: float) -> tuple[int, int]:
        del timeout
        if self._log.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 0, len(self._log.entries)

    def assign(self, places: list[TopicPartition]) -> None:
        self._at = max(0, places[0].offset)

    def consume(self, _most: int, _timeout_s: float) -> list[Any]:
        found = [
            self._message(offset, None)
            for offset, entry in enumerate(self._log.entries)
            if offset >= self._at and entry == "."
        ]
        self._at = len(self._log.entries)
        self._log.fetched += [message.offset() for message in found]
        return found or [self._message(self._at, KafkaError(KafkaError._PARTITION_EOF))]

    @staticmethod
    def _message(offset: int, error: KafkaError | None) -> Any:
        told = {"topic": "t", "partition": 0, "offset": offset, "error": error}
        return SimpleNamespace(**{name: (lambda value=value: value) for name, value in told.items()})

    def close(self) -> None:
        pass


def test_only_records_count_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that starts aborts what was open before it has published anything; no record is counted twice."""
    log = Log()
    monkeypatch.setattr(witness_module, "Consumer", lambda _properties: LogConsumer(log))
    topics = Topics("k:1", "http://r:1")
    seen = []
    for more in ("", "..|", "", "xx|", "|", ".", ".|x|"):
        log.entries += more
        seen.append(topics.reached(["t"]))
    assert seen == [0, 2, 2, 2, 2, 3, 4]
    assert log.fetched == [0, 1, 7, 8]
    log.away = True
    assert topics.reached(["t"]) == -1
    log.away = False
    log.entries += "."
    assert topics.reached(["t"]) == 5
