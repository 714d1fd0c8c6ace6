"""The exactly-once protocol's decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from bridge.errors import BridgeError, DataLossError, LayoutError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress, StreamOffset
from bridge.model.micro_batch import Layout, Part, PlannedBatch, Window
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, sort_key, timeuuid_of
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.protocol import LaneTask, remainder, transactional_id
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart

G = UnixMillis(1000)
TOPIC = "job.progress.ks.t"


def at(us: int) -> Cursor:
    return Cursor(G, UnixMicros(us))


SINCE = at(1_000_000)
LAYOUT = Layout(2, SINCE)
BATCH = PlannedBatch(at(2_000_000), at(3_000_000), LAYOUT)
EARLIER = PlannedBatch(SINCE, at(2_000_000), LAYOUT)
TASK = LaneTask("ks", "t", 1, BATCH)


def group(us: int, low: int = 0, stream: int = 1, part: int = 0) -> LanePosition:
    timeuuid = timeuuid_of(UnixMicros(us), low.to_bytes(8, "big"))
    return LanePosition(part, GroupPosition.of(stream.to_bytes(16, "big"), timeuuid))


def standing(us: int, layout: Layout = LAYOUT, lane: int = 1, *, first: bool = False) -> LaneProgress:
    return LaneProgress(lane, layout, at(us), first=first)


def done(batch: PlannedBatch, lane: int = 1) -> LaneProgress:
    return LaneProgress.completed(lane, batch)


def inside(batch: PlannedBatch, position: LanePosition, lane: int = 1) -> LaneProgress:
    return LaneProgress.inside(lane, batch, position)


@pytest.mark.parametrize("progress", [standing(2_000_000), done(EARLIER)])
def test_everything_is_left_when_the_lane_stands_at_the_start(progress: LaneProgress) -> None:
    """The usual case: the lane has committed the micro-batch before, and nothing of this one."""
    left = remainder(TASK, progress, TOPIC)
    assert not left.finished
    assert left.wants(group(2_000_000))
    assert left.completed() == done(BATCH)


@pytest.mark.parametrize(
    "progress",
    [
        done(BATCH),
        standing(9_000_000),
        inside(PlannedBatch(at(3_000_000), at(4_000_000), LAYOUT), group(3_500_000)),
        LaneProgress(1, LAYOUT, Cursor(UnixMillis(1500), UnixMicros(1_500_000))),
    ],
)
def test_nothing_is_left_of_a_committed_batch(progress: LaneProgress) -> None:
    """A replay publishes nothing and moves nothing; a later generation counts as further, although time steps back."""
    left = remainder(TASK, progress, TOPIC)
    assert left.finished
    assert not left.wants(group(2_500_000))


def test_a_batch_that_was_cut_goes_on_behind_the_cut() -> None:
    """After a transaction inside the micro-batch, only groups behind the last committed one are published."""
    cut = group(2_500_000, low=5)
    left = remainder(TASK, inside(BATCH, cut), TOPIC)
    assert not left.wants(group(2_400_000))
    assert not left.wants(cut)
    assert not left.wants(group(2_500_000, low=4))
    assert left.wants(group(2_500_000, low=6))
    assert left.wants(group(2_500_000, low=5, stream=2))
    assert left.wants(group(2_100_000, part=1))
    assert left.midway(group(2_600_000)) == inside(BATCH, group(2_600_000))


def test_what_is_published_is_not_read_again() -> None:
    """Reading goes on from the last committed group's microsecond on: others of its time come with it."""
    (whole,) = BATCH.parts
    assert remainder(TASK, standing(2_000_000), TOPIC).parts == [(0, whole)]
    assert remainder(TASK, done(BATCH), TOPIC).parts == []
    left = remainder(TASK, inside(BATCH, group(2_500_000, low=5)), TOPIC)
    assert left.parts == [(0, Part(whole.selection, Window(UnixMicros(2_500_000), UnixMicros(3_000_000))))]
    for last_us in (2_000_000, 2_999_999):
        ((_, part),) = remainder(TASK, inside(BATCH, group(last_us, low=5)), TOPIC).parts
        assert part.window == Window(UnixMicros(last_us), UnixMicros(3_000_000))


def test_parts_that_are_published_are_not_read_again() -> None:
    """They keep their numbers, by which lanes say where they stand; one to the very end stays so."""
    entered = Cursor(UnixMillis(2_500), UnixMicros(3_000_000))
    batch = PlannedBatch(at(2_000_000), entered, LAYOUT)
    task = replace(TASK, batch=batch)
    closed, kept = batch.parts
    (first, second) = remainder(task, inside(batch, group(2_400_000)), TOPIC).parts
    assert first == (0, Part(closed.selection, Window(UnixMicros(2_400_000), None)))
    assert second == (1, kept)
    ((number, part),) = remainder(task, inside(batch, group(2_700_000, part=1)), TOPIC).parts
    assert (number, part) == (1, Part(kept.selection, Window(UnixMicros(2_700_000), UnixMicros(3_000_000))))


def test_nothing_that_is_left_is_passed_over() -> None:
    """Wherever a lane was cut: each group that is still wanted is read, and of its microsecond all groups."""
    chosen = Random(7)
    lows = [0, 1, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF]
    batch = PlannedBatch(at(2_000_000), Cursor(UnixMillis(2_500), UnixMicros(2_000_006)), LAYOUT)
    task = replace(TASK, batch=batch)
    groups = sorted(
        {
            group(2_000_000 + chosen.randrange(6), chosen.choice(lows), chosen.randrange(3), chosen.randrange(2))
            for _ in range(150)
        }
    )
    for cut in groups:
        left = remainder(task, inside(batch, cut), TOPIC)
        read = {number: sort_key(part.window.lower_timeuuid) for number, part in left.parts}
        found = [one for one in groups if one.part in read and one.group.key >= read[one.part]]
        assert [one for one in found if left.wants(one)] == [one for one in groups if left.wants(one)]
        first = (cut.part, cut.group.time_us)
        assert found == [one for one in groups if (one.part, one.group.time_us) >= first]


def test_order_inside_a_microsecond_is_the_servers() -> None:
    """Low halves compare as signed bytes: 0x80.. comes first."""
    cut = group(2_500_000, low=0x8000000000000000)
    assert remainder(TASK, inside(BATCH, cut), TOPIC).wants(group(2_500_000, low=0))


@pytest.mark.parametrize(
    "progress",
    [
        standing(2_700_000),
        inside(PlannedBatch(at(2_000_000), at(2_800_000), LAYOUT), group(2_500_000)),
        done(PlannedBatch(at(2_000_000), at(2_800_000), LAYOUT)),
    ],
)
def test_a_lane_inside_another_batch_finishes_that_first(progress: LaneProgress) -> None:
    """What was planned otherwise since is not mixed with this plan; a new start settles it."""
    with pytest.raises(RetriableError, match="inside another micro-batch"):
        remainder(TASK, progress, TOPIC)


def test_lost_progress_is_a_gap() -> None:
    """A lane without a cursor, or with one before its micro-batch, stops instead of leaving changes out."""
    with pytest.raises(DataLossError, match=r"ks\.t lane 1 of 2, .* holds no cursor"):
        remainder(TASK, None, TOPIC)
    with pytest.raises(DataLossError, match="lies before the window"):
        remainder(TASK, standing(1_999_999), TOPIC)


def test_another_layouts_progress_fences_the_attempt() -> None:
    """A job whose lanes were replaced by another job's must not publish under the old ones."""
    other = Layout(4, at(2_000_000))
    with pytest.raises(LayoutError, match="4 lanes since"):
        remainder(TASK, standing(2_000_000, layout=other), TOPIC)
    assert remainder(TASK, standing(3_000_000, layout=other), TOPIC).finished


def test_transactional_ids_are_stable() -> None:
    """The id depends on job, table and lane alone: it is documented, and ACLs name it."""
    assert transactional_id("orders", "shop", "item", 7) == "orders.shop.item.7"


def test_first_start_lays_the_configured_lanes() -> None:
    """A table without progress gets its lanes at the first cursor."""
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
    """Without Spark's checkpoint, too: the progress of the furthest lane names the micro-batch."""
    assert decide_start(found, 2, None) == TableStart(LAYOUT, at(2_000_000), BATCH)


@pytest.mark.parametrize("found", UNEVEN)
def test_lanes_are_settled_before_they_change(found: dict[int, LaneProgress]) -> None:
    """A changed number waits until the interrupted micro-batch is done under the old lanes."""
    assert decide_start(found, 4, None) == TableStart(LAYOUT, at(2_000_000), BATCH, recover=True)


def test_level_lanes_are_laid_anew_at_once() -> None:
    """Whatever Spark still holds of the old lanes does not count any more."""
    found = {0: done(BATCH, lane=0), 1: done(BATCH)}
    new = Layout(5, at(3_000_000))
    assert decide_start(found, 5, None) == TableStart(new, at(3_000_000), assign=True)


@pytest.mark.parametrize("lanes", [2, 3])
def test_lanes_that_were_only_laid_are_told_from_those_that_have_published(lanes: int) -> None:
    """Before the first micro-batch there is nothing to lose; after a change of lanes there is, though no lane tells."""
    laid = {lane: standing(1_000_000, layout=LAYOUT, lane=lane, first=True) for lane in (0, 1)}
    start = decide_start({lane: LaneProgress.from_bytes(at.to_bytes()) for lane, at in laid.items()}, lanes, None)
    assert (start.first, start.at_edge) == (True, True)
    relaid = {lane: standing(3_000_000, layout=Layout(2, at(3_000_000)), lane=lane) for lane in (0, 1)}
    start = decide_start({lane: LaneProgress.from_bytes(at.to_bytes()) for lane, at in relaid.items()}, lanes, None)
    assert (start.first, start.at_edge) == (False, False)
    assert not decide_start({0: done(BATCH, lane=0), 1: done(BATCH)}, lanes, None).first
    assert not decide_start({0: done(EARLIER, lane=0), 1: laid[1]}, 2, None).first


def test_first_micro_batch_stays_at_the_edge() -> None:
    """A crash inside of it leaves a table that may stand where changes expire; the end of it does not."""
    edge_us = UnixMicros(2_000_000)
    laid = {lane: replace(standing(2_000_000, lane=lane, first=True), edge_us=edge_us) for lane in (0, 1)}
    left = remainder(TASK, laid[1], TOPIC)
    midway = LaneProgress.from_bytes(left.midway(group(2_500_000)).to_bytes())
    again = remainder(TASK, midway, TOPIC)
    finished = LaneProgress.from_bytes(again.completed().to_bytes())
    for found, lanes in (
        ({0: laid[0], 1: midway}, 2),
        ({0: laid[0], 1: finished}, 2),
        ({0: laid[0], 1: finished}, 3),
    ):
        start = decide_start(found, lanes, None)
        assert (start.first, start.at_edge, start.edge_us) == (False, True, edge_us)
        assert TableStart.from_json(start.to_json()) == start
        assert start.excuses(UnixMicros(603_000_000))
        assert not start.excuses(UnixMicros(603_000_001))
        # What was gone when the table was laid may be more.
        assert replace(start, edge_us=UnixMicros(9_000_000)).excuses(UnixMicros(609_000_000))
    for lanes in (2, 3):
        start = decide_start({0: replace(finished, lane=0), 1: finished}, lanes, None)
        assert (start.at_edge, start.edge_us, start.excuses(UnixMicros(3_000_001))) == (False, None, False)
        assert decide_start(laid, lanes, None).edge_us == edge_us
        assert decide_start(laid, lanes, None).excuses(UnixMicros(10**15))
    elsewhere = remainder(TASK, replace(laid[1], edge_us=None), TOPIC).midway(group(2_500_000))
    assert not decide_start({0: laid[0], 1: elsewhere}, 2, None).at_edge
    following = PlannedBatch(BATCH.next, at(4_000_000), LAYOUT)
    second = remainder(LaneTask("ks", "t", 1, following), finished, TOPIC)
    for further in (second.midway(group(3_500_000)), second.completed()):
        assert further.edge_us is None
        assert not decide_start({0: replace(finished, lane=0), 1: further}, 2, None).at_edge


def test_interrupted_layout_change_is_finished() -> None:
    """A crash while the new layout was being written leaves lanes of both; all stand level, so it is written again."""
    new = Layout(3, at(2_000_000))
    found = {0: standing(2_000_000, layout=new, lane=0), 1: done(EARLIER)}
    assert decide_start(found, 3, None) == TableStart(new, at(2_000_000), assign=True)


def test_retired_lanes_do_not_hold_the_others_back() -> None:
    """Records of lanes that a smaller layout dropped stay where they were."""
    small = Layout(1, at(2_000_000))
    batch = PlannedBatch(at(2_000_000), at(9_000_000), small)
    found = {0: done(batch, lane=0), 1: standing(2_000_000, layout=small)}
    assert decide_start(found, 1, None) == TableStart(small, at(9_000_000))


def test_progress_that_does_not_hold_together_is_a_gap() -> None:
    """A lane that is missing beside advanced ones, or more than one micro-batch behind them, stops the table."""
    with pytest.raises(DataLossError, match="lanes 1 of 2 have no progress"):
        decide_start({0: done(BATCH, lane=0)}, 2, None)
    with pytest.raises(DataLossError, match="lane 0 stands at"):
        decide_start({0: standing(1_000_000, lane=0), 1: done(BATCH)}, 2, None)
    half_laid = standing(2_000_000, layout=Layout(3, at(2_000_000)), lane=2)
    for further in (done(BATCH), inside(BATCH, group(2_500_000))):
        with pytest.raises(DataLossError, match=r"lane 1 has gone on to .* although 3 lanes were laid"):
            decide_start({0: done(EARLIER, lane=0), 1: further, 2: half_laid}, 2, None)


def test_start_knows_which_generation_was_left() -> None:
    """Whether that one was left before, in the micro-batch that was interrupted, or under another layout."""
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
    """No lane has committed all of it, so each still names the generation that was left before."""
    entering = PlannedBatch(at(3_000_000), Cursor.at_start_of(UnixMillis(4_000)), LAYOUT)
    midway = LaneProgress.inside(1, entering, group(3_500_000), UnixMillis(500))
    start = decide_start({0: LaneProgress.completed(0, BATCH, UnixMillis(500)), 1: midway}, 2, None)
    assert (start.interrupted, start.entered_from_ms, start.goes_on_in_ms) == (entering, 1000, 4000)


def test_start_behind_a_gap() -> None:
    """Accepted loss lays new lanes behind it; an interrupted micro-batch that reaches further is not done again."""
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


OFFSET = StreamOffset(BATCH.next, BATCH, 3)


def test_replay_counts_only_where_kafka_agrees() -> None:
    """A checkpoint's micro-batch is worked if it is the interrupted one, or begins where all lanes stand."""
    other = StreamOffset(at(2_700_000), PlannedBatch(at(2_000_000), at(2_700_000), LAYOUT), 3)
    assert OffsetReconciler(None).counts(other)
    assert OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH)).counts(OFFSET)
    assert not OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH)).counts(other)
    assert OffsetReconciler(TableStart(LAYOUT, BATCH.start)).counts(other)
    assert not OffsetReconciler(TableStart(LAYOUT, at(2_700_000))).counts(other)
    assert not OffsetReconciler(TableStart(Layout(3, BATCH.start), BATCH.start)).counts(other)


def test_planning_goes_on_from_what_kafka_says() -> None:
    """A stale checkpoint's end is no place to plan from; the interrupted micro-batch comes first."""
    stale = StreamOffset(at(1_500_000), None)
    assert OffsetReconciler(None).go_on_from(stale) == at(1_500_000)
    assert OffsetReconciler(TableStart(LAYOUT, at(3_000_000))).go_on_from(stale) == at(3_000_000)
    plans = OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH))
    assert plans.go_on_from(stale) == BATCH
    assert plans.go_on_from(plans.planned(BATCH, stale)) == at(3_000_000)
    replayed = OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH))
    assert replayed.counts(OFFSET)
    assert replayed.go_on_from(OFFSET) == at(3_000_000)


def test_offset_of_a_batch_that_is_worked_again_is_a_new_one() -> None:
    """Spark would see nothing new if it stood at the same text already."""
    assert OffsetReconciler(TableStart(LAYOUT, BATCH.start)).planned(BATCH, OFFSET) != OFFSET
