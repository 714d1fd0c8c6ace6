"""Whether reading and log still meet: what is lost when they do not, for which time, and where it could go on. Pure.

Four things tear them apart. Changes expire (each by the TTL that the log had when it was written); tablets' stream sets
are collected when a younger one is as old as the TTL, so that nobody knows the streams of the time before; generations
that a cluster never published, because it is another cluster or an older state of it; and the log may be made anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bridge.errors import BridgeError, DataLossError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import canonical_json
from bridge.model.times import UnixMicros, UnixMillis, iso_of_micros, iso_of_millis, millis_to_micros
from bridge.planning.micro_batches import GenerationStart

_FIRST_SET_BEFORE_LOG_US: Final = 5_000_000
"""By how much the first stream set of a log is older than the log (spec section 5.4)."""
_MOST_SPANS: Final = 16
_FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class LogTtl:
    """For how long the log keeps changes, as far as it is known: a change keeps the TTL that it was written under.

    Attributes:
        spans: from which write time on (in us) which TTL in s holds, ascending; 0 is for ever. The first one stands for
            everything before it, too: what the TTL was then, nobody says.
        log_id: of the log table; None when that is not known.
    """

    spans: tuple[tuple[UnixMicros, int], ...] = ()
    log_id: UUID | None = None

    def seen(
        self, ttl_s: int, now_us: UnixMicros, log_id: UUID | None = None, *, looked_us: UnixMicros | None = None
    ) -> LogTtl:
        """The same after a look at the log's option; of another log, what was known of the former is forgotten.

        When the option was changed nobody says. A longer TTL counts from this look on, a shorter one from the last on.

        Args:
            ttl_s: what the option says.
            now_us: this moment, by the servers' clocks.
            log_id: of the log table.
            looked_us: when it said what it said before, for the last time; None where only another job knows.
        """
        if log_id != self.log_id or not self.spans:
            return LogTtl(((now_us, ttl_s),), log_id)
        last_us, last_s = self.spans[-1]
        if last_s == ttl_s:
            return self
        is_shorter = (ttl_s or _FOR_EVER) < (last_s or _FOR_EVER)
        since_us = now_us if not is_shorter else last_us + 1 if looked_us is None else max(last_us + 1, looked_us)
        return LogTtl((*self.spans, (UnixMicros(since_us), ttl_s))[-_MOST_SPANS:], log_id)

    def to_text(self) -> str:
        """As JSON, for the next one that plans."""
        return canonical_json({"log": str(self.log_id), "spans": [list(span) for span in self.spans]})

    @classmethod
    def from_text(cls, text: str) -> LogTtl:
        """What `to_text` gave; nothing is known from anything else, such as what was being written when a job died."""
        try:
            value = json.loads(text)
            spans = tuple((UnixMicros(int(since_us)), int(ttl_s)) for since_us, ttl_s in value["spans"])
            return cls(spans, None if value["log"] == "None" else UUID(value["log"]))
        except (ValueError, TypeError, KeyError):
            return cls()

    def oldest_us(self, now_us: UnixMicros) -> UnixMicros | None:
        """Before which write time changes may have expired; None when none do.

        After a lowered TTL that is only so once a change from after it has expired; what is older may still be there.
        """
        ends = [since_us for since_us, _ in self.spans[1:]]
        edges: list[UnixMicros] = []
        for place, (since_us, ttl_s) in enumerate(self.spans):
            if ttl_s == 0:
                continue
            edge_us = UnixMicros(now_us - ttl_s * 1_000_000)
            if place and edge_us <= since_us:
                continue
            edges.append(min(edge_us, ends[place]) if place < len(ends) else edge_us)
        return max(edges, default=None)


@dataclass(frozen=True, slots=True)
class Gap:
    """What can't be read, or may not be there any more.

    Attributes:
        reason: what has happened.
        since_us: the write time from which changes are affected, inclusive.
        until_us: exclusive; None when nobody can say.
        go_on_at: from where reading can go on if the loss is accepted; None when it can't, because cursor and cluster
            have nothing to do with each other.
        passing: whether it may only seem so, because a node answered that does not know the latest yet.
    """

    reason: str
    since_us: UnixMicros
    until_us: UnixMicros | None
    go_on_at: Cursor | None
    passing: bool = False

    def __str__(self) -> str:
        since = iso_of_micros(self.since_us)
        until = "an unknown time" if self.until_us is None else iso_of_micros(self.until_us)
        return f"{self.reason}: changes written between {since} and {until} are affected"

    def error(self, table: str) -> BridgeError:
        """The error that stops a table, or lets it be tried again if that may help."""
        if self.passing:
            return RetriableError(f"{table}: {self}, unless the node that answered lags behind")
        return DataLossError(f"{table}: {self}. {self.advice()}")

    def advice(self) -> str:
        """How to go on."""
        if self.go_on_at is None:
            return (
                "To begin anew, as reading.start says, stop the job and delete the progress topic and the checkpoint, "
                "and the change topic unless what it holds may come again"
            )
        where = iso_of_micros(self.go_on_at.reached_us)
        return f"To go on all the same, from {where}, set reading.accept_data_loss"


def find_gap(
    cursor: Cursor,
    generations: Sequence[GenerationStart],
    oldest_us: UnixMicros | None,
    *,
    may_lag: bool = False,
    log_made_us: UnixMicros | None = None,
) -> Gap | None:
    """The gap between a cursor and what the cluster still has, if there is one.

    Args:
        cursor: what is done.
        generations: those that the cluster knows, ascending.
        oldest_us: before which write time changes may have expired; None when they do not.
        may_lag: whether a node may know less than another, as with tablets.
        log_made_us: when the log was made; None when that is not known.
    """
    known = [one.start_ms for one in generations]
    if not known:
        reason = "the cluster knows no generation of this table any more"
        return Gap(reason, cursor.reached_us, None, None, may_lag)
    if cursor.generation_ms not in known:
        if cursor.generation_ms > known[0]:
            reason = (
                f"the cluster does not know generation {iso_of_millis(cursor.generation_ms)} "
                f"({cursor.generation_ms}), in which the reading stands: it is another cluster, or was restored"
            )
            return Gap(reason, cursor.reached_us, None, None, may_lag and cursor.generation_ms > known[-1])
        first = Cursor.at_start_of(known[0])
        begun_us = millis_to_micros(cursor.generation_ms)
        if log_made_us is not None and log_made_us > begun_us + _FIRST_SET_BEFORE_LOG_US:
            reason = (
                f"the log was made anew at {iso_of_micros(log_made_us)}, and its streams are others than those of "
                f"generation {iso_of_millis(cursor.generation_ms)}, which was read"
            )
            return Gap(reason, min(cursor.reached_us, log_made_us), log_made_us, first)
        reason = (
            f"the streams of generation {iso_of_millis(cursor.generation_ms)} are forgotten; the oldest that are known "
            f"are those of {iso_of_millis(known[0])}"
        )
        # A generation that comes late may begin before what was read of the one before it.
        return Gap(reason, min(cursor.reached_us, first.time_us), first.time_us, first)
    if cursor.catch_up is not None and cursor.catch_up.after_ms not in known:
        reason = f"which streams generation {iso_of_millis(cursor.generation_ms)} opened is forgotten"
        return Gap(reason, cursor.reached_us, cursor.time_us, Cursor(cursor.generation_ms, cursor.time_us))
    if oldest_us is not None and cursor.reached_us < oldest_us and not _is_younger(log_made_us, oldest_us):
        # Nothing is jumped over: what is still there is read.
        return Gap("the log's TTL has passed", cursor.reached_us, oldest_us, cursor)
    return None


def _is_younger(log_made_us: UnixMicros | None, oldest_us: UnixMicros) -> bool:
    """Whether nothing of a log can have expired yet. What went with the one before it is no matter of the TTL."""
    return log_made_us is not None and log_made_us > oldest_us


def overtaken(
    cursor: Cursor,
    before: Collection[UnixMillis],
    generations: Sequence[GenerationStart],
    entered_from_ms: UnixMillis | None = None,
) -> UnixMillis | None:
    """A generation that has appeared between ones that were known, behind the one that is being read.

    ScyllaDB publishes in order, so this should not be. What was written to its streams belongs before changes that are
    published already.

    Args:
        cursor: what is done.
        before: the generations that were known when the cursor's was entered, or later.
        generations: those that are known now.
        entered_from_ms: the generation that was read before the cursor's, if that is known: none lay between them.
    """
    between = [one.start_ms for one in generations if one.start_ms < cursor.generation_ms]
    late = [at for at in between if before and min(before) < at and at not in before]
    late += [at for at in between if entered_from_ms is not None and entered_from_ms < at]
    return min(late, default=None)


def ahead_us(cursor: Cursor, servers_us: float) -> float:
    """By how much a cursor is ahead of the servers' time, in us; 0 when it is not.

    What is written until then with earlier times will not be read. The start of a generation is no such cursor: nothing
    earlier is written to the streams of that one.
    """
    if cursor == Cursor.at_start_of(cursor.generation_ms):
        return 0
    return max(0, cursor.time_us - servers_us)


def margin_us(cursor: Cursor, oldest_us: UnixMicros | None) -> int | None:
    """How far the reading is ahead of the log's TTL, in us: negative when changes expire unread; None without a TTL."""
    return None if oldest_us is None else cursor.reached_us - oldest_us
