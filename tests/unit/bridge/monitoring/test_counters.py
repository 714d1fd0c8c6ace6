"""What tasks count, and how it travels."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.counters import Histogram, LaneFigures, Store
from bridge.monitoring.reports import LaneReport


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


def test_report_travels() -> None:
    """What a task reports arrives as it was."""
    counted = [("ks.t", 3, every_figure()), ("ks.u", 0, LaneFigures(changes=1))]
    report = LaneReport("ks.t", 1, Cursor(UnixMillis(5), UnixMicros(5_001)), counted, "column 'v' is torn")
    assert LaneReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    "changed",
    [{"v": 2}, {"lane": "1"}, {"counted": [["t", 0, {"nothing": 1}]]}, {"counted": [["t"]]}, {"poison": 1}],
)
def test_other_reports_are_refused(changed: dict[str, object]) -> None:
    """A report of another release is named, not misread."""
    report = json.loads(LaneReport("ks.t", 1, Cursor(UnixMillis(5), UnixMicros(5_001)), []).to_json())
    with pytest.raises(BridgeError, match="not a lane's"):
        LaneReport.from_json(json.dumps(report | changed))


def test_report_cut_short_is_refused() -> None:
    """It is an error of its own."""
    with pytest.raises(BridgeError, match="report of 7 characters"):
        LaneReport.from_json('{"v":1,')


def test_figures_of_a_failed_micro_batch_are_told_again() -> None:
    """Reports arrive when a whole micro-batch is done, so what was told in one that is worked anew is due once more."""
    store, first, second = Store(), ("ks.t", 1), ("ks.t", 2)
    figures = [("ks.t", 0, LaneFigures(changes=7))]
    store.begin(first, "query 1")
    store.absorb(figures)
    assert store.report(first, "query 1") == figures
    store.begin(first, "query 1")  # another lane of it
    assert store.report(first, "query 1") == []
    store.begin(("ks.u", 1), "query 3")
    store.begin(first, "query 2")
    assert store.report(first, "query 2") == figures
    store.begin(second, "query 2")
    assert store.report(second, "query 2") == []
    store.begin(second, "query 4")
    assert store.report(second, "query 4") == []


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
