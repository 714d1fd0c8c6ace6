"""The exactly-once protocol's decisions."""

from __future__ import annotations

import pytest

from bridge.errors import DataLossError, LayoutError, RetriableError
from bridge.model.cursors import Cursor, GroupPosition, LaneProgress, Layout, PlannedBatch, Window
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing import LaneTask, decide_layout, remainder, transactional_id

G = UnixMillis(1000)
TOPIC = "job.progress.ks.t"


def at(us: int) -> Cursor:
    return Cursor(G, UnixMicros(us))


SINCE = at(1_000_000)
LAYOUT = Layout(2, SINCE)
TASK = LaneTask(
    "ks", "t", 1, PlannedBatch(Window(G, UnixMicros(2_000_000), UnixMicros(3_000_000)), LAYOUT, at(3_000_000))
)


def group(us: int, low: int = 0, stream: int = 1) -> GroupPosition:
    return GroupPosition.of(stream.to_bytes(16, "big"), timeuuid_of(UnixMicros(us), low.to_bytes(8, "big")))


def progress(us: int, done: GroupPosition | None = None, layout: Layout = LAYOUT, lane: int = 1) -> LaneProgress:
    return LaneProgress(lane, layout, at(us), done)


def test_everything_is_left_when_the_cursor_is_the_windows_start() -> None:
    """The usual case: the lane stands where the window begins."""
    left = remainder(TASK, progress(2_000_000), TOPIC)
    assert not left.finished
    assert left.wants(group(2_000_000))
    assert left.wants(group(2_999_999))
    assert left.completed() == progress(3_000_000)


def test_nothing_is_left_of_a_committed_window() -> None:
    """A replayed window whose cursor was committed publishes nothing, and moves nothing."""
    for committed in (3_000_000, 9_000_000):
        left = remainder(TASK, progress(committed), TOPIC)
        assert left.finished
        assert not left.wants(group(2_500_000))


def test_a_window_that_was_cut_goes_on_behind_the_cut() -> None:
    """After a transaction inside the window, only groups behind the last committed one are published."""
    done = group(2_500_000, low=5)
    left = remainder(TASK, progress(2_000_000, done), TOPIC)
    assert not left.wants(group(2_400_000))
    assert not left.wants(done)
    assert not left.wants(group(2_500_000, low=4))
    assert left.wants(group(2_500_000, low=6))
    assert left.wants(group(2_500_000, low=5, stream=2))
    assert left.midway(group(2_600_000)) == progress(2_000_000, group(2_600_000))


def test_order_inside_a_microsecond_is_the_servers() -> None:
    """Low halves compare as signed bytes: 0x80.. comes first."""
    done = group(2_500_000, low=0x8000000000000000)
    assert remainder(TASK, progress(2_000_000, done), TOPIC).wants(group(2_500_000, low=0))


def test_a_window_planned_from_an_older_cursor_is_joined_in_the_middle() -> None:
    """Without Spark's checkpoint the slowest lane's cursor is planned from; faster lanes skip what they have."""
    left = remainder(TASK, progress(2_700_000), TOPIC)
    assert not left.wants(group(2_699_999))
    assert left.wants(group(2_700_000))
    assert left.midway(group(2_800_000)).cursor == at(2_700_000)


def test_lost_progress_is_a_gap() -> None:
    """A lane without a cursor, or with one before its window, stops instead of leaving changes out."""
    with pytest.raises(DataLossError, match=r"ks\.t lane 1 of 2, .* holds no cursor"):
        remainder(TASK, None, TOPIC)
    with pytest.raises(DataLossError, match="lies before the window"):
        remainder(TASK, progress(1_999_999), TOPIC)


def test_another_layouts_progress_fences_the_attempt() -> None:
    """A job whose lanes were replaced by another job's must not publish under the old ones."""
    other = Layout(4, at(2_000_000))
    with pytest.raises(LayoutError, match="4 lanes since"):
        remainder(TASK, progress(2_000_000, layout=other), TOPIC)
    assert remainder(TASK, progress(3_000_000, layout=other), TOPIC).finished


def test_a_late_generation_counts_as_further_although_time_steps_back() -> None:
    """Progress in a newer generation finishes windows of an older one with later times."""
    newer = LaneProgress(1, LAYOUT, Cursor(UnixMillis(1500), UnixMicros(1_500_000)))
    assert remainder(TASK, newer, TOPIC).finished


def test_transactional_ids_are_stable() -> None:
    """The id depends on job, table and lane alone: it is documented, and ACLs name it."""
    assert transactional_id("orders", "shop", "item", 7) == "orders.shop.item.7"


def test_first_start_lays_the_configured_lanes() -> None:
    """A table without progress gets its lanes at the first cursor."""
    decision = decide_layout({}, 3, at(5))
    assert (decision.layout, decision.start, decision.settle_until, decision.initialise) == (
        Layout(3, at(5)), at(5), None, True,
    )  # fmt: skip


def test_unchanged_lanes_go_on_where_they_stand() -> None:
    """Lanes at different cursors are no obstacle when their number stays: each skips what it has."""
    found = {0: progress(2_000_000, lane=0), 1: progress(2_500_000, group(2_600_000))}
    decision = decide_layout(found, 2, at(0))
    assert (decision.layout, decision.start, decision.settle_until, decision.initialise) == (
        LAYOUT, at(2_000_000), None, False,
    )  # fmt: skip


def test_settled_level_lanes_are_laid_anew() -> None:
    """A changed number takes effect when nothing planned is left and every lane stands at one cursor."""
    found = {0: progress(2_000_000, lane=0), 1: progress(2_000_000)}
    decision = decide_layout(found, 5, None, settled=True)
    assert (decision.layout, decision.settle_until, decision.initialise) == (Layout(5, at(2_000_000)), None, True)


@pytest.mark.parametrize(
    "found",
    [
        {0: progress(2_000_000, lane=0), 1: progress(2_000_000)},
        {0: progress(2_000_000, lane=0), 1: progress(3_000_000)},
        {0: progress(2_000_000, lane=0), 1: progress(2_000_000, group(2_500_000))},
    ],
)
def test_lanes_are_settled_before_they_change(found: dict[int, LaneProgress]) -> None:
    """A changed number waits until what was planned under the old lanes is done, level lanes included."""
    decision = decide_layout(found, 4, None)
    assert decision.layout == LAYOUT
    assert decision.settle_until == max(one.cursor for one in found.values())
    assert not decision.initialise


def test_lanes_that_did_not_come_level_are_not_laid_anew() -> None:
    """A settling that was cut short is an error to try again, never a change of lanes."""
    with pytest.raises(RetriableError, match="2 lanes stand between"):
        decide_layout({0: progress(2_000_000, lane=0), 1: progress(3_000_000)}, 4, None, settled=True)


def test_interrupted_layout_change_is_finished() -> None:
    """A crash while the new layout was being written leaves lanes of both; all stand level, so it is written again."""
    new = Layout(3, at(2_000_000))
    found = {0: progress(2_000_000, layout=new, lane=0), 1: progress(2_000_000)}
    decision = decide_layout(found, 3, at(0))
    assert (decision.layout, decision.initialise, decision.settle_until) == (new, True, None)


def test_retired_lanes_do_not_hold_the_others_back() -> None:
    """Records of lanes that a smaller layout dropped stay where they were."""
    small = Layout(1, at(2_000_000))
    found = {0: progress(9_000_000, layout=small, lane=0), 1: progress(2_000_000, layout=small)}
    decision = decide_layout(found, 1, at(0))
    assert (decision.layout, decision.start, decision.initialise) == (small, at(9_000_000), False)


def test_missing_lane_beside_advanced_ones_is_a_gap() -> None:
    """Progress that is gone for some lanes only stops the table."""
    with pytest.raises(DataLossError, match="lanes 1 of 2 have no progress"):
        decide_layout({0: progress(9_000_000, lane=0)}, 2, at(0))
