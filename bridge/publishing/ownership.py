"""Taking a table's lanes over from whoever has them, so that of several jobs that start at once at most one has all.

Each lane is written in a transaction of its own. What makes them one is the order: whoever is refused on the first lane
writes no other, a new layout is laid only by whoever has taken every lane over under the former one, lanes that are
new with it come last, and whoever has laid them looks at the first one once more before work begins.
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
        publisher: gives the publisher of a lane, and closes it.
        owner: the query's name, as the publishers have it.
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
        """Have every lane that has progress say that it is ours; gives the committed progress by lane.

        Whoever holds the lanes is fenced: their open transactions are settled, what they try next fails, and their
        later attempts publish nothing. What this gives stood in all lanes at one time, whatever others were writing.

        Args:
            count: how many lanes there may be.

        Raises:
            RetriableError: a lane has changed meanwhile, or there are more than were counted. Some may be ours now;
                whoever starts anew goes on from there.
        """
        found = self._open(range(count))
        widest = max((at.layout.lanes for at in found.values()), default=0)
        if widest > count:
            # Those beyond would look as if nobody had ever worked there.
            raise RetriableError(
                f"there are {widest} lanes and not {count}; another job named alike has just laid them, or a broker "
                "lags behind with the partitions of the progress topic"
            )
        self._write(sorted(found), found, found)
        if found and (late := self._open([lane for lane in range(count) if lane not in found])):
            raise RetriableError(
                f"lane {min(late)}: it was laid while the others were read; another job named alike is starting"
            )
        return {lane: replace(at, owner=self._owner) for lane, at in found.items()}

    def _open(self, lanes: Sequence[int]) -> dict[int, LaneProgress]:
        def opened(lane: int) -> LaneProgress | None:
            with self._publisher(lane) as publisher:
                return publisher.open()

        with ThreadPoolExecutor(self._at_once) as threads:
            found = zip(lanes, threads.map(opened, lanes), strict=True)
            return {lane: at for lane, at in found if at is not None}

    def assign(self, laid: Mapping[int, LaneProgress], taken: Mapping[int, LaneProgress]) -> None:
        """Write a layout into all lanes, those included that it drops: theirs says that they are retired.

        Args:
            laid: by lane; since a cursor at which every lane stands.
            taken: what `acquire` gave.

        Raises:
            RetriableError: somebody else has taken the table over. Some lanes may have the layout, but then nobody has
                worked under another one since.
        """
        self._write(sorted(taken), laid, taken)
        self._write(sorted(laid.keys() - taken.keys()), laid, taken)
        # LaneOwnership that are new refuse nobody. Whoever takes the first one over after this sees them all.
        first = min(laid)
        with self._publisher(first) as publisher:
            at = publisher.open()
        if at is None or at.owner != self._owner:
            raise RetriableError(f"lane {first}: another job named alike has taken it over while the lanes were laid")

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
