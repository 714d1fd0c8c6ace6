"""The properties of a job's Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bridge.config.document import SparkSettings
from bridge.runtime import log_setup
from spark.jvm.settings import HADOOP_VARIABLES, WITHOUT_FORKS, application_properties, query_properties


@pytest.mark.parametrize(
    ("environment", "has_traces"),
    [
        ({}, False),
        ({log_setup.VARIABLE: "info json"}, False),
        ({log_setup.VARIABLE: "debug text"}, True),
        ({"SPARK_HOME": "/s"}, True),
    ],
)
def test_only_level_debug_logs_stack_traces(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], has_traces: bool
) -> None:
    """The bridge's own logging configuration precedes the user's options, which override it."""
    for name in (log_setup.VARIABLE, "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    properties = application_properties("job", SparkSettings())
    named = [
        word.partition("=")[2]
        for word in shlex.split(properties["spark.driver.defaultJavaOptions"])
        if word.startswith("-Dlog4j2.configurationFile=")
    ]
    assert (named == []) is has_traces
    for path in named:
        text = Path(path).read_text(encoding="utf-8")
        assert "%ex{none}" in text
        assert "rootLogger.level = error" in text


def test_executors_log_like_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not inherit the driver's environment."""
    monkeypatch.setenv(log_setup.VARIABLE, "debug json")
    assert application_properties("job", SparkSettings())[f"spark.executorEnv.{log_setup.VARIABLE}"] == "debug json"
    monkeypatch.delenv(log_setup.VARIABLE)
    assert f"spark.executorEnv.{log_setup.VARIABLE}" not in application_properties("job", SparkSettings())


@pytest.mark.parametrize(
    ("checkpoint", "given", "variable", "expected"),
    [
        ("checkpoint", {}, None, True),
        ("/var/lib/bridge", {}, None, True),
        ("file:///var/lib/bridge", {"spark.hadoop.fs.defaultFS": "hdfs://name"}, None, True),
        ("/var/lib/bridge", {"spark.hadoop.fs.defaultFS": "hdfs://name"}, None, False),
        ("/var/lib/bridge", {}, "HADOOP_CONF_DIR", False),
        ("s3a://bucket/bridge", {}, None, False),
    ],
)
def test_local_checkpoints_are_written_without_forks(
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: str,
    given: dict[str, str | int | bool],
    variable: str | None,
    *,
    expected: bool,
) -> None:
    """Other stores keep Spark's own way, even if only Hadoop's configuration files name the store."""
    for name in HADOOP_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "/etc/hadoop")
    settings = SparkSettings(checkpoint=checkpoint, properties=given)
    assert query_properties(settings) == (WITHOUT_FORKS if expected else {})
    # As properties of all of Spark, they would break writing an event log to a store.
    assert not any("fs.file" in name for name in application_properties("job", settings))


@pytest.mark.parametrize("name", ["spark.hadoop.fs.file.impl", "spark.sql.streaming.checkpointFileManagerClass"])
def test_user_may_choose_how_checkpoints_are_written(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """If the user sets one of the two properties, Spark's default holds for the other."""
    for variable in HADOOP_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    settings = SparkSettings(checkpoint="checkpoint", properties={name: "a.Class"})
    assert query_properties(settings) == {}
    assert application_properties("job", settings)[name] == "a.Class"


def test_ordinary_start_has_no_class_archive_and_pysparks_daemon() -> None:
    """`spark.fast_start: false` leaves the start of all processes to PySpark."""
    fast, ordinary = (application_properties("job", SparkSettings(fast_start=fast)) for fast in (True, False))
    assert fast["spark.python.daemon.module"] == "spark.workers.daemon"
    assert "spark.python.daemon.module" not in ordinary
    assert "-XX:TieredStopAtLevel=1" in fast["spark.driver.defaultJavaOptions"]
    assert "-XX" not in ordinary["spark.driver.defaultJavaOptions"]


_CRYPTO = "spark.network.crypto.enabled"


@pytest.mark.parametrize(
    ("master", "given", "authenticates", "encrypts"),
    [
        ("local[*]", {}, "true", None),
        ("local-cluster[2,1,1024]", {}, "true", None),
        ("spark://host:7077", {}, "true", "true"),
        ("yarn", {}, "true", "true"),
        ("k8s://https://host", {}, "true", "true"),
        ("spark://host:7077", {"spark.authenticate": False, _CRYPTO: False}, "false", "false"),
        ("local", {"spark.authenticate": False}, "false", None),
    ],
)
def test_sparks_processes_know_each_other(
    master: str, given: dict[str, str | int | bool], authenticates: str, encrypts: str | None
) -> None:
    """With every master; between machines they encrypt as well. What the user gives counts. No secret is among them."""
    found = application_properties("job", SparkSettings(master=master, properties=given))
    assert (found["spark.authenticate"], found.get(_CRYPTO)) == (authenticates, encrypts)
    assert not any("secret" in name for name in found)
