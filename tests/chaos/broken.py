"""Variants of the publishing protocol with one mistake each, which the chaos tests must find.

A variant changes one class or function of the product; everything else is the real code. tests/tools/chaos finds all
variants with a broker in memory. On real servers, each of these runs ends with status 1 and prints what is wrong:

    python -m tests.chaos --minutes 0.5 --seed 3 --kinds "die at a point" --variant "progress apart"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "second job" --variant "progress before init"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "second job" --variant "random transactional id"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "kill a worker" --variant "window across generations"
    python -m tests.chaos --minutes 0.5 --seed 1 --kinds "clock jump" --variant "local clock only"
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


def progress_before_init(publisher: type[Any]) -> None:
    """A task reads the progress before it initializes its producer, so an older attempt can still commit."""

    def _reopen(self: Any) -> None:
        self.close()
        raw = self._read_progress()
        self._committed = None if raw is None else LaneProgress.from_bytes(raw)
        producer = self._make_producer()
        self._producer = producer
        producer.init()

    publisher._reopen = _reopen


def progress_apart(publisher: type[Any]) -> None:
    """The progress is committed after the records, in a transaction of its own."""
    commit_all = publisher._commit

    def _commit(self: Any, progress: LaneProgress) -> None:
        if self._records:
            self._producer.commit()
            self._producer.begin()
        commit_all(self, progress)

    publisher._commit = _commit


def commit_within_group(publisher: type[Any]) -> None:
    """A transaction ends with the record that fills it, even within a group."""
    publish = publisher.publish

    def _publish(self: Any, *record: Any, **settings: Any) -> None:
        publish(self, *record, **settings)
        if self._is_open and self._is_full:
            self._commit(self._remainder.midway(self._last_position()))

    publisher.publish = _publish


def owner_not_checked(publisher: type[Any]) -> None:
    """A task publishes its plan without checking which job owns the table."""
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


def lanes_not_acquired(lanes: type[Any]) -> None:
    """A job does not acquire lanes, and writes its layout into each lane whose progress did not change meanwhile."""
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


def new_lanes_not_acquired(lanes: type[Any]) -> None:
    """A job does not acquire lanes that were created after it counted them."""

    def acquire(self: Any, count: int) -> Any:
        found = self._open(range(count))
        self._write(sorted(found), found, found)
        if found and self._open([lane for lane in range(count) if lane not in found]):
            raise RetriableError("laid meanwhile")
        return {lane: replace(at, owner=self._owner) for lane, at in found.items()}

    lanes.acquire = acquire


def ownership_not_rechecked(lanes: type[Any]) -> None:
    """A job that has created lanes does not check again whether it still owns the table."""

    def assign(self: Any, laid: Any, taken: Any) -> None:
        self._write(sorted(taken), laid, taken)
        self._write(sorted(laid.keys() - taken.keys()), laid, taken)

    lanes.assign = assign


def random_transactional_id(transactional_id: Callable[..., str]) -> Callable[..., str]:
    """Every process has a transactional id of its own, so no producer is fenced."""

    def chosen(job: str, keyspace: str, table: str, lane: int) -> str:
        return f"{transactional_id(job, keyspace, table, lane)}.{os.getpid()}"

    return chosen


def window_across_generations(plan: Callable[..., PlannedBatch | None]) -> Callable[..., PlannedBatch | None]:
    """A window continues past the end of its generation, and the next generation is read from the window's end."""

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


def local_clock_only(server_time: type[Any]) -> None:
    """Windows are planned by this machine's clock only."""
    server_time.earlier_us = lambda self: self._own_us()


def _in_class(breaking: Callable[[type[Any]], None], name: str = "LanePublisher") -> Callable[[ModuleType], None]:
    return lambda module: breaking(getattr(module, name))


def _in_function(name: str, breaking: Callable[[Any], Any]) -> Callable[[ModuleType], None]:
    return lambda module: setattr(module, name, breaking(getattr(module, name)))


IN_JOB: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "progress before init": ("bridge.publishing.lane_publisher", _in_class(progress_before_init)),
    "progress apart": ("bridge.publishing.lane_publisher", _in_class(progress_apart)),
    "commit within a group": ("bridge.publishing.lane_publisher", _in_class(commit_within_group)),
    "owner not checked": ("bridge.publishing.lane_publisher", _in_class(owner_not_checked)),
    "lanes not acquired": ("bridge.publishing.ownership", _in_class(lanes_not_acquired, "LaneOwnership")),
    "new lanes not acquired": ("bridge.publishing.ownership", _in_class(new_lanes_not_acquired, "LaneOwnership")),
    "ownership not checked again": ("bridge.publishing.ownership", _in_class(ownership_not_rechecked, "LaneOwnership")),
    "random transactional id": (
        "bridge.publishing.lane_recovery",
        _in_function("transactional_id", random_transactional_id),
    ),
    "local clock only": ("bridge.planning.server_clock", _in_class(local_clock_only, "ServerTime")),
    "window across generations": ("bridge.planning.micro_batches", _in_function("plan", window_across_generations)),
}
"""Variants for the processes of a job, by name: the module to change, and the function that changes it."""
