"""Whether reading and log still meet: what is lost when they do not, for which time, and where it could go on. Pure.

Four things tear them apart. Changes expire (the log's TTL; lowering it counts at once); tablets' stream sets are
collected when a younger one is as old as the TTL, so that nobody knows the streams of the time before; generations that
a cluster never published, because it is another cluster or an older state of it; and the log itself may be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.instants import iso_of_micros, iso_of_millis
from bridge.model.cursors import Cursor
from bridge.model.times import UnixMicros
from bridge.planning import GenerationStart


@dataclass(frozen=True, slots=True)
class Gap:
    """What can't be read, or may not be there any more.

    Attributes:
        reason: what has happened.
        since_us: the write time from which changes are affected, inclusive.
        until_us: exclusive; None when nobody can say.
        go_on_at: from where reading can go on if the loss is accepted; None when it can't, because cursor and cluster
            have nothing to do with each other.
    """

    reason: str
    since_us: UnixMicros
    until_us: UnixMicros | None
    go_on_at: Cursor | None

    def __str__(self) -> str:
        since = iso_of_micros(self.since_us)
        until = "an unknown time" if self.until_us is None else iso_of_micros(self.until_us)
        return f"{self.reason}: changes written between {since} and {until} are affected"

    def advice(self) -> str:
        """How to go on."""
        if self.go_on_at is None:
            return "To begin anew, as reading.start says, delete the progress topic and the checkpoint"
        where = iso_of_micros(self.go_on_at.reached_us)
        return f"To go on all the same, from {where}, set reading.accept_data_loss"


def find_gap(cursor: Cursor, generations: Sequence[GenerationStart], oldest_us: UnixMicros | None) -> Gap | None:
    """The gap between a cursor and what the cluster still has, if there is one.

    Args:
        cursor: what is done.
        generations: those that the cluster knows, ascending.
        oldest_us: now minus the log's TTL; None when changes do not expire.
    """
    known = [one.start_ms for one in generations]
    if not known:
        return Gap("the cluster knows no generation of this table any more", cursor.reached_us, None, None)
    if cursor.generation_ms not in known:
        if cursor.generation_ms > known[0]:
            reason = (
                f"the cluster does not know generation {iso_of_millis(cursor.generation_ms)} "
                f"({cursor.generation_ms}), in which the reading stands: it is another cluster, or was restored"
            )
            return Gap(reason, cursor.reached_us, None, None)
        first = Cursor.at_start_of(known[0])
        reason = (
            f"the streams of generation {iso_of_millis(cursor.generation_ms)} are forgotten; the oldest that are known "
            f"are those of {iso_of_millis(known[0])}"
        )
        # A generation that comes late may begin before what was read of the one before it.
        return Gap(reason, min(cursor.reached_us, first.time_us), first.time_us, first)
    if cursor.catch_up is not None and cursor.catch_up.after_ms not in known:
        reason = f"which streams generation {iso_of_millis(cursor.generation_ms)} opened is forgotten"
        return Gap(reason, cursor.reached_us, cursor.time_us, Cursor(cursor.generation_ms, cursor.time_us))
    if oldest_us is not None and cursor.reached_us < oldest_us:
        # Nothing is jumped over: what is still there is read.
        return Gap("the log's TTL has passed", cursor.reached_us, oldest_us, cursor)
    return None


def margin_us(cursor: Cursor, oldest_us: UnixMicros | None) -> int | None:
    """How far the reading is ahead of the log's TTL, in us: negative when changes expire unread; None without a TTL."""
    return None if oldest_us is None else cursor.reached_us - oldest_us
