"""Prometheus accepts alerts, queries and metrics (promtool)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart.dashboard import dashboard_text
from tests.chart.rendering import FULL, Chart, Rendered
from tests.go_tools import PROMTOOL

_LABELS = 'namespace="data", service="shop-scylla-cdc-bridge", table="shop.orders"'
_JOB = 'namespace="data", service="shop-scylla-cdc-bridge"'

# promtool compares alerts whole; a query of ALERTS asks for names alone.
_FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def promtool(*words: str | Path, text: str = "") -> str:
    """Run promtool, which must succeed, and return its output."""
    ended = subprocess.run(
        [PROMTOOL.get(), *words], input=text, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def _written(rendered: Rendered, path: Path) -> Path:
    path.write_text(yaml.safe_dump(rendered.find("PrometheusRule")["spec"]), encoding="utf-8")
    return path


@pytest.fixture
def rules(full: Rendered, tmp_path: Path) -> Path:
    """The rendered alerts, as a file of rules."""
    return _written(full, tmp_path / "rules.yaml")


def test_rules_are_good(rules: Path) -> None:
    """Prometheus accepts expressions, templates and durations."""
    assert "SUCCESS: 13 rules found" in promtool("check", "rules", "--lint-fatal", rules)


def test_queries_of_the_dashboard_are_good(tmp_path: Path) -> None:
    """Each query is PromQL once Grafana has put its variables in."""
    targets = [target["expr"] for panel in json.loads(dashboard_text())["panels"] for target in panel["targets"]]
    filled = [query.replace("$__rate_interval", "5m").replace("$", "") for query in targets]
    records = [{"record": f"query_{at}", "expr": query} for at, query in enumerate(filled)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}), encoding="utf-8")
    assert f"SUCCESS: {len(records)} rules found" in promtool("check", "rules", path)


# Of changes that expire soon: a lane that stands comes below six hours in the 24th minute.
_SERIES: list[tuple[str, str, str]] = [
    ("Down", "up", "1"),
    ("Restarts", f"process_start_time_seconds{{{_JOB}}}", "0+100x60"),
    ("TableStopped", f'scylla_cdc_bridge_table_state{{{_LABELS}, state="stopped"}}', "1x60"),
    ("TableNotReady", f"scylla_cdc_bridge_table_ready{{{_LABELS}}}", "0x60"),
    ("LagHigh", f'scylla_cdc_bridge_lag_seconds{{{_LABELS}, lane="1"}}', "301x60"),
    ("ChangesExpireSoon", f'scylla_cdc_bridge_ttl_left_seconds{{{_LABELS}, lane="1"}}', "23000-60x60"),
    ("QueryFails", f"scylla_cdc_bridge_query_failures_total{{{_LABELS}}}", "0+1x60"),
    ("Hangs", f"scylla_cdc_bridge_stall_restarts_total{{{_LABELS}}}", "0+1x60"),
    ("Fenced", f'scylla_cdc_bridge_fencings_total{{{_LABELS}, lane="1"}}', "0+1x60"),
    ("UnknownOperations", f"scylla_cdc_bridge_unknown_operations_total{{{_LABELS}}}", "0+1x60"),
    ("DeadLetters", f"scylla_cdc_bridge_dead_letters_total{{{_LABELS}}}", "0+1x60"),
    ("KeysMisplaced", f"scylla_cdc_bridge_keys_misplaced_total{{{_LABELS}}}", "0+1x60"),
    ("ClocksDiffer", f"scylla_cdc_bridge_clock_ahead_seconds{{{_JOB}}}", "-2x60"),
]
_CALM: list[tuple[str, str]] = [
    (f'scylla_cdc_bridge_build_info{{{_LABELS}, version="0.1.0"}}', "1x60"),
    (f"process_start_time_seconds{{{_JOB}}}", "1x60"),
    (f"scylla_cdc_bridge_log_ttl_seconds{{{_LABELS}}}", "86400x60"),
    (f'scylla_cdc_bridge_table_state{{{_LABELS}, state="running"}}', "1x60"),
    (f'scylla_cdc_bridge_table_state{{{_LABELS}, state="stopped"}}', "0x60"),
    (f"scylla_cdc_bridge_table_ready{{{_LABELS}}}", "1x60"),
    (f'scylla_cdc_bridge_lag_seconds{{{_LABELS}, lane="0"}}', "11x60"),
    (f'scylla_cdc_bridge_ttl_left_seconds{{{_LABELS}, lane="0"}}', "86000x60"),
    (f"scylla_cdc_bridge_query_failures_total{{{_LABELS}}}", "1x60"),
    (f"scylla_cdc_bridge_stall_restarts_total{{{_LABELS}}}", "1x60"),
    (f'scylla_cdc_bridge_fencings_total{{{_LABELS}, lane="0"}}', "1x60"),
    (f"scylla_cdc_bridge_unknown_operations_total{{{_LABELS}}}", "0x60"),
    (f"scylla_cdc_bridge_dead_letters_total{{{_LABELS}}}", "0x60"),
    (f"scylla_cdc_bridge_keys_misplaced_total{{{_LABELS}}}", "0x60"),
    (f"scylla_cdc_bridge_clock_ahead_seconds{{{_JOB}}}", "0.2x60"),
]


def test_each_alert_fires_for_its_cause_alone(rules: Path, tmp_path: Path) -> None:
    """With a healthy job no alert fires; each cause fires its own alert and no other."""
    names = [rule["alert"] for rule in yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"][0]["rules"]]
    causes: list[tuple[str | None, str, str]] = [(None, "up", "1"), *_SERIES]
    tests = [_case(names, cause, series, values) for cause, series, values in causes]
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": tests}), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", path)


def test_suspended_driver_is_not_called_down(chart: Chart, rules: Path, tmp_path: Path) -> None:
    """A suspended driver, which gives no metrics, fires no alert; a missing driver does."""
    asleep = _written(chart.render(FULL, values={"driver": {"suspended": True}}), tmp_path / "suspended.yaml")
    assert "SUCCESS: 12 rules found" in promtool("check", "rules", "--lint-fatal", asleep)
    ended = {series: values.replace("x60", "x10 stale") for series, values in _CALM}
    down = [{"labels": '{alertname="ScyllaCdcBridgeDown"}', "value": 1}]
    path = tmp_path / "tests.yaml"
    for file, expected in ((asleep, []), (rules, down)):
        tests = [
            {
                "name": f"{file.name}, {len(series)} series",
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{"expr": _FIRING, "eval_time": "40m", "exp_samples": expected}],
            }
            for series in ({"up": "1x60"}, ended)
        ]
        path.write_text(yaml.safe_dump({"rule_files": [str(file)], "tests": tests}), encoding="utf-8")
        assert "SUCCESS" in promtool("test", "rules", path)


def _case(names: list[str], cause: str | None, series: str, values: str) -> dict[str, Any]:
    calm = [(name, value) for name, value in _CALM if name != series and not (cause == "Down" and "build_info" in name)]
    expected = [] if cause is None else [{"labels": f'{{alertname="ScyllaCdcBridge{cause}"}}', "value": 1}]
    assert cause is None or f"ScyllaCdcBridge{cause}" in names
    return {
        "name": cause or "well",
        "interval": "1m",
        "input_series": [{"series": name, "values": value} for name, value in [*calm, (series, values)]],
        "promql_expr_test": [{"expr": _FIRING, "eval_time": "40m", "exp_samples": expected}],
    }
