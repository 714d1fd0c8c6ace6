"""What publishing needs from outside: a Kafka producer of one transactional id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from schemas.compiled.page_loop import PlainChange


class Transactions(Protocol):
    """A producer of one transactional id. `bridge.adapters.kafka` documents which errors each method raises."""

    def init(self) -> None:
        """Fence older owners of the id and end their transaction."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: dict[str, bytes],
        partition: int | None = None,
    ) -> None:
        """Queue a record of the open transaction; without a `partition` the key decides."""
        ...

    def produce_run(
        self, topic: str, frames: tuple[bytes, bytes], records: Iterator[PlainChange], position_header: str | None
    ) -> None:
        """Queue records of the open transaction, whose keys decide their partitions.

        The producer takes the records one after the other. An error is about the last one that it took.

        Args:
            topic: the change topic.
            frames: the bytes before each key and before each value.
            records: the records, in lane order.
            position_header: name of the header that holds a record's position; None for no headers.
        """
        ...

    def commit(self) -> None:
        """Commit the open transaction."""
        ...

    def abort(self) -> None:
        """Abort the open transaction."""
        ...

    def close(self) -> None:
        """Close the producer; the id is free then."""
        ...
