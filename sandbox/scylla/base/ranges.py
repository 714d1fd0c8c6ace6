"""Range tombstones: removes their overlaps, and finds the rows that they cover (spec section 2.2). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import Bound
from sandbox.scylla.values.ordering import ClusteringOrder, Key, Position


@dataclass(frozen=True, slots=True)
class RangeState:
    """A range tombstone; ends as in `RangeDelete`."""

    start: Bound | None
    end: Bound | None
    deleted_us: UnixMicros


def normalized(ranges: Collection[RangeState], order: ClusteringOrder) -> list[RangeState]:
    """Return range tombstones without overlaps: the latest one wins, and empty ranges are dropped."""
    if not ranges:
        return []
    placed = [(_edge(entry.start, "start", order), _edge(entry.end, "end", order), entry) for entry in ranges]
    placed = [entry for entry in placed if entry[0][0] < entry[1][0]]
    edges = sorted((edge for start, end, _entry in placed for edge in (start, end)), key=lambda edge: edge[0])
    found: list[tuple[_Edge, _Edge, UnixMicros]] = []
    for low, high in pairwise(edges):
        held = [entry.deleted_us for start, end, entry in placed if start[0] <= low[0] < end[0]]
        if not held or low[0] == high[0]:
            continue
        latest = max(held)
        if found and found[-1][1][0] == low[0] and found[-1][2] == latest:
            found[-1] = (found[-1][0], high, latest)
        else:
            found.append((low, high, latest))
    return [
        RangeState(
            Bound(start, start_weight < 0) if start else None, Bound(end, end_weight > 0) if end else None, deleted_us
        )
        for (_low, (start, start_weight)), (_high, (end, end_weight)), deleted_us in found
    ]


_Edge = tuple[Position, tuple[Key, int]]


def _edge(bound: Bound | None, side: Literal["start", "end"], order: ClusteringOrder) -> _Edge:
    outward = -1 if side == "start" else 1
    if bound is None:
        return order.position((), outward), ((), outward)
    weight = outward if bound.inclusive else -outward
    return order.position(bound.prefix, weight), (bound.prefix, weight)


def covers(entry: RangeState, place: Position, order: ClusteringOrder) -> bool:
    """Return whether a range contains the row at a position."""
    return _edge(entry.start, "start", order)[0] < place < _edge(entry.end, "end", order)[0]


def deleted_by(
    partition_us: UnixMicros | None, ranges: Iterable[RangeState], place: Position, order: ClusteringOrder
) -> UnixMicros | None:
    """Return the time of the latest partition or range tombstone that covers a row; None without one."""
    stamps = [entry.deleted_us for entry in ranges if covers(entry, place, order)]
    if partition_us is not None:
        stamps.append(partition_us)
    return max(stamps, default=None)
