"""Values that are passed on as they are, such as volumes and environment variables: what the chart checks in them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import FULL, Chart, HelmError


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
