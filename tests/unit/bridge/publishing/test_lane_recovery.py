"""What an attempt at a lane has left to do."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bridge.errors import DataLossError, LayoutError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, Part, PlannedBatch, Window
from bridge.model.times import UnixMicros, UnixMillis, sort_key
from bridge.publishing.lane_recovery import remainder, transactional_id
from tests.unit.bridge.publishing.progress_fakes import (
    BATCH,
    EARLIER,
    LAYOUT,
    TASK,
    TOPIC,
    at,
    done,
    group,
    inside,
    standing,
)


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
    """A replay publishes nothing. A later generation lies further, although its time steps back."""
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


def test_reading_resumes_at_the_last_committed_group() -> None:
    """At its microsecond, so that other groups of that microsecond come with it."""
    (whole,) = BATCH.parts
    assert remainder(TASK, standing(2_000_000), TOPIC).parts == [(0, whole)]
    assert remainder(TASK, done(BATCH), TOPIC).parts == []
    left = remainder(TASK, inside(BATCH, group(2_500_000, low=5)), TOPIC)
    assert left.parts == [(0, Part(whole.selection, Window(UnixMicros(2_500_000), UnixMicros(3_000_000))))]
    for last_us in (2_000_000, 2_999_999):
        ((_, part),) = remainder(TASK, inside(BATCH, group(last_us, low=5)), TOPIC).parts
        assert part.window == Window(UnixMicros(last_us), UnixMicros(3_000_000))


def test_parts_that_are_published_are_not_read_again() -> None:
    """The others keep their numbers, which positions contain. A part without an upper bound keeps none."""
    entered = Cursor(UnixMillis(2_500), UnixMicros(3_000_000))
    batch = PlannedBatch(at(2_000_000), entered, LAYOUT)
    task = replace(TASK, batch=batch)
    closed, kept = batch.parts
    (first, second) = remainder(task, inside(batch, group(2_400_000)), TOPIC).parts
    assert first == (0, Part(closed.selection, Window(UnixMicros(2_400_000), None)))
    assert second == (1, kept)
    ((number, part),) = remainder(task, inside(batch, group(2_700_000, part=1)), TOPIC).parts
    assert (number, part) == (1, Part(kept.selection, Window(UnixMicros(2_700_000), UnixMicros(3_000_000))))


def test_nothing_that_is_left_is_skipped() -> None:
    """Wherever a lane was cut, each group that is left is read, with all groups of its microsecond."""
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
    """Two plans are not mixed; the next start finishes the interrupted micro-batch."""
    with pytest.raises(RetriableError, match="inside another micro-batch"):
        remainder(TASK, progress, TOPIC)


def test_lost_progress_stops_the_lane() -> None:
    """A lane without a cursor, or with one before its micro-batch, stops instead of leaving changes out."""
    with pytest.raises(DataLossError, match=r"ks\.t lane 1 of 2, .* holds no cursor"):
        remainder(TASK, None, TOPIC)
    with pytest.raises(DataLossError, match="lies before the window"):
        remainder(TASK, standing(1_999_999), TOPIC)


def test_another_layouts_progress_fences_the_attempt() -> None:
    """When another job has written a newer lane layout, this one must not publish under the old one."""
    other = Layout(4, at(2_000_000))
    with pytest.raises(LayoutError, match="4 lanes since"):
        remainder(TASK, standing(2_000_000, layout=other), TOPIC)
    assert remainder(TASK, standing(3_000_000, layout=other), TOPIC).finished


def test_transactional_ids_are_stable() -> None:
    """The id depends on job, table and lane alone: it is documented, and ACLs name it."""
    assert transactional_id("orders", "shop", "item", 7) == "orders.shop.item.7"
