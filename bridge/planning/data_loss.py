"""Finds changes that a cursor still needs but the cluster lacks, and where the reading could continue. Pure.

There are four causes. Changes expire, each by the TTL that the log had when the change was written. ScyllaDB deletes
an old stream set of a tablets table when a younger one is as old as the TTL, and then the former streams are not known.
The cluster does not know the cursor's generation, because it is another cluster or was restored. And somebody may drop
the table and create it again.
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
"""The first stream set of a log may be older than the log by so much."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A span of write time whose changes can't be read, or may have expired.

    Attributes:
        reason: the cause.
        since_us: begin of the span in us, inclusive.
        until_us: end of the span in us, exclusive; None if it is not known.
        go_on_at: the cursor where the reading can continue if the loss is accepted; None if it can't continue, because
            the cursor does not belong to the cluster.
        passing: whether the cause may be a node that lags behind, so that a retry may find no gap.
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
        """Return the error that stops a table: RetriableError if a retry may help, otherwise DataLossError."""
        if self.passing:
            return RetriableError(f"{table}: {self}, unless the node that answered lags behind. It is asked again")
        return DataLossError(f"{table}: {self}. {self.advice()}")

    def advice(self) -> str:
        """Return how to continue."""
        if self.go_on_at is None:
            return (
                "The progress is kept. Check scylla.contact_points, that all nodes are up and that system_distributed "
                "is repaired, then restart the job: if the cluster knows the generation again, nothing is lost. "
                "Otherwise see 'Unknown generation' in docs/failures.md"
            )
        where = iso_of_micros(self.go_on_at.reached_us)
        return f"To continue from {where} in spite of the loss, set reading.accept_data_loss"


def find_gap(
    cursor: Cursor,
    generations: Sequence[GenerationStart],
    edge_us: UnixMicros | None,
    *,
    may_lag: bool = False,
    log_made_us: UnixMicros | None = None,
) -> Gap | None:
    """Return the gap between a cursor and what the cluster still has; None if there is none.

    Args:
        cursor: how far the table is read.
        generations: the generations that the cluster knows, ascending.
        edge_us: the retention edge in us; None if changes do not expire.
        may_lag: whether the node that answered may know less than another node, as with tablets, or with vnodes
            while ScyllaDB moves to its newer tables.
        log_made_us: when the log table was created, in us; None if that is not known.
    """
    known = [one.start_ms for one in generations]
    if not known:
        # There is a generation, because the table was read in it: ScyllaDB cannot show it at the moment.
        reason = "the cluster knows no generation of this table"
        return Gap(reason, cursor.reached_us, None, None, passing=True)
    if cursor.generation_ms not in known:
        return _gap_without_generation(cursor, known, may_lag, log_made_us)
    if cursor.catch_up is not None and cursor.catch_up.after_ms not in known:
        reason = f"the cluster has forgotten which streams generation {iso_of_millis(cursor.generation_ms)} opened"
        return Gap(reason, cursor.reached_us, cursor.time_us, Cursor(cursor.generation_ms, cursor.time_us))
    if edge_us is not None and cursor.reached_us < edge_us and not _is_younger_than(log_made_us, edge_us):
        # The reading continues at the same cursor, so that it reads what still exists.
        return Gap("the log's TTL has passed", cursor.reached_us, edge_us, cursor)
    return None


def _gap_without_generation(
    cursor: Cursor, known: Sequence[UnixMillis], may_lag: bool, log_made_us: UnixMicros | None
) -> Gap:
    """Return the gap of a cursor whose generation the cluster does not know."""
    generation = iso_of_millis(cursor.generation_ms)
    if cursor.generation_ms > known[0]:
        reason = (
            f"the cluster does not know generation {generation} ({cursor.generation_ms}), which the table is read in: "
            "it is another cluster, or was restored"
        )
        return Gap(reason, cursor.reached_us, None, None, may_lag and cursor.generation_ms > known[-1])
    first = Cursor.at_start_of(known[0])
    begun_us = millis_to_micros(cursor.generation_ms)
    if log_made_us is not None and log_made_us > begun_us + _FIRST_SET_BEFORE_LOG_US:
        reason = (
            f"the log was created again at {iso_of_micros(log_made_us)}, and does not have the streams of generation "
            f"{generation}, which was read"
        )
        return Gap(reason, min(cursor.reached_us, log_made_us), log_made_us, first)
    reason = (
        f"the cluster has forgotten the streams of generation {generation}; the oldest generation that it knows is "
        f"{iso_of_millis(known[0])}"
    )
    # A generation that is published late may begin before the time up to which the one before it was read.
    return Gap(reason, min(cursor.reached_us, first.time_us), first.time_us, first)


def _is_younger_than(log_made_us: UnixMicros | None, edge_us: UnixMicros) -> bool:
    """Return whether the log was created after the edge, so that nothing of it can have expired."""
    return log_made_us is not None and log_made_us > edge_us


def overtaken_generation(
    cursor: Cursor,
    before: Collection[UnixMillis],
    generations: Sequence[GenerationStart],
    entered_from_ms: UnixMillis | None = None,
) -> UnixMillis | None:
    """Return a generation that lies before the cursor's generation, but was published after that one was entered.

    ScyllaDB publishes generations in order, so this should not happen. The changes in its streams belong before changes
    that are already published.

    Args:
        cursor: how far the table is read.
        before: generations (start in ms) that were known when the cursor's was entered, or later.
        generations: the generations that are known now.
        entered_from_ms: the generation that was read before the cursor's; no known one lay between them. None if it is
            not known.
    """
    between = [one.start_ms for one in generations if one.start_ms < cursor.generation_ms]
    late = [at for at in between if before and min(before) < at and at not in before]
    late += [at for at in between if entered_from_ms is not None and entered_from_ms < at]
    return min(late, default=None)


def ahead_of_servers_us(cursor: Cursor, servers_us: float) -> float:
    """Return by how much a cursor is ahead of the servers' time, in us; 0 if it is not.

    The reading would miss changes that are written until then. The start of a generation is never ahead, because no
    earlier change is written to its streams.

    Args:
        cursor: how far the table is read.
        servers_us: the servers' time in us.
    """
    if cursor == Cursor.at_start_of(cursor.generation_ms):
        return 0
    return max(0, cursor.time_us - servers_us)
