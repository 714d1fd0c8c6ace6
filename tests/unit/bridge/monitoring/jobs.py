"""Snapshots of jobs: running, stalled, and with failing tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from bridge.model.counters import DURATION_BOUNDS_S, Histogram, LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, Window
from bridge.model.streams import MIN_TOKEN, Token
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.snapshot import (
    BatchStatistics,
    JobSnapshot,
    LaneSnapshot,
    Message,
    Ring,
    Sample,
    TableSnapshot,
    TableState,
    TableStreams,
    Topology,
)

NOW_S = 1_790_000_000.0
GENERATIONS = tuple(UnixMillis(int((NOW_S - ago_s) * 1000)) for ago_s in (900_000, 400_000, 90_000, 7_200, -45))


def counters(changes: int, *, aborts: int = 0, fencings: int = 0, errors: int = 0) -> LaneCounters:
    pages = Histogram()
    for _ in range(40):
        pages.observe(0.004)
    return LaneCounters(
        changes, changes * 310, changes // 3, changes // 800 + 9, aborts, fencings, pages, errors, changes, 18
    )


def lanes(count: int, lag_s: float, **wrong: int) -> tuple[LaneSnapshot, ...]:
    at = Cursor(GENERATIONS[3], UnixMicros(int((NOW_S - lag_s) * 1e6)))
    return tuple(LaneSnapshot(lane, at, counters(180_000 + 7_000 * lane, **wrong)) for lane in range(count))


def table(
    name: str, state: TableState = "running", *, count: int = 4, lag_s: float = 11.2, **more: object
) -> TableSnapshot:
    layout = Layout(count, Cursor(GENERATIONS[0], UnixMicros(0)))
    start_us = int((NOW_S - lag_s - 0.5) * 1e6)
    durations = Histogram(DURATION_BOUNDS_S)
    durations.observe(0.42)
    window = Window(UnixMicros(start_us), UnixMicros(start_us + 500_000))
    values = {
        "since_s": NOW_S - 5_000,
        "starts": 1,
        "layout": layout,
        "lanes": lanes(count, lag_s),
        "batches": BatchStatistics(4711, durations, {"addBatch": 0.3}, 0.42, window),
        "advanced_s": NOW_S - 0.6,
    }
    return TableSnapshot(name, f"bridge.{name}", state, **(values | more))  # type: ignore[arg-type]


def ring(groups: int = 96) -> Ring:
    step = (1 << 64) // groups
    return Ring(GENERATIONS[3], tuple((Token(MIN_TOKEN + step * (at + 1) - 1), 8) for at in range(groups)))


def samples(
    *names: str, lag_s: float = 11.2, stood_for_s: Mapping[str, float] = MappingProxyType({})
) -> tuple[Sample, ...]:
    found, changes = [], dict.fromkeys(names, 0)
    for at in range(181):
        at_s = NOW_S - 5.0 * (180 - at)
        lags = {}
        for row, name in enumerate(names):
            still_s = max(0.0, at_s - NOW_S + stood_for_s.get(name, 0.0))
            rate = 0.0 if still_s else (400 / (row + 1)) * (1.3 + math.sin(at / 14 + row) + 0.2 * math.sin(at * 1.7))
            changes[name] += int(5 * rate)
            lags[name] = lag_s + still_s + 0.6 * math.sin(at)
        found.append(Sample(at_s, dict(changes), lags))
    return tuple(found)


def running() -> JobSnapshot:
    names = ("shop.orders", "shop.line_items", "crm.contacts")
    tables = (table(names[0]), table(names[1], count=4, lag_s=10.9), table(names[2], count=2, lag_s=11.4))
    return JobSnapshot(
        name="orders-bridge",
        version="0.1.0",
        confidence_s=10.0,
        leeway_s=5.0,
        stalled_after_s=60.0,
        dead_after_s=300.0,
        started_s=NOW_S - 5_010,
        now_s=NOW_S,
        tick_s=NOW_S - 0.1,
        tables=tables,
        topology=Topology(
            dict.fromkeys(names, TableStreams(GENERATIONS, ring())), dict.fromkeys(names, 86_400), clock_ahead_s=0.0
        ),
        requests_per_s=10_000.0,
        message_counts={"warning": 0, "error": 0},
        samples=samples(*names),
    )


def stalled() -> JobSnapshot:
    names = ("shop.orders",)
    one = table("shop.orders", lag_s=311.2, lanes=lanes(4, 311.2, errors=12), advanced_s=NOW_S - 300)
    warning = Message(NOW_S - 20, "warning", "ScyllaDB at 10.0.0.7:9042 timed out reading for SELECT * FROM ...", 9)
    return replace(
        running(),
        tables=(one,),
        topology=replace(running().topology, problem="ScyllaDB at 10.0.0.7:9042 did not answer in time", failures=3),
        messages=(warning,),
        message_counts={"warning": 9, "error": 0},
        samples=samples(*names, stood_for_s={"shop.orders": 300}),
    )


def failing() -> JobSnapshot:
    lost = (
        "shop.orders: the log keeps changes for 86400 s, but the reading stands at (generation 1789100000000, "
        "1789910000000000 us): what was written between 2026-09-21 and 2026-09-22 may have expired <unread>"
    )
    tables = (
        table("shop.orders", "stopped", reason=lost, lag_s=90_000.0, failures=1, advanced_s=None),
        table(
            "shop.line_items",
            "retrying",
            reason="Kafka at k1:9092: commit_transaction of b.shop.line_items.2 failed: _TIMED_OUT",
            again_at_s=NOW_S + 8,
            lag_s=64.0,
            lanes=lanes(4, 64.0, aborts=3, fencings=1),
            failures=4,
            advanced_s=NOW_S - 50,
        ),
        table("crm.contacts", count=2, lag_s=11.4),
    )
    messages = (
        Message(NOW_S - 3_000, "error", f"shop.orders stops: {lost}"),
        Message(NOW_S - 12, "warning", "shop.line_items: Kafka at k1:9092 failed (failure 4; starting again in 8 s)"),
        Message(NOW_S - 5, "error", f"shop.orders has stopped: {lost}", 50),
    )
    return replace(
        running(),
        tables=tables,
        messages=messages,
        message_counts={"warning": 1, "error": 51},
        samples=samples(*(one.name for one in tables), stood_for_s={"shop.orders": 89_989.0, "shop.line_items": 53.0}),
    )
