"""What Helm takes and refuses: every mistake is named before anything reaches the cluster."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from deploy.chart.documents import leaves
from deploy.chart.values import ChartValues
from tests.chart.rendering import FULL, LOCAL, Chart, HelmError, Rendered

SECRET = {"existingSecret": "scylla-reader", "key": "password"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"drivr": {}}, "drivr"),
        ({"driver": {"coers": 2}}, "coers"),
        ({"driver": {"cores": 0}}, "/driver/cores"),
        ({"driver": {"memory": "1 GB"}}, "/driver/memory"),
        ({"driver": {"terminationGracePeriodSeconds": 5}}, "/driver/terminationGracePeriodSeconds"),
        ({"replicas": 2}, "replicas"),
        ({"mode": "cluster"}, "/mode"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"monitoring": {"serviceMonitor": {"enable": True}}}, "enable"),
        ({"config": {"reading": {"confidence": 10}}}, "confidence"),
        ({"config": {"reading": {"confidence_ms": -1}}}, "/config/reading/confidence_ms"),
        ({"config": {"kafka": {"compression": "lzma"}}}, "/config/kafka/compression"),
        ({"config": {"scylla": {"username": "reader", "password": "hunter2"}}}, "/config/scylla/password"),
        ({"config": {"scylla": {"password": {"existingSecret": "a"}}}}, "/config/scylla/password"),
        ({"config": {"scylla": {"password": SECRET | {"file": "/a"}}}}, "/config/scylla/password"),
        ({"config": {"scylla": {"password": {"existingConfigMap": "a", "key": "b"}}}}, "/config/scylla/password"),
        ({"config": {"scylla": {"contact_points": ["scylla"]}}}, "/config/scylla/contact_points/0"),
        ({"config": {"tables": ["orders"]}}, "/config/tables/0"),
        ({"config": {"tables": [{"name": "shop.orders", "topc": "a"}]}}, "topc"),
        ({"config": {"tables": []}}, "/config/tables"),
        ({"config": {"spark": {"master": "yarn"}}}, "master"),
        ({"config": {"spark": {"checkpoint": "/tmp"}}}, "checkpoint"),
        ({"config": {"monitoring": {"listen": "127.0.0.1:1"}}}, "listen"),
        ({"config": {"registry": {"url": None}}}, "url"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistake_is_refused_and_named(chart: Chart, values: dict[str, Any], words: str) -> None:
    """A typo, a value out of its range, a secret in plain sight: each is refused with its place."""
    with pytest.raises(HelmError) as refused:
        chart.render(LOCAL, values=values)
    assert "values don't meet the specifications of the schema" in str(refused.value)
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_what_is_required_is_named(chart: Chart) -> None:
    """Without values Helm says what has to be given."""
    with pytest.raises(HelmError, match="'name', 'scylla', 'kafka', 'registry', 'tables'"):
        chart.run("template", "shop", str(LOCAL.parents[1]))


@pytest.mark.parametrize("values", [LOCAL, FULL], ids=lambda path: path.stem)
def test_lint(chart: Chart, values: Any) -> None:
    """`helm lint --strict` has nothing to say."""
    said = chart.run("lint", "--strict", str(LOCAL.parents[1]), "--values", str(values))
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "WARNING" not in said


OTHERS: dict[str, Any] = {
    "image.digest": f"sha256:{64 * '1'}",
    "driver.memory": "7g",
    "executors.instances": 7,
    "executors.memory": "7g",
    "executors.memoryOverhead": "7g",
    "executors.cpuRequest": "700m",
    "executors.cpuLimit": "7",
    "checkpoint.persistence.size": "7Gi",
    "checkpoint.persistence.accessModes": ["ReadWriteMany"],
    "temporary.sizeLimit": "7Gi",
    "monitoring.serviceMonitor.interval": "7s",
    "monitoring.serviceMonitor.scrapeTimeout": "7s",
    "monitoring.prometheusRule.alerts.for": "7m",
    "networkPolicy.egress.apiServerPorts": [7],
}


def other(path: str, field: FieldInfo, default: Any) -> Any:
    """A value that is good and not the default."""
    if path in OTHERS:
        return OTHERS[path]
    if get_origin(field.annotation) is Literal:
        return next(choice for choice in get_args(field.annotation) if choice != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    return {str: "other", list: [{"name": "other"}], dict: {"other": "other"}}[type(default)]


def test_no_value_is_without_effect(chart: Chart, local: Rendered, full: Rendered) -> None:
    """Each value of the chart changes something in the objects of a small or of a full release."""
    idle = []
    for path, field, default in leaves(ChartValues()):
        given = other(path, field, default)
        for name in reversed(path.split(".")):
            given = {name: given}
        if chart.render(FULL, values=given) == full and chart.render(LOCAL, values=given) == local:
            idle.append(path)
    assert idle == []
