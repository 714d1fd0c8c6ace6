"""A broker in memory as far as transactions go: epochs that fence, commits that appear at once, aborts that vanish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bridge.errors import FencedError
from bridge.lane_publisher import Record

PROGRESS = "progress"


@dataclass
class Broker:
    """Committed records by topic, and the epoch of each transactional id.

    `crash_at` names a step (`init`, `begin`, `produce:3`, `before commit`, `after commit`) at which the client dies.
    """

    committed: dict[str, list[tuple[bytes | None, bytes | None]]] = field(default_factory=dict)
    markers: dict[int, bytes] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    crash_at: str | None = None
    transactions: int = 0

    def reach(self, step: str) -> None:
        if self.crash_at == step:
            self.crash_at = None
            raise Crash(step)


class Crash(Exception):  # noqa: N818
    """The client dies here; what it had open is lost."""


class Client:
    """One producer of a transactional id."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        self._broker, self._id = broker, transactional_id
        self._epoch = -1
        self._pending: list[tuple[str, bytes | None, bytes | None, int | None]] | None = None

    def init(self) -> None:
        self._broker.reach("before init")
        self._epoch = self._broker.epochs[self._id] = self._broker.epochs.get(self._id, -1) + 1
        self._broker.reach("after init")

    def begin(self) -> None:
        self._check()
        assert self._pending is None
        self._pending = []

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes]],
        partition: int | None = None,
    ) -> None:
        self._check()
        assert self._pending is not None
        if topic == PROGRESS:
            self._broker.reach("before marker")
        self._pending.append((topic, key, value, partition))
        if topic == PROGRESS:
            self._broker.reach("after marker")
        else:
            self._broker.reach(f"produce:{len(self._pending)}")

    def produce_all(self, topic: str, records: Iterable[Record]) -> None:
        for record in records:
            self.produce(topic, *record)

    def commit(self) -> None:
        self._check()
        assert self._pending is not None
        self._broker.reach("before commit")
        for topic, key, value, partition in self._pending:
            if topic == PROGRESS:
                assert partition is not None
                assert value is not None
                self._broker.markers[partition] = value
            else:
                self._broker.committed.setdefault(topic, []).append((key, value))
        self._pending = None
        self._broker.transactions += 1
        self._broker.reach("after commit")

    def abort(self) -> None:
        self._pending = None

    def close(self) -> None:
        self._pending = None

    def _check(self) -> None:
        if self._broker.epochs.get(self._id) != self._epoch:
            raise FencedError(f"{self._id} was fenced")


def clients(broker: Broker, transactional_id: str) -> Callable[[], Client]:
    return lambda: Client(broker, transactional_id)


def crash_points() -> Iterator[str]:
    yield from ("before init", "after init", "produce:1", "produce:3", "before marker", "after marker")
    yield from ("before commit", "after commit")
