"""The command `consume`: which records it reads, and how it prints them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from bridge.adapters.kafka.records import Record
from bridge.cli import consume
from bridge.cli.consume import Wanted, read_records
from bridge.errors import RetriableError
from tests.unit.bridge.cli.command_line import run_cli


class _Reader:
    """A topic with one tombstone, then Ctrl-C."""

    def __init__(self, *_: object, **__: object) -> None:
        self._polls = [[Record("lines", 0, 3, None, None, {}, 0)]]

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def follow(self, topic: str, partitions: list[int], *, from_end: bool = False) -> None:
        assert (topic, partitions, from_end) == ("lines", [0, 1], True)

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        if not self._polls:
            raise KeyboardInterrupt
        return self._polls.pop(0)


class TestConsume:
    @pytest.fixture(autouse=True)
    def _servers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        admin = SimpleNamespace(partitions=lambda topic: 2 if topic == "lines" else 0)
        monkeypatch.setattr(consume, "open_kafka", lambda *_, **__: admin)
        registry = SimpleNamespace(get=lambda _: "", close=lambda: None)
        monkeypatch.setattr(consume, "open_registry", lambda *_, **__: registry)
        monkeypatch.setattr(consume, "CommittedReader", _Reader)

    @pytest.mark.parametrize("which", [["shop.lines"], ["--topic", "lines"]])
    def test_prints_until_interrupted(self, config: str, which: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """Records of a table's topic, or of a named topic, are printed until Ctrl-C."""
        assert run_cli("consume", "-c", config, *which) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out) == {
            "position": None,
            "key": None,
            "value": None,
            "topic": "lines",
            "partition": 0,
            "offset": 3,
            "timestamp": "1970-01-01T00:00:00.000Z",
            "key_schema_id": None,
            "schema_id": None,
        }
        assert shown.out.startswith('{\n  "position": ')
        assert shown.err.startswith("waiting for new records in lines (--from-beginning prints all of it)")
        assert run_cli("consume", "-c", config, *which, "--json") == 0
        assert len(capsys.readouterr().out.splitlines()) == 1

    @pytest.mark.parametrize(
        ("which", "words"),
        [
            ([], "name either a TABLE or a --topic"),
            (["shop.lines", "--topic", "lines"], "name either a TABLE or a --topic"),
            (["shop.others"], "table shop.others is not among the tables of"),
            (["shop.orders"], "topic shop.orders does not exist"),
        ],
    )
    def test_refused(self, config: str, which: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A topic that can't be read is refused with the reason."""
        assert run_cli("consume", "-c", config, *which) == 2
        assert words in capsys.readouterr().err


class _Topic:
    """A topic whose polls return the test's records."""

    def __init__(self, *polls: list[Record]) -> None:
        self._polls = list(polls)
        self.followed: list[tuple[list[int], bool]] = []

    def follow(self, topic: str, partitions: list[int], *, from_end: bool = False) -> None:
        assert topic == "shop.orders"
        self.followed.append((partitions, from_end))

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        assert most > 0
        assert timeout_s <= 1, "Ctrl-C has to get through"
        if not self._polls:
            raise KeyboardInterrupt
        return self._polls.pop(0)

    def read_to_end(self, topic: str, partitions: list[int], timeout_s: float) -> Iterator[Record]:
        assert topic == "shop.orders"
        self.followed.append((partitions, False))
        return (record for poll in self._polls for record in poll if record.partition in partitions)


def _values(topic: _Topic, wanted: Wanted) -> list[bytes | None]:
    return [record.value for record in read_records(topic, wanted)]


A, B, C = (
    Record("shop.orders", partition, 5, b"\x01", value, {}, 0) for value, partition in ((b"a", 0), (b"b", 1), (b"c", 0))
)


class TestRecords:
    def test_new_ones(self) -> None:
        """By default, reading starts at the end of the topic and continues until Ctrl-C."""
        topic = _Topic([A], [], [B])
        found: list[Record] = []
        with pytest.raises(KeyboardInterrupt):
            found.extend(read_records(topic, Wanted("shop.orders", 2)))
        assert found == [A, B]
        assert topic.followed == [([0, 1], True)]

    def test_limit(self) -> None:
        """Reading ends after the wanted number of records, also within a poll."""
        assert _values(_Topic([A, B, C]), Wanted("shop.orders", 2, from_beginning=True, limit=2)) == [b"a", b"b"]

    def test_until_end(self) -> None:
        """Reading can end at the end that the topic has at the start, or earlier."""
        assert _values(_Topic([A], [B]), Wanted("shop.orders", 2, from_beginning=True, until_end=True)) == [b"a", b"b"]
        wanted = Wanted("shop.orders", 2, from_beginning=True, until_end=True, limit=1)
        assert _values(_Topic([A], [B]), wanted) == [b"a"]

    def test_from_the_end_to_the_end(self) -> None:
        """Reading from the end to the end returns nothing."""
        topic = _Topic([A])
        assert _values(topic, Wanted("shop.orders", 2, until_end=True)) == []

    def test_kafka_fails(self) -> None:
        """Kafka's errors are raised."""

        class Failing(_Topic):
            def poll(self, most: int, timeout_s: float) -> list[Record]:
                raise RetriableError("gone")

        with pytest.raises(RetriableError, match="gone"):
            _values(Failing(), Wanted("shop.orders", 1))
