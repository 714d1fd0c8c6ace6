"""What a change costs on its way, in counts that are the same on every machine: slow ways must not come back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import FrameType
from typing import Any

import pytest

from bench.path.lane import TABLES, Lane
from bench.path.steps import fast_path_steps, general_path_steps
from bridge.encoding.key_check import SAMPLE_EVERY
from schemas.table_codec import TableCodec

# Calls of Python and C functions a change, from its page to the Kafka client's queue. Raise one only for a reason: each
# call is some 0.05 us of every change.
MOST_CALLS = {"narrow": 7.9, "mixed": 18.9, "wide": 38.3, "collections": 113.0, "sparse": 142.0}
# The same in bytecode instructions, of which a us has some 100; as Python 3.11 counts them.
MOST_INSTRUCTIONS = {"narrow": 255, "mixed": 545, "wide": 1_415, "collections": 1_735, "sparse": 2_815}
FRACTION = {"sparse": 0.9}
"""Of the general path's calls; two thirds where nothing else is said."""
MOST_CALLS_CHECKED = {"narrow": 42.2, "wide": 142.5}
"""With `reading.integrity: always`."""
FEW, MANY = 300, 1300
# Narrow in many streams of several short pages each, pages' own costs included: 1,000 streams of 100 rows a page made
# small. A merge that looks at every stream for every page took twice as much and more.
STREAMS, PAGE_ROWS, CHANGES = 200, 10, 3_000
MOST_CALLS_IN_STREAMS = 40.5
MOST_INSTRUCTIONS_IN_STREAMS = 715


def each(
    count: Callable[[Callable[[], object]], int], table: str, way: str, *, check_every: int = SAMPLE_EVERY
) -> float:
    """What a change adds to a count."""
    few, many = (count(publishing(table, changes, way, check_every)) for changes in (FEW, MANY))
    return (many - few) / (MANY - FEW)


@cache
def lane_of(table: str, changes: int) -> Lane:
    """A lane's log is drawn once; nothing of what is made of it is kept."""
    return Lane.of(table, changes)


def publishing(table: str, changes: int, way: str, check_every: int) -> Callable[[], object]:
    """Return the path of a lane that ran once before, so that the compiled loops exist."""
    lane = lane_of(table, changes)
    lane = replace(lane, codec=TableCodec(lane.table, lane.layout.columns), check_every=check_every)
    steps = fast_path_steps(lane) if way == "fast" else general_path_steps(lane)
    steps["publish"]()
    return steps["publish"]


def in_many_streams(count: Callable[[Callable[[], object]], int]) -> float:
    """What a change of a lane of many streams and pages comes to."""
    lane = Lane.of("narrow", CHANGES, streams=STREAMS, page_rows=PAGE_ROWS)
    publish = fast_path_steps(lane)["publish"]
    publish()
    return count(publish) / CHANGES


def calls(run: Callable[[], object]) -> int:
    """Calls in Python and C."""
    count = 0

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def instructions(run: Callable[[], object]) -> int:
    """Bytecode instructions."""
    count = 0

    def called(frame: FrameType, _event: str, _argument: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return traced

    def traced(_frame: FrameType, event: str, _argument: object) -> Any:
        # Millions of times: what a frame is told once stands above.
        nonlocal count
        if event == "opcode":
            count += 1
        return traced

    sys.settrace(called)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("table", TABLES)
def test_plain_rows_cost_few_calls(table: str) -> None:
    """The fast path makes a bounded number of calls a change, and a fraction of the general one's."""
    found = each(calls, table, "fast")
    assert found <= MOST_CALLS[table], f"{found:.1f} calls a change"
    assert found < FRACTION.get(table, 2 / 3) * each(calls, table, "general")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other releases of Python count other instructions")
@pytest.mark.parametrize("table", TABLES)
def test_plain_rows_cost_few_instructions(table: str) -> None:
    """What calls nothing costs, too."""
    found = each(instructions, table, "fast")
    assert found <= MOST_INSTRUCTIONS[table], f"{found:.0f} instructions a change"


def test_narrow_plain_rows_cost_a_fraction_of_the_instructions() -> None:
    """The fast path needs less than a third of the general path's instructions."""
    assert 3 * each(instructions, "narrow", "fast") < each(instructions, "narrow", "general")


@pytest.mark.parametrize("table", MOST_CALLS_CHECKED)
def test_rows_that_are_all_checked_cost_few_calls(table: str) -> None:
    """With every key held against its stream, rows still become records in loops."""
    found = each(calls, table, "fast", check_every=1)
    assert found <= MOST_CALLS_CHECKED[table], f"{found:.1f} calls a change"


def test_many_streams_cost_few_calls() -> None:
    """What a page costs does not grow with the number of streams."""
    found = in_many_streams(calls)
    assert found <= MOST_CALLS_IN_STREAMS, f"{found:.1f} calls a change"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other releases of Python count other instructions")
def test_many_streams_cost_few_instructions() -> None:
    """What calls nothing does not, either."""
    found = in_many_streams(instructions)
    assert found <= MOST_INSTRUCTIONS_IN_STREAMS, f"{found:.0f} instructions a change"
