"""What the watch of the e2e tests makes of events; needs no cluster."""

from __future__ import annotations

import pytest

from tests.chart.e2e.control_plane import Json
from tests.chart.e2e.one_driver import _MARK, most_at_once


def pod(uid: str, **annotations: str) -> Json:
    """A pod as the API server has it."""
    return {"metadata": {"name": "driver-0", "uid": uid, "annotations": annotations}}


def event(kind: str, uid: str) -> Json:
    """An event of a watch."""
    return {"type": kind, "object": pod(uid)}


MARK = {"type": "MODIFIED", "object": pod("new", **{_MARK: "now"})}
ENDING = {"type": "MODIFIED", "object": {"metadata": {"uid": "old", "deletionTimestamp": "2026-01-31T12:00:00Z"}}}


@pytest.mark.parametrize(
    ("events", "most"),
    [
        ([ENDING, event("DELETED", "old"), event("ADDED", "new"), event("MODIFIED", "new")], 1),
        ([event("ADDED", "new"), ENDING, event("DELETED", "old")], 2),
        ([ENDING, event("ADDED", "new"), event("DELETED", "old")], 2),
        ([event("ADDED", "short"), event("DELETED", "short"), event("DELETED", "old"), event("ADDED", "new")], 2),
    ],
    ids=["one-after-the-other", "before", "while-it-ends", "in-between"],
)
def test_pods_at_one_time(events: list[Json], most: int) -> None:
    """A pod counts until it is gone, one that is there for a moment too; what comes after the mark does not count."""
    assert most_at_once([pod("old")], [*events, MARK, event("ADDED", "later")]) == most


def test_watch_that_ends_early_is_no_answer() -> None:
    """What has not been seen is not taken for one."""
    with pytest.raises(AssertionError, match="ended too early"):
        most_at_once([pod("old")], [event("DELETED", "old"), event("ADDED", "new")])
