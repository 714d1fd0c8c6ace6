"""The lane protocol over a broker in memory: at every point a process dies or stands still, and broken on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, groupby, product
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import BridgeError, DataLossError, TooLargeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.streams import MAX_TOKEN, Token
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.planning import micro_batches
from bridge.planning.server_clock import NodeTime, ServerTime
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.start_decision import decide_start
from bridge.publishing.transaction_size import TransactionSize
from tests.chaos import broken
from tests.chaos.fault_points import IN_LANE, FaultError, Point, clock_asked, set_clock, shifted, watched
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.bridge.planning import test_switching as switching

SINCE = Cursor(UnixMillis(1000), UnixMicros(0))
LAYOUT = Layout(1, SINCE)
END = 12
WAIT_S = 10

Reach = Callable[[Point], None]


class Lane:
    """One lane's broker, and processes that work it."""

    def __init__(self, *, most_records: int, variant: str | None = None, in_runs: bool = False) -> None:
        self._in_runs = in_runs
        self.broker = Broker(group_of={b"%d.%d" % place: position(*place)[:32] for place in self._records()})
        self._most_records = most_records
        self._variant = variant
        self._processes = count()
        self._process(lambda _: None).write_progress(LaneProgress(0, LAYOUT, SINCE), instead_of=None)

    def _process(self, reach: Reach) -> LanePublisher:
        class Own(LanePublisher):
            pass

        own = f".{next(self._processes)}" if self._variant == "random transactional id" else ""
        if self._variant == "progress before init":
            broken.progress_before_init(Own)
        elif self._variant == "progress apart":
            broken.progress_apart(Own)
        elif self._variant == "commit within a group":
            broken.commit_within_group(Own)
        watched(Own, reach)
        return Own(
            lambda: Client(self.broker, f"id{own}"),
            lambda: self.broker.markers.get(0),
            progress_topic=PROGRESS,
            owner="job",
            most_records=self._most_records,
            size=TransactionSize(10**9, 60.0),
        )

    def attempt(self, reach: Reach = lambda _: None, *, closes: bool = True) -> None:
        """A process works the micro-batch; after an exception it closes what it holds, after SIGKILL it does not."""
        publisher = self._process(reach)
        try:
            publisher.start(LaneTask("ks", "t", 0, PlannedBatch(SINCE, at(END), LAYOUT)), fresh=True)
            for alone, places in groupby(self._records(), key=self._is_alone):
                if alone and self._in_runs:
                    self._publish_runs(publisher, list(places))
                else:
                    for place in places:
                        publisher.publish("topic", b"key", b"%d.%d" % place, position(*place), {})
            publisher.finish()
        except Exception:
            if closes:
                publisher.close()
            raise

    def _publish_runs(self, publisher: LanePublisher, places: list[tuple[int, int]]) -> None:
        def unexpected(_at: int, error: TooLargeError) -> None:
            raise error

        for run in (places[:4], places[4:]):
            values, positions = [b"%d.%d" % place for place in run], [position(*place) for place in run]
            records = run_of([b"key"] * len(run), values, positions)
            publisher.publish_run("topic", (b"", b""), records, None, unexpected)

    def _records(self) -> Iterator[tuple[int, int]]:
        """Groups of one to four records; for runs, behind seven of one each a group of four."""
        return ((time_us, seq) for time_us in range(END) for seq in range(self._size(time_us)))

    def _size(self, time_us: int) -> int:
        if self._in_runs:
            return 1 if time_us % 8 < 7 else 4
        return 1 + time_us % 4

    def _is_alone(self, place: tuple[int, int]) -> bool:
        return self._size(place[0]) == 1

    def problem(self) -> str:
        """What is wrong with what a reader sees; empty when nothing is."""
        found = [value for _, value in self.broker.committed.get("topic", [])]
        wanted = [b"%d.%d" % place for place in self._records()]
        progress = LaneProgress.from_bytes(self.broker.markers[0])
        if found != wanted:
            return f"{len(found) - len(set(found))} doubled, {len(set(wanted) - set(found))} missing"
        if self.broker.torn:
            return f"{len(self.broker.torn)} times a group was visible in part"
        return "" if progress.cursor == at(END) else f"progress {progress}"


def at(time_us: int) -> Cursor:
    return Cursor(SINCE.generation_ms, UnixMicros(time_us))


def position(time_us: int, seq: int) -> bytes:
    return bytes(16) + timeuuid_of(UnixMicros(time_us), bytes(8)) + seq.to_bytes(4, "big")


def dies_at(point: Point) -> Reach:
    fallen = []

    def reach(here: Point) -> None:
        if here == point and not fallen:
            fallen.append(here)
            raise FaultError(here)

    return reach


def crash(lane: Lane, point: Point, *, closes: bool) -> str:
    """One attempt dies at a point, the next does the rest."""
    with pytest.raises(FaultError):
        lane.attempt(dies_at(point), closes=closes)
    lane.attempt()
    return lane.problem()


def replay(lane: Lane) -> str:
    """All is committed, but the driver dies before Spark's own commit: the micro-batch comes again."""
    lane.attempt()
    lane.attempt()
    return lane.problem()


def zombie(lane: Lane, stands: Point, wakes: Point) -> str:
    """Stop one attempt at a point, start a second one, and continue the first when the second is at `wakes`."""
    standing, going = threading.Event(), threading.Event()

    def stand(here: Point) -> None:
        if here == stands and not standing.is_set():
            standing.set()
            assert going.wait(WAIT_S)

    def first() -> None:
        with suppress(BridgeError):  # it is fenced, as it should be
            lane.attempt(stand, closes=False)

    sleeper = threading.Thread(target=first)

    def wake(here: Point) -> None:
        if here == wakes:
            going.set()
            sleeper.join(WAIT_S)

    sleeper.start()
    assert standing.wait(WAIT_S)
    try:
        with suppress(BridgeError):  # the sleeper fenced it in its turn
            lane.attempt(wake)
    finally:
        going.set()
        sleeper.join(WAIT_S)
    lane.attempt()
    return lane.problem()


def crossing(plan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """A table is read through a generation change."""
    world = switching.World()
    first_us = world.now_us
    for start_s in (0, 30):
        world.add(UnixMillis(first_us // 1000 + start_s * 1000), world.streams([Token(MAX_TOKEN)]), replaces_all=True)
        world.generations[-1].published = True
    for second in range(60):
        world.write(switching.KEYS[second % 12], first_us + second * switching.SECOND, stray=False)
    monkeypatch.setattr(switching, "plan", plan)
    job = switching.Job(world)
    job.clock_us = first_us
    job.restart(2)
    for second in range(120):
        job.clock_us = first_us + second * switching.SECOND
        job.step(None)
    found = [place for _, place in job.published]
    wanted = {place for rows in world.rows.values() for place, _, _ in rows}
    missing, doubled = len(wanted - set(found)), len(found) - len(set(found))
    return f"{doubled} doubled, {missing} missing" if missing or doubled else ""


@pytest.mark.parametrize(("most_records", "in_runs"), [(1, False), (5, False), (1000, False), (5, True), (1000, True)])
def test_crash_matrix(most_records: int, *, in_runs: bool) -> None:
    """Wherever the process dies, by an exception or by SIGKILL, the next one ends with each record once, in order."""
    for point, closes in product(IN_LANE, [True, False]):
        problem = crash(Lane(most_records=most_records, in_runs=in_runs), point, closes=closes)
        assert not problem, f"{point}, {'exception' if closes else 'kill'}: {problem}"
    assert not replay(Lane(most_records=most_records, in_runs=in_runs))


@pytest.mark.parametrize(("most_records", "in_runs"), [(1, False), (5, False), (1000, False), (5, True)])
def test_zombies(most_records: int, *, in_runs: bool) -> None:
    """Wherever a process stops, and wherever the next one is when it continues, each record is there once."""
    for stands, wakes in product(IN_LANE, IN_LANE):
        problem = zombie(Lane(most_records=most_records, in_runs=in_runs), stands, wakes)
        assert not problem, f"stood at {stands}, woke when the other was at {wakes}: {problem}"


@pytest.mark.parametrize("variant", ["progress before init", "progress apart", "random transactional id"])
def test_broken_protocol_is_found(variant: str) -> None:
    """Each deliberately broken form of the protocol is found by the very scenarios that the real one passes."""
    found = [crash(Lane(most_records=5, variant=variant), point, closes=False) for point in IN_LANE]
    found += [
        zombie(Lane(most_records=5, variant=variant), stands, wakes) for stands, wakes in product(IN_LANE, IN_LANE)
    ]
    assert any("doubled" in problem for problem in found)


@pytest.mark.parametrize("in_runs", [False, True])
@pytest.mark.parametrize("most_records", [1, 2, 5])
def test_group_that_becomes_visible_in_part_is_found(most_records: int, *, in_runs: bool) -> None:
    """If transactions end within groups, readers see parts of groups for a while, although nothing is lost."""
    lane = Lane(most_records=most_records, variant="commit within a group", in_runs=in_runs)
    lane.attempt()
    assert "visible in part" in lane.problem()


@pytest.mark.parametrize("checks_owner", [True, False])
def test_lanes_split_between_two_jobs_are_found(checks_owner: bool) -> None:
    """Without a check of the owner, a task of the older of two jobs leaves a layout that no job can continue."""

    class Own(LanePublisher):
        pass

    if not checks_owner:
        broken.owner_not_checked(Own)
    broker, layout = Broker(), Layout(2, SINCE)

    def process(lane: int, owner: str) -> LanePublisher:
        return Own(
            lambda: Client(broker, f"id{lane}"),
            lambda: broker.markers.get(lane),
            progress_topic=PROGRESS,
            owner=owner,
            most_records=10,
            size=TransactionSize(10**9, 60.0),
        )

    for lane in range(2):
        process(lane, "newer").write_progress(LaneProgress(lane, layout, SINCE), instead_of=None)
    for lane, owner, end in ((0, "newer", 15), (1, "older", 10), (1, "newer", 15)):
        with suppress(BridgeError):
            attempt = process(lane, owner)
            attempt.start(LaneTask("ks", "t", lane, PlannedBatch(SINCE, at(end), layout)), fresh=True)
            attempt.finish()
    found = {lane: LaneProgress.from_bytes(raw) for lane, raw in broker.markers.items()}
    if not checks_owner:
        with pytest.raises(DataLossError, match="the progress topic is damaged"):
            decide_start(found, 2, None)
    else:
        assert decide_start(found, 2, None).cursor == at(15)


def test_window_across_generations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that goes on through a generation's end leaves changes out; the planner's own windows don't."""
    assert not crossing(micro_batches.plan, monkeypatch)
    assert "missing" in crossing(broken.window_across_generations(micro_batches.plan), monkeypatch)


def test_clock_that_jumps_moves_windows_back_alone(tmp_path: Path) -> None:
    """What the fault puts is the clock by which windows are planned, and who looked at it is known."""

    class Own(ServerTime):
        pass

    now_us, minute_us = UnixMicros(1_700_000_000_000_000), 60_000_000
    shifted(Own, tmp_path)
    time = Own(lambda: NodeTime("node", now_us, {"node"}), lambda: now_us, lambda: 0.0)
    assert time.earlier_us() == now_us
    set_clock(tmp_path, -minute_us)
    assert not clock_asked(tmp_path)
    assert time.earlier_us() == now_us - minute_us
    assert clock_asked(tmp_path)
    set_clock(tmp_path, minute_us)
    assert time.earlier_us() - now_us < 1_000_000
    broken.local_clock_only(Own)
    assert time.earlier_us() == now_us + minute_us
