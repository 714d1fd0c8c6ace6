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
        ("/config/spark/properties/driver.memory", "properties of Spark begin with `spark.`"),
        ("/config/monitoring/listen", "left out: set `monitoring.port` instead"),
    }
    assert {one for one in expected if not any(one[0] == place and one[1] in text for place, text in told)} == set()
    assert {place for place, _ in told} == {place for place, _ in expected}
    assert "false schema" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def _environment(**variables: str) -> dict[str, Any]:
    return {"extraEnv": [{"name": name, "value": value} for name, value in variables.items()]}


def _volumes(*names: str) -> dict[str, Any]:
    return {"extraVolumes": [{"name": name, "emptyDir": {}} for name in names]}


def _mounts(*mounts: tuple[str, str]) -> dict[str, Any]:
    return {"extraVolumeMounts": [{"name": name, "mountPath": path} for name, path in mounts]}


def _limit(memory: object) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}}


SECRETS: dict[str, Any] = {
    "driver": _environment(
        DB_PASSWORD="hunter2",
        apiToken="hunter2",
        AWS_SECRET_ACCESS_KEY="hunter2",
        PROXY="http://me:hunter2@proxy",
        JAVA_TOOL_OPTIONS="-Da=b -Djavax.net.ssl.keyStorePassword=hunter2",
        JSON='{"api_key": "hunter2"}',
        JDK_JAVA_OPTIONS="-Djavax.net.ssl.keyStorePassword=$(STORE)",
        YAML="{api_key: hunter2}",
        WORDS="--conf token=hunter2",
        MORE_WORDS="--password hunter2 --sort-key a",
        BEARER="eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.hunter2",
        HARMLESS="-Dsort.key=a --password $(PASSWORD)",
    ),
    "executors": _environment(KEY="hunter2"),
    "config": {
        "kafka": {"properties": {"client.rack": 'a password="hunter2";'}},
        "spark": {
            "properties": {
                "spark.a": "https://a/b?c=d&sig=hunter2",
                "spark.driver.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=hunter2",
            }
        },
    },
    "checkpoint": {"path": "s3a://me:hunter2@bucket/a"},
}
VOLUMES: dict[str, Any] = {
    "driver": _volumes("config", "mine", "mine", "checkpoint")
    | _mounts(
        ("mine", "/tmp/"),
        ("min", "/a"),
        ("mine", "/var/lib/scylla-cdc-bridge"),
        ("mine", "/etc/scylla-cdc-bridge/config/a"),
    ),
    "executors": _volumes("spark-local-dir-1", "secret-0") | _mounts(("secret-0", "/tmp"), ("secret-0", "/tmp")),
}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            SECRETS,
            [
                ("driver.extraEnv[0] (DB_PASSWORD) is a secret", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[1] (apiToken) is a secret", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[2] (AWS_SECRET_ACCESS_KEY) is a secret", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[3] (PROXY) has a secret in its value", "write $(VARIABLE) in its place"),
                ("driver.extraEnv[4] (JAVA_TOOL_OPTIONS) has a secret", "set the variable JDK_JAVA_OPTIONS to @FILE"),
                ("driver.extraEnv[5] (JSON) has a secret in its value", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[6] (JDK_JAVA_OPTIONS) has a secret", "set the variable JDK_JAVA_OPTIONS to @FILE"),
                ("driver.extraEnv[7] (YAML) has a secret in its value", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[8] (WORDS) has a secret in its value", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[9] (MORE_WORDS) has a secret in its value", "valueFrom: {secretKeyRef: "),
                ("driver.extraEnv[10] (BEARER) has a secret in its value", "valueFrom: {secretKeyRef: "),
                ("executors.extraEnv[0] (KEY) is a secret by its name", "valueFrom: {secretKeyRef: "),
                ("config.kafka.properties.client.rack has a secret", "{existingSecret: NAME, key: KEY}"),
                ("config.spark.properties.spark.a has a secret", "driver.extraEnv and executors.extraEnv"),
                ("config.spark.properties.spark.driver.extraJavaOptions has", "executors.extraEnv, with `valueFrom`"),
                ("checkpoint.path has a login in it", "driver.extraEnv, with `valueFrom`"),
            ],
        ),
        (
            VOLUMES,
            [
                ("driver.extraVolumes[0] is called config", "as a volume of the chart is"),
                ("driver.extraVolumes[2] is called mine", "as a volume of driver.extraVolumes[1] is"),
                ("driver.extraVolumes[3] is called checkpoint", "as a volume of the chart is"),
                ("driver.extraVolumeMounts[0] (mine) is mounted at /tmp", "the chart (volume tmp)"),
                ("driver.extraVolumeMounts[1] is of a volume min", "not among driver.extraVolumes"),
                ("driver.extraVolumeMounts[2] (mine) is mounted at /var/lib/scylla-cdc-bridge", "(volume checkpoint)"),
                ("driver.extraVolumeMounts[3] (mine) is mounted at /etc/scylla-cdc-bridge/config/a", "read-only"),
                ("executors.extraVolumes[0] is called spark-local-dir-1", "as a volume of the chart is"),
                ("executors.extraVolumes[1] is called secret-0", "as a volume of the chart is"),
                (
                    "executors.extraVolumeMounts[0] (secret-0) is mounted at /tmp",
                    "the chart (volume spark-local-dir-1)",
                ),
                ("executors.extraVolumeMounts[1] (secret-0) is mounted at /tmp", "executors.extraVolumeMounts[0]"),
            ],
        ),
        (
            {"driver": _limit("1407Mi"), "executors": {"memory": "8g", "memoryOverhead": "819m"}},
            [
                ("driver.resources.limits.memory is 1407Mi", "takes 1408Mi with a heap of driver.memory (1g)"),
                ("executors.memoryOverhead is 819m", "820Mi beside a heap of executors.memory (8g)"),
            ],
        ),
        (
            {"driver": {"memory": "4g"}},
            [("driver.resources.limits.memory is 3Gi", "takes 4506Mi with a heap of driver.memory (4g)")],
        ),
        (
            {"driver": {"memory": "3g"} | _limit(3221225472)},
            [("driver.resources.limits.memory is 3221225472, but", "driver.memory (3g)")],
        ),
        ({"driver": _limit("3GB")}, [("driver.resources.limits.memory is 3GB", "which is no quantity")]),
    ],
    ids=["secrets", "volumes", "memory", "default-limit", "bytes", "quantity"],
)
def test_free_values_are_looked_at(chart: Chart, values: dict[str, Any], told: list[tuple[str, str]]) -> None:
    """What the schema leaves open: secrets in plain sight, too little memory, volumes of the chart's; all at once."""
    with pytest.raises(HelmError) as refused:
        chart.render(FULL, values=values if values is SECRETS else {"checkpoint": {"path": ""}} | values)
    lines = [line for line in str(refused.value).splitlines() if line.startswith("- ")]
    assert len(lines) == len(told)
    for line, (begin, words) in zip(lines, told, strict=True):
        assert line.startswith(f"- {begin}")
        assert words in line
    assert "hunter2" not in str(refused.value)


REFERENCE = {"name": "A_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
NO_SECRETS = _environment(
    B_TOKEN="$(A_TOKEN)",
    C_TOKEN="",
    AWS_WEB_IDENTITY_TOKEN_FILE="/a",
    AWS_ACCESS_KEY_ID="a",
    GOOGLE_APPLICATION_CREDENTIALS="/a",
    JDK_JAVA_OPTIONS="@/etc/java-options/options",
    JAVA_TOOL_OPTIONS="-Djavax.net.ssl.keyStore=/a -Da.keyStoreType=PKCS12",
    CONNECTION="user=me;password=$(A_TOKEN)",
    PROXY="http://me:$(A_TOKEN)@proxy",
)["extraEnv"]


@pytest.mark.parametrize(
    "values",
    [
        {
            "driver": {"extraEnv": [REFERENCE, {"name": "D_TOKEN"}, *NO_SECRETS]}
            | _limit("1408Mi")
            | _volumes("mine")
            | _mounts(("mine", "/tmp/a"), ("tmp", "/b"), ("mine", "/etc/scylla-cdc-bridge/a")),
            "config": {
                "spark": {
                    "properties": {
                        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStore=/a -Da.token.file=/b",
                        "spark.a": 5,
                    }
                }
            },
            "checkpoint": {"path": "abfss://box@account.dfs.core.windows.net/a"},
        },
        {
            "driver": _limit("1.5Gi") | _volumes("checkpoint") | _mounts(("checkpoint", "/var/lib/scylla-cdc-bridge")),
            "checkpoint": {"path": "/a"},
        },
        {"driver": _limit(3e9)},
        {"driver": _limit(None)},
        {"driver": {"resources": None}},
    ],
    ids=["references", "own-checkpoint", "bytes", "no-limit", "no-resources"],
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
