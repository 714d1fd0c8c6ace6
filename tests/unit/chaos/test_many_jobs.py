"""Jobs named alike at the same time, each with lanes as it likes, that step in any order and die: never two writers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

import pytest

from bridge.errors import BridgeError, DataLossError, RetriableError
from bridge.lane_publisher import LanePublisher
from bridge.model.cursors import Cursor, LaneProgress, Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing import LaneTask, decide_start
from bridge.taking_over import Lanes
from tests.chaos import broken
from tests.chaos.fault_points import FaultError, Point, watched
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

PARTITIONS = 4
STREAMS = 12
QUERIES = 4
TRIES = 2
STUCK_S = 20
DIES = 0.01
"""How likely a job dies at a step; its next query is then another process's."""
BURSTS = (1, 1, 2, 5, 20, 100)
"""How many steps a job takes before it is another's turn; some long, or nobody would ever get anywhere."""

IN_LANES = {"laid at once": broken.laid_at_once}
IN_PUBLISHER = {
    "cursor before init": broken.cursor_before_init,
    "marker outside": broken.marker_outside,
    "ownerless": broken.ownerless,
}


def at(time_us: int) -> Cursor:
    return Cursor(UnixMillis(1000), UnixMicros(time_us))


class World:
    """A broker, and jobs whose steps are taken one at a time, each in the order that the seed draws."""

    def __init__(self, seed: int, variant: str | None) -> None:
        self.broker, self.random, self.dies = Broker(), Random(seed), DIES
        self.publisher: type[LanePublisher] = type("Publisher", (LanePublisher,), {})
        self.lanes: type[Lanes] = type("OwnLanes", (Lanes,), {})
        if variant in IN_LANES:
            IN_LANES[variant](self.lanes)
        elif variant in IN_PUBLISHER:
            IN_PUBLISHER[variant](self.publisher)
        self.own_ids = variant == "random id"
        self._turn = threading.Semaphore(0)

    def jobs(self, number: int) -> None:
        """Run so many jobs until each has had its queries."""
        jobs = [Job(self, f"job{one}", self._turn) for one in range(number)]
        while alive := [job for job in jobs if not job.ended]:
            job = self.random.choice(alive)
            for _ in range(self.random.choice(BURSTS)):
                if not job.ended:
                    job.going.release()
                    assert self._turn.acquire(timeout=STUCK_S)
        for job in jobs:
            if job.error is not None:
                raise job.error

    def problem(self) -> str:
        """What is wrong with what a reader sees when one more job has done the rest; empty when nothing is."""
        self.random, self.dies = Random(0), 0.0
        self.jobs(1)
        found: dict[bytes | None, list[bytes | None]] = {}
        for key, value in self.broker.committed.get("topic", []):
            found.setdefault(key, []).append(value)
        most = max((len(set(values)) for values in found.values()), default=0)
        if most < 2:
            return "nobody gets anywhere"
        for stream in range(STREAMS):
            values, wanted = found.get(b"%d" % stream, []), [b"%d" % time_us for time_us in range(most)]
            if values != wanted:
                doubled, missing = len(values) - len(set(values)), len(set(wanted) - set(values))
                return f"stream {stream}: {doubled} doubled, {missing} missing of {most}"
        return ""


class Job(threading.Thread):
    """A process that starts one query after the other, as the supervisor does whose query fails."""

    def __init__(self, world: World, name: str, turn: threading.Semaphore) -> None:
        super().__init__(name=name, daemon=True)
        self.going, self.ended = threading.Semaphore(0), False
        self.error: BaseException | None = None
        self._world, self._turn = world, turn
        self._owners = count()
        self._owner = ""
        self._publisher = type("Publisher", (world.publisher,), {})
        watched(self._publisher, self._step)
        self.start()

    def _step(self, point: Point) -> None:
        self._turn.release()
        assert self.going.acquire(timeout=STUCK_S)
        if self._world.random.random() < self._world.dies:
            raise FaultError(point)

    def run(self) -> None:
        self.going.acquire()
        try:
            for _ in range(QUERIES):
                try:
                    self._query(self._world.random.randint(1, PARTITIONS), self._world.random.randint(1, 3))
                except DataLossError:
                    raise
                except (BridgeError, FaultError):
                    continue
        except BaseException as error:  # noqa: BLE001  # `jobs` raises it
            self.error = error
        self.ended = True
        self._turn.release()

    def _take_over(self) -> tuple[Lanes, dict[int, LaneProgress]]:
        """What each start of a query begins with, also of one that settles lanes and of the one behind it."""
        self._owner = f"{self.name}/{next(self._owners)}"
        lanes = self._world.lanes(self._lane, self._owner, at_once=1)
        return lanes, lanes.take_over(PARTITIONS)

    def _query(self, wanted: int, batches: int) -> None:
        lanes, taken = self._take_over()
        start = decide_start(taken, wanted, at(0))
        if start.settle:
            assert start.interrupted is not None
            self._work(start.interrupted)
            lanes, taken = self._take_over()
            start = decide_start(taken, wanted, at(0))
            if start.settle:
                raise RetriableError("not level yet")
        if start.initialise:
            layout = start.layout
            lanes.lay({lane: LaneProgress(lane, layout, layout.since) for lane in range(PARTITIONS)}, taken)
        cursor, interrupted = start.cursor, start.interrupted
        for _ in range(batches):
            end = at(cursor.time_us + self._world.random.randint(1, 3))
            batch = interrupted or PlannedBatch(cursor, end, start.layout)
            self._work(batch)
            cursor, interrupted = batch.next, None

    def _work(self, batch: PlannedBatch) -> None:
        for lane in range(batch.layout.lanes):
            for again in range(TRIES):
                try:
                    self._task(LaneTask("ks", "t", lane, batch))
                except BridgeError:
                    if again == TRIES - 1:
                        raise
                else:
                    break

    def _task(self, task: LaneTask) -> None:
        batch = task.batch
        with self._lane(task.lane) as publisher:
            publisher.start(task, fresh=True)
            for time_us in range(batch.start.time_us, batch.next.time_us):
                for stream in streams_of(task.lane, batch.layout):
                    place = bytes([*bytes(15), stream]) + timeuuid_of(UnixMicros(time_us), bytes(8)) + bytes(4)
                    publisher.publish("topic", b"%d" % stream, b"%d" % time_us, place, {})
            publisher.finish()

    @contextmanager
    def _lane(self, lane: int) -> Iterator[LanePublisher]:
        world = self._world
        publisher = self._publisher(
            lambda: Client(world.broker, f"id{lane}{self.name if world.own_ids else ''}"),
            lambda: world.broker.markers.get(lane),
            progress_topic=PROGRESS,
            owner=self._owner,
            most_records=5,
            most_bytes=10**9,
        )
        try:
            yield publisher
        finally:
            publisher.close()


def streams_of(lane: int, layout: Layout) -> range:
    return range(lane * STREAMS // layout.lanes, (lane + 1) * STREAMS // layout.lanes)


def outcome(seed: int, variant: str | None) -> str:
    world = World(seed, variant)
    try:
        world.jobs(3)
        return world.problem()
    except DataLossError as error:
        return str(error)


def test_never_two_writers() -> None:
    """Three jobs that take the table from each other with other lanes each time: each record once, in order."""
    assert {seed: problem for seed in range(10) if (problem := outcome(seed, None))} == {}


@pytest.mark.parametrize("variant", [*IN_LANES, *IN_PUBLISHER, "random id"])
def test_two_writers_are_found(variant: str) -> None:
    """Each mistake that lets two jobs write leads to a flaw in some order of their steps."""
    assert any(outcome(seed, variant) for seed in range(100))
