"""Counters of tasks, and the reports that carry them."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from bridge.errors import BridgeError
from bridge.model.counters import Histogram, LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.counters import CounterStore
from bridge.monitoring.reports import LaneReport


def every_counter() -> LaneCounters:
    """Return counters that are all greater than zero."""
    made = LaneCounters()
    for number, counter in enumerate(fields(made), start=1):
        if isinstance(getattr(made, counter.name), Histogram):
            getattr(made, counter.name).observe(number / 100)
        else:
            setattr(made, counter.name, number)
    return made


def test_counters_add_up() -> None:
    """All counters are added, except the requests under way, whose last known number stays."""
    total = every_counter()
    total.add(every_counter())
    once = every_counter()
    assert (total.changes, total.unknown_operations) == (2 * once.changes, 2 * once.unknown_operations)
    assert (total.pages.count, total.pages.total) == (2, 2 * once.pages.total)
    assert total.most_in_flight == once.most_in_flight
    total.add(LaneCounters())
    assert total.most_in_flight == once.most_in_flight


def test_copy_is_independent() -> None:
    """Counting does not change a copy."""
    total = every_counter()
    copy = total.copy()
    total.add(every_counter())
    assert copy == every_counter()


def test_report_survives_json() -> None:
    """A report is the same after its way through JSON."""
    counted = [("ks.t", 3, every_counter()), ("ks.u", 0, LaneCounters(changes=1))]
    report = LaneReport("ks.t", 1, Cursor(UnixMillis(5), UnixMicros(5_001)), counted, "column 'v' is torn")
    assert LaneReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    "changed",
    [{"v": 2}, {"lane": "1"}, {"counted": [["t", 0, {"nothing": 1}]]}, {"counted": [["t"]]}, {"dead_letter_reason": 1}],
)
def test_other_reports_are_refused(changed: dict[str, object]) -> None:
    """A report in another form raises an error."""
    report = json.loads(LaneReport("ks.t", 1, Cursor(UnixMillis(5), UnixMicros(5_001)), []).to_json())
    with pytest.raises(BridgeError, match=r"not a lane's report|not the counters of a lane"):
        LaneReport.from_json(json.dumps(report | changed))


def test_report_cut_short_is_refused() -> None:
    """Text that is not JSON raises an error with its length."""
    with pytest.raises(BridgeError, match="report of 7 characters"):
        LaneReport.from_json('{"v":1,')


def test_counts_of_a_failed_micro_batch_are_reported_again() -> None:
    """Reports of a micro-batch that fails do not arrive, so its next attempt reports their counts again."""
    store, first, second = CounterStore(), ("ks.t", 1), ("ks.t", 2)
    counted = [("ks.t", 0, LaneCounters(changes=7))]
    store.begin_task(first, "query 1")
    store.add_all(counted)
    assert store.take_for_report(first, "query 1") == counted
    store.begin_task(first, "query 1")  # another lane of it
    assert store.take_for_report(first, "query 1") == []
    store.begin_task(("ks.u", 1), "query 3")
    store.begin_task(first, "query 2")
    assert store.take_for_report(first, "query 2") == counted
    store.begin_task(second, "query 2")
    assert store.take_for_report(second, "query 2") == []
    store.begin_task(second, "query 4")
    assert store.take_for_report(second, "query 4") == []


def test_counts_of_a_failed_attempt_come_with_the_next() -> None:
    """Counts are returned once, and wait until they are taken."""
    store = CounterStore()
    store.add("ks.t", 0, LaneCounters(aborts=1))
    store.add_all([("ks.t", 0, LaneCounters(log_rows=7))])
    store.count_page("ks.t", 0, 0.002, 5, 4, failed=False)
    store.count_registry_call("ks.t", 1, 0.1, failed=True)
    found = {(table, lane): counters for table, lane, counters in store.take()}
    assert (found["ks.t", 0].aborts, found["ks.t", 0].log_rows, found["ks.t", 0].most_in_flight) == (1, 12, 4)
    assert (found["ks.t", 1].registry.count, found["ks.t", 1].registry_errors) == (1, 1)
    assert store.take() == []


def test_histogram_bounds_are_inclusive() -> None:
    """A value equal to a bound belongs to its bucket, as `le` means in Prometheus."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 7.5)
