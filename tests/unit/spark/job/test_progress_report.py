"""What the job takes from Spark's reports about micro-batches."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.model.counters import LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch, Window
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.reports import LaneReport
from bridge.monitoring.snapshot import BatchStatistics, TableSnapshot
from bridge.monitoring.state import JobState
from spark.job.progress_report import ProgressReport
from tests.unit.spark.job.fakes import config_of, job_state_of

G = UnixMillis(1_000)


def lane(number: int, table: str = "a.b", reason: str | None = None, **figures: int) -> str:
    """A lane's report with these counts of a table."""
    return LaneReport("a.b", number, Cursor(G, UnixMicros(0)), [(table, 0, LaneCounters(**figures))], reason).to_json()


def progress(run: str, batch_id: int, *lanes: str) -> dict[str, Any]:
    at = UnixMicros(2_000_000 + batch_id * 1_000_000)
    batch = PlannedBatch(Cursor(G, UnixMicros(at - 1_000_000)), Cursor(G, at), Layout(2, Cursor(G, UnixMicros(0))))
    end = StreamOffset(batch.next, batch)
    return {
        "runId": run,
        "batchId": batch_id,
        "timestamp": f"2026-01-01T00:00:{batch_id:02}.000Z",
        "durationMs": {"triggerExecution": 400, "addBatch": 300},
        "sources": [{"endOffset": end.to_json()}],
        "observedMetrics": {"lanes": {"reports": lanes or [lane(0, changes=60), lane(1, changes=40)]}},
    }


class Query:
    """A query as the JVM shows it; counts how often it has to render a whole report."""

    def __init__(self, recent: list[dict[str, Any]]) -> None:
        self.runId = recent[0]["runId"] if recent else ""
        self.asked = 0
        self._recent = recent
        self._jsq = self

    def lastProgress(self) -> Any:  # noqa: N802  # Spark's name
        return self.recentProgress()[-1] if self._recent else None

    def recentProgress(self) -> list[Any]:  # noqa: N802  # Spark's name
        return [
            SimpleNamespace(timestamp=partial(one.get, "timestamp"), json=partial(self._json, one))
            for one in self._recent
        ]

    def _json(self, one: dict[str, Any]) -> str:
        self.asked += 1
        return json.dumps(one)


def look(*rounds: list[dict[str, Any]], came: Callable[[], None] = lambda: None) -> TableSnapshot:
    clock = [0.0]
    job_state = JobState(config_of("a.b"), "0", lambda: 0.0)
    made = ProgressReport("a.b", job_state, changes_came=came, dead_letters="dead.b", clock=lambda: clock[0])
    seen: set[str] = set()
    for one in rounds:
        clock[0] += 11.0
        query: Any = Query(one)
        made.look(query)
        made.look(query)  # too soon: it does not ask again
        made.look(query, at_once=True)
        marks = {f"{of['runId']} {of['timestamp']}" for of in one}
        assert query.asked == len(marks - seen)
        seen |= marks
    made.sum_up()
    return job_state.snapshot().tables[0]


def test_each_batch_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark repeats what it reported; a query that starts again repeats the number at which it failed."""
    caplog.set_level(logging.INFO)
    table = look(
        [],
        [progress("r1", 0), progress("r1", 1)],
        [progress("r1", 0), progress("r1", 1), progress("r1", 2)],
        [progress("r2", 2), progress("r2", 3)],
    )
    batches = table.batches
    assert table.total.changes == 500
    assert batches.durations.count == 5
    assert batches.phases_s == {"addBatch": pytest.approx(1.5)}
    assert (batches.last, batches.last_s) == (3, 0.4)
    assert batches.window == Window(UnixMicros(4_000_000), UnixMicros(5_000_000))
    assert [line.split(",")[0] for line in caplog.messages] == [
        "a.b: 200 changes",
        "a.b: 300 changes",
        "a.b: 500 changes",
        "a.b: 500 changes in all",
    ]


def test_table_without_changes_is_not_logged_as_behind(caplog: pytest.LogCaptureFixture) -> None:
    """The bridge reads it seldom, and it is no further behind for that."""
    caplog.set_level(logging.INFO)
    look([progress("r1", 0, lane(0), lane(1))])
    line, _ = caplog.messages
    assert line.startswith("a.b: nothing new; read to what was written ")


def test_reports_without_a_micro_batch_count_nothing() -> None:
    """An idle query reports as well."""
    idle = progress("r1", 0) | {"durationMs": {"latestOffset": 3}}
    first = progress("r1", 1) | {"sources": [{"endOffset": None}]}
    assert look([idle, first]).batches == BatchStatistics()


def test_each_report_is_counted_once_as_a_sign_of_life() -> None:
    """Also one of a query that has nothing to read, which is how the job knows that it does not hang."""
    idle = progress("r1", 0) | {"durationMs": {"latestOffset": 3}}
    later = progress("r1", 1) | {"durationMs": {"latestOffset": 3}}
    report = ProgressReport("a.b", job_state_of("a.b"), changes_came=lambda: None)
    counts = []
    for recent in ([], [idle], [idle], [idle, later, progress("r1", 2)]):
        report.look(cast("Any", Query(recent)), at_once=True)
        counts.append(report.count)
    assert counts == [0, 1, 1, 3]


def test_micro_batch_without_lanes_reports_none() -> None:
    """A micro-batch that the checkpoint has kept and that Kafka does not confirm has no tasks."""
    table = look([progress("r1", 0) | {"observedMetrics": {"lanes": {"reports": []}}}])
    assert (table.total.changes, table.batches.last) == (0, 0)


def test_dead_letters_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With their table and topic, and the reason of the first."""
    look([progress("r1", 0, lane(0), lane(1, reason="column 'v' is torn"))])
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["a.b: changes became dead letters in topic dead.b; the first: column 'v' is torn"]


def test_reports_of_another_release_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The micro-batch counts all the same."""
    assert look([progress("r1", 0, '{"v":2}')]).batches.last == 0
    assert "a.b: a micro-batch's counts can't be read: not a lane's report: " in caplog.text


def test_planner_is_signalled_for_log_rows_only() -> None:
    """Those of its own table. A micro-batch without rows, and counts of other tables, are no signal."""
    for table, log_rows, signals in (("a.b", 0, 0), ("a.b", 3, 1), ("x.y", 3, 0)):
        came: list[None] = []
        found = progress("r1", 0, lane(0), lane(1, table, log_rows=log_rows, transactions=1))
        look([found], came=partial(came.append, None))
        assert len(came) == signals
