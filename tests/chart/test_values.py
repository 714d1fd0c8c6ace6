"""What Helm takes and refuses: every mistake is named before anything reaches the cluster."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bridge.config import validate
from bridge.config_servers import _OURS, _SECTIONS, _UNSAFE
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
        (_kafka({"linger.ms": 5}), "linger.ms': value must be 'left out: set config.kafka.linger_ms instead'"),
        (
            _kafka({"acks": "1"}),
            "acks': value must be 'left out: set by the bridge itself, exactly-once depends on it'",
        ),
        (_kafka({"sasl.password": "hunter2"}), "set config.kafka.sasl.password instead"),
        (_kafka({"ssl.keystore.password": "hunter2"}), "config.kafka.tls take {existingSecret: NAME, key: KEY}"),
        (_spark({"spark.a.password": "hunter2"}), "give it to the pods by `driver.extraEnv` and `executors.extraEnv`"),
        (_spark({"spark.driver.memory": "5g"}), "spark.driver.memory': value must be 'left out: the chart sets it, by"),
        (_spark({"spark.app.name": "mine"}), "set `config.name` instead"),
        (_spark({"driver.memory": "5g"}), "properties of Spark begin with `spark.`"),
        ({"config": {"spark": {"checkpoint": "/a"}}}, "set `checkpoint.path` or `checkpoint.persistence` instead"),
        ({"config": {"monitoring": {"listen": "a:1"}}}, "set `monitoring.port` instead"),
        ({"commonLabels": {"helm.sh/chart": "mine"}}, "the chart sets it, and finds its objects by it"),
        ({"config": {"scylla": {"username": "a", "password": "hunter2"}}}, "{existingSecret: NAME, key: KEY}"),
        ({"config": {"registry": {"url": "http://a:hunter2@c"}}}, "an address without user and password"),
        (_spark({"spark.driver.memory": "5g"}), "`driver.memory`"),
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
    assert "false schema" not in str(refused.value)
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


def _driver(**values: Any) -> dict[str, Any]:
    return {"driver": values}


def _limit(limit: object, **values: Any) -> dict[str, Any]:
    return _driver(resources={"limits": {"memory": limit}}, **values)


def _mount(path: str, *, volume: str = "mine") -> dict[str, Any]:
    return {
        "extraVolumes": [{"name": "mine", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": volume, "mountPath": path}],
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            _driver(extraEnv=[{"name": "DB_PASSWORD", "value": "hunter2"}]),
            ["driver.extraEnv[0] (DB_PASSWORD)", "valueFrom"],
        ),
        (
            _driver(extraEnv=[{"name": "A"}, {"name": "apiToken", "value": "hunter2"}]),
            ["driver.extraEnv[1] (apiToken)"],
        ),
        (_driver(extraEnv=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "hunter2"}]), ["(AWS_SECRET_ACCESS_KEY)"]),
        ({"executors": {"extraEnv": [{"name": "KEY", "value": "hunter2"}]}}, ["executors.extraEnv[0] (KEY)"]),
        (
            _driver(extraEnv=[{"name": "PROXY", "value": "http://me:hunter2@proxy"}]),
            ["(PROXY) has a secret", "valueFrom"],
        ),
        (
            _driver(extraEnv=[{"name": "JAVA_TOOL_OPTIONS", "value": "-Djavax.net.ssl.keyStorePassword=hunter2"}]),
            ["driver.extraEnv[0] (JAVA_TOOL_OPTIONS) has a secret", "write $(VARIABLE) in its place"],
        ),
        (
            _spark({"spark.driver.extraJavaOptions": "-Da=b -Djavax.net.ssl.keyStorePassword=hunter2"}),
            ["config.spark.properties.spark.driver.extraJavaOptions has a secret", "valueFrom"],
        ),
        (_spark({"spark.a": "https://me:hunter2@proxy"}), ["config.spark.properties.spark.a has a secret"]),
        (_kafka({"client.rack": 'password="hunter2"'}), ["config.kafka.properties.client.rack", "existingSecret"]),
        ({"checkpoint": {"path": "s3a://me:hunter2@bucket/a"}}, ["checkpoint.path has a login", "valueFrom"]),
        (_limit("1Gi"), ["driver.resources.limits.memory is 1Gi", "1408Mi", "driver.memory (1g)"]),
        (_limit("1407Mi"), ["driver.resources.limits.memory is 1407Mi"]),
        (_limit("3Gi", memory="4g"), ["driver.resources.limits.memory is 3Gi", "4506Mi", "driver.memory (4g)"]),
        (_limit(3221225472, memory="3g"), ["driver.resources.limits.memory is 3221225472, but"]),
        (_driver(memory="3g"), ["driver.resources.limits.memory is 3Gi", "driver.memory (3g)"]),
        (_limit("3GB"), ["driver.resources.limits.memory is 3GB, which is no quantity"]),
        (
            {"executors": {"memory": "8g", "memoryOverhead": "800m"}},
            ["executors.memoryOverhead is 800m", "(8g)", "820Mi"],
        ),
        (_driver(extraVolumes=[{"name": "config", "emptyDir": {}}]), ["driver.extraVolumes[0] is called config"]),
        (
            _driver(extraVolumes=[{"name": "checkpoint", "emptyDir": {}}]),
            ["driver.extraVolumes[0] is called checkpoint"],
        ),
        (
            {"executors": {"extraVolumes": [{"name": "spark-local-dir-1"}]}},
            ["executors.extraVolumes[0] is called spark-local"],
        ),
        ({"executors": {"extraVolumes": [{"name": "secret-0"}]}}, ["executors.extraVolumes[0] is called secret-0"]),
        ({"driver": _mount("/tmp/")}, ["driver.extraVolumeMounts[0] (mine) is mounted at /tmp, where the chart"]),
        ({"executors": _mount("/tmp")}, ["executors.extraVolumeMounts[0] (mine) is mounted at /tmp, where the chart"]),
        ({"driver": _mount("/var/lib/scylla-cdc-bridge")}, ["at /var/lib/scylla-cdc-bridge", "(volume checkpoint)"]),
        ({"driver": _mount("/etc/scylla-cdc-bridge/config/more")}, ["in a folder that the chart mounts read-only"]),
        (
            {"driver": _mount("/a", volume="min")},
            ["driver.extraVolumeMounts[0] is of a volume min, which is not among"],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_free_values_are_looked_at(chart: Chart, values: dict[str, Any], words: list[str]) -> None:
    """What the schema leaves open: secrets in plain sight, too little memory, volumes that are the chart's."""
    with pytest.raises(HelmError) as refused:
        chart.render(FULL, values=values)
    assert [one for one in words if one not in str(refused.value)] == []
    assert "hunter2" not in str(refused.value)


def test_all_that_is_wrong_is_told_at_once(chart: Chart) -> None:
    """Whoever mends one thing does not come back for the next."""
    with pytest.raises(HelmError) as refused:
        chart.render(
            values=_limit("1Gi", extraEnv=[{"name": "A_TOKEN", "value": "hunter2"}])
            | _spark({"spark.a": "sig=hunter2"})
        )
    told = [line for line in str(refused.value).splitlines() if line.startswith("- ")]
    assert [line.split()[1] for line in told] == [
        "driver.extraEnv[0]",
        "config.spark.properties.spark.a",
        "driver.resources.limits.memory",
    ]


@pytest.mark.parametrize(
    "values",
    [
        _driver(extraEnv=[{"name": "A_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]),
        _driver(
            extraEnv=[{"name": "A_TOKEN", "value": "$(OTHER)"}, {"name": "B_TOKEN"}, {"name": "C_TOKEN", "value": ""}]
        ),
        _driver(
            extraEnv=[
                {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/a"},
                {"name": "AWS_ACCESS_KEY_ID", "value": "a"},
            ]
        ),
        _driver(
            extraEnv=[
                {"name": "JAVA_TOOL_OPTIONS", "value": "-Djavax.net.ssl.keyStorePassword=$(STORE) -Da.keyStore=/a"}
            ]
        ),
        _spark({"spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStore=/a -Da.token.file=/b", "spark.a": 5}),
        {"checkpoint": {"path": "abfss://box@account.dfs.core.windows.net/a"}},
        _limit("1408Mi"),
        _limit("1.5Gi"),
        _limit(3e9),
        _limit(None),
        _driver(resources=None),
        {"checkpoint": {"path": "/a"}} | _driver(**_mount("/var/lib/scylla-cdc-bridge")),
        {"driver": _mount("/tmp/deeper")},
        {"driver": _mount("/other", volume="tmp")},
        {"driver": _mount("/etc/scylla-cdc-bridge/mine")},
    ],
    ids=repr,
)
def test_free_values_that_are_good_are_taken(chart: Chart, values: dict[str, Any]) -> None:
    """Secrets by reference, what only sounds like one, memory that is just enough, mounts beside the chart's."""
    assert chart.render(values=values).container["name"] == "driver"


def test_ports_of_executors_do_not_matter_without_any(chart: Chart) -> None:
    """What is not listened at can't clash."""
    assert chart.render(LOCAL, values={"monitoring": {"port": 7078}}).config["monitoring"]["listen"] == "0.0.0.0:7078"


def test_what_the_bridge_refuses_the_chart_refuses(chart: Chart) -> None:
    """Of librdkafka's properties that the bridge does not take, none gets as far as the cluster."""
    given = yaml.safe_load(LOCAL.read_text(encoding="utf-8"))["config"]
    refused = dict.fromkeys((*_OURS, *_SECTIONS, *_UNSAFE, "ssl.key.pem", "oauth_cb", "on_delivery"), "a")
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
