"""Carries out the publishing protocol for one lane: the transactions, the cursor marker, and its recovery.

One instance a process and lane, kept over micro-batches. Single-threaded.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from operator import itemgetter, length_hint
from typing import Final, Protocol

from bridge.encoding.group_encoder import EncodedRun
from bridge.errors import BridgeError, FencedError, RetriableError, TooLargeError
from bridge.model.kept_formats import LaneProgress
from bridge.model.position import GROUP_BYTES, LanePosition, group_of
from bridge.monitoring.counters import LaneCounters
from bridge.publishing.protocol import LaneTask, Remainder, remainder
from schemas.compiled.page_loop import PlainChange

_MOST_UNTIMED: Final = 256
_MOST_UNTIMED_BYTES: Final = 1 << 18
"""After so many records of a run, or bytes of these, a transaction's age is looked at: what takes longer than some ms
for this is a broker that holds us back."""


class Transactions(Protocol):
    """A producer of one transactional id; see `adapters.kafka` for what each may raise."""

    def init(self) -> None:
        """Fence older owners of the id and settle their transaction."""
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
        """Queue a record of the open transaction."""
        ...

    def produce_run(
        self, topic: str, frames: tuple[bytes, bytes], records: Iterator[PlainChange], position_header: str | None
    ) -> None:
        """Queue records of the open transaction, of which the partition follows from the key; see `publish_run`.

        They are taken one after the other; the last one taken is what an error is about.
        """
        ...

    def commit(self) -> None:
        """Commit the open transaction."""
        ...

    def abort(self) -> None:
        """Abort the open transaction."""
        ...

    def close(self) -> None:
        """Let go of the id."""
        ...


class LanePublisher:
    """Publishes one lane's records, each exactly once.

    Usage, for one planned micro-batch: `start`, then `publish` for each record in lane order, with `enter` before each
    further part, then `finish`. After any exception the outcome of the open transaction is unknown and only Kafka knows
    it: call `close` and make a new one.

    Args:
        producer: makes the producer of the lane's transactional id.
        read_progress: reads the lane's committed progress record; the id has been initialised by then, so no older
            attempt can still add to it.
        progress_topic: where the cursor goes, in the partition numbered like the lane.
        owner: whose plans are carried out; goes into each progress record, and `start` wants to find it there.
        most_records: a transaction is committed at the end of the group in which it reaches this many.
        most_bytes: the same for bytes of keys and values.
        most_s: the same for how long it has been open, in s: Kafka aborts what is open for too long, and a broker that
            holds us back makes it long.
        clock: monotonic seconds.
        count: told what each transaction came to.
    """

    def __init__(
        self,
        producer: Callable[[], Transactions],
        read_progress: Callable[[], bytes | None],
        *,
        progress_topic: str,
        owner: str,
        most_records: int,
        most_bytes: int,
        most_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[LaneCounters], None] = lambda _counters: None,
    ) -> None:
        self._make_producer = producer
        self._read_progress = read_progress
        self._progress_topic = progress_topic
        self._owner = owner
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._most_s = most_s
        self._clock = clock
        self._count = count
        self._began_s = 0.0
        self._producer: Transactions | None = None
        self._known: LaneProgress | None = None
        self._left: Remainder | None = None
        self._part = 0
        self._place = b""
        self._place_part = 0
        self._wanted = False
        self._open = False
        self._records = 0
        self._tombstones = 0
        self._dead_letters = 0
        self._bytes = 0
        self._groups = 0

    def start(self, task: LaneTask, *, fresh: bool) -> Remainder:
        """Take up a task; says what of it is left.

        Args:
            task: the lane's part of the micro-batch.
            fresh: whether to open the transactional id anew even though this process holds it: an earlier attempt at
                the same task may have gone further than we know.

        Raises:
            FencedError: another job has taken the table over since this one did. It may have planned other
                micro-batches from the same cursor, and lanes that stand in different ones have no common cursor.
            LayoutError, DataLossError, RetriableError: see `bridge.publishing.protocol.remainder` and the producer.
        """
        known = self._known
        in_step = (
            known is not None
            and known.done is None
            and known.cursor == task.batch.start
            and known.layout == task.batch.layout
        )
        if fresh or not in_step or self._producer is None:
            self._reopen()
        if self._known is not None and self._known.owner != self._owner:
            raise FencedError(
                f"{task}: another job named alike ({self._known.owner}) has taken it over from this one "
                f"({self._owner}). Stop one of the two; what is running goes on by itself"
            )
        self._left = remainder(task, self._known, self._progress_topic)
        self._part = self._place_part = 0
        self._place = b""
        self._wanted = False
        self._groups = 0
        return self._left

    def enter(self, part: int) -> None:
        """Say that the records which follow are of the micro-batch's part `part`; it begins with part 0."""
        left, _ = self._working()
        if part <= self._part:
            raise BridgeError(f"{left.task}: part {part} follows part {self._part}")
        if self._open and self._full:
            self._commit(left.midway(self._group()))
        # The group before stays in mind: the transaction has to end with it if the next one is long in coming.
        self._part = part

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

        Records come in lane order. A transaction that has reached its limits ends when the next group begins.

        Args:
            topic: the change topic, or the one of dead letters.
            key: framed key; None for a dead letter.
            value: framed value; None for a tombstone.
            position: stream id (16 bytes), timeuuid (16 bytes), batch_seq_no (4 bytes).
            headers: the record's headers.
            partition: where the record belongs; None leaves it to its key.

        Raises:
            TooLargeError: it is over the limit, and not part of the transaction; another may take its place.
        """
        left, producer = self._working()
        place = position[:GROUP_BYTES]
        if place != self._place or self._part != self._place_part:
            if self._open and self._full:
                self._commit(left.midway(self._group()))
            self._place, self._place_part = place, self._part
            self._wanted = left.wants(self._group())
            self._groups += self._wanted
        if not self._wanted:
            return
        if not self._open:
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
        """Publish records of which each is a group by itself: the same as `publish` for one after the other.

        Args:
            topic: the change topic.
            frames: what stands before each key and before each value.
            run: the records, in lane order.
            position_header: name of the header that holds them; None for no headers.
            too_large: called in place of a record that is over the limit, with its number, when those before it are
                queued; publishes another of the same position, or raises.
        """
        left, producer = self._working()
        records = run.records
        framing = len(frames[0]) + len(frames[1])
        at, end = 0, len(records)
        if left.finished:
            return
        if left.done is not None:
            at = bisect_right(records, left.done, key=self._position)
        while at < end:
            if self._open and self._full:
                self._commit(left.midway(self._group()))
            if not self._open:
                self._begin()
            until = min(end, at + self._most_records - self._records, at + _MOST_UNTIMED)
            room = min(self._most_bytes - self._bytes, _MOST_UNTIMED_BYTES)
            piece = records[at:until]
            if _bytes_of(piece, framing) >= room:
                # The record with which the limit is reached is the last one.
                sizes = (len(key) + len(value) + framing for _, key, value, _ in piece)
                del piece[1 + sum(1 for _ in takewhile(room.__gt__, accumulate(sizes))) :]
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
            self._bytes += _bytes_of(piece[: queued - at], framing)
            self._place, self._place_part = records[reached - 1][3][:GROUP_BYTES], self._part
            self._wanted = True
            if refused is not None:
                too_large(queued, refused)
            at = reached

    def finish(self) -> LaneProgress:
        """Commit the rest and move the lane's cursor to the micro-batch's end; says where the lane stands now."""
        left, _ = self._working()
        if not left.finished:
            if not self._open:
                self._begin()
            self._commit(left.completed())
        self._left = None
        assert self._known is not None
        return self._known

    def write_progress(self, progress: LaneProgress, *, instead_of: LaneProgress | None) -> None:
        """Open the id and commit a progress record alone, as ours: to take a lane over, or to lay it.

        Raises:
            RetriableError: the committed progress is not `instead_of`: another job has gone on with the lane since that
                was read, and writing over its cursor would double what it published.
        """
        self._reopen()
        if self._known != instead_of:
            raise RetriableError(
                f"lane {progress.lane}: its progress has changed since it was read; another job named alike is running"
            )
        self._begin()
        self._commit(progress)

    def open(self) -> LaneProgress | None:
        """Open the id, which fences every older owner, and say what is committed."""
        self._reopen()
        return self._known

    def close(self) -> None:
        """Let go of the id; an open transaction is aborted so that it does not hide others' records."""
        producer, self._producer, self._known, self._left = self._producer, None, None, None
        if producer is None:
            return
        if self._open:
            self._open = False
            self._count(LaneCounters(aborts=1))
            producer.abort()
        producer.close()

    def _working(self) -> tuple[Remainder, Transactions]:
        if self._left is None or self._producer is None:
            raise AssertionError("publish and finish come after start")
        return self._left, self._producer

    @property
    def _full(self) -> bool:
        return (
            self._records >= self._most_records
            or self._bytes >= self._most_bytes
            or self._clock() - self._began_s >= self._most_s
        )

    def _group(self) -> LanePosition:
        """The one that came last."""
        return LanePosition(self._place_part, group_of(self._place))

    def _position(self, record: PlainChange) -> LanePosition:
        return LanePosition(self._part, group_of(record[3]))

    def _reopen(self) -> None:
        self.close()
        producer = self._make_producer()
        self._producer = producer
        # In this order: only after the id is ours is the committed progress final.
        producer.init()
        raw = self._read_progress()
        self._known = None if raw is None else LaneProgress.from_bytes(raw)

    def _begin(self) -> None:
        assert self._producer is not None
        self._producer.begin()
        self._began_s = self._clock()
        self._open = True
        self._records = self._tombstones = self._dead_letters = self._bytes = 0

    def _commit(self, progress: LaneProgress) -> None:
        assert self._producer is not None
        self._known = None  # unknown until the commit has succeeded
        progress = replace(progress, owner=self._owner)
        self._producer.produce(
            self._progress_topic, str(progress.lane).encode(), progress.to_bytes(), {}, partition=progress.lane
        )
        self._producer.commit()
        self._open = False
        self._known = progress
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
    """Bytes of keys and values with their frames."""
    # Joined, because asking each for its length takes longer.
    return len(b"".join(map(_key, records))) + len(b"".join(map(_value, records))) + framing * len(records)
