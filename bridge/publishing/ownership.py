"""Acquires a table's lanes from whoever owns them. When several jobs start at once, at most one of them gets all lanes.

Each lane is written in a transaction of its own. The order of the writes makes them one decision:

- A job that fails on the first lane writes no other lane.
- A job assigns a new layout only after it has acquired every lane of the former one.
- Lanes that are new in the layout come last.
- After that, the job checks the first lane once more before work begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from bridge.errors import RetriableError
from bridge.model.kept_formats import LaneProgress
from bridge.publishing.lane_publisher import LanePublisher

_LANES_AT_ONCE: Final = 16


class LaneOwnership:
    """The lanes of one table, for a query that starts.

    Args:
        publisher: opens the publisher of a lane, and closes it.
        owner: the query's fencing token, the same as the publishers have.
        at_once: how many lanes may be written at the same time.
    """

    def __init__(
        self,
        publisher: Callable[[int], AbstractContextManager[LanePublisher]],
        owner: str,
        *,
        at_once: int = _LANES_AT_ONCE,
    ) -> None:
        self._publisher = publisher
        self._owner = owner
        self._at_once = at_once

    def acquire(self, count: int) -> dict[int, LaneProgress]:
        """Write our fencing token into every lane that has progress, and return the committed progress by lane.

        This fences the former owner: Kafka aborts its open transactions, its next request fails, and its later attempts
        publish nothing. The returned progress stood in all lanes at one time, whatever other jobs were writing.

        Args:
            count: how many lanes there may be.

        Raises:
            RetriableError: a lane has changed meanwhile, or there are more lanes than `count`. We may own some lanes by
                then; the next attempt starts from there.
        """
        found = self._open(range(count))
        widest = max((at.layout.lanes for at in found.values()), default=0)
        if widest > count:
            # Without this check the lanes beyond `count` would look as if they were new.
            raise RetriableError(
                f"there are {widest} lanes and not {count}. Either another job of the same name has just assigned "
                "them, or a broker does not know all partitions of the progress topic yet"
            )
        self._write(sorted(found), found, found)
        if found and (late := self._open([lane for lane in range(count) if lane not in found])):
            raise RetriableError(
                f"lane {min(late)}: another job of the same name is starting; it assigned this lane while the others "
                "were read"
            )
        return {lane: replace(at, owner=self._owner) for lane, at in found.items()}

    def assign(self, layout: Mapping[int, LaneProgress], acquired: Mapping[int, LaneProgress]) -> None:
        """Write a layout into all lanes. Lanes that the layout drops get it too, which marks them as retired.

        Args:
            layout: the new progress by lane, at a cursor at which every lane stands.
            acquired: what `acquire` returned.

        Raises:
            RetriableError: another job has acquired the table. Some lanes may have the layout, but no job has worked
                under another one since.
        """
        self._write(sorted(acquired), layout, acquired)
        self._write(sorted(layout.keys() - acquired.keys()), layout, acquired)
        # A new lane has no owner that a write could be checked against. Whoever acquires the first lane after this
        # finds all the others.
        first = min(layout)
        with self._publisher(first) as publisher:
            at = publisher.open()
        if at is None or at.owner != self._owner:
            raise RetriableError(
                f"lane {first}: another job of the same name has acquired it while the lanes were assigned"
            )

    def _open(self, lanes: Sequence[int]) -> dict[int, LaneProgress]:
        def opened(lane: int) -> LaneProgress | None:
            with self._publisher(lane) as publisher:
                return publisher.open()

        with ThreadPoolExecutor(self._at_once) as threads:
            found = zip(lanes, threads.map(opened, lanes), strict=True)
            return {lane: at for lane, at in found if at is not None}

    def _write(
        self, lanes: Sequence[int], new: Mapping[int, LaneProgress], instead_of: Mapping[int, LaneProgress]
    ) -> None:
        def write(lane: int) -> None:
            with self._publisher(lane) as publisher:
                publisher.write_progress(new[lane], instead_of=instead_of.get(lane))

        if lanes:
            write(lanes[0])
        with ThreadPoolExecutor(self._at_once) as threads:
            list(threads.map(write, lanes[1:]))
