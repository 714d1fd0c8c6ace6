"""Times for mutations: at a rate in real time, with actions at chosen times, or spread over a past interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import Mutation
from sandbox.scylla.writer import TimedMutation

Action = Callable[[], object]
_LONGEST_WAIT_S: Final = 0.05


def system_clock_us() -> UnixMicros:
    """The machine's clock in microseconds."""
    return UnixMicros(time.time_ns() // 1000)


def paced(
    mutations: Iterable[Mutation],
    *,
    count: int,
    rate_per_s: float | None = None,
    at: Sequence[tuple[UnixMicros, Action]] = (),
    clock: Callable[[], UnixMicros] = system_clock_us,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[TimedMutation]:
    """Yield the first `count` mutations at a rate, each with its time.

    A writer that falls behind catches up: the rate holds over the whole run, not between two mutations.

    Args:
        mutations: an endless workload will do.
        count: how many.
        rate_per_s: None goes as fast as they are taken.
        at: instants, in us, and what to do once each has come, before the next mutation.
        clock: gives the time.
        sleep: waits for so many seconds.
    """
    actions = sorted(at, key=lambda entry: entry[0])
    begin_us = clock()
    for number, mutation in enumerate(islice(mutations, count)):
        now_us = clock()
        if rate_per_s is not None:
            due_us = begin_us + int(number * 1_000_000 / rate_per_s)
            while now_us < due_us:
                sleep(min((due_us - now_us) / 1_000_000, _LONGEST_WAIT_S))
                now_us = clock()
        while actions and actions[0][0] <= now_us:
            actions.pop(0)[1]()
            now_us = clock()
        yield now_us, mutation


def spread(
    mutations: Iterable[Mutation], *, count: int, start_us: UnixMicros, until_us: UnixMicros
) -> Iterator[TimedMutation]:
    """Yield the first `count` mutations with times spread evenly over `[start_us, until_us)`, for bulk loads."""
    step_us = (until_us - start_us) / max(count, 1)
    for number, mutation in enumerate(islice(mutations, count)):
        yield UnixMicros(start_us + int(number * step_us)), mutation
