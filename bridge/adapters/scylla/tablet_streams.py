"""The stream sets of one table in a tablets keyspace: `system.cdc_timestamps` and `system.cdc_streams`.

Both are virtual tables: each node shows what it knows itself, and the nodes learn of a change at different times. So
all pages of a list come from one node, and the content shows whether a list is complete:

- The last stream of a set ends the token ring.
- A set has the streams of the set before it, less those that it closes, plus those that it opens. The oldest set that
  is left opens all of its streams.

No query filters by `stream_id`: the table's rows are in token order, not in the order of that column, so ScyllaDB's
answer would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.adapters.scylla.session import CqlSession
from bridge.errors import RetriableError
from bridge.model.key_ranges import KeyRange, ranges_of_tablets
from bridge.model.streams import MAX_TOKEN, StreamId, Streams, TokenRange
from bridge.model.times import UnixMillis, millis_of
from bridge.planning.micro_batches import GenerationStart

_TIMES: Final = "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?"
_SETS: Final = (
    "SELECT timestamp, stream_state, stream_id FROM system.cdc_streams "
    "WHERE keyspace_name = ? AND table_name = ? AND timestamp <= ?"
)
_CURRENT: Final = 0
_CLOSED: Final = 1
_OPENED: Final = 2


@dataclass(frozen=True, slots=True)
class _StreamSet:
    """The streams that a node lists for one timestamp."""

    current: set[bytes] = field(default_factory=set)
    closed: set[bytes] = field(default_factory=set)
    opened: set[bytes] = field(default_factory=set)

    def is_complete(self, before: _StreamSet | None) -> bool:
        """Return whether no stream is missing.

        Args:
            before: the set before; None if ScyllaDB has deleted it.
        """
        if not any(StreamId(raw).token == MAX_TOKEN for raw in self.current):
            return False
        if before is None:
            return self.current == self.opened
        return self.current == (before.current - self.closed) | self.opened


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one node knows.

    Attributes:
        node: its address.
        sets: the stream sets by their timestamps.
    """

    node: str
    sets: Mapping[UnixMillis, _StreamSet]


class TabletStreams:
    """The stream sets of one table in a tablets keyspace, as the contacted node knows them.

    An answer that is older than a previous one is ignored. An answer that lacks streams is an error.

    Args:
        session: connected to the cluster.
        keyspace: the table's.
        table: name of the base table.
    """

    may_lag = True
    shared = False

    def __init__(self, session: CqlSession, keyspace: str, table: str) -> None:
        self._session = session
        self._table = (keyspace, table)
        self._newest: list[GenerationStart] = []

    def generations(self) -> list[GenerationStart]:
        """The published generations, ascending; ScyllaDB deletes old ones after a while."""
        known = {one.start_ms: one for one in self._newest}
        starts_ms = sorted(millis_of(row["timestamp"]) for row in self._session.rows(_TIMES, self._table))
        new_ms = [start_ms for start_ms in starts_ms if start_ms not in known]
        answer = self._ask(new_ms[-1]) if new_ms else None
        found: list[GenerationStart] = []
        for start_ms in starts_ms:
            start = known.get(start_ms)
            if start is None:
                new = None if answer is None else self._complete_set(answer, start_ms)
                if new is None:
                    break  # another node answered, which does not know this one yet
                start = GenerationStart(start_ms, replaces_all=new.current <= new.opened)
            found.append(start)
        if found and (not self._newest or found[-1].start_ms >= self._newest[-1].start_ms):
            self._newest = found
        return self._newest

    def streams(self, generation_ms: UnixMillis, within: TokenRange) -> Streams:
        """The streams of a generation whose token lies in a slice of the ring.

        ScyllaDB deletes old timestamps, and with them when a stream was opened; the oldest kept one then replaces it.
        """
        answer = self._ask(generation_ms)
        current = self._known_set(answer, generation_ms).current
        opened = {raw: start_ms for start_ms, one in answer.sets.items() for raw in one.opened}
        return {
            stream: opened.get(stream.raw, generation_ms)
            for stream in map(StreamId, sorted(current))
            if stream.token in within
        }

    def key_ranges(self, generation_ms: UnixMillis, within: TokenRange) -> Mapping[StreamId, KeyRange]:
        """The ranges of the keys of a generation's streams; a stream has the same range in each of its stream sets."""
        return ranges_of_tablets(map(StreamId, self._known_set(self._ask(generation_ms), generation_ms).current))

    def count(self, generation_ms: UnixMillis) -> int:
        """How many streams a generation has; 0 if the contacted node does not know the generation yet."""
        found = self._complete_set(self._ask(generation_ms), generation_ms)
        return 0 if found is None else len(found.current)

    def _ask(self, until_ms: UnixMillis) -> _Answer:
        answer = self._session.node_rows(_SETS, (*self._table, until_ms))
        return _Answer(answer.node, _sets_of_rows(answer.rows))

    def _known_set(self, answer: _Answer, generation_ms: UnixMillis) -> _StreamSet:
        found = self._complete_set(answer, generation_ms)
        if found is None:
            raise RetriableError(
                f"{'.'.join(self._table)}: the streams of {generation_ms} are not known at {answer.node}: "
                "the node lags behind, or ScyllaDB has deleted them because the log's TTL has passed"
            )
        return found

    def _complete_set(self, answer: _Answer, generation_ms: UnixMillis) -> _StreamSet | None:
        """Return the set of a generation; None if the node does not know it.

        Raises:
            RetriableError: the answer lacks some of its streams.
        """
        found = answer.sets.get(generation_ms)
        before = max((start_ms for start_ms in answer.sets if start_ms < generation_ms), default=None)
        if found is None or found.is_complete(None if before is None else answer.sets[before]):
            return found
        raise RetriableError(
            f"{'.'.join(self._table)}: the list of the streams of generation {generation_ms} from ScyllaDB's node "
            f"{answer.node} is incomplete ({len(found.current)} streams): the node is learning of a change of the "
            "tablets. The list is read again"
        )


def _sets_of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[UnixMillis, _StreamSet]:
    found: dict[UnixMillis, _StreamSet] = {}
    for row in rows:
        one = found.setdefault(millis_of(row["timestamp"]), _StreamSet())
        state: int = row["stream_state"]
        listed = {_CURRENT: one.current, _CLOSED: one.closed, _OPENED: one.opened}.get(state)
        if listed is not None:
            listed.add(bytes(row["stream_id"]))
    return {start_ms: one for start_ms, one in found.items() if one.current}
