"""Which changes may have expired before they were read, by what a table's planner sees: each span is said. Pure.

A cursor is held against the log's TTL when a micro-batch is planned (`bridge.planning.retention`), and what lies
behind it then stops
the table. What expires later, while the micro-batch is read, and what expires where the reading goes on all the same
(it begins where changes expire, or the loss is accepted) stops nothing, so it has to be said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bridge.model.micro_batch import PlannedBatch
from bridge.model.times import UnixMicros, iso_of_micros
from bridge.planning.data_loss import Gap

_SAY_EVERY_US: Final = 30_000_000
_US_PER_S: Final = 1_000_000


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


class Expiry:
    """What has expired of one table, as far as nothing else says it. Its clock is the edge.

    The edge is the write time before which changes may have expired (`bridge.planning.retention.LogTtl.oldest_us`).

    Attributes:
        goes_on: whether the reading goes on although the edge has overtaken it.
    """

    def __init__(self, *, at_edge: bool = False, in_silence: bool = False) -> None:
        """Say where the reading begins.

        Args:
            at_edge: whether it may begin where changes are just expiring.
            in_silence: whether what expires of the first micro-batch need not be said: nobody was promised that.
        """
        self.goes_on = at_edge
        self._in_silence = in_silence
        self._batch: PlannedBatch | None = None
        self._seen_until_us = UnixMicros(0)
        self._unsaid: tuple[UnixMicros, UnixMicros] | None = None
        self._said_at_us: UnixMicros | None = None
        self._since_us: UnixMicros | None = None
        self._passed_us = 0

    def works(self, batch: PlannedBatch) -> None:
        """Note the micro-batch that is worked from now on."""
        self._batch = batch
        if self._in_silence:
            self._seen_until_us = batch.next.reached_us
        self._in_silence = False

    def done(self, edge_us: UnixMicros | None) -> str:
        """What is to be said when the next micro-batch is asked for, so that the one before is done; mostly nothing.

        Args:
            edge_us: where it is now; None while changes do not expire.
        """
        batch, self._batch = self._batch, None
        if edge_us is None:
            return ""
        if batch is not None:
            self._pass(batch.start.reached_us, edge_us)
        if self._unsaid is None or self._was_said_at(edge_us):
            return ""
        self._said_at_us = edge_us
        return self.rest()

    def rest(self) -> str:
        """What is kept back until enough of it has come together; to be said when nobody will ask again."""
        if self._unsaid is None:
            return ""
        (since_us, until_us), self._unsaid = self._unsaid, None
        between = f"between {iso_of_micros(since_us)} and {iso_of_micros(until_us)}"
        if self.goes_on:
            return f"the reading is behind the log's TTL: what was written {between} may have expired unread; going on"
        return (
            f"the log's TTL has overtaken a micro-batch while it was read: what was written {between} may have expired "
            "unread"
        )

    def accepted(self, gap: Gap) -> None:
        """Note that a gap is said and accepted, so that the reading goes on where it is, behind the edge."""
        assert gap.until_us is not None
        self.goes_on = True
        self._pass(gap.since_us, gap.until_us)
        self._unsaid, self._said_at_us = None, gap.until_us

    def ahead(self) -> str:
        """What is to be said when the reading is ahead of the edge: how much it has passed over since it was not."""
        since_us, passed_us, went_on = self._since_us, self._passed_us, self.goes_on
        self.goes_on, self._since_us, self._passed_us = False, None, 0
        if not went_on or since_us is None:
            return ""
        self._unsaid = None
        return (
            f"the reading is ahead of the log's TTL now; of what was written between {iso_of_micros(since_us)} and "
            f"{iso_of_micros(self._seen_until_us)}, {passed_us / _US_PER_S:.1f} s may have expired unread"
        )

    def _was_said_at(self, edge_us: UnixMicros) -> bool:
        # The log of a table that was made anew may have an edge that lies further back.
        return self._said_at_us is not None and abs(edge_us - self._said_at_us) < _SAY_EVERY_US

    def _pass(self, since_us: UnixMicros, until_us: UnixMicros) -> None:
        since_us = max(since_us, self._seen_until_us)
        if since_us >= until_us:
            return
        self._seen_until_us = until_us
        self._unsaid = (since_us if self._unsaid is None else self._unsaid[0], until_us)
        if self.goes_on:
            self._since_us = since_us if self._since_us is None else self._since_us
            self._passed_us += until_us - since_us
