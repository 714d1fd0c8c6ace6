"""One simulated table: rows are written, read by the bridge's planner and lane protocol, and checked."""

from __future__ import annotations

import json
import sys
import time
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from bench.simulation.scenario import (
    ASKING_MS,
    LAG_S,
    LEEWAY_S,
    LONGEST_BATCH_S,
    NODES,
    OWN_CLOCK_S,
    SECOND,
    SETTINGS,
    SKEW_S,
    Generations,
    Killed,
    Size,
    Violation,
)
from bridge.model.kept_formats import LaneProgress, StreamOffset, canonical_json
from bridge.model.micro_batch import Part, PlannedBatch, Role
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.streams import MIN_TOKEN, StreamId, Token, lane_range
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.planning.micro_batches import Limits, first_cursor, plan
from bridge.planning.poll_rate import PollLimits, PollRate
from bridge.planning.server_clock import ASK_EVERY_S, NodeTime, ServerTimeEstimate
from bridge.planning.window_size import WindowSize
from bridge.publishing.lane_recovery import LaneTask, remainder
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.start_decision import decide_start

Row = tuple[int, int, int, int]
"""The time when a row becomes visible (us), its number, its write time (us), its key."""


@dataclass
class Table:
    """One table's rows, its progress in Kafka and its checkpoint."""

    generations: Generations
    size: Size
    random: Random
    rows: dict[int, list[tuple[GroupPosition, Row]]] = field(default_factory=dict)
    unread: dict[int, set[int]] = field(default_factory=dict)
    last: dict[int, tuple[int, GroupPosition]] = field(default_factory=dict)
    progress: dict[int, bytes] = field(default_factory=dict)
    log: list[tuple[str, bool]] = field(default_factory=list)
    written: int = 0
    batches: int = 0
    deaths: int = 0
    requests: int = 0
    requests_in_time: int = 0
    restarts: int = 0
    planning_s: float = 0.0
    slowest_s: float = 0.0
    stall_us: int = 0
    died_us: int = 0

    def write(self, now_us: int) -> None:
        """Write one row, by a coordinator with a wrong clock that may not know the latest generation yet."""
        random, generations = self.random, self.generations
        time_us = now_us + random.randint(-SKEW_S * SECOND, SKEW_S * SECOND)
        place = generations.place(time_us)
        if place < 0:
            return
        fresh = time_us < generations.starts_ms[place] * 1000 + LEEWAY_S * SECOND
        if place and fresh and random.random() < 0.5:
            place -= 1
        key = random.randrange(self.size.keys)
        self.written += 1
        stream = self._stream(place, key)
        position = GroupPosition.of(stream.raw, timeuuid_of(UnixMicros(time_us), self.written.to_bytes(8, "big")))
        visible_us = now_us + random.randint(0, (LAG_S - SKEW_S) * SECOND)
        insort(self.rows.setdefault(place, []), (position, (visible_us, self.written, time_us, key)))
        self.unread.setdefault(place, set()).add(self.written)

    def start(self, lanes: int) -> None:
        """Start a job: read the progress, finish an interrupted micro-batch, and assign lanes if needed."""
        while True:
            found = {lane: LaneProgress.from_bytes(raw) for lane, raw in self.progress.items()}
            first = first_cursor(self.generations.known(0), None, self.size.leeway_s * SECOND)
            start = decide_start(found, lanes, first)
            if not start.recover:
                break
            assert start.interrupted is not None
            self._work(start.interrupted, None, sys.maxsize)
        if start.assign:
            for lane in range(max(lanes, len(self.progress))):
                self.progress[lane] = LaneProgress(lane, start.layout, start.cursor).to_bytes()
        self.plans, self.at = OffsetReconciler(start), start
        # A new process does not know the requests of the former one.
        self.poll_rate = PollRate(PollLimits(self.size.requests_per_s / self.size.tables, 0), 0)
        self.windows = WindowSize(SETTINGS.max_window_ms * 1000, SETTINGS.target_batch_ms)
        self.servers, self.asked_s, self.ready_s = ServerTimeEstimate(), float("-inf"), 0.0
        self.restarts += 1
        if not self.log:
            self.log = [(canonical_json(StreamOffset(start.cursor, None).to_json()), True)]

    def step(self, now_us: int, *, may_die: bool = True) -> bool:
        """Run a micro-batch if one is due; return whether there was one."""
        kill = self.random.randrange(40) if may_die and self.random.random() < self.size.killed else None
        try:
            return self._step(now_us, kill)
        except Killed:
            self.deaths += 1
            self.died_us = now_us
            if self.random.random() < 0.4:
                self.log.clear()
            self.start(self.random.choice([self.size.lanes, self.size.lanes, 2 * self.size.lanes, 3]))
            return True

    def _step(self, now_us: int, kill: int | None) -> bool:
        text, finished = self.log[-1]
        offset = StreamOffset.from_json(json.loads(text))
        now_s = now_us / SECOND
        if finished:
            if now_s < self.ready_s:
                return False
            self.windows.batch_ends(self.ready_s, lambda _: self.size.apart_s)
            self.windows.batch_begins(now_s, None)
            if self.poll_rate.due_in_s(now_s, idle=False):
                return False
            began_s = time.perf_counter()
            following = self._next(offset, self._clock_us(now_us), now_us)
            took_s = time.perf_counter() - began_s
            self.planning_s += took_s
            self.slowest_s = max(self.slowest_s, took_s)
            if following is None:
                return False
            self.log = [self.log[-1], (canonical_json(following.to_json()), False)]
            offset = following
            self.poll_rate.record_batch(now_s, self.size.streams)
            self.windows.batch_begins(now_s, offset.batch)
            self.ready_s = now_s + self.random.uniform(0.5, LONGEST_BATCH_S)
        batch = offset.batch
        assert batch is not None
        if self.plans.counts(offset):
            self._work(batch, kill, now_us)
            if batch.next.generation_ms != batch.start.generation_ms:
                self._check_closed(batch.start.generation_ms, now_us)
        self.log[-1] = (self.log[-1][0], True)
        self.batches += 1
        return True

    def _clock_us(self, now_us: int) -> int:
        """The earlier of two clocks: that of the reader's machine, and the one that it queries from the nodes."""
        random, now_s = self.random, now_us / SECOND
        if now_s - self.asked_s >= ASK_EVERY_S:
            self.asked_s = now_s
            said_us = now_us + random.randint(-SKEW_S * SECOND, SKEW_S * SECOND - ASKING_MS * 1000)
            node = random.choice(NODES)
            found = NodeTime(node, UnixMicros(said_us // 1000 * 1000), set(NODES))
            self.servers.add_answer(found, now_s - random.random(), now_s)
        return min(self.servers.now_us(now_s), now_us + random.choice(OWN_CLOCK_S) * SECOND)

    def _next(self, offset: StreamOffset, clock_us: int, now_us: int) -> StreamOffset | None:
        at = self.plans.go_on_from(offset)
        if not isinstance(at, PlannedBatch):
            window_us = self.windows.longest_us(self.size.apart_s)
            limits = Limits(self.size.confidence_s * SECOND, self.size.leeway_s * SECOND, window_us)
            batch = plan(at, UnixMicros(clock_us), self.generations.known(now_us), limits, self.at.layout)
            if batch is None:
                return None
            at = batch
        return self.plans.planned(at, offset)

    def _work(self, batch: PlannedBatch, kill: int | None, now_us: int) -> None:
        lanes = batch.layout.lanes
        self.requests += self.size.streams * sum(part.selection.role is not Role.KEPT for part in batch.parts)
        read = [list(self._read(part, now_us)) for part in batch.parts]
        for lane in range(lanes):
            raw = self.progress.get(lane)
            todo = remainder(
                LaneTask("ks", "t", lane, batch), None if raw is None else LaneProgress.from_bytes(raw), "progress"
            )
            if todo.finished:
                continue
            slice_ = lane_range(lane, lanes)
            for number, rows in enumerate(read):
                for position, row, place in rows:
                    at = LanePosition(number, position)
                    token = int.from_bytes(position.stream_id[:8], "big", signed=True)
                    if token not in slice_ or not todo.wants(at):
                        continue
                    if kill is not None:
                        kill -= 1
                        if kill < 0:
                            raise Killed
                        self.progress[lane] = todo.midway(at).to_bytes()
                    self._publish(row, position, place)
            self.progress[lane] = todo.completed().to_bytes()
        if kill is not None:
            raise Killed

    def _read(self, part: Part, now_us: int) -> Iterator[tuple[GroupPosition, Row, int]]:
        if part.selection.role is Role.KEPT:
            return  # with vnodes nothing goes on
        place = self.generations.starts_ms.index(part.selection.newest_generation_ms)
        rows, window = self.rows.get(place, []), part.window
        low = bisect_left(rows, int(window.start_us), key=lambda row: int(row[1][2]))
        for position, row in rows[low:]:
            if window.end_us is not None and row[2] >= window.end_us:
                break
            if row[0] <= now_us:
                yield position, row, place

    def _publish(self, row: Row, position: GroupPosition, place: int) -> None:
        _, number, _, key = row
        if number not in self.unread[place]:
            raise Violation(f"row {number} was published twice")
        self.unread[place].discard(number)
        last = self.last.get(key)
        if last is not None and (place, position) <= last:
            raise Violation(f"key {key}: generation {place}, {position.time_us} us comes after {last}")
        self.last[key] = (place, position)

    def _check_closed(self, generation_ms: UnixMillis, now_us: int) -> None:
        place = self.generations.starts_ms.index(generation_ms)
        if self.unread.pop(place, None):
            raise Violation(f"generation {place} was left with rows unread")
        self.rows.pop(place, None)
        known_us = max(self.generations.starts_ms[place + 1] * 1000, self.generations.published_us[place + 1])
        stall_us, bound_us = now_us - known_us, self.size.stall_bound_s * SECOND
        self.stall_us = max(self.stall_us, stall_us)
        # After a kill, the next job needs time for the work of the killed one.
        if stall_us > bound_us and known_us - self.died_us > 3 * bound_us:
            raise Violation(f"generation {place} was read to its end {stall_us / SECOND:.0f} s after it was due")

    def _stream(self, place: int, key: int) -> StreamId:
        # A key keeps its position on the ring; its stream's token moves a little with each generation.
        token = MIN_TOKEN + 1 + (2 * key + 1) * ((1 << 63) // self.size.keys)
        return StreamId.build(Token(token - (place * 7919 + key) % (1 << 40)), key, place)
