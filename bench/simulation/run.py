"""Runs a simulated day, and measures what a lane keeps of a generation change."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from operator import attrgetter
from random import Random
from typing import Any

from bench.simulation.scenario import FIRST, SECOND, Generations, Size, Violation
from bench.simulation.table import Table
from bridge.adapters.scylla.stream_metadata import select
from bridge.model.micro_batch import Role, Selection
from bridge.model.streams import MIN_TOKEN, StreamId, Token, lane_range
from bridge.model.times import UnixMillis, millis_to_micros
from sandbox.scylla.cluster.generation import build_vnode_streams


def run(size: Size, seed: int) -> dict[str, Any]:
    """Simulate, and return the figures.

    Raises:
        Violation: an invariant is violated.
    """
    random = Random(seed)
    generations = Generations(size, random)
    tables = [Table(generations, size, Random(random.random())) for _ in range(size.tables)]
    first_us = millis_to_micros(FIRST)
    began_s = time.perf_counter()
    for table in tables:
        table.start(size.lanes)
    end_us = first_us + size.minutes * 60 * SECOND
    for table in tables:
        due_us = int(first_us)
        for now_us in sorted(_instants(size, table.random, first_us, end_us)):
            while due_us <= now_us:
                table.step(due_us)
                due_us += size.interval_s * SECOND
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
        "longest_stall_s": round(max(table.stall_us for table in tables) / SECOND, 1),
        "stall_bound_s": round(size.stall_bound_s, 1),
        "took_s": round(time.perf_counter() - began_s, 1),
    }


def _instants(size: Size, random: Random, first_us: int, end_us: int) -> Iterator[int]:
    change_us = size.change_every_s * SECOND
    for _ in range(size.rows_per_minute * size.minutes):
        now_us = random.randrange(first_us, end_us)
        # Many rows lie in the seconds around a generation change.
        near = random.random() < 1 / 3
        yield now_us - (now_us - first_us) % change_us + random.randrange(8 * SECOND) if near else now_us


def _drain(table: Table, end_us: int) -> None:
    table.requests_in_time = table.requests
    for steps in range(int(600 + 6 * table.size.apart_s) // table.size.interval_s):
        table.step(end_us + steps * table.size.interval_s * SECOND, may_die=False)
    allowed = table.size.requests_per_s / table.size.tables * (end_us - millis_to_micros(FIRST)) / SECOND
    # A restarted job may request a micro-batch again, and its limit starts again. The drain above does not count.
    if table.requests_in_time > allowed + 2 * table.restarts * table.size.streams:
        raise Violation(f"{table.requests_in_time} requests were made where {allowed:.0f} are allowed")
    left = {place: unread for place, unread in table.unread.items() if unread}
    if left:
        raise Violation(f"rows of generations {sorted(left)} were never read")


def resolving(streams: int, lanes: int) -> dict[str, Any]:
    """Measure the time and the memory of a lane for a change between two generations with so many streams."""
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
