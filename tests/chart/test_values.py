"""What Helm takes and refuses: every mistake is named before anything reaches the cluster."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bridge.config.document import validate
from bridge.config.kafka import RESERVED, SETTING_BY_PROPERTY, UNSAFE
from deploy.chart.documents import leaves
from deploy.chart.values import ChartValues
from tests.chart.rendering import FULL, LOCAL, Chart, HelmError, Rendered

SECRET = {"existingSecret": "scylla-reader", "key": "password"}


def _kafka(properties: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"kafka": {"properties": properties}}}


def _spark(properties: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"spark": {"properties": properties}}}


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
        ({"config": {"registry": {"url": "registry:8081"}}}, "/config/registry/url"),
        ({"config": {"monitoring": {"outlive_tables": False}}}, "outlive_tables"),
        (_kafka({"sasl.password": "hunter2"}), "sasl.password"),
        (_kafka({"SSL.Keystore.Password": "hunter2"}), "SSL.Keystore.Password"),
        (_kafka({"acks": "1"}), "acks"),
        (_kafka({"compression.type": "zstd"}), "compression.type"),
        (_kafka({"enable.ssl.certificate.verification": False}), "enable.ssl.certificate.verification"),
        (_kafka({"client.dns.lookup": "use_all_dns_ips"}), "client.dns.lookup"),
        (_kafka({"logger": "mine"}), "logger"),
        (_spark({"spark.hadoop.fs.s3a.secret.key": "hunter2"}), "spark.hadoop.fs.s3a.secret.key"),
        (_spark({"spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "hunter2"}), "fs.azure.account.key.a"),
        (_kafka({"sasl.jaas.config": "hunter2"}), "sasl.jaas.config"),
        ({"checkpoint": {"path": "bucket/folder"}}, "/checkpoint/path"),
        (_spark({"spark.driver.memory": "5g"}), "spark.driver.memory"),
        (_spark({"spark.executor.instances": 5}), "spark.executor.instances"),
        (_spark({"spark.network.crypto.enabled": False}), "spark.network.crypto.enabled"),
        (_spark({"spark.master": "yarn"}), "spark.master"),
        ({"commonLabels": {"app.kubernetes.io/name": "mine"}}, "/commonLabels/app.kubernetes.io~1name"),
        (
            {"driver": {"podLabels": {"app.kubernetes.io/component": "mine"}}},
            "/driver/podLabels/app.kubernetes.io~1component",
        ),
        (
            {"executors": {"podLabels": {"app.kubernetes.io/instance": "mine"}}},
            "/executors/podLabels/app.kubernetes.io~1instance",
        ),
        ({"security": {"pod": None}}, "'pod'"),
        ({"security": {"container": None}}, "'container'"),
        ({"security": None}, "'security'"),
        ({"driver": {"logLevel": None}}, "'logLevel'"),
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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"monitoring": {"port": 7078}},
            "monitoring.port and executors.driverPort are both 7078: the driver's pod listens at each",
        ),
        ({"executors": {"driverPort": 7079}}, "executors.driverPort and executors.blockManagerPort are both 7079"),
        ({"serviceAccounts": {"driver": {"create": False}}}, "serviceAccounts.driver.name has to say as whom"),
        (
            {"config": {"tables": ["shop.a", "shop.orders", {"name": "shop.Orders", "lanes": 2}]}},
            "config.tables[2] is shop.orders, which config.tables[1] is already: name each table once",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_contradict_each_other_are_refused(chart: Chart, values: dict[str, Any], words: str) -> None:
    """Values that are good by themselves and not together are named."""
    with pytest.raises(HelmError) as refused:
        chart.render(FULL, values=values)
    assert words in str(refused.value)


def test_what_is_refused_by_name_says_what_to_do_instead(chart: Chart) -> None:
    """Each error has a text, also where no value at all is taken."""
    kafka = {"linger.ms": 5, "acks": "1", "sasl.password": "hunter2", "ssl.keystore.password": "hunter2", "Acks": 1}
    spark = {"spark.a.password": "hunter2", "spark.driver.memory": "5g", "spark.app.name": "a", "driver.memory": "5g"}
    config = {
        "scylla": {"username": "a", "password": "hunter2"},
        "kafka": {"properties": kafka},
        "registry": {"url": "http://a:hunter2@c"},
        "spark": {"checkpoint": "/a", "properties": spark},
        "monitoring": {"listen": "a:1"},
    }
    with pytest.raises(HelmError) as refused:
        chart.render(values={"commonLabels": {"helm.sh/chart": "mine"}, "config": config})
    told = dict.fromkeys(re.findall(r"- at '(\S+)': value must be '(.*)'", str(refused.value)))
    expected = {
        ("/commonLabels/helm.sh~1chart", "the chart sets it, and finds its objects by it"),
        ("/config/scylla/password", "{existingSecret: NAME, key: KEY}"),
        ("/config/kafka/properties/linger.ms", "left out: set config.kafka.linger_ms instead"),
        ("/config/kafka/properties/acks", "left out: set by the bridge itself, exactly-once depends on it"),
        ("/config/kafka/properties/sasl.password", "set config.kafka.sasl.password instead"),
        ("/config/kafka/properties/ssl.keystore.password", "config.kafka.tls take {existingSecret: NAME, key: KEY}"),
        ("/config/kafka/properties/Acks", "librdkafka has no property of that name"),
        ("/config/registry/url", "an address without user and password"),
        ("/config/spark/checkpoint", "left out: set `checkpoint.path` or `checkpoint.persistence` instead"),
        ("/config/spark/properties/spark.a.password", "`driver.extraEnv` and `executors.extraEnv`, with `valueFrom`"),
        ("/config/spark/properties/spark.driver.memory", "left out: the chart sets it, by `driver.memory`"),
        ("/config/spark/properties/spark.app.name", "left out: set `config.name` instead"),
        ("/config/spark/properties/driver.memory", "Spark ignores properties that do not begin with `spark.`"),
        ("/config/monitoring/listen", "left out: set `monitoring.port` instead"),
    }
    assert {one for one in expected if not any(one[0] == place and one[1] in text for place, text in told)} == set()
    assert {place for place, _ in told} == {place for place, _ in expected}
    assert "false schema" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_ports_of_executors_do_not_matter_without_any(chart: Chart) -> None:
    """What is not listened at can't clash."""
    assert chart.render(LOCAL, values={"monitoring": {"port": 7078}}).config["monitoring"]["listen"] == "0.0.0.0:7078"


def test_what_the_bridge_refuses_the_chart_refuses(chart: Chart) -> None:
    """Of librdkafka's properties that the bridge does not take, none gets as far as the cluster."""
    given = yaml.safe_load(LOCAL.read_text(encoding="utf-8"))["config"]
    refused = dict.fromkeys((*RESERVED, *SETTING_BY_PROPERTY, *UNSAFE, "ssl.key.pem", "oauth_cb", "on_delivery"), "a")
    for name in refused:
        with pytest.raises(ValidationError, match=rf"(?m)^kafka.properties\n.*{re.escape(name)}"):
            validate(given | {"kafka": given["kafka"] | {"properties": {name: "a"}}})
    with pytest.raises(HelmError) as said:
        chart.render(values=_kafka(refused))
    assert [name for name in refused if name not in str(said.value)] == []


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
    "executors.driverPort": 7777,
    "image.digest": f"sha256:{64 * '1'}",
    "driver.memory": "2g",
    "driver.extraVolumes": [{"name": "more", "emptyDir": {}}, {"name": "other", "emptyDir": {}}],
    "driver.extraVolumeMounts": [{"name": "tmp", "mountPath": "/other"}],
    "executors.extraVolumeMounts": [{"name": "spark-local-dir-1", "mountPath": "/other"}],
    "executors.instances": 7,
    "executors.memory": "7g",
    "executors.memoryOverhead": "7g",
    "executors.cpuRequest": "700m",
    "executors.cpuLimit": "7",
    "checkpoint.path": "/other",
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
        if path == "serviceAccounts.driver.create":
            continue  # never without a name: test_accounts_of_others
        for name in reversed(path.split(".")):
            given = {name: given}
        if chart.render(FULL, values=given) == full and chart.render(LOCAL, values=given) == local:
            idle.append(path)
    assert idle == []
