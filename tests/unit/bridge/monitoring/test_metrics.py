"""The metrics: their names, their documentation, and their values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.model.times import UnixMicros
from bridge.monitoring import metrics
from bridge.monitoring.exposition import Exposition
from bridge.monitoring.metrics import METRICS
from bridge.monitoring.snapshot import JobSnapshot, TableStreams, Topology
from tests.unit.bridge.monitoring import jobs

_DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
_UNITS = ("_seconds", "_bytes_total", "_total")
_COUNTS = {"lanes", "generations", "streams", "stream_groups", "cql_requests_in_flight", "table_state", "table_ready"}


def scrape(job: JobSnapshot) -> dict[tuple[str, ...], float]:
    """Return samples by name and label values, in the order of the labels' names."""
    _, body = Exposition(lambda: job).answer("text/plain")
    return {
        (
            sample.name.removeprefix("scylla_cdc_bridge_"),
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_documentation_is_current() -> None:
    """The documentation is the one that the metrics generate."""
    how = "python -m bridge.monitoring.metrics > docs/metrics.md"
    assert _DOCUMENT.read_text(encoding="utf-8") == metrics.markdown(), f"docs/metrics.md is out of date; {how}"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: metrics.Metric) -> None:
    """Each name has the prefix and a base unit or a count, `_total` for counters only; each help is a sentence."""
    bare = metric.name.removeprefix(metrics.PREFIX)
    assert metric.name.startswith(metrics.PREFIX)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bare.endswith(_UNITS) or bare in _COUNTS or bare == "build_info"
    assert metric.help.endswith(".")


def test_every_metric_is_exposed() -> None:
    """A running job exposes exactly the documented metrics."""
    _, body = Exposition(jobs.running).answer("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert [name for name, family in families.items() if not family.samples] == []
    ours = {name for name in families if name.startswith(metrics.PREFIX)}
    assert ours == {metric.name.removesuffix("_total") for metric in METRICS}


def test_values() -> None:
    """Each metric has the values of the job, by table and lane."""
    found = scrape(jobs.failing())
    assert found["changes_published_total", "3", "shop.orders"] == 201_000
    assert found["transactions_aborted_total", "0", "shop.line_items"] == 3
    assert found["lag_seconds", "0", "shop.line_items"] == pytest.approx(64.0)
    assert found["ttl_left_seconds", "0", "shop.orders"] == pytest.approx(86_400 - 90_000)
    assert found["table_state", "stopped", "shop.orders"] == 1
    assert found["table_state", "running", "shop.orders"] == 0
    assert found["table_ready", "shop.orders"] == 0
    assert found["window_seconds", "crm.contacts"] == 0.5
    assert found["cql_request_duration_seconds_count", "crm.contacts"] == 80
    assert found["cql_request_duration_seconds_bucket", "0.005", "crm.contacts"] == 80
    assert found["cql_request_duration_seconds_bucket", "0.0025", "crm.contacts"] == 0
    assert found["streams", "crm.contacts"] == 768
    assert found["look_interval_seconds", "crm.contacts"] == pytest.approx(0.2304)
    assert found["switch_stall_bound_seconds", "crm.contacts"] == pytest.approx(15.4608)
    assert found[("clock_ahead_seconds",)] == 0
    assert found["log_messages_total", "error"] == 51


def test_distance_to_the_ttl_falls_while_a_lane_stands() -> None:
    """The time until the TTL falls for a lane that does not advance, and stays for lanes that advance."""
    before = jobs.running()
    waits_s = 5_000.0
    stands, *others = before.tables[0].lanes
    moved = [
        replace(one, cursor=replace(one.cursor, time_us=UnixMicros(one.cursor.time_us + int(waits_s * 1e6))))
        for one in others
        if one.cursor is not None
    ]
    table = replace(before.tables[0], lanes=(stands, *moved))
    after = replace(before, now_s=before.now_s + waits_s, tables=(table,))
    left = [[scrape(job)["ttl_left_seconds", str(lane), "shop.orders"] for lane in range(4)] for job in (before, after)]
    assert left[0] == pytest.approx([86_400 - 11.2] * 4)
    assert left[1] == pytest.approx([86_400 - 11.2 - waits_s] + [86_400 - 11.2] * 3)


def test_what_is_not_known_is_left_out() -> None:
    """A log without a TTL has no time left, and a retired lane has only its counters."""
    job = jobs.running()
    table = replace(job.tables[0], lanes=jobs.lanes(6, 11.0))
    topology = Topology({"shop.orders": TableStreams(jobs.GENERATIONS)}, {"shop.orders": 0})
    found = scrape(replace(job, tables=(table,), topology=topology))
    assert not any(key[0] in ("ttl_left_seconds", "streams") for key in found)
    assert ("lag_seconds", "5", "shop.orders") not in found
    assert found["changes_published_total", "5", "shop.orders"] > 0


def test_openmetrics_on_request() -> None:
    """The scraper's header selects the format."""
    content_type, body = Exposition(jobs.running).answer("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
