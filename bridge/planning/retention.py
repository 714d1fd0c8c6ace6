"""The retention of a table's log: which changes may have expired, and which expired before they were read. Pure.

The retention edge is the write time before which changes may have expired. A cursor behind the edge stops the table
when a micro-batch is planned (`bridge.planning.data_loss`). Two kinds of expiry do not stop it: while a micro-batch is
read, and while the reading continues behind the edge because it began there or the loss is accepted. `ExpiredChanges`
reports these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bridge.model.micro_batch import PlannedBatch
from bridge.model.times import UnixMicros, iso_of_micros
from bridge.planning.data_loss import Gap

_REPORT_EVERY_US: Final = 30_000_000
_US_PER_S: Final = 1_000_000
_MOST_SPANS: Final = 16
_FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class LogTtl:
    """The TTLs of a log over time. A change keeps the TTL that the log had when the change was written.

    Attributes:
        spans: write time (us) from which a TTL holds, and the TTL in s (0 keeps changes for ever), ascending. The first
            TTL also counts for all earlier changes, because no earlier TTL is known.
        log_id: id of the log table; None if it is not known.
    """

    spans: tuple[tuple[UnixMicros, int], ...] = ()
    log_id: UUID | None = None

    def observe(
        self, ttl_s: int, now_us: UnixMicros, log_id: UUID | None = None, *, last_look_us: UnixMicros | None = None
    ) -> LogTtl:
        """Return the TTLs after a look at the log's option; those of another log are forgotten.

        The time of an ALTER TABLE is not known. A longer TTL counts from this look on, a shorter one from the last look
        on.

        Args:
            ttl_s: the value of the option in s.
            now_us: the servers' time in us.
            log_id: id of the log table.
            last_look_us: time (us) of the last look that found the former value; None if only an earlier job knows it.
        """
        if log_id != self.log_id or not self.spans:
            return LogTtl(((now_us, ttl_s),), log_id)
        last_us, last_s = self.spans[-1]
        if last_s == ttl_s:
            return self
        is_shorter = (ttl_s or _FOR_EVER) < (last_s or _FOR_EVER)
        shorter_since_us = last_us + 1 if last_look_us is None else max(last_us + 1, last_look_us)
        since_us = UnixMicros(shorter_since_us) if is_shorter else now_us
        return LogTtl((*self.spans, (since_us, ttl_s))[-_MOST_SPANS:], log_id)

    def edge_us(self, now_us: UnixMicros) -> UnixMicros | None:
        """Return the retention edge in us; None if changes do not expire.

        A lowered TTL counts only when a change from after the ALTER TABLE has expired. Older changes may still exist.
        """
        ends = [since_us for since_us, _ in self.spans[1:]]
        edges: list[UnixMicros] = []
        for place, (since_us, ttl_s) in enumerate(self.spans):
            if ttl_s == 0:
                continue
            edge_us = UnixMicros(now_us - ttl_s * _US_PER_S)
            if place and edge_us <= since_us:
                continue
            edges.append(min(edge_us, ends[place]) if place < len(ends) else edge_us)
        return max(edges, default=None)


class ExpiredChanges:
    """Collects the spans of write time whose changes may have expired unread, and words their reports.

    Every span is reported once. Reports are at least 30 s of edge time apart. A method that returns a text returns an
    empty one if there is nothing to report.

    Attributes:
        is_behind_edge: whether the reading continues behind the retention edge.
    """

    def __init__(self, *, at_edge: bool = False, skips_first_batch: bool = False) -> None:
        """Begin at a table's start.

        Args:
            at_edge: whether the reading may begin at the retention edge or behind it.
            skips_first_batch: whether changes of the first micro-batch that expire unread are not reported.
        """
        self.is_behind_edge = at_edge
        self._skips_next_batch = skips_first_batch
        self._batch: PlannedBatch | None = None
        self._handled_until_us = UnixMicros(0)
        self._unreported: tuple[UnixMicros, UnixMicros] | None = None
        self._reported_at_us: UnixMicros | None = None
        self._behind_since_us: UnixMicros | None = None
        self._expired_us = 0

    def begin_batch(self, batch: PlannedBatch) -> None:
        """Record the micro-batch that is read from now on."""
        self._batch = batch
        if self._skips_next_batch:
            self._handled_until_us = batch.next.reached_us
        self._skips_next_batch = False

    def end_batch(self, edge_us: UnixMicros | None) -> str:
        """Record that the last micro-batch is read, and return the report that is due.

        Args:
            edge_us: the retention edge in us; None if changes do not expire.
        """
        batch, self._batch = self._batch, None
        if edge_us is None:
            return ""
        if batch is not None:
            self._add_span(batch.start.reached_us, edge_us)
        if self._unreported is None or self._has_reported_near(edge_us):
            return ""
        self._reported_at_us = edge_us
        return self.report_rest()

    def report_rest(self) -> str:
        """Return the report of the spans that are held back; call it when no further micro-batch will follow."""
        if self._unreported is None:
            return ""
        (since_us, until_us), self._unreported = self._unreported, None
        written = f"changes written between {iso_of_micros(since_us)} and {iso_of_micros(until_us)}"
        if self.is_behind_edge:
            return f"the reading is behind the log's TTL: {written} may have expired unread; going on"
        return f"the log's TTL has overtaken a micro-batch while it was read: {written} may have expired unread"

    def accept_gap(self, gap: Gap) -> None:
        """Record that a gap is reported and accepted. The reading continues where it is, behind the edge."""
        assert gap.until_us is not None
        self.is_behind_edge = True
        self._add_span(gap.since_us, gap.until_us)
        self._unreported, self._reported_at_us = None, gap.until_us

    def leave_edge(self) -> str:
        """Record that the reading is ahead of the edge, and return a summary of what expired since it was behind."""
        since_us, expired_us, was_behind = self._behind_since_us, self._expired_us, self.is_behind_edge
        self.is_behind_edge, self._behind_since_us, self._expired_us = False, None, 0
        if not was_behind or since_us is None:
            return ""
        self._unreported = None
        return (
            f"the reading is ahead of the log's TTL again; of the changes written between {iso_of_micros(since_us)} "
            f"and {iso_of_micros(self._handled_until_us)}, {expired_us / _US_PER_S:.1f} s may have expired unread"
        )

    def _has_reported_near(self, edge_us: UnixMicros) -> bool:
        # The edge of a log that was created again may lie further back, hence the absolute difference.
        return self._reported_at_us is not None and abs(edge_us - self._reported_at_us) < _REPORT_EVERY_US

    def _add_span(self, since_us: UnixMicros, until_us: UnixMicros) -> None:
        since_us = max(since_us, self._handled_until_us)
        if since_us >= until_us:
            return
        self._handled_until_us = until_us
        self._unreported = (since_us if self._unreported is None else self._unreported[0], until_us)
        if self.is_behind_edge:
            self._behind_since_us = since_us if self._behind_since_us is None else self._behind_since_us
            self._expired_us += until_us - since_us
