from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from struct import pack
from uuid import uuid4

import pytest

from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.scylla.oracle import ExpectedChange
from sandbox.verify.checker import Checker, Verdict, written_us
from schemas.table_codec import TableCodec
from schemas.wire.framing import frame
from tests.unit.schemas.example_tables import log_columns, table

EXAMPLE = table({"pk": "int"}, {"ck": "int"}, {"v": "int", "t": "text"}, keyspace="shop", name="orders")
CODEC = TableCodec(EXAMPLE, log_columns(EXAMPLE))
FIRST_GENERATION = UnixMillis(1_700_000_000_000)


class Topic:
    """Makes changes as they are written, and the records that a bridge publishes for them."""

    def __init__(self) -> None:
        self.registry = Registry(f"mock://{uuid4()}")
        self._key_id = self.registry.register("orders-key", CODEC.key_avro_schema)
        self._value_id = self.registry.register("orders-value", CODEC.value_avro_schema)

    def checker(self) -> Checker:
        return Checker([EXAMPLE], self.registry)

    def record(self, change: ExpectedChange, *, partition: int = 0) -> Record:
        cells = {
            "pk": change.partition_key[0],
            "ck": change.clustering[0],
            **change.columns,
            **{f"cdc$deleted_{name}": b"\x01" for name, cell in change.columns.items() if cell is None},
            "cdc$ttl": None if change.ttl_s is None else pack(">q", change.ttl_s),
            "cdc$stream_id": change.stream_id,
            "cdc$time": change.time,
            "cdc$batch_seq_no": pack(">i", change.batch_seq_no),
        }
        row = tuple(cells.get(name) for name in log_columns(EXAMPLE))
        value = CODEC.encode(
            row,
            operation=change.operation,
            generation_ms=change.generation_ms,
            last_in_group=change.last_in_group,
        )[1]
        position = change.stream_id + change.time + pack(">i", change.batch_seq_no)
        return Record(
            "shop.orders",
            partition,
            0,
            frame(self._key_id, CODEC.encode_key(row)),
            frame(self._value_id, value),
            {POSITION_HEADER: position},
            0,
        )


@pytest.fixture
def topic() -> Topic:
    return Topic()


def change(
    number: int, *, key: int = 1, generation_ms: int = FIRST_GENERATION, value: int | None = 7
) -> ExpectedChange:
    """The change of one key at its `number`th microsecond, alone in its group."""
    at_us = UnixMicros(FIRST_GENERATION * 1000 + number)
    return ExpectedChange(
        "shop",
        "orders",
        (pack(">i", key),),
        (pack(">i", number),),
        2,
        {"v": None if value is None else pack(">i", value)},
        None,
        bytes(15) + b"\x01",
        timeuuid_of(at_us, bytes([0x80] * 7 + [key])),
        at_us,
        0,
        True,
        UnixMillis(generation_ms),
    )


def verdict_of(checker: Checker, records: Iterable[Record]) -> Verdict:
    for record in records:
        checker.see(record)
    return checker.close()


def test_every_change_once_in_order_is_clean(topic: Topic) -> None:
    """Records that match the writes give no problems."""
    changes = [change(1), change(2, value=None), change(3), change(1, key=2)._replace(ttl_s=60)]
    changes.append(change(4)._replace(operation=3, columns={}))
    checker = topic.checker()
    checker.expect(changes)
    verdict = verdict_of(checker, map(topic.record, changes))
    assert verdict.clean, verdict.examples
    assert (verdict.written, verdict.arrived) == (5, 5)
    assert verdict.examples == []


def test_a_missing_change_is_noticed(topic: Topic) -> None:
    """A change that never comes is counted and named."""
    checker = topic.checker()
    checker.expect([change(1), change(2)])
    verdict = verdict_of(checker, [topic.record(change(1))])
    assert verdict.missing == 1
    assert not verdict.clean
    assert verdict.examples[0].startswith("missing: shop.orders")


def test_a_doubled_record_is_noticed(topic: Topic) -> None:
    """A second record of one change is doubled, not out of order."""
    checker = topic.checker()
    checker.expect([change(1), change(2)])
    verdict = verdict_of(checker, map(topic.record, [change(1), change(2), change(1)]))
    assert (verdict.arrived, verdict.doubled, verdict.out_of_order) == (2, 1, 0)
    assert not verdict.clean


def test_a_doubled_record_is_noticed_before_the_writer_tells(topic: Topic) -> None:
    """Two records that come before their change is known are one arrival and one double."""
    checker = topic.checker()
    checker.see(topic.record(change(1)))
    checker.see(topic.record(change(1)))
    checker.expect([change(1)])
    verdict = checker.close()
    assert (verdict.arrived, verdict.doubled, verdict.unexpected) == (1, 1, 0)


def test_a_later_change_first_is_out_of_order(topic: Topic) -> None:
    """Changes of one key must come in the order of their times; other keys do not matter."""
    checker = topic.checker()
    changes = [change(1), change(2), change(1, key=2)]
    checker.expect(changes)
    verdict = verdict_of(checker, [topic.record(changes[at]) for at in (1, 2, 0)])
    assert (verdict.arrived, verdict.out_of_order) == (3, 1)


def test_the_generation_counts_more_than_the_time(topic: Topic) -> None:
    """After a late-published generation, an earlier time in a later generation is in order, and the reverse is not."""
    older = change(9)
    newer = change(5, generation_ms=FIRST_GENERATION + 1)
    for records, out_of_order in (([older, newer], 0), ([newer, older], 1)):
        checker = topic.checker()
        checker.expect([older, newer])
        assert verdict_of(checker, map(topic.record, records)).out_of_order == out_of_order


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": {"v": pack(">i", 8)}},
        {"columns": {"v": None}},
        {"columns": {}},
        {"columns": {"v": pack(">i", 7), "t": b""}},
        {"operation": 1},
        {"ttl_s": 5},
        {"partition_key": (pack(">i", 2),)},
        {"clustering": (pack(">i", 99),)},
        {"generation_ms": UnixMillis(FIRST_GENERATION + 1)},
        {"last_in_group": False},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_record_is_noticed(topic: Topic, wrong: dict[str, object]) -> None:
    """Every part of key, value and source is compared."""
    checker = topic.checker()
    checker.expect([change(1)])
    verdict = verdict_of(checker, [topic.record(change(1)._replace(**wrong))])  # type: ignore[arg-type]
    assert (verdict.arrived, verdict.wrong) == (1, 1)
    assert verdict.examples[0].startswith("wrong")


def test_an_empty_value_is_not_null(topic: Topic) -> None:
    """CQL's zero-length int reads as null and is named among the empty columns; a null is not."""
    written = change(1)._replace(columns={"v": b""})
    checker = topic.checker()
    checker.expect([written])
    assert verdict_of(checker, [topic.record(written)]).clean
    checker = topic.checker()
    checker.expect([written])
    assert verdict_of(checker, [topic.record(change(1, value=None))]).wrong == 1


@pytest.mark.parametrize("body", [None, b"", b"\x01\x02", b"\x00\x00\x00\x00\x02\xff"])
def test_a_record_that_cannot_be_read_is_wrong(topic: Topic, body: bytes | None) -> None:
    """Rubbish in a record is a finding, not a crash."""
    checker = topic.checker()
    checker.expect([change(1)])
    verdict = verdict_of(checker, [replace(topic.record(change(1)), value=body)])
    assert (verdict.arrived, verdict.wrong) == (1, 1)


def test_a_key_in_two_partitions_is_wrong(topic: Topic) -> None:
    """A consumer has no order between partitions, so a key must stay in one."""
    checker = topic.checker()
    checker.expect([change(1), change(2)])
    verdict = verdict_of(checker, [topic.record(change(1)), topic.record(change(2), partition=1)])
    assert (verdict.arrived, verdict.wrong) == (2, 1)


def test_unexpected_records_are_noticed(topic: Topic) -> None:
    """Every unexpected record counts, also without a position."""
    checker = topic.checker()
    checker.expect([change(1)])
    stray = replace(topic.record(change(5)), headers={})
    verdict = verdict_of(checker, [topic.record(change(1)), topic.record(change(4)), stray, stray])
    assert (verdict.arrived, verdict.unexpected) == (1, 3)
    assert not verdict.clean


def test_records_may_come_before_the_writer_tells(topic: Topic) -> None:
    """An early record is no unexpected one once its change is known."""
    checker = topic.checker()
    assert checker.see(topic.record(change(1))) is None
    checker.expect([change(1), change(2)])
    assert checker.see(topic.record(change(2))) == change(2).timestamp_us
    assert checker.close().clean


def test_arrivals_are_counted_by_generation(topic: Topic) -> None:
    """One can see which generations a table's changes came from."""
    changes = [change(1), change(2), change(3, generation_ms=FIRST_GENERATION + 5)]
    checker = topic.checker()
    checker.expect(changes)
    verdict_of(checker, map(topic.record, changes))
    assert checker.arrived("shop", "orders") == {FIRST_GENERATION: 2, FIRST_GENERATION + 5: 1}
    assert checker.arrived("shop", "other") == {}


def test_the_write_timestamp_of_a_record(topic: Topic) -> None:
    """It is read from the position, whether or not the change is known."""
    record = topic.record(change(3))
    assert written_us(record) == change(3).timestamp_us
    assert written_us(replace(record, headers={})) is None
