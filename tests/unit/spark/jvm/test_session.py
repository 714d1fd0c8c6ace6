"""What Spark's JVM is started with."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bridge.config.document import SparkSettings
from bridge.runtime import log_setup
from spark.jvm import session


@pytest.mark.parametrize(
    ("environment", "has_traces"),
    [
        ({}, False),
        ({log_setup.VARIABLE: "info json"}, False),
        ({log_setup.VARIABLE: "debug text"}, True),
        ({"SPARK_HOME": "/s"}, True),
    ],
)
def test_stack_traces_are_for_level_debug(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], has_traces: bool
) -> None:
    """Our own configuration, which is there, stands before what a user gives, so that the user's counts."""
    for name in (log_setup.VARIABLE, "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    properties = session._properties("job", SparkSettings())
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


@pytest.mark.parametrize(
    ("master", "lanes", "is_said"),
    [
        ("local[2]", 16, False),
        ("local[2]", 17, True),
        ("local", 9, True),
        ("spark://there:7077", 100, False),
    ],
)
def test_far_more_lanes_than_cores_are_said(master: str, lanes: int, is_said: bool) -> None:
    """Where the settings tell the cores; a few turns are what a larger machine next month is prepared for."""
    said = list(session.crowded(SparkSettings(master=master), lanes))
    assert bool(said) == is_said
    assert all(f"{lanes} lanes" in words for words in said)
