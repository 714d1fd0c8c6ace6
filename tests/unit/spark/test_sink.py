"""What the sink's driver side reports."""

from __future__ import annotations

import pytest

from bridge.model.cursors import Cursor, Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring import mailbox
from bridge.monitoring.figures import LaneFigures
from bridge.monitoring.mailbox import BatchReport, LaneReached
from bridge.publishing import LaneTask
from spark.sink import KafkaLanesWriter, LaneWritten
from tests.unit.spark.test_job import config_of

NEXT = Cursor(UnixMillis(1), UnixMicros(3_000))
BATCH = PlannedBatch(Cursor(UnixMillis(1), UnixMicros(2_000)), NEXT, Layout(2, Cursor.at_start_of(UnixMillis(1))))
COUNTED = [("a.b", 1, LaneFigures(changes=7)), ("a.b", 0, LaneFigures(aborts=1))]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BatchReport]]:
    reports: list[tuple[str, BatchReport]] = []
    monkeypatch.setattr(mailbox, "send", lambda path, report: reports.append((path, report)))
    return reports


def test_lanes_that_succeeded_are_reported(sent: list[tuple[str, BatchReport]]) -> None:
    """Also those of a micro-batch that failed in others: they are done, and what they counted counts."""
    writer = KafkaLanesWriter(config_of("a.b"), "job", "/box")
    written = LaneWritten(LaneTask("a", "b", 1, BATCH), COUNTED)
    writer.abort([None, written], 4)
    writer.commit([LaneWritten(None, []), written], 4)
    reached = (LaneReached("a.b", 1, NEXT),)
    assert sent == [("/box", BatchReport(False, reached, COUNTED)), ("/box", BatchReport(True, reached, COUNTED))]


def test_sink_by_itself_reports_nothing(sent: list[tuple[str, BatchReport]]) -> None:
    """Without a mailbox there is nobody to tell."""
    KafkaLanesWriter(config_of("a.b"), "job", None).commit([LaneWritten(None, [])], 1)
    assert sent == []
