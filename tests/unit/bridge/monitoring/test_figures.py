"""What tasks count, and how it travels."""

from __future__ import annotations

from dataclasses import fields

import pytest

from bridge.control import end_from_json, end_to_json
from bridge.errors import BridgeError
from bridge.model.cursors import Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.figures import Histogram, LaneFigures, Store
from bridge.monitoring.mailbox import BatchReport, LaneReached


def every_figure() -> LaneFigures:
    """One with something in each field."""
    made = LaneFigures()
    for number, one in enumerate(fields(made), start=1):
        if isinstance(getattr(made, one.name), Histogram):
            getattr(made, one.name).observe(number / 100)
        else:
            setattr(made, one.name, number)
    return made


def test_figures_add_up() -> None:
    """Everything is added, but for the requests under way, of which the last known number stays."""
    total = every_figure()
    total.add(every_figure())
    once = every_figure()
    assert (total.changes, total.unknown_operations) == (2 * once.changes, 2 * once.unknown_operations)
    assert (total.pages.count, total.pages.total) == (2, 2 * once.pages.total)
    assert total.most_in_flight == once.most_in_flight
    total.add(LaneFigures())
    assert total.most_in_flight == once.most_in_flight


def test_copy_counts_by_itself() -> None:
    """What is shown does not change while it is shown."""
    total = every_figure()
    copy = total.copy()
    total.add(every_figure())
    assert copy == every_figure()


def test_end_row_carries_figures() -> None:
    """The reading process's figures reach the sink as they are; without any the row is as small as can be."""
    counted = [("ks.t", 3, every_figure()), ("ks.u", 0, LaneFigures(changes=1))]
    assert end_from_json(end_to_json(counted)) == counted
    assert end_to_json([]) == '{"counted":[],"v":1}'


def test_report_travels() -> None:
    """What the sink's driver side reports arrives as it was."""
    reached = (LaneReached("ks.t", 1, Cursor(UnixMillis(5), UnixMicros(5_001))),)
    report = BatchReport(True, reached, [("ks.t", 1, every_figure())])
    assert BatchReport.from_bytes(report.to_bytes()) == report


@pytest.mark.parametrize("text", ['{"v":2}', '{"v":1,"counted":[["t",0,{"nothing":1}]]}', '{"v":1,"counted":[["t"]]}'])
def test_other_formats_are_refused(text: str) -> None:
    """A row of another release is named, not misread."""
    with pytest.raises(BridgeError, match="not a"):
        end_from_json(text)


@pytest.mark.parametrize("raw", [b"", b"\xff", b'{"v":2}'])
def test_other_reports_are_refused(raw: bytes) -> None:
    """A report cut short is an error of its own."""
    with pytest.raises(BridgeError, match="report"):
        BatchReport.from_bytes(raw)


def test_figures_of_a_failed_attempt_come_with_the_next() -> None:
    """Nothing is handed on twice, and what nobody has taken waits."""
    store = Store()
    store.add("ks.t", 0, LaneFigures(aborts=1))
    store.absorb([("ks.t", 0, LaneFigures(log_rows=7))])
    store.page("ks.t", 0, 0.002, 5, 4, failed=False)
    store.registry("ks.t", 1, 0.1, failed=True)
    found = {(table, lane): figures for table, lane, figures in store.take()}
    assert (found["ks.t", 0].aborts, found["ks.t", 0].log_rows, found["ks.t", 0].most_in_flight) == (1, 12, 4)
    assert (found["ks.t", 1].registry.count, found["ks.t", 1].registry_errors) == (1, 1)
    assert store.take() == []


def test_histogram_bounds_are_inclusive() -> None:
    """As Prometheus means `le`."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 7.5)
