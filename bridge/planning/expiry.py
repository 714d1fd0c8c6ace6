"""Which changes may have expired before they were read, by what a table's planner sees: each span is said. Pure.

A cursor is held against the log's TTL when a micro-batch is planned (`bridge.planning.retention`), and what lies
behind it then stops
the table. What expires later, while the micro-batch is read, and what expires where the reading goes on all the same
(it begins where changes expire, or the loss is accepted) stops nothing, so it has to be said.
"""

from __future__ import annotations

from typing import Final

from bridge.model.micro_batch import PlannedBatch
from bridge.model.times import UnixMicros, iso_of_micros
from bridge.planning.retention import Gap

_SAY_EVERY_US: Final = 30_000_000
_US_PER_S: Final = 1_000_000


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
