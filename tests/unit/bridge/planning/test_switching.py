"""Reading across generations: in every case, every row is read once and every key stays in order."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bridge.errors import LayoutError, RetriableError
from bridge.model.kept_formats import LaneProgress, StreamOffset, canonical_json
from bridge.model.micro_batch import Part, PlannedBatch, Role
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token, lane_range
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros, timeuuid_of
from bridge.planning.micro_batches import GenerationStart, Limits, first_cursor, plan
from bridge.publishing.lane_recovery import LaneTask, remainder
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from tests.unit.any_tables import examples

SECOND = 1_000_000
FIRST = UnixMillis(1_700_000_000_000)
LEEWAY_S = 5
LAG_S = 4
"""A row becomes visible at most this long after its write time."""
AHEAD_S = 3
"""The reader's clock is at most this far ahead."""
LIMITS = Limits((LAG_S + AHEAD_S) * SECOND, LEEWAY_S * SECOND, 20 * SECOND)
KEYS = [Token(MIN_TOKEN + 1 + (MAX_TOKEN - MIN_TOKEN) // 12 * place) for place in range(12)]
LANES = st.integers(1, 4)


@dataclass
class Generation:
    start_ms: UnixMillis
    streams: tuple[StreamId, ...]
    replaces_all: bool
    published: bool = False

    def stream_of(self, key: Token) -> StreamId:
        return self.streams[bisect_left([stream.token for stream in self.streams], key)]


@dataclass
class World:
    """The cluster: its generations, and the rows of each stream."""

    now_us: int = millis_to_micros(FIRST)
    generations: list[Generation] = field(default_factory=list)
    rows: dict[StreamId, list[tuple[GroupPosition, Token, int]]] = field(default_factory=lambda: defaultdict(list))
    opened: dict[GroupPosition, int] = field(default_factory=dict)
    made: int = 0

    def streams(self, tokens: list[Token]) -> tuple[StreamId, ...]:
        self.made += 1
        return tuple(StreamId.build(token, 0, self.made) for token in tokens)

    def add(self, start_ms: UnixMillis, streams: tuple[StreamId, ...], *, replaces_all: bool) -> None:
        self.generations.append(Generation(start_ms, streams, replaces_all))

    def write(self, key: Token, time_us: int, *, stray: bool) -> None:
        """Write a row; the coordinator of a stray write does not know the latest generation yet."""
        serving = [place for place, one in enumerate(self.generations) if one.start_ms * 1000 <= time_us]
        if not serving:
            return
        place = serving[-1]
        if stray and place and time_us < self.generations[place].start_ms * 1000 + LEEWAY_S * SECOND:
            place -= 1
        stream = self.generations[place].stream_of(key)
        # A stream belongs to the generation that opened it; later generations do not affect the order of its rows.
        opened = min(at for at, one in enumerate(self.generations) if stream in one.streams)
        low = len(self.rows[stream]).to_bytes(8, "big")
        position = GroupPosition.of(stream.raw, timeuuid_of(UnixMicros(time_us), low))
        self.rows[stream].append((position, key, time_us))
        self.opened[position] = opened

    def known(self) -> list[GenerationStart]:
        return [GenerationStart(one.start_ms, one.replaces_all) for one in self.generations if one.published]

    def selected(self, part: Part) -> set[StreamId]:
        known = {one.start_ms: set(one.streams) for one in self.generations if one.published}
        selection = part.selection
        here = known[selection.generation_ms]
        if selection.before_ms is None:
            return here
        before = known[selection.before_ms]
        return {Role.KEPT: here & before, Role.OPENED: here - before, Role.CLOSED: before - here}[selection.role]

    def read(self, part: Part, lane: int, lanes: int) -> list[tuple[GroupPosition, Token]]:
        slice_ = lane_range(lane, lanes)
        streams = [stream for stream in self.selected(part) if stream in self.rows and stream.token in slice_]
        window = part.window
        return sorted(
            (position, key)
            for stream in streams
            for position, key, time_us in self.rows[stream]
            if window.start_us <= time_us and (window.end_us is None or time_us < window.end_us)
        )


class Killed(Exception):  # noqa: N818
    """The driver or a worker dies here."""


class Job:
    """A job with its progress in Kafka and its Spark checkpoint, which survive the job's processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.progress: dict[int, bytes] = {}
        self.published: list[tuple[Token, GroupPosition]] = []
        self.log: list[tuple[str, bool]] = []
        self.plans = OffsetReconciler(None)
        self.start: TableStart | None = None
        self.limits = LIMITS
        self.clock_us = 0
        self.begin_us: UnixMicros | None = None

    def restart(self, lanes: int) -> None:
        """Start a driver: it reads the progress, finishes an interrupted micro-batch and assigns the lanes."""
        found = {lane: LaneProgress.from_bytes(raw) for lane, raw in self.progress.items()}
        start = decide_start(found, lanes, first_cursor(self.world.known(), self.begin_us, LEEWAY_S * SECOND))
        assert TableStart.from_json(json.loads(json.dumps(start.to_json()))) == start
        if start.recover:
            assert start.interrupted is not None
            self.work(start.interrupted, None)
            found = {lane: LaneProgress.from_bytes(raw) for lane, raw in self.progress.items()}
            start = decide_start(found, lanes, None)
            assert not start.recover
        if start.assign:
            for lane in range(max(lanes, len(found))):
                self.progress[lane] = LaneProgress(lane, start.layout, start.cursor).to_bytes()
        self.start = start
        self.plans = OffsetReconciler(start)
        if not self.log:
            self.log.append((canonical_json(StreamOffset(start.cursor, None).to_json()), True))

    def step(self, kill: tuple[int, int] | None) -> bool:
        """One micro-batch as Spark works it; says whether there was any."""
        text, finished = self.log[-1]
        offset = StreamOffset.from_json(json.loads(text))
        if finished:
            following = self.next(offset)
            if following is None:
                return False
            self.log.append((canonical_json(following.to_json()), False))
            offset = following
        batch = offset.batch
        assert batch is not None
        if self.plans.counts(offset):
            self.work(batch, kill)
        self.log[-1] = (self.log[-1][0], True)
        return True

    def next(self, offset: StreamOffset) -> StreamOffset | None:
        at = self.plans.go_on_from(offset)
        if not isinstance(at, PlannedBatch):
            assert self.start is not None
            batch = plan(at, UnixMicros(self.clock_us), self.world.known(), self.limits, self.start.layout)
            if batch is None:
                return None
            at = batch
        return self.plans.planned(at, offset)

    def work(self, batch: PlannedBatch, kill: tuple[int, int] | None) -> None:
        """Run micro-batches for about so long."""
        order = list(range(batch.layout.lanes))
        if kill is not None:
            order = order[kill[0] % len(order) :] + order[: kill[0] % len(order)]
        left = None if kill is None else kill[1]
        for lane in order:
            left = self.work_lane(LaneTask("ks", "t", lane, batch), left)

    def work_lane(self, task: LaneTask, left: int | None) -> int | None:
        raw = self.progress.get(task.lane)
        todo = remainder(task, None if raw is None else LaneProgress.from_bytes(raw), "progress")
        for number, part in enumerate(task.batch.parts):
            for position, key in self.world.read(part, task.lane, task.batch.layout.lanes):
                place = LanePosition(number, position)
                if not todo.wants(place):
                    continue
                # Every group is a transaction of its own, which gives the most places to be killed at.
                left = self.spend(left)
                self.published.append((key, position))
                self.progress[task.lane] = todo.midway(place).to_bytes()
        left = self.spend(left)
        if not todo.finished:
            self.progress[task.lane] = todo.completed().to_bytes()
        return left

    @staticmethod
    def spend(left: int | None) -> int | None:
        if left == 0:
            raise Killed
        return None if left is None else left - 1


class Switching(RuleBasedStateMachine):
    """See the module; every rule that lets time pass keeps within LAG_S and AHEAD_S."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.job = Job(self.world)
        self.checked = 0
        self.last: dict[Token, tuple[int, GroupPosition]] = {}

    @initialize(
        tablets=st.sampled_from([1, 2, 5]),
        lanes=LANES,
        behind_s=st.sampled_from([None, None, None, -1, 0, 2, LEEWAY_S - 1, LEEWAY_S, 9]),
        seed=st.integers(0, 2**32),
    )
    def begin(self, tablets: int, lanes: int, behind_s: int | None, seed: int) -> None:
        """Begin at the start, or far behind a first change of all streams with late rows in the closed ones."""
        span = MAX_TOKEN - MIN_TOKEN
        ends = [Token(MIN_TOKEN + span * (place + 1) // tablets) for place in range(tablets)]
        self.world.add(FIRST, self.world.streams(ends), replaces_all=True)
        self.world.generations[0].published = True
        if behind_s is not None:
            change_us = self.world.now_us + 60 * SECOND
            self.world.add(UnixMillis(change_us // 1000), self.world.streams(ends), replaces_all=True)
            self.world.generations[1].published = True
            random = Random(seed)
            for second in range(-4, 12):
                self.world.now_us = change_us + second * SECOND
                for _ in range(2):
                    time_us = self.world.now_us + random.randint(-LAG_S * SECOND + 1, LEEWAY_S * SECOND)
                    self.world.write(random.choice(KEYS), time_us, stray=random.random() < 0.5)
            self.job.begin_us = UnixMicros(change_us + behind_s * SECOND)
        self.job.clock_us = self.world.now_us
        self.job.restart(lanes)

    @rule(
        after_ms=st.integers(LEEWAY_S * 1000 + 1, 30_000),
        place=st.integers(0, 50),
        how=st.sampled_from(["split", "merge", "replace", "mixed"]),
    )
    def change_streams(self, after_ms: int, place: int, how: str) -> None:
        """A new generation that starts soon; at first only the coordinators know it."""
        last = self.world.generations[-1]
        start_ms = UnixMillis(max(self.world.now_us // 1000 + after_ms, last.start_ms + LEEWAY_S * 1000 + 1))
        tokens = [stream.token for stream in last.streams]
        at = place % len(tokens)
        streams = list(last.streams)
        if how == "replace":
            streams = list(self.world.streams(tokens))
        if how in ("split", "mixed"):
            low = tokens[at - 1] if at else MIN_TOKEN
            streams[at : at + 1] = self.world.streams([Token((low + tokens[at]) // 2), tokens[at]])
        if how in ("merge", "mixed") and len(streams) > 1:
            pair = (at + 2) % (len(streams) - 1)
            streams[pair : pair + 2] = self.world.streams([streams[pair + 1].token])
        replaced = not set(streams) & set(last.streams)
        if tuple(streams) != last.streams:
            self.world.add(start_ms, tuple(streams), replaces_all=replaced)

    @rule(
        seconds=st.integers(1, 12),
        seed=st.integers(0, 2**32),
        skew_s=st.sampled_from([0, 0, -1, AHEAD_S, -30]),
        window_s=st.sampled_from([1, 5, 20, 100]),
        batches=st.integers(0, 3),
        publish=st.sampled_from([0, 0, 0, 0, 1, 3]),
    )
    def live(self, seconds: int, seed: int, skew_s: int, window_s: int, batches: int, publish: int) -> None:
        """Advance the time, write and read; the reader's clock may step either way, and windows change their length.

        A write becomes visible up to LAG_S after its time, or LEEWAY_S before it. Generations are published in order,
        any time before or after they start.
        """
        for one in [one for one in self.world.generations if not one.published][:publish]:
            one.published = True
        random = Random(seed)
        self.job.limits = Limits(LIMITS.confidence_us, LIMITS.leeway_us, window_s * SECOND)
        for second in range(seconds):
            self.world.now_us += SECOND
            for _ in range(2):
                time_us = self.world.now_us + random.randint(-LAG_S * SECOND + 1, LEEWAY_S * SECOND)
                self.world.write(random.choice(KEYS), time_us, stray=random.random() < 0.5)
            self.job.clock_us = self.world.now_us + skew_s * SECOND
            if second < batches:
                self.job.step(None)

    @rule(seed=st.integers(0, 2**32), skew_s=st.sampled_from([0, -1, AHEAD_S]))
    def pass_over_a_change(self, seed: int, skew_s: int) -> None:
        """Pass the next start second by second; closed streams get rows as late as possible."""
        ahead = [one for one in self.world.generations if one.start_ms * 1000 > self.world.now_us]
        if not ahead:
            return
        start_us = ahead[0].start_ms * 1000
        for one in self.world.generations[: self.world.generations.index(ahead[0]) + 1]:
            one.published = True
        random = Random(seed)
        self.world.now_us = start_us - SECOND
        for _ in range(LAG_S + AHEAD_S + LEEWAY_S + 2):
            self.world.now_us += SECOND
            first_us = max(start_us, self.world.now_us - LAG_S * SECOND + 1)
            last_us = min(start_us, self.world.now_us) + LEEWAY_S * SECOND - 1
            if first_us <= last_us:
                self.world.write(random.choice(KEYS), random.randint(first_us, last_us), stray=True)
            self.job.clock_us = self.world.now_us + skew_s * SECOND
            self.job.step(None)

    @rule(
        lane=st.integers(0, 3),
        after=st.integers(0, 6),
        checkpoint=st.sampled_from(["kept", "lost", "old", "older", "unfinished"]),
        lanes=LANES,
    )
    def die(self, lane: int, after: int, checkpoint: str, lanes: int) -> None:
        """The job dies in or after a micro-batch; it may lose its checkpoint, and the next job may have other lanes."""
        with suppress(Killed):
            self.job.step((lane, after))
        self.look_for_zombies(lane)
        log = self.job.log
        match checkpoint:
            case "lost":
                log.clear()
            case "old":
                del log[len(log) // 2 + 1 :]
            case "older":
                del log[1:]
            case "unfinished" if len(log) > 1:
                log[-1] = (log[-1][0], False)
        self.job.restart(lanes)

    def look_for_zombies(self, lane: int) -> None:
        """A late attempt at an earlier micro-batch publishes nothing, or is fenced."""
        text, _ = self.job.log[len(self.job.log) // 2]
        batch = StreamOffset.from_json(json.loads(text)).batch
        if batch is None or lane >= batch.layout.lanes:
            return
        progress = LaneProgress.from_bytes(self.job.progress[lane])
        try:
            todo = remainder(LaneTask("ks", "t", lane, batch), progress, "progress")
        except (RetriableError, LayoutError):
            return
        assert todo.finished or progress.batch == batch or progress.cursor == batch.start

    @invariant()
    def once_and_in_order(self) -> None:
        """No row is published twice, and no key out of order."""
        for key, position in self.job.published[self.checked :]:
            place = (self.world.opened[position], position)
            assert place > self.last.get(key, (-1, position))
            self.last[key] = place
        self.checked = len(self.job.published)

    def teardown(self) -> None:
        """In the end no row is missing."""
        if self.job.start is None:
            return
        for one in self.world.generations:
            one.published = True
        last_us = self.world.generations[-1].start_ms * 1000
        self.job.clock_us = max(self.world.now_us, last_us) + 60 * SECOND
        self.job.limits = Limits(LIMITS.confidence_us, LIMITS.leeway_us, 30 * SECOND)
        for _ in range(1000):
            if not self.job.step(None):
                break
        self.once_and_in_order()
        rows = {position: time_us for found in self.world.rows.values() for position, _, time_us in found}
        published = {position for _, position in self.job.published}
        begin_us = self.job.begin_us
        assert published <= rows.keys()
        # If the start is right behind a change, the opened streams are read from the change on.
        left_out = rows.keys() - published
        assert all(begin_us is not None and rows[position] < begin_us for position in left_out)


Switching.TestCase.settings = settings(
    max_examples=examples(70),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # shrinking one of these takes minutes; the steps that failed are printed anyway
)
TestSwitching = Switching.TestCase
