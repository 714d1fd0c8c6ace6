"""Publishes one lane in transactions, by the decisions of `bridge.publishing.lane_recovery`."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from operator import itemgetter, length_hint
from typing import Final

from bridge.encoding.group_encoder import EncodedRun
from bridge.errors import BridgeError, FencedError, RetriableError, TooLargeError
from bridge.model.counters import LaneCounters
from bridge.model.kept_formats import LaneProgress
from bridge.model.position import GROUP_BYTES, LanePosition, group_of
from bridge.publishing.lane_recovery import LaneTask, Remainder, remainder
from bridge.publishing.ports import Transactions
from bridge.publishing.transaction_size import TransactionSize
from schemas.compiled.page_loop import PlainChange

_MOST_UNTIMED: Final = 256
_MOST_UNTIMED_BYTES: Final = 1 << 18
"""A transaction's age is checked after so many records of a run, or bytes of these. Queueing them takes a few ms unless
a broker slows the producer down."""


class LanePublisher:
    """Publishes one lane's records, each exactly once. Not thread-safe.

    A process keeps one publisher for each lane over many micro-batches. For one planned micro-batch call `start`, then
    `publish` for each record in lane order with `enter` before each further part, then `finish`. After any exception
    the outcome of the open transaction is unknown: call `close` and make a new publisher.

    Args:
        producer: makes the producer of the lane's transactional id.
        read_progress: reads the lane's committed progress record. The publisher calls it after it has initialised the
            id, so no older attempt can still write one.
        progress_topic: the topic of the cursors; a lane's partition has the lane's number.
        owner: fencing token of the query. Each progress record carries it, and `start` expects it there.
        most_records: a transaction is committed at the end of the group in which it reaches this many records.
        size: the same for bytes of keys and values; adapts to the brokers.
        most_s: the same for the time that the transaction has been open, in s. Kafka aborts a transaction that is open
            for too long, which a slow broker may cause.
        clock: monotonic seconds.
        count: receives the counts of each transaction.
    """

    def __init__(
        self,
        producer: Callable[[], Transactions],
        read_progress: Callable[[], bytes | None],
        *,
        progress_topic: str,
        owner: str,
        most_records: int,
        size: TransactionSize,
        most_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[LaneCounters], None] = lambda _counters: None,
    ) -> None:
        self._make_producer = producer
        self._read_progress = read_progress
        self._progress_topic = progress_topic
        self._owner = owner
        self._most_records = most_records
        self._size = size
        self._most_s = most_s
        self._clock = clock
        self._count = count
        self._began_s = 0.0
        self._producer: Transactions | None = None
        self._committed: LaneProgress | None = None
        self._remainder: Remainder | None = None
        self._part = 0
        self._group_key = b""
        self._group_part = 0
        self._wanted = False
        self._is_open = False
        self._records = 0
        self._tombstones = 0
        self._dead_letters = 0
        self._bytes = 0
        self._groups = 0

    def start(self, task: LaneTask, *, fresh: bool) -> Remainder:
        """Begin a task and return what is left of it.

        Args:
            task: the lane's part of the micro-batch.
            fresh: whether to open the transactional id again although this process holds it. An earlier attempt at
                the same task may have committed more than this process knows.

        Raises:
            FencedError: another job has acquired the table since. It may have planned other micro-batches from the same
                cursor, and lanes inside different micro-batches have no common cursor.
            LayoutError: another job has written a newer lane layout.
            DataLossError: the lane's progress is missing, or lies before the micro-batch.
            RetriableError: the lane is inside another micro-batch, or Kafka fails.
        """
        known = self._committed
        in_step = (
            known is not None
            and known.done is None
            and known.cursor == task.batch.start
            and known.layout == task.batch.layout
        )
        if fresh or not in_step or self._producer is None:
            self._reopen()
        if self._committed is not None and self._committed.owner != self._owner:
            raise FencedError(
                f"{task}: another job of the same name ({self._committed.owner}) has taken it over from this one "
                f"({self._owner}). Stop one of the two; the other one goes on by itself"
            )
        self._remainder = remainder(task, self._committed, self._progress_topic)
        self._part = self._group_part = 0
        self._group_key = b""
        self._wanted = False
        self._groups = 0
        return self._remainder

    def enter(self, part: int) -> None:
        """Begin part `part` of the micro-batch: the records that follow belong to it. `start` begins part 0."""
        left, _ = self._require_task()
        if part <= self._part:
            raise BridgeError(f"{left.task}: part {part} follows part {self._part}")
        if self._is_open:
            # It takes requests of unknown length to find the part's streams and its first group.
            self._commit(left.midway(self._last_position()))
        self._part = part

    def commit_if_full(self) -> None:
        """Commit the open transaction if it has reached a limit; its records stay without the micro-batch's cursor.

        Call this between two groups only. While the next group takes long to come, call it often: Kafka aborts a
        transaction that is open for too long.
        """
        left, _ = self._require_task()
        if self._is_open and self._is_full:
            self._commit(left.midway(self._last_position()))

    def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        position: bytes,
        headers: dict[str, bytes],
        partition: int | None = None,
    ) -> None:
        """Publish one record unless it is committed already.

        Records must come in lane order. A transaction that has reached a limit ends when the next group begins.

        Args:
            topic: the change topic, or the dead-letter topic.
            key: framed key; None for a dead letter.
            value: framed value; None for a tombstone.
            position: stream id (16 bytes), timeuuid (16 bytes), batch_seq_no (4 bytes).
            headers: the record's headers.
            partition: number of the partition; None lets the key decide.

        Raises:
            TooLargeError: the record is over Kafka's limit. It is not part of the transaction, and the caller may
                publish another record in its place.
        """
        left, producer = self._require_task()
        group_key = position[:GROUP_BYTES]
        if group_key != self._group_key or self._part != self._group_part:
            # Not by `commit_if_full`: calls for each group cost time.
            if self._is_open and self._is_full:
                self._commit(left.midway(self._last_position()))
            self._group_key, self._group_part = group_key, self._part
            self._wanted = left.wants(self._last_position())
            self._groups += self._wanted
        if not self._wanted:
            return
        if not self._is_open:
            self._begin()
        producer.produce(topic, key, value, headers, partition)
        self._records += 1
        if key is None:
            self._dead_letters += 1
        elif value is None:
            self._tombstones += 1
        self._bytes += len(key or b"") + len(value or b"")

    def publish_run(
        self,
        topic: str,
        frames: tuple[bytes, bytes],
        run: EncodedRun,
        position_header: str | None,
        too_large: Callable[[int, TooLargeError], None],
    ) -> None:
        """Publish records that each are a group of their own, with the same effect as `publish` for each of them.

        Args:
            topic: the change topic.
            frames: the bytes before each key and before each value.
            run: the records, in lane order.
            position_header: name of the header that holds a record's position; None for no headers.
            too_large: called for a record that is over Kafka's limit, with its number in the run, after the records
                before it are queued. It publishes another record of the same position, or raises.
        """
        left, producer = self._require_task()
        records = run.records
        framing = len(frames[0]) + len(frames[1])
        at, end = 0, len(records)
        if left.finished:
            return
        if left.done is not None:
            at = bisect_right(records, left.done, key=self._position_of)
        while at < end:
            if self._is_open and self._is_full:
                self._commit(left.midway(self._last_position()))
            if not self._is_open:
                self._begin()
            piece, size = self._cut_piece(records, at, framing)
            unsent = iter(piece)
            refused: TooLargeError | None = None
            try:
                producer.produce_run(topic, frames, unsent, position_header)
            except TooLargeError as error:
                refused = error
            reached = at + len(piece) - length_hint(unsent)
            queued = reached if refused is None else reached - 1
            self._records += queued - at
            self._groups += reached - at
            self._bytes += size if refused is None else _bytes_of(piece[: queued - at], framing)
            self._group_key, self._group_part = records[reached - 1][3][:GROUP_BYTES], self._part
            self._wanted = True
            if refused is not None:
                too_large(queued, refused)
            at = reached

    def _cut_piece(self, records: list[PlainChange], at: int, framing: int) -> tuple[list[PlainChange], int]:
        """Return the records from `at` on to queue before the next look at the transaction's age, and their bytes."""
        until = min(len(records), at + self._most_records - self._records, at + _MOST_UNTIMED)
        room = min(self._size.most_bytes - self._bytes, _MOST_UNTIMED_BYTES)
        piece = records[at:until]
        size = _bytes_of(piece, framing)
        if size >= room:
            # The record that reaches the limit is the last one.
            sizes = (len(key) + len(value) + framing for _, key, value, _ in piece)
            del piece[1 + sum(1 for _ in takewhile(room.__gt__, accumulate(sizes))) :]
            size = _bytes_of(piece, framing)
        return piece, size

    def finish(self) -> LaneProgress:
        """Commit the rest, with the lane's cursor at the micro-batch's end; return the committed progress."""
        left, _ = self._require_task()
        if not left.finished:
            if not self._is_open:
                self._begin()
            self._commit(left.completed())
        self._remainder = None
        assert self._committed is not None
        return self._committed

    def write_progress(self, progress: LaneProgress, *, instead_of: LaneProgress | None) -> None:
        """Open the id and commit a progress record alone, with our fencing token.

        Args:
            progress: the record.
            instead_of: the committed progress that it replaces; None for a lane without progress.

        Raises:
            RetriableError: the committed progress is not `instead_of`. Another job has gone on with the lane, and
                writing over its cursor would publish its changes twice.
        """
        self._reopen()
        if self._committed != instead_of:
            raise RetriableError(
                f"lane {progress.lane}: its progress has changed since it was read; another job of the same name is "
                "running"
            )
        self._begin()
        self._commit(progress)

    def open(self) -> LaneProgress | None:
        """Open the id, which fences every older owner; return the committed progress, None when there is none."""
        self._reopen()
        return self._committed

    def close(self) -> None:
        """Close the producer. An open transaction is aborted, because it would hide the records of later ones."""
        producer, self._producer, self._committed, self._remainder = self._producer, None, None, None
        if producer is None:
            return
        if self._is_open:
            self._is_open = False
            self._count(LaneCounters(aborts=1))
            self._size.note_abort()
            producer.abort()
        producer.close()

    def _require_task(self) -> tuple[Remainder, Transactions]:
        if self._remainder is None or self._producer is None:
            raise AssertionError("call start before publish and finish")
        return self._remainder, self._producer

    @property
    def _is_full(self) -> bool:
        return (
            self._records >= self._most_records
            or self._bytes >= self._size.most_bytes
            or self._clock() - self._began_s >= self._most_s
        )

    def _last_position(self) -> LanePosition:
        """Return the position of the last group."""
        return LanePosition(self._group_part, group_of(self._group_key))

    def _position_of(self, record: PlainChange) -> LanePosition:
        return LanePosition(self._part, group_of(record[3]))

    def _reopen(self) -> None:
        self.close()
        producer = self._make_producer()
        self._producer = producer
        # The committed progress is final only after we own the id.
        producer.init()
        raw = self._read_progress()
        self._committed = None if raw is None else LaneProgress.from_bytes(raw)

    def _begin(self) -> None:
        assert self._producer is not None
        self._producer.begin()
        self._began_s = self._clock()
        self._is_open = True
        self._records = self._tombstones = self._dead_letters = self._bytes = 0

    def _commit(self, progress: LaneProgress) -> None:
        assert self._producer is not None
        # Unknown until the commit has succeeded.
        self._committed = None
        progress = replace(progress, owner=self._owner)
        self._producer.produce(
            self._progress_topic, str(progress.lane).encode(), progress.to_bytes(), {}, partition=progress.lane
        )
        commit_s = self._clock()
        self._producer.commit()
        self._is_open = False
        self._size.note_commit(self._bytes, self._clock() - commit_s)
        self._committed = progress
        self._count(
            LaneCounters(
                changes=self._records - self._tombstones - self._dead_letters,
                dead_letters=self._dead_letters,
                value_bytes=self._bytes,
                groups=self._groups,
                transactions=1,
            )
        )
        self._groups = 0


_key: Final = itemgetter(1)
_value: Final = itemgetter(2)


def _bytes_of(records: Sequence[PlainChange], framing: int) -> int:
    """Return the bytes of keys and values with their frames."""
    # Joining takes less time than adding up the lengths.
    return len(b"".join(map(_key, records))) + len(b"".join(map(_value, records))) + framing * len(records)
