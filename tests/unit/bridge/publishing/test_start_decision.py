"""Where a starting job goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bridge.errors import BridgeError, DataLossError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.position import LanePosition
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing.lane_recovery import LaneTask, remainder
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from tests.unit.bridge.publishing.progress_fakes import (
    BATCH,
    EARLIER,
    LAYOUT,
    SINCE,
    TASK,
    TOPIC,
    at,
    done,
    group,
    inside,
    standing,
)


def test_first_start_assigns_the_configured_lanes() -> None:
    """At the first cursor."""
    begun = TableStart(Layout(3, at(5)), at(5), assign=True, first=True, at_edge=True)
    assert decide_start({}, 3, at(5)) == begun
    assert TableStart.from_json(begun.to_json()) == begun


def test_level_lanes_go_on_where_they_stand() -> None:
    """All have committed the same micro-batch: the next is planned."""
    found = {0: done(BATCH, lane=0), 1: done(BATCH)}
    assert decide_start(found, 2, None) == TableStart(LAYOUT, at(3_000_000))
    found = {0: standing(1_000_000, lane=0), 1: standing(1_000_000)}
    assert decide_start(found, 2, None) == TableStart(LAYOUT, SINCE)


UNEVEN = [
    {0: done(EARLIER, lane=0), 1: done(BATCH)},
    {0: done(EARLIER, lane=0), 1: inside(BATCH, group(2_500_000))},
    {0: standing(2_000_000, lane=0), 1: inside(BATCH, group(2_500_000))},
    {0: inside(BATCH, group(2_100_000), lane=0), 1: done(BATCH)},
]


@pytest.mark.parametrize("found", UNEVEN)
def test_interrupted_batch_is_finished_as_it_was_planned(found: dict[int, LaneProgress]) -> None:
    """Also without Spark's checkpoint: the furthest lane's progress names the micro-batch."""
    assert decide_start(found, 2, None) == TableStart(LAYOUT, at(2_000_000), BATCH)


@pytest.mark.parametrize("found", UNEVEN)
def test_lanes_are_recovered_before_they_change(found: dict[int, LaneProgress]) -> None:
    """A new number of lanes waits until the interrupted micro-batch is done under the old one."""
    assert decide_start(found, 4, None) == TableStart(LAYOUT, at(2_000_000), BATCH, recover=True)


def test_level_lanes_are_assigned_anew_at_once() -> None:
    """What Spark's checkpoint holds about the old lanes does not count."""
    found = {0: done(BATCH, lane=0), 1: done(BATCH)}
    new = Layout(5, at(3_000_000))
    assert decide_start(found, 5, None) == TableStart(new, at(3_000_000), assign=True)


@pytest.mark.parametrize("lanes", [2, 3])
def test_assigned_lanes_differ_from_lanes_that_have_published(lanes: int) -> None:
    """Before the first micro-batch nothing can be lost. After a change of lanes it can, without any batch, too."""
    assigned = {lane: standing(1_000_000, layout=LAYOUT, lane=lane, first=True) for lane in (0, 1)}
    start = decide_start({lane: LaneProgress.from_bytes(at.to_bytes()) for lane, at in assigned.items()}, lanes, None)
    assert (start.first, start.at_edge) == (True, True)
    relaid = {lane: standing(3_000_000, layout=Layout(2, at(3_000_000)), lane=lane) for lane in (0, 1)}
    start = decide_start({lane: LaneProgress.from_bytes(at.to_bytes()) for lane, at in relaid.items()}, lanes, None)
    assert (start.first, start.at_edge) == (False, False)
    assert not decide_start({0: done(BATCH, lane=0), 1: done(BATCH)}, lanes, None).first
    assert not decide_start({0: done(EARLIER, lane=0), 1: assigned[1]}, 2, None).first


def test_first_micro_batch_stays_at_the_edge() -> None:
    """After a crash inside it the table may stand where changes expire; after its end it does not."""
    edge_us = UnixMicros(2_000_000)
    assigned = {lane: replace(standing(2_000_000, lane=lane, first=True), edge_us=edge_us) for lane in (0, 1)}
    left = remainder(TASK, assigned[1], TOPIC)
    midway = LaneProgress.from_bytes(left.midway(group(2_500_000)).to_bytes())
    again = remainder(TASK, midway, TOPIC)
    finished = LaneProgress.from_bytes(again.completed().to_bytes())
    for found, lanes in (
        ({0: assigned[0], 1: midway}, 2),
        ({0: assigned[0], 1: finished}, 2),
        ({0: assigned[0], 1: finished}, 3),
    ):
        start = decide_start(found, lanes, None)
        assert (start.first, start.at_edge, start.edge_us) == (False, True, edge_us)
        assert TableStart.from_json(start.to_json()) == start
        assert start.excuses(UnixMicros(603_000_000))
        assert not start.excuses(UnixMicros(603_000_001))
        # More may have expired when the first lanes were assigned.
        assert replace(start, edge_us=UnixMicros(9_000_000)).excuses(UnixMicros(609_000_000))
    for lanes in (2, 3):
        start = decide_start({0: replace(finished, lane=0), 1: finished}, lanes, None)
        assert (start.at_edge, start.edge_us, start.excuses(UnixMicros(3_000_001))) == (False, None, False)
        assert decide_start(assigned, lanes, None).edge_us == edge_us
        assert decide_start(assigned, lanes, None).excuses(UnixMicros(10**15))
    elsewhere = remainder(TASK, replace(assigned[1], edge_us=None), TOPIC).midway(group(2_500_000))
    assert not decide_start({0: assigned[0], 1: elsewhere}, 2, None).at_edge
    following = PlannedBatch(BATCH.next, at(4_000_000), LAYOUT)
    second = remainder(LaneTask("ks", "t", 1, following), finished, TOPIC)
    for further in (second.midway(group(3_500_000)), second.completed()):
        assert further.edge_us is None
        assert not decide_start({0: replace(finished, lane=0), 1: further}, 2, None).at_edge


def test_interrupted_layout_change_is_finished() -> None:
    """A crash while a layout is written leaves lanes of two layouts. All stand level, so it is written again."""
    new = Layout(3, at(2_000_000))
    found = {0: standing(2_000_000, layout=new, lane=0), 1: done(EARLIER)}
    assert decide_start(found, 3, None) == TableStart(new, at(2_000_000), assign=True)


def test_retired_lanes_do_not_hold_the_others_back() -> None:
    """The records of lanes that a smaller layout has dropped stay."""
    small = Layout(1, at(2_000_000))
    batch = PlannedBatch(at(2_000_000), at(9_000_000), small)
    found = {0: done(batch, lane=0), 1: standing(2_000_000, layout=small)}
    assert decide_start(found, 1, None) == TableStart(small, at(9_000_000))


def test_inconsistent_progress_stops_the_table() -> None:
    """A lane must not be missing beside advanced ones, and must be at most one micro-batch behind them."""
    with pytest.raises(DataLossError, match="lanes 1 of 2 have no progress"):
        decide_start({0: done(BATCH, lane=0)}, 2, None)
    with pytest.raises(DataLossError, match="lane 0 stands at"):
        decide_start({0: standing(1_000_000, lane=0), 1: done(BATCH)}, 2, None)
    half_assigned = standing(2_000_000, layout=Layout(3, at(2_000_000)), lane=2)
    for further in (done(BATCH), inside(BATCH, group(2_500_000))):
        with pytest.raises(DataLossError, match=r"lane 1 has gone on to .* although 3 lanes were assigned"):
            decide_start({0: done(EARLIER, lane=0), 1: further, 2: half_assigned}, 2, None)


def test_start_knows_which_generation_was_left() -> None:
    """Before, in the interrupted micro-batch, or under another layout."""
    entering = PlannedBatch(at(3_000_000), Cursor.at_start_of(UnixMillis(4_000)), LAYOUT)
    left = {lane: LaneProgress.completed(lane, entering, UnixMillis(500)) for lane in (0, 1)}
    assert (decide_start(left, 2, None).entered_from_ms, decide_start(left, 3, None).entered_from_ms) == (1000, 1000)
    lagging = {0: LaneProgress.completed(0, BATCH, UnixMillis(500)), 1: left[1]}
    start = decide_start(lagging, 2, None)
    assert (start.interrupted, start.entered_from_ms, start.goes_on_in_ms) == (entering, 1000, 4000)
    todo = remainder(LaneTask("ks", "t", 0, entering), lagging[0], TOPIC)
    assert todo.midway(LanePosition(0, group(3_500_000))).entered_from_ms == 500
    assert todo.completed().entered_from_ms == 1000
    assert decide_start({0: lagging[0], 1: lagging[0]}, 2, None).entered_from_ms == 500
    assert start.moved_to(Cursor.at_start_of(UnixMillis(9_000)), 2).entered_from_ms is None


def test_start_inside_a_closing_micro_batch_knows_which_generation_it_leaves() -> None:
    """No lane has committed all of it, so each names the generation that was left before."""
    entering = PlannedBatch(at(3_000_000), Cursor.at_start_of(UnixMillis(4_000)), LAYOUT)
    midway = LaneProgress.inside(1, entering, group(3_500_000), UnixMillis(500))
    start = decide_start({0: LaneProgress.completed(0, BATCH, UnixMillis(500)), 1: midway}, 2, None)
    assert (start.interrupted, start.entered_from_ms, start.goes_on_in_ms) == (entering, 1000, 4000)


def test_start_behind_a_gap() -> None:
    """Lanes are assigned behind accepted loss. An interrupted micro-batch that reaches further is given up."""
    level, uneven = TableStart(LAYOUT, at(2_000_000)), TableStart(LAYOUT, at(2_000_000), BATCH)
    assert level.moved_to(at(2_000_000), 2) is level
    beyond = at(9_000_000)
    assert uneven.moved_to(beyond, 3) == TableStart(Layout(3, beyond), beyond, assign=True, at_edge=True)
    assert uneven.moved_to(at(2_500_000), 3) == TableStart(Layout(3, BATCH.next), BATCH.next, assign=True, at_edge=True)


def test_table_start_travels_as_json() -> None:
    """The planner's process gets it as an option of the source."""
    for found in UNEVEN:
        start = decide_start(found, 4, None)
        assert TableStart.from_json(json.loads(json.dumps(start.to_json()))) == start
    with pytest.raises(BridgeError, match="not a table's start"):
        TableStart.from_json({})
