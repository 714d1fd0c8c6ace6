"""The Grafana dashboard: the state of the job in the first row, then the panels that explain it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

_WIDTH: Final = 24
_HEIGHT: Final = 8
_SELECTED: Final = 'namespace="$namespace", service="$service", table=~"$table"'
_JOB: Final = 'namespace="$namespace", service="$service"'
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot.

    Attributes:
        title: what it shows.
        queries: legend (Grafana's form) and PromQL; `$S` is the selection with tables, `$J` the one without.
        unit: Grafana's name of the unit.
        columns: of 24 in a row.
        kind: Grafana's type of panel.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    columns: int = 8
    kind: str = "timeseries"


PANELS: Final = (
    Panel(
        "Tables that are not ready",
        (("{{table}}", "scylla_cdc_bridge_table_ready{$S} == 0"),),
        columns=6,
        kind="stat",
    ),
    Panel("Lag (slowest)", (("lag", "max(scylla_cdc_bridge_lag_seconds{$S})"),), "s", 6, "stat"),
    Panel("Until changes expire unread", (("left", "min(scylla_cdc_bridge_ttl_left_seconds{$S})"),), "s", 6, "stat"),
    Panel(
        "Changes per second",
        (("changes", "sum(rate(scylla_cdc_bridge_changes_published_total{$S}[$__rate_interval]))"),),
        "cps",
        6,
        "stat",
    ),
    Panel("Lag", (("{{table}}", "max by (table) (scylla_cdc_bridge_lag_seconds{$S})"),), "s"),
    Panel(
        "Changes",
        (("{{table}}", "sum by (table) (rate(scylla_cdc_bridge_changes_published_total{$S}[$__rate_interval]))"),),
        "cps",
    ),
    Panel(
        "Bytes",
        (("{{table}}", "sum by (table) (rate(scylla_cdc_bridge_published_bytes_total{$S}[$__rate_interval]))"),),
        "Bps",
    ),
    Panel("State", (("{{table}} {{state}}", "scylla_cdc_bridge_table_state{$S} == 1"),)),
    Panel(
        "Failures and starts of queries",
        (
            ("{{table}} failures", "increase(scylla_cdc_bridge_query_failures_total{$S}[5m])"),
            ("{{table}} starts", "increase(scylla_cdc_bridge_query_starts_total{$S}[5m])"),
            ("{{table}} hung", "increase(scylla_cdc_bridge_stall_restarts_total{$S}[5m])"),
        ),
    ),
    Panel(
        "Warnings and errors",
        (("{{level}}", "sum by (level) (increase(scylla_cdc_bridge_log_messages_total{$J}[5m]))"),),
    ),
    Panel(
        "Transactions",
        (
            ("committed", "sum(rate(scylla_cdc_bridge_transactions_total{$S}[$__rate_interval]))"),
            ("aborted", "sum(rate(scylla_cdc_bridge_transactions_aborted_total{$S}[$__rate_interval]))"),
            ("fencings", "sum(rate(scylla_cdc_bridge_fencings_total{$S}[$__rate_interval]))"),
        ),
        "ops",
    ),
    Panel(
        "Micro-batch, 95th percentile",
        (
            (
                "{{table}}",
                "histogram_quantile(0.95, sum by (table, le) "
                "(rate(scylla_cdc_bridge_batch_duration_seconds_bucket{$S}[$__rate_interval])))",
            ),
        ),
        "s",
    ),
    Panel("Window", (("{{table}}", "scylla_cdc_bridge_window_seconds{$S}"),), "s"),
    Panel(
        "CQL request, 99th percentile",
        (
            (
                "{{table}}",
                "histogram_quantile(0.99, sum by (table, le) "
                "(rate(scylla_cdc_bridge_cql_request_duration_seconds_bucket{$S}[$__rate_interval])))",
            ),
        ),
        "s",
    ),
    Panel(
        "CQL requests",
        (
            ("{{table}}", "rate(scylla_cdc_bridge_cql_request_duration_seconds_count{$S}[$__rate_interval])"),
            ("{{table}} errors", "rate(scylla_cdc_bridge_cql_request_errors_total{$S}[$__rate_interval])"),
        ),
        "reqps",
    ),
    Panel(
        "Registry calls",
        (
            (
                "{{table}}",
                "rate(scylla_cdc_bridge_registry_request_duration_seconds_count{$S}[$__rate_interval])",
            ),
            ("{{table}} errors", "rate(scylla_cdc_bridge_registry_request_errors_total{$S}[$__rate_interval])"),
        ),
        "reqps",
    ),
)


def dashboard_text() -> str:
    """Return the dashboard in Grafana's JSON."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "scylla-cdc-bridge",
        "title": "scylla-cdc-bridge",
        "tags": ["scylladb", "kafka", "cdc"],
        "editable": False,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("namespace", "label_values(scylla_cdc_bridge_build_info, namespace)"),
                _variable("service", 'label_values(scylla_cdc_bridge_build_info{namespace="$namespace"}, service)'),
                _variable("table", f"label_values(scylla_cdc_bridge_table_ready{{{_JOB}}}, table)", several=True),
            ]
        },
        "panels": _placed(),
    }


def _variable(name: str, query: str, *, several: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": several,
        "includeAll": several,
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if several else {}),
    }


def _placed() -> list[dict[str, Any]]:
    panels = []
    x = y = 0
    for number, panel in enumerate(PANELS, start=1):
        height = _HEIGHT // 2 if panel.kind == "stat" else _HEIGHT
        panels.append(
            {
                "id": number,
                "title": panel.title,
                "type": panel.kind,
                "datasource": _SOURCE,
                "gridPos": {"x": x, "y": y, "w": panel.columns, "h": height},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + at), "legendFormat": legend, "expr": _selected(query)}
                    for at, (legend, query) in enumerate(panel.queries)
                ],
            }
        )
        x += panel.columns
        if x >= _WIDTH:
            x, y = 0, y + height
    return panels


def _selected(query: str) -> str:
    return query.replace("$S", _SELECTED).replace("$J", _JOB)
