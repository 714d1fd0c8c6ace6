"""The length of windows, derived from how long micro-batches take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from bridge.planning.micro_batches import GenerationStart, Limits, plan
from bridge.planning.window_size import WindowSize, fixed_and_window_that_keeps_up, next_window_us

SECOND = 1_000_000
G1 = UnixMillis(1_000_000)
LAYOUT = Layout(2, Cursor.at_start_of(G1))
ONE = GenerationStart(G1)


def at(generation: UnixMillis, seconds_after: float) -> Cursor:
    return Cursor(generation, now(generation, seconds_after))


def now(generation: UnixMillis, seconds_after: float) -> UnixMicros:
    return UnixMicros(millis_to_micros(generation) + int(seconds_after * SECOND))


def test_window_length_follows_the_time_a_micro_batch_takes() -> None:
    """Quick full windows grow, slow ones shrink, and the bounds hold."""
    assert next_window_us(SECOND, 100, 3000, full=True, longest_us=60 * SECOND) == 4 * SECOND
    assert next_window_us(SECOND, 1600, 3000, full=True, longest_us=60 * SECOND) == 2 * SECOND
    assert next_window_us(SECOND, 100, 3000, full=False, longest_us=60 * SECOND) == SECOND
    assert next_window_us(200 * SECOND, 12_000, 3000, full=False, longest_us=600 * SECOND) == 50 * SECOND
    assert next_window_us(50 * SECOND, 100, 3000, full=True, longest_us=60 * SECOND) == 60 * SECOND
    assert next_window_us(1, 100, 3000, full=False, longest_us=60 * SECOND) == 100_000


def test_windows_stay_longer_than_the_micro_batches_that_read_them() -> None:
    """When a micro-batch is slow by its fixed cost, windows do not shrink so far that the reading falls behind."""
    for window_us in (SECOND, 60 * SECOND):
        for _ in range(20):
            window_us = next_window_us(window_us, 10_000, 3000, full=True, longest_us=600 * SECOND)
        assert window_us == 12.5 * SECOND


def test_a_table_that_is_polled_seldom_has_longer_windows() -> None:
    """Longer than the interval between polls, within the configured maximum."""
    windows = WindowSize(600 * SECOND, 3000)
    assert windows.longest_us(0.1) == 60 * SECOND
    assert windows.longest_us(100) == 125 * SECOND
    assert windows.longest_us(3600) == 600 * SECOND
    batch = PlannedBatch(at(G1, 0), at(G1, 60), LAYOUT)
    windows.batch_begins(10, batch)
    windows.batch_ends(10.5, lambda _: 0.1)
    assert windows.longest_us(0.1) == 240 * SECOND
    windows.batch_begins(20, None)
    windows.batch_ends(99, lambda _: 0.1)
    assert windows.longest_us(0.1) == 240 * SECOND
    windows.batch_begins(100, batch)
    windows.batch_ends(140, lambda _: 100)  # less than half of the interval between micro-batches
    assert windows.longest_us(0.1) == 240 * SECOND
    windows.batch_begins(200, batch)
    windows.batch_ends(240, lambda _: 0.1)
    assert windows.longest_us(0.1) == 60 * SECOND
    assert WindowSize(SECOND, 3000).longest_us(0) == SECOND


TARGET_S = 3.0
HOUR = 3600


class Table:
    """A table that is read as the planner decides; how long a micro-batch takes depends on its window (both in s).

    Attributes:
        now_s: the time since the generation began, in s.
        at_s: the cursor, likewise.
        lengths_s: the lengths of the windows that were read.
        took_s: how long each micro-batch took.
    """

    def __init__(self, takes_s: Callable[[float], float], backlog_s: float, *, apart_s: float = 0.0) -> None:
        self.takes_s, self.apart_s = takes_s, apart_s
        self.now_s, self.at_s = backlog_s, 0.0
        self.lengths_s: list[float] = []
        self.took_s: list[float] = []
        self._windows = WindowSize(HOUR * SECOND, int(TARGET_S * 1000))
        self._cursor = at(G1, 0)

    @property
    def behind_s(self) -> float:
        """How far the cursor is behind the clock, in s."""
        return self.now_s - self.at_s

    def work(self, seconds: float) -> None:
        """Run micro-batches for about so long."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.step()

    def step(self, *, paused_s: float = 0.0) -> None:
        """One micro-batch, which a server's pause may lengthen."""
        self._windows.batch_ends(self.now_s, lambda _: self.apart_s)
        limits = Limits(confidence_us=0, leeway_us=5 * SECOND, window_us=self._windows.longest_us(self.apart_s))
        batch = plan(self._cursor, now(G1, self.now_s), [ONE], limits, LAYOUT)
        self._windows.batch_begins(self.now_s, batch)
        if batch is None:
            self.now_s += 1.0
            return
        # There is one part, from cursor to cursor. `PlannedBatch.parts` would be slow for 300,000 micro-batches.
        self.lengths_s.append((batch.next.time_us - self._cursor.time_us) / SECOND)
        self.took_s.append(self.takes_s(self.lengths_s[-1]) + paused_s)
        self.now_s += max(self.took_s[-1], self.apart_s)
        self._cursor = batch.next
        self.at_s += self.lengths_s[-1]


def costing(fixed_s: float, share: float, chance: float = 0.0) -> Callable[[float], float]:
    """Return how long a micro-batch takes: a fixed part, and a share of each second of its window, varied by chance."""

    def draws() -> Iterator[float]:
        state = 1
        while True:
            state = state * 1_103_515_245 % 2_147_483_647
            yield 1 + chance * (2 * state / 2_147_483_647 - 1)

    factors = draws()
    return lambda length_s: (fixed_s + share * length_s) * next(factors)


@pytest.mark.parametrize(("chance", "times"), [(0.0, 3), (0.3, 10)])
@pytest.mark.parametrize("share", [0.5, 0.81, 0.9, 0.99])
def test_micro_batches_in_proportion_to_their_windows_stay_near_the_target(
    share: float, chance: float, times: float
) -> None:
    """Longer windows would gain nothing, however much of its capacity the bridge needs."""
    table = Table(costing(0.3, share, chance), 4 * HOUR)
    table.work(600)
    begun = len(table.took_s)
    table.work(8 * HOUR)
    took_s = sorted(table.took_s[begun:])
    assert took_s[-1] < times * TARGET_S
    assert took_s[len(took_s) // 2] < 2.5 * TARGET_S
    if share < 0.9:
        assert table.behind_s < 4 * HOUR


def test_backlog_is_read_in_windows_as_long_as_the_target_allows() -> None:
    """The table is far behind, and the fixed part is small."""
    table = Table(costing(0.3, 0.5), 4 * HOUR)
    table.work(HOUR)
    assert min(table.took_s[10:]) > TARGET_S
    assert table.behind_s < 4 * HOUR - 0.75 * HOUR


@pytest.mark.parametrize("share", [0.01, 0.5, 0.85, 0.99])
@pytest.mark.parametrize("before", [0, 1, 5, 50])
@pytest.mark.parametrize("backlog_s", [0, 4 * HOUR])
def test_pause_makes_no_long_windows(share: float, before: int, backlog_s: float) -> None:
    """One micro-batch took ten minutes while Kafka was away, which says nothing about the next ones."""
    table = Table(costing(0.3, share), backlog_s)
    for _ in range(before):
        table.step()
    table.step(paused_s=600)
    begun = len(table.took_s)
    table.work(HOUR / 3)
    assert max(table.took_s[begun : begun + 3]) < 5 * TARGET_S + 60 * share / 4
    assert max(table.took_s[begun + 3 :]) < 4 * TARGET_S


@pytest.mark.parametrize("fixed_s", [0.2, 7, 10, 40])
@pytest.mark.parametrize(("share", "chance"), [(0.01, 0.0), (0.01, 0.3), (0.3, 0.0), (0.3, 0.3), (0.5, 0.3)])
@pytest.mark.parametrize("backlog_s", [10, 4 * HOUR])
def test_table_keeps_up_however_much_is_fixed(fixed_s: float, share: float, chance: float, backlog_s: float) -> None:
    """Windows grow as far as the fixed part requires, and not much further; a backlog gets shorter."""
    table = Table(costing(fixed_s, share, chance), backlog_s)
    table.work(600)
    begun = len(table.took_s)
    table.work(1.2 * HOUR if fixed_s < 1 else 8 * HOUR)
    few_s = 6 * max(TARGET_S, fixed_s / (1 - share))
    assert max(table.took_s[begun:]) < few_s
    assert table.behind_s < max(few_s, backlog_s - HOUR)


@pytest.mark.parametrize(("fixed_s", "share"), [(7, 0.81), (10, 0.9), (40, 0.8)])
def test_table_keeps_up_where_much_is_fixed_and_little_is_spare(fixed_s: float, share: float) -> None:
    """Micro-batches are as long as the two require."""
    table = Table(costing(fixed_s, share), 4 * HOUR)
    table.work(HOUR)
    behind_s = table.behind_s
    table.work(8 * HOUR)
    assert table.behind_s < behind_s
    assert max(table.took_s) < 2.5 * fixed_s / (1 - share)


@pytest.mark.parametrize(("fixed_s", "apart_s"), [(7, 1), (10, 1), (20, 5), (10, 10), (40, 41)])
def test_backlog_is_not_read_in_windows_that_are_all_fixed_cost(fixed_s: float, apart_s: float) -> None:
    """A micro-batch may take twice its fixed part, so that half of its time is spent on the log."""
    table = Table(costing(fixed_s, 0.01), 24 * HOUR, apart_s=apart_s)
    table.work(HOUR)
    assert table.behind_s < 3 * max(fixed_s, apart_s)
    assert max(table.took_s) < 4 * fixed_s


@pytest.mark.parametrize(("fixed_s", "every"), [(5, 10), (7, 20), (7, 12), (10, 10)])
def test_pauses_do_not_add_up(fixed_s: float, every: int) -> None:
    """One of several micro-batches is held up for half a minute; the table has little load."""
    table = Table(costing(fixed_s, 0.01), HOUR)
    while table.now_s < 12 * HOUR:
        table.step(paused_s=30.0 if len(table.took_s) % every == every - 1 else 0.0)
    assert table.behind_s < 60 + 4 * fixed_s


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # The fixed part becomes proportional or the reverse; both the tolerance and the lower bound must be released.
        ((40, 0.01), (0.3, 0.85)),
        ((40, 0.01), (40, 0.3)),
        ((0.2, 0.9), (4, 0.2)),
        ((0.3, 0.99), (10, 0.3)),
        ((10, 0.8), (0.3, 0.3)),
    ],
)
def test_window_length_follows_a_load_that_changes(first: tuple[float, float], then: tuple[float, float]) -> None:
    """The fixed part is estimated again while micro-batches take longer than the target."""
    table = Table(costing(*first), 1000 * HOUR)
    table.work(2 * HOUR)
    table.takes_s = costing(*then)
    # The window planned before may be an hour long, and each second of it takes 0.85 s now.
    table.work(1.5 * HOUR)
    begun, behind_s = len(table.took_s), table.behind_s
    table.work(4 * HOUR)
    assert table.behind_s < behind_s - 0.1 * HOUR
    assert max(table.took_s[begun:]) < 3 * max(TARGET_S, then[0] / (1 - then[1]))


@pytest.mark.parametrize("fixed_s", [8, 40, 100])
def test_a_table_that_is_polled_seldom_tries_longer_windows(fixed_s: float) -> None:
    """Its request rate allows no shorter windows to estimate the fixed part."""
    table = Table(costing(fixed_s, 0.01), 30, apart_s=30)
    table.work(8 * HOUR)
    behind_s = table.behind_s
    table.work(8 * HOUR)
    assert table.behind_s <= max(behind_s, 2 * fixed_s)
    assert table.behind_s < 20 * max(30, fixed_s)


@pytest.mark.parametrize(
    ("short", "long", "expected_s"),
    [
        ((10, 5.0), (20, 10.0), 0),  # all in proportion
        ((1, 10.0), (20, 10.0), 12.5),  # all fixed: 1.25 s a second, at most
        ((10, 6.0), (30, 16.0), 4),  # 1 s fixed, half of each second left: twice the 2 s at which it just keeps up
        ((10, 9.9), (20, 19.6), 4),  # where 3 % of each second are left, a tenth counts
        ((1, 3.0), (4, 600.0), 0),  # a pause in the longer one
    ],
)
def test_window_that_keeps_up(short: tuple[int, float], long: tuple[int, float], expected_s: float) -> None:
    """The fixed part follows from how long two windows took (s), and the window follows from the fixed part."""
    (short_s, short_took_s), (long_s, long_took_s) = short, long
    _, found_us = fixed_and_window_that_keeps_up(
        (short_s * SECOND, short_took_s * 1000), (long_s * SECOND, long_took_s * 1000)
    )
    assert found_us / SECOND == pytest.approx(expected_s, abs=0.01)
