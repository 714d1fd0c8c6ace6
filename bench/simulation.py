"""`python -m bench.simulation`: a simulated day of generation changes, without any server; figures on standard output.

Many tables of a large cluster are read by the bridge's own planner, pacing and lane protocol while generations change
and are published early or late, clocks of coordinators and of the reader differ and step, rows become visible late or
come late into old streams, and jobs are killed with or without their checkpoint. Every row must come once, every key in
order, nothing may be left out, no more be asked than is allowed, and no key wait longer than is promised; the first
violation ends the program with exit status 1.

Two days are simulated: one with a change every minute, which takes more requests a second than the default (each
generation is asked for once at least), and one with a change every hour under the default.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from random import Random
from typing import Any, Final

from bench import command
from bench.errors import BenchError
from bridge.adapters.scylla.stream_metadata import select
from bridge.config.document import ReadingSettings, ScyllaSettings
from bridge.model.kept_formats import LaneProgress, StreamOffset, canonical_json
from bridge.model.micro_batch import Part, PlannedBatch, Role, Selection
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.streams import MIN_TOKEN, StreamId, Token, build_vnode_streams, lane_range
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros, timeuuid_of
from bridge.planning.micro_batches import GenerationStart, Limits, first_cursor, plan
from bridge.planning.poll_rate import PaceLimits, Pacer, load_interval_s
from bridge.planning.server_clock import ASK_EVERY_S, ServerClock
from bridge.planning.window_size import WindowLength
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.protocol import LaneTask, remainder
from bridge.publishing.start_decision import decide_start

_SECOND: Final = 1_000_000
_FIRST: Final = UnixMillis(1_700_000_000_000)
_LEEWAY_S: Final = 5
_LAG_S: Final = 4
"""A row is visible at most this long after its write time."""
_SKEW_S: Final = 2
"""A clock, the reader's too, is at most this far ahead."""
_CONFIDENCE_S: Final = _LAG_S + _SKEW_S
"""Just enough, so that whoever reads too early is found out."""
_ASKING_MS: Final = 300
"""Nodes that are asked for their time are that much less ahead: the reader takes up to 250 ms of asking for theirs."""
_LONGEST_BATCH_S: Final = 5.0
_OWN_CLOCK_S: Final = (0, 0, -1, _SKEW_S, -20, 3600)
"""How far the clock of the reader's machine is ahead, by turns."""
_SETTINGS: Final = ReadingSettings()


@dataclass(frozen=True, slots=True)
class Size:
    """What is simulated.

    Attributes:
        streams: of each generation.
        change_every_s: from one generation to the next.
        interval_s: from one look at whether a micro-batch is due to the next.
        requests_per_s: the limit for all tables together.
        rows_per_minute: of each table; a third of them within seconds of a change.
        killed: share of micro-batches in which the job dies.
    """

    tables: int = 20
    minutes: int = 1440
    streams: int = 100 * 256 * 16
    change_every_s: int = 60
    interval_s: int = 5
    requests_per_s: int = 300_000
    rows_per_minute: int = 30
    keys: int = 40
    lanes: int = 4
    killed: float = 0.01

    @property
    def apart_s(self) -> float:
        """How far the limit keeps a table's micro-batches apart."""
        return load_interval_s(self.streams, self.requests_per_s / self.tables)

    @property
    def stall_bound_s(self) -> float:
        """How long a moved key may wait after its change is due and published.

        For each of two micro-batches until it is due, and until that is looked for; the first is begun after one that
        was under way. Steps of the reader's clock come on top.
        """
        each_s = max(self.apart_s, _LONGEST_BATCH_S) + self.interval_s
        return _CONFIDENCE_S + _LEEWAY_S + 2 * each_s + max(-min(_OWN_CLOCK_S), 0)


class Violation(BenchError):  # noqa: N818  # what the simulation is there to find
    """An invariant does not hold."""


class Killed(Exception):  # noqa: N818  # not a failure
    """The job dies here."""


Row = tuple[int, int, int, int]
"""When it becomes visible (us), its number, its write time (us), its key."""


class Generations:
    """When each starts and when it is published: in order, up to a minute before its start or 40 s after."""

    def __init__(self, size: Size, random: Random) -> None:
        every_ms = size.change_every_s * 1000
        count = 1 + size.minutes * 60_000 // every_ms
        self.starts_ms = [UnixMillis(_FIRST + place * every_ms) for place in range(count)]
        self.published_us: list[int] = []
        for start_ms in self.starts_ms:
            late_s = random.choice([-60, -30, 3, 12, 40])
            at_us = start_ms * 1000 + late_s * _SECOND
            self.published_us.append(max(at_us, self.published_us[-1] if self.published_us else 0))
        self.published_us[0] = 0
        self._all = [GenerationStart(start_ms) for start_ms in self.starts_ms]

    def known(self, now_us: int) -> Sequence[GenerationStart]:
        """Those that are published by an instant."""
        return self._all[: bisect_right(self.published_us, now_us)]

    def place(self, time_us: int) -> int:
        """The generation that a write time belongs to."""
        return bisect_right(self.starts_ms, time_us // 1000) - 1


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
        """One row, by a coordinator whose clock is off and which may not have heard of the latest generation."""
        random, generations = self.random, self.generations
        time_us = now_us + random.randint(-_SKEW_S * _SECOND, _SKEW_S * _SECOND)
        place = generations.place(time_us)
        if place < 0:
            return
        fresh = time_us < generations.starts_ms[place] * 1000 + _LEEWAY_S * _SECOND
        if place and fresh and random.random() < 0.5:
            place -= 1
        key = random.randrange(self.size.keys)
        self.written += 1
        stream = self._stream(place, key)
        position = GroupPosition.of(stream.raw, timeuuid_of(UnixMicros(time_us), self.written.to_bytes(8, "big")))
        visible_us = now_us + random.randint(0, (_LAG_S - _SKEW_S) * _SECOND)
        insort(self.rows.setdefault(place, []), (position, (visible_us, self.written, time_us, key)))
        self.unread.setdefault(place, set()).add(self.written)

    def start(self, lanes: int) -> None:
        """A job starts: Kafka says where; what was interrupted is finished; lanes are laid anew if need be."""
        while True:
            found = {lane: LaneProgress.from_bytes(raw) for lane, raw in self.progress.items()}
            first = first_cursor(self.generations.known(0), None, _LEEWAY_S * _SECOND)
            start = decide_start(found, lanes, first)
            if not start.recover:
                break
            assert start.interrupted is not None
            self._work(start.interrupted, None, sys.maxsize)
        if start.assign:
            for lane in range(max(lanes, len(self.progress))):
                self.progress[lane] = LaneProgress(lane, start.layout, start.cursor).to_bytes()
        self.plans, self.at = OffsetReconciler(start), start
        # A new process knows nothing of the former one's requests.
        self.pacer = Pacer(PaceLimits(self.size.requests_per_s / self.size.tables, 0), 0)
        self.windows = WindowLength(_SETTINGS.max_window_ms * 1000, _SETTINGS.target_batch_ms)
        self.servers, self.asked_s, self.ready_s = ServerClock(), float("-inf"), 0.0
        self.restarts += 1
        if not self.log:
            self.log = [(canonical_json(StreamOffset(start.cursor, None).to_json()), True)]

    def step(self, now_us: int, *, may_die: bool = True) -> bool:
        """One micro-batch; says whether there was any."""
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
        now_s = now_us / _SECOND
        if finished:
            if now_s < self.ready_s:
                return False
            self.windows.done(self.ready_s, lambda _: self.size.apart_s)
            self.windows.planned(now_s, None)
            if self.pacer.due_in_s(now_s, idle=False):
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
            self.pacer.planned(now_s, self.size.streams)
            self.windows.planned(now_s, offset.batch)
            self.ready_s = now_s + self.random.uniform(0.5, _LONGEST_BATCH_S)
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
        """The earlier of two clocks: this machine's, and what nodes say now and then."""
        random, now_s = self.random, now_us / _SECOND
        if now_s - self.asked_s >= ASK_EVERY_S:
            self.asked_s = now_s
            said_us = now_us + random.randint(-_SKEW_S * _SECOND, _SKEW_S * _SECOND - _ASKING_MS * 1000)
            self.servers.heard(UnixMicros(said_us // 1000 * 1000), now_s - random.random(), now_s)
        return min(self.servers.now_us(now_s), now_us + random.choice(_OWN_CLOCK_S) * _SECOND)

    def _next(self, offset: StreamOffset, clock_us: int, now_us: int) -> StreamOffset | None:
        at = self.plans.go_on_from(offset)
        if not isinstance(at, PlannedBatch):
            window_us = self.windows.longest_us(self.size.apart_s)
            limits = Limits(_CONFIDENCE_S * _SECOND, _LEEWAY_S * _SECOND, window_us)
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
        stall_us, bound_us = now_us - known_us, self.size.stall_bound_s * _SECOND
        self.stall_us = max(self.stall_us, stall_us)
        # What a job has left that dies is made up for in time.
        if stall_us > bound_us and known_us - self.died_us > 3 * bound_us:
            raise Violation(f"generation {place} was read to its end {stall_us / _SECOND:.0f} s after it was due")

    def _stream(self, place: int, key: int) -> StreamId:
        # A key's place on the ring stays, its stream's token moves a little with each generation.
        token = MIN_TOKEN + 1 + (2 * key + 1) * ((1 << 63) // self.size.keys)
        return StreamId.build(Token(token - (place * 7919 + key) % (1 << 40)), key, place)


def run(size: Size, seed: int) -> dict[str, Any]:
    """Simulate; gives the figures.

    Raises:
        Violation: an invariant does not hold.
    """
    random = Random(seed)
    generations = Generations(size, random)
    tables = [Table(generations, size, Random(random.random())) for _ in range(size.tables)]
    first_us = millis_to_micros(_FIRST)
    began_s = time.perf_counter()
    for table in tables:
        table.start(size.lanes)
    end_us = first_us + size.minutes * 60 * _SECOND
    for table in tables:
        due_us = int(first_us)
        for now_us in sorted(_instants(size, table.random, first_us, end_us)):
            while due_us <= now_us:
                table.step(due_us)
                due_us += size.interval_s * _SECOND
            table.write(now_us)
        _drain(table, end_us)
    taken = [table.batches for table in tables]
    return {
        "tables": size.tables,
        "streams": size.streams,
        "generations": len(generations.starts_ms),
        "rows": sum(table.written for table in tables),
        "micro_batches": sum(taken),
        "deaths": sum(table.deaths for table in tables),
        "planning_ms": round(1000 * sum(table.planning_s for table in tables) / max(1, sum(taken)), 3),
        "slowest_planning_ms": round(1000 * max(table.slowest_s for table in tables), 1),
        "requests_per_s": round(sum(table.requests_in_time for table in tables) / (size.minutes * 60)),
        "requests_per_s_allowed": size.requests_per_s,
        "longest_stall_s": round(max(table.stall_us for table in tables) / _SECOND, 1),
        "stall_bound_s": round(size.stall_bound_s, 1),
        "took_s": round(time.perf_counter() - began_s, 1),
    }


def _instants(size: Size, random: Random, first_us: int, end_us: int) -> Iterator[int]:
    change_us = size.change_every_s * _SECOND
    for _ in range(size.rows_per_minute * size.minutes):
        now_us = random.randrange(first_us, end_us)
        # The seconds around a change are what matters.
        near = random.random() < 1 / 3
        yield now_us - (now_us - first_us) % change_us + random.randrange(8 * _SECOND) if near else now_us


def _drain(table: Table, end_us: int) -> None:
    table.requests_in_time = table.requests
    for steps in range(int(600 + 6 * table.size.apart_s) // table.size.interval_s):
        table.step(end_us + steps * table.size.interval_s * _SECOND, may_die=False)
    allowed = table.size.requests_per_s / table.size.tables * (end_us - millis_to_micros(_FIRST)) / _SECOND
    # A job that dies may ask for a micro-batch once more, and begins to count anew; the drain above is a run's end.
    if table.requests_in_time > allowed + 2 * table.restarts * table.size.streams:
        raise Violation(f"{table.requests_in_time} requests were made where {allowed:.0f} are allowed")
    left = {place: unread for place, unread in table.unread.items() if unread}
    if left:
        raise Violation(f"rows of generations {sorted(left)} were never read")


def resolving(streams: int, lanes: int) -> dict[str, Any]:
    """What a lane's task keeps of a change between two generations of so many streams: time and memory."""
    shards = 16
    ends = [Token(MIN_TOKEN + (1 << 64) * (place + 1) // (streams // shards) - 1) for place in range(streams // shards)]
    slice_ = lane_range(0, lanes)
    share = [end for end in ends if end in slice_]
    randoms = Random(1)
    two = [
        build_vnode_streams(share, shards, 12, (randoms.getrandbits(38) for _ in range(len(share) * shards)))
        for _ in range(2)
    ]
    tracemalloc.start()
    began_s = time.perf_counter()
    before, here = (
        dict.fromkeys(
            sorted((StreamId(one.raw) for vnode in made for one in vnode), key=attrgetter("raw")), UnixMillis(place)
        )
        for place, made in enumerate(two)
    )
    closed = select(Selection(UnixMillis(1), Role.CLOSED, UnixMillis(0)), here, before)
    took_s = time.perf_counter() - began_s
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"streams": streams, "of_lane": len(closed), "ms": round(took_s * 1000), "mib": round(peak / 2**20, 1)}


def main(argv: Sequence[str] | None = None) -> int:
    """The program; see the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    whole = Size()
    parser.add_argument("--tables", type=command.count, default=whole.tables)
    parser.add_argument("--minutes", type=command.count, default=whole.minutes)
    parser.add_argument("--nodes", type=command.count, default=100)
    parser.add_argument("--vnodes", type=command.count, default=256)
    parser.add_argument("--shards", type=command.count, default=16)
    parser.add_argument(
        "--interval",
        type=command.count,
        default=whole.interval_s,
        help="seconds from look to look for a micro-batch that is due",
    )
    parser.add_argument(
        "--requests-per-second",
        type=command.count,
        default=whole.requests_per_s,
        help="the first day's limit, over all tables",
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    streams = given.nodes * given.vnodes * given.shards
    often = Size(
        tables=given.tables,
        minutes=given.minutes,
        streams=streams,
        interval_s=given.interval,
        requests_per_s=given.requests_per_second,
    )
    default: int = ScyllaSettings.model_fields["requests_per_second"].default
    try:
        for size in (often, replace(often, change_every_s=3600, requests_per_s=default)):
            print(json.dumps(run(size, given.seed)), flush=True)
    except Violation as violation:
        print(f"violated: {violation}", file=sys.stderr)
        return 1
    growth = [resolving(streams // share, whole.lanes) for share in (4, 2, 1)]
    for line in growth:
        print(json.dumps(line))
    if growth[-1]["mib"] > 1.25 * 4 * growth[0]["mib"]:
        print("memory grows faster than the number of streams", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
