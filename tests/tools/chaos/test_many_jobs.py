"""Jobs named alike at the same time, each with lanes as it likes, that step in any order and die: never two writers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

import pytest

from bridge.errors import BridgeError, DataLossError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing import ownership
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.ownership import LaneOwnership
from bridge.publishing.start_decision import decide_start
from bridge.publishing.transaction_size import TransactionSize
from tests.chaos import broken
from tests.chaos.fault_points import FaultError, Point, watched
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

MOST_LANES = 4
STREAMS = 12
QUERIES = 4
TRIES = 2
STUCK_S = 20
DIES = 0.01
"""How likely a job dies at a step; its next query is then another process's."""
BURSTS = (1, 1, 2, 5, 20, 100)
"""How many steps a job takes before it is another's turn; some long, or nobody would ever get anywhere."""

IN_LANES = {
    "lanes not acquired": broken.lanes_not_acquired,
    "new lanes not acquired": broken.new_lanes_not_acquired,
    "ownership not checked again": broken.ownership_not_rechecked,
}
IN_PUBLISHER = {
    "progress before init": broken.progress_before_init,
    "progress apart": broken.progress_apart,
    "owner not checked": broken.owner_not_checked,
}
HARM = [
    ("lanes not acquired", "missing", 12),
    ("lanes not acquired", "damaged", 4),
    ("new lanes not acquired", "doubled", 247),
    ("new lanes not acquired", "damaged", 4),
    ("ownership not checked again", "damaged", 549),
    ("progress before init", "doubled", 4),
    ("progress apart", "doubled", 0),
    ("owner not checked", "damaged", 57),
    ("owner not checked", "doubled", 155),
    ("random transactional id", "doubled", 2),
]
"""What each mistake brings about, and the first seed that shows it; sought again when the protocol has other steps."""


class InTurn:
    """Runs lanes one after the other up to the first refused one. With threads, a seed would not be repeatable."""

    def __init__(self, _most: int) -> None:
        self.map = map

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture(autouse=True)
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "ThreadPoolExecutor", InTurn)


def at(time_us: int) -> Cursor:
    return Cursor(UnixMillis(1000), UnixMicros(time_us))


class World:
    """A broker, and jobs whose steps are taken one at a time, each in the order that the seed draws.

    `partitions` is how many the progress topic has: it grows with each job that has more lanes than there were.
    """

    def __init__(self, seed: int, variant: str | None) -> None:
        self.broker, self.random, self.dies, self.partitions = Broker(), Random(seed), DIES, 0
        self.publisher: type[LanePublisher] = type("Publisher", (LanePublisher,), {})
        self.lanes: type[LaneOwnership] = type("OwnLanes", (LaneOwnership,), {})
        if variant in IN_LANES:
            IN_LANES[variant](self.lanes)
        elif variant in IN_PUBLISHER:
            IN_PUBLISHER[variant](self.publisher)
        self.own_ids = variant == "random transactional id"
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
                flaws = {"doubled": len(values) - len(set(values)), "missing": len(set(wanted) - set(values))}
                told = ", ".join(f"{number} {flaw}" for flaw, number in flaws.items() if number)
                return f"stream {stream}: {told or 'out of order'} of {most}"
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
                    self._query(self._world.random.randint(1, MOST_LANES), self._world.random.randint(1, 3))
                except DataLossError:
                    raise
                except (BridgeError, FaultError):
                    continue
        except BaseException as error:  # noqa: BLE001  # `jobs` raises it
            self.error = error
        self.ended = True
        self._turn.release()

    def _take_over(self, wanted: int) -> tuple[LaneOwnership, int, dict[int, LaneProgress]]:
        """What each start of a query begins with, also of one that settles lanes and of the one behind it.

        Another job's turn may come between the look at how many partitions there are and what is done with it.
        """
        world = self._world
        partitions = world.partitions = max(world.partitions, wanted)
        self._step("before init")
        self._owner = f"{self.name}/{next(self._owners)}"
        lanes = world.lanes(self._lane, self._owner, at_once=1)
        return lanes, partitions, lanes.acquire(partitions)

    def _query(self, wanted: int, batches: int) -> None:
        lanes, partitions, taken = self._take_over(wanted)
        start = decide_start(taken, wanted, at(0))
        if start.recover:
            assert start.interrupted is not None
            self._work(start.interrupted)
            lanes, partitions, taken = self._take_over(wanted)
            start = decide_start(taken, wanted, at(0))
            if start.recover:
                raise RetriableError("not level yet")
        if start.assign:
            layout, first = start.layout, start.first
            laid = {lane: LaneProgress(lane, layout, layout.since, first=first) for lane in range(partitions)}
            lanes.assign(laid, taken)
        cursor, interrupted = start.cursor, start.interrupted
        for _ in range(batches):
            end = at(cursor.time_us + self._world.random.randint(1, 3))
            batch = interrupted or PlannedBatch(cursor, end, start.layout)
            self._work(batch)
            cursor, interrupted = batch.next, None

    def _work(self, batch: PlannedBatch) -> None:
        """Run lanes in any order, as Spark's tasks, and check for failures when all have ended."""
        lanes = list(range(batch.layout.lanes))
        self._world.random.shuffle(lanes)
        failures = [failure for lane in lanes if (failure := self._attempts(LaneTask("ks", "t", lane, batch)))]
        if failures:
            raise failures[0]

    def _attempts(self, task: LaneTask) -> BridgeError | None:
        """Try a task as often as Spark does; what became of the last attempt when all have failed."""
        failure = None
        for _ in range(TRIES):
            try:
                self._task(task)
            except BridgeError as error:
                failure = error
            else:
                return None
        return failure

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
            size=TransactionSize(10**9, 60.0),
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
    seeds = {*range(10), *(seed for _, _, seed in HARM)}
    assert {seed: problem for seed in sorted(seeds) if (problem := outcome(seed, None))} == {}


@pytest.mark.parametrize(("variant", "harm", "seed"), HARM)
def test_two_writers_are_found(variant: str, harm: str, seed: int) -> None:
    """Each mistake that lets two jobs write leads to the harm of its kind in some order of their steps."""
    assert harm in outcome(seed, variant)


def test_harm_of_every_mistake_is_named() -> None:
    """None is left out, so that none is found by a failure of another kind."""
    assert {variant for variant, _, _ in HARM} == {*IN_LANES, *IN_PUBLISHER, "random transactional id"}
