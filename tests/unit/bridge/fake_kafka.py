"""A broker in memory with transactions: epochs fence, commits appear at once, aborts leave nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bridge.errors import FencedError, TooLargeError
from schemas.compiled.page_loop import PlainChange
from tests.chaos.fault_points import FaultError, Point

PROGRESS = "progress"


@dataclass
class Broker:
    """Committed records by topic, and the epoch of each transactional id.

    Attributes:
        crash_at: the point where a process dies when it calls `reach`.
        limit: the most bytes of a record's value.
        sizes: number of records of each transaction, without its marker.
        group_of: the group that a record's value belongs to.
        torn: for each commit after which a group was visible in part, that group.
    """

    committed: dict[str, list[tuple[bytes | None, bytes | None]]] = field(default_factory=dict)
    markers: dict[int, bytes] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    crash_at: Point | None = None
    transactions: int = 0
    limit: int | None = None
    sizes: list[int] = field(default_factory=list)
    group_of: Mapping[bytes, bytes] = field(default_factory=dict)
    torn: list[bytes] = field(default_factory=list)

    def find_torn_groups(self) -> None:
        """Record groups that a reader sees in part."""
        seen = {value for records in self.committed.values() for _, value in records if value is not None}
        whole = Counter(self.group_of.values())
        visible = Counter(self.group_of[value] for value in seen & self.group_of.keys())
        self.torn += [group for group, count in visible.items() if count < whole[group]]

    def reach(self, point: Point) -> None:
        if self.crash_at == point:
            self.crash_at = None
            raise FaultError(point)


class Client:
    """One producer of a transactional id."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        self._broker, self._id = broker, transactional_id
        self._epoch = -1
        self._pending: list[tuple[str, bytes | None, bytes | None, int | None]] | None = None

    def init(self) -> None:
        self._epoch = self._broker.epochs[self._id] = self._broker.epochs.get(self._id, -1) + 1

    def begin(self) -> None:
        self._check()
        assert self._pending is None
        self._pending = []

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: dict[str, bytes],
        partition: int | None = None,
    ) -> None:
        self._check()
        assert self._pending is not None
        limit = self._broker.limit
        if limit is not None and topic != PROGRESS and len(value or b"") > limit:
            raise TooLargeError(f"{len(value or b'')} bytes for topic {topic}")
        self._pending.append((topic, key, value, partition))

    def produce_run(
        self, topic: str, frames: tuple[bytes, bytes], records: Iterable[PlainChange], position_header: str | None
    ) -> None:
        for _, key, value, position in records:
            headers = {} if position_header is None else {position_header: position}
            self.produce(topic, frames[0] + key, frames[1] + value, headers)

    def commit(self) -> None:
        self._check()
        assert self._pending is not None
        for topic, key, value, partition in self._pending:
            if topic == PROGRESS:
                assert partition is not None
                assert value is not None
                self._broker.markers[partition] = value
            else:
                self._broker.committed.setdefault(topic, []).append((key, value))
        self._broker.sizes.append(sum(topic != PROGRESS for topic, *_ in self._pending))
        self._pending = None
        self._broker.transactions += 1
        self._broker.find_torn_groups()

    def abort(self) -> None:
        self._pending = None

    def close(self) -> None:
        self._pending = None

    def _check(self) -> None:
        if self._broker.epochs.get(self._id) != self._epoch:
            raise FencedError(f"{self._id} was fenced")
