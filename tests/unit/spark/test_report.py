"""What is taken from Spark's reports of micro-batches."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from bridge.model.cursors import Cursor, Layout, PlannedBatch, StreamOffset, Window
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.board import Board
from bridge.monitoring.view import Batches
from spark import report
from spark.report import ProgressReport
from tests.unit.spark.test_supervisor import config_of

G = UnixMillis(1_000)


def progress(run: str, batch_id: int, rows: int = 104) -> dict[str, Any]:
    at = UnixMicros(2_000_000 + batch_id * 1_000_000)
    batch = PlannedBatch(Cursor(G, UnixMicros(at - 1_000_000)), Cursor(G, at), Layout(2, Cursor(G, UnixMicros(0))))
    end = StreamOffset(batch.next, batch)
    return {
        "runId": run,
        "batchId": batch_id,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 400, "addBatch": 300},
        "sources": [{"endOffset": json.dumps(end.to_json())}],
    }


class Query:
    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []


def look(monkeypatch: pytest.MonkeyPatch, *rounds: list[dict[str, Any]]) -> Batches:
    clock = [0.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: clock[0])
    board = Board(config_of("a.b"), "0", lambda: 0.0)
    made = ProgressReport("a.b", board)
    query: Any = Query()
    for one in rounds:
        clock[0] += 11.0
        query.recentProgress = one
        made.look(query)
        made.look(query)  # at once: it does not ask again
    return board.view().tables[0].batches


def test_each_batch_counts_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Spark repeats what it reported; a query that starts again repeats the number at which it failed."""
    caplog.set_level(logging.INFO)
    batches = look(
        monkeypatch,
        [progress("r1", 0), progress("r1", 1)],
        [progress("r1", 0), progress("r1", 1), progress("r1", 2)],
        [progress("r2", 2), progress("r2", 3)],
    )
    assert batches.durations.count == 5
    assert batches.phases_s == {"addBatch": pytest.approx(1.5)}
    assert (batches.last, batches.last_s) == (3, 0.4)
    assert batches.window == Window(UnixMicros(4_000_000), UnixMicros(5_000_000))
    # 104 rows of which four are control rows.
    assert [line.split(",")[0] for line in caplog.messages] == [
        "a.b: 200 changes",
        "a.b: 300 changes",
        "a.b: 500 changes",
    ]


def test_reports_without_a_micro_batch_count_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle query reports as well."""
    idle = progress("r1", 0) | {"durationMs": {"latestOffset": 3}}
    first = progress("r1", 0) | {"sources": [{"endOffset": None}]}
    assert look(monkeypatch, [first, idle]) == Batches()
