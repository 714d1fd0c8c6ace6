"""The publishing protocol with one mistake each: what the harness must find.

Each is a change to a class or a function of the product, so that everything else stays the real code. tests/tools/chaos
finds all of them over a broker in memory. On real servers (each run ends with status 1 and says what is wrong):

    python -m tests.chaos --minutes 0.5 --seed 3 --kinds "die at a point" --variant "marker outside"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "second job" --variant "cursor before init"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "second job" --variant "random id"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "kill a worker" --variant crossing
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "clock jump" --variant "own clock"
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from bridge.errors import RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros


def cursor_before_init(publisher: type[Any]) -> None:
    """The cursor is read while an older attempt may still commit."""

    def _reopen(self: Any) -> None:
        self.close()
        raw = self._read_progress()
        self._committed = None if raw is None else LaneProgress.from_bytes(raw)
        producer = self._make_producer()
        self._producer = producer
        producer.init()

    publisher._reopen = _reopen


def marker_outside(publisher: type[Any]) -> None:
    """The cursor follows the records in a transaction of its own."""
    commit_all = publisher._commit

    def _commit(self: Any, progress: LaneProgress) -> None:
        if self._records:
            self._producer.commit()
            self._producer.begin()
        commit_all(self, progress)

    publisher._commit = _commit


def mid_group(publisher: type[Any]) -> None:
    """A transaction ends with the record that fills it, be it in the midst of a group."""
    publish = publisher.publish

    def _publish(self: Any, *record: Any, **settings: Any) -> None:
        publish(self, *record, **settings)
        if self._is_open and self._is_full:
            self._commit(self._remainder.midway(self._last_position()))

    publisher.publish = _publish


def ownerless(publisher: type[Any]) -> None:
    """A task carries its own plan out, whoever has taken the table over."""
    start = publisher.start

    def _start(self: Any, task: Any, *, fresh: bool) -> Any:
        own = self._owner

        def _reopen() -> None:
            publisher._reopen(self)
            if self._committed is not None:
                self._owner = self._committed.owner

        self._reopen = _reopen
        try:
            return start(self, task, fresh=fresh)
        finally:
            self._owner = own
            del self._reopen

    publisher.start = _start


def laid_at_once(lanes: type[Any]) -> None:
    """Nothing is taken over, and a layout goes into every lane that still stands where it stood when that was read."""
    write = lanes._write

    def acquire(self: Any, count: int) -> Any:
        return self._open(range(count))

    def _write(self: Any, numbers: Sequence[int], new: Any, instead_of: Any) -> None:
        refused = None
        for lane in numbers:
            try:
                write(self, [lane], new, instead_of)
            except RetriableError as error:
                refused = error
        if refused is not None:
            raise refused

    def assign(self: Any, laid: Any, taken: Any) -> None:
        self._write(sorted(laid), laid, taken)

    lanes.acquire, lanes._write, lanes.assign = acquire, _write, assign


def too_few_lanes(lanes: type[Any]) -> None:
    """Lanes that came to be since they were counted are nobody's."""

    def acquire(self: Any, count: int) -> Any:
        found = self._open(range(count))
        self._write(sorted(found), found, found)
        if found and self._open([lane for lane in range(count) if lane not in found]):
            raise RetriableError("laid meanwhile")
        return {lane: replace(at, owner=self._owner) for lane, at in found.items()}

    lanes.acquire = acquire


def unseen_loss(lanes: type[Any]) -> None:
    """Who has laid lanes that are new does not look whether the table was lost meanwhile."""

    def assign(self: Any, laid: Any, taken: Any) -> None:
        self._write(sorted(taken), laid, taken)
        self._write(sorted(laid.keys() - taken.keys()), laid, taken)

    lanes.assign = assign


def random_id(transactional_id: Callable[..., str]) -> Callable[..., str]:
    """Every process has an id of its own, so that nobody fences anybody."""

    def chosen(job: str, keyspace: str, table: str, lane: int) -> str:
        return f"{transactional_id(job, keyspace, table, lane)}.{os.getpid()}"

    return chosen


def crossing(plan: Callable[..., PlannedBatch | None]) -> Callable[..., PlannedBatch | None]:
    """A window goes on through a generation's end, and the next generation is entered behind it."""

    def planned(
        cursor: Cursor, now_us: UnixMicros, generations: Sequence[Any], limits: Any, layout: Layout
    ) -> PlannedBatch | None:
        batch = plan(
            cursor, now_us, [one for one in generations if one.start_ms <= cursor.generation_ms], limits, layout
        )
        following = next((one for one in generations if one.start_ms > cursor.generation_ms), None)
        if batch is None or following is None or batch.next.time_us <= following.start_us:
            return batch
        return PlannedBatch(batch.start, Cursor(following.start_ms, batch.next.time_us), layout)

    return planned


def own_clock(server_time: type[Any]) -> None:
    """Windows are planned by this machine's clock alone."""
    server_time.earlier_us = lambda self: self._own_us()


def _in_class(breaking: Callable[[type[Any]], None], name: str = "LanePublisher") -> Callable[[ModuleType], None]:
    return lambda module: breaking(getattr(module, name))


def _in_function(name: str, breaking: Callable[[Any], Any]) -> Callable[[ModuleType], None]:
    return lambda module: setattr(module, name, breaking(getattr(module, name)))


IN_JOB: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "cursor before init": ("bridge.publishing.lane_publisher", _in_class(cursor_before_init)),
    "marker outside": ("bridge.publishing.lane_publisher", _in_class(marker_outside)),
    "mid group": ("bridge.publishing.lane_publisher", _in_class(mid_group)),
    "ownerless": ("bridge.publishing.lane_publisher", _in_class(ownerless)),
    "laid at once": ("bridge.publishing.ownership", _in_class(laid_at_once, "LaneOwnership")),
    "too few lanes": ("bridge.publishing.ownership", _in_class(too_few_lanes, "LaneOwnership")),
    "unseen loss": ("bridge.publishing.ownership", _in_class(unseen_loss, "LaneOwnership")),
    "random id": ("bridge.publishing.lane_recovery", _in_function("transactional_id", random_id)),
    "own clock": ("bridge.planning.server_clock", _in_class(own_clock, "ServerTime")),
    "crossing": ("bridge.planning.micro_batches", _in_function("plan", crossing)),
}
"""For a job's processes (see `fault_points`): the module that a mistake is in, and what makes it there."""
