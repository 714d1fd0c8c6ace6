"""What the sink's driver side reports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.activity import Arrivals
from bridge.model.cursors import Cursor, Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring import mailbox
from bridge.monitoring.figures import LaneFigures
from bridge.monitoring.mailbox import BatchReport, LaneReached
from bridge.publishing import LaneTask
from spark.sink import KafkaLanesWriter, LaneWritten
from tests.unit.spark.test_supervisor import config_of

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


def test_dead_letters_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """With their table and topic, and why the first is one."""
    config = config_of("a.b", publishing={"dead_letter_topic": "dead.{table}"})
    quiet, telling = (LaneWritten(LaneTask("a", "b", 1, BATCH), [], why) for why in (None, "column 'v' is torn"))
    KafkaLanesWriter(config, "job", None).commit([quiet, telling], 4)
    assert caplog.messages == ["a.b: changes became dead letters in topic dead.b; the first: column 'v' is torn"]


def test_sink_by_itself_reports_nothing(sent: list[tuple[str, BatchReport]]) -> None:
    """Without a mailbox there is nobody to tell."""
    KafkaLanesWriter(config_of("a.b"), "job", None).commit([LaneWritten(None, [])], 1)
    assert sent == []


def test_planner_is_told_of_log_rows_alone(tmp_path: Path) -> None:
    """Of the table's own; a micro-batch that found none, and what was counted for other tables, say nothing."""
    file = tmp_path / "changes-came"
    file.touch()
    arrivals = Arrivals(str(file))
    writer = KafkaLanesWriter(config_of("a.b"), "job", None, str(file))
    task = LaneTask("a", "b", 1, BATCH)
    for table, rows, told in (("a.b", 0, False), ("a.b", 3, True), ("x.y", 3, False), ("a.b", 1, True)):
        os.utime(file, (1, 1))
        arrivals.came()
        writer.commit([None, LaneWritten(task, [(table, 0, LaneFigures(log_rows=rows, transactions=1))])], 1)
        assert arrivals.came() == told
