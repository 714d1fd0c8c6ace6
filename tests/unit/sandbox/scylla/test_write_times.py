"""Mutations come at their times, by a clock that the test turns."""

from __future__ import annotations

from itertools import islice

from bridge.model.times import UnixMicros
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import paced, spread, system_clock_us
from tests.unit.sandbox.scylla.orders import T, table


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self) -> None:
        self.now_us = int(T)

    def __call__(self) -> UnixMicros:
        return UnixMicros(self.now_us)

    def sleep(self, seconds: float) -> None:
        self.now_us += round(seconds * 1_000_000)


def test_a_rate_spaces_the_mutations() -> None:
    """The first comes at once; one that is late does not delay the following."""
    clock, times = Clock(), []
    for now_us, _mutation in paced(Workload(table(), seed=1), count=5, rate_per_s=10, clock=clock, sleep=clock.sleep):
        times.append(now_us - T)
        if len(times) == 2:
            clock.sleep(0.15)
    assert times == [0, 100_000, 250_000, 300_000, 400_000]


def test_without_a_rate_nobody_sleeps() -> None:
    """They come as fast as they are taken."""
    clock = Clock()
    taken = list(paced(Workload(table(), seed=1), count=3, clock=clock, sleep=clock.sleep))
    assert [now_us for now_us, _mutation in taken] == [T, T, T]
    assert [mutation for _now, mutation in taken] == list(islice(Workload(table(), seed=1), 3))


def test_actions_are_done_in_time_order_before_the_next_mutation() -> None:
    """Each once, when its instant has come."""
    clock = Clock()
    done: list[str] = []
    at = [
        (UnixMicros(T + 150_000), lambda: done.append("second")),
        (UnixMicros(T + 100_000), lambda: done.append("first")),
        (UnixMicros(T + 900_000), lambda: done.append("never")),
    ]
    seen = [
        (now_us - T, list(done))
        for now_us, _mutation in paced(
            Workload(table(), seed=1), count=4, rate_per_s=10, at=at, clock=clock, sleep=clock.sleep
        )
    ]
    assert seen == [
        (0, []),
        (100_000, ["first"]),
        (200_000, ["first", "second"]),
        (300_000, ["first", "second"]),
    ]


def test_a_load_is_spread_evenly() -> None:
    """From the start on, never reaching the end."""
    times = [
        now_us - T for now_us, _ in spread(Workload(table(), seed=1), count=4, start_us=T, until_us=UnixMicros(T + 10))
    ]
    assert times == [0, 2, 5, 7]


def test_the_system_clock_gives_microseconds_since_the_epoch() -> None:
    """It is past the day on which this was written."""
    assert system_clock_us() > 1_760_000_000_000_000
