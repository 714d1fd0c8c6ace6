"""Whether reading and log still meet: what is lost when they do not, for which time, and where it could go on. Pure.

Four things tear them apart. Changes expire (each by the TTL that the log had when it was written); tablets' stream sets
are collected when a younger one is as old as the TTL, so that nobody knows the streams of the time before; generations
that a cluster never published, because it is another cluster or an older state of it; and the log may be made anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.errors import BridgeError, DataLossError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, UnixMillis, iso_of_micros, iso_of_millis, millis_to_micros
from bridge.planning.micro_batches import GenerationStart

_FIRST_SET_BEFORE_LOG_US: Final = 5_000_000
"""By how much the first stream set of a log is older than the log (spec section 5.4)."""


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
