"""Masters of Spark: how often they retry tasks, how many cores they have, and what Spark needs of Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import SparkSettings
from bridge.engine.lane_counts import configured_cores
from bridge.errors import StartupError
from spark.jvm.session import StartingSession
from spark.jvm.settings import master_of


@pytest.mark.parametrize(
    ("master", "made", "cores"),
    [
        ("local", "local[1,4]", 1),
        ("local[3]", "local[3,4]", 3),
        ("local[2,7]", "local[2,7]", 2),
        ("spark://host:7077", "spark://host:7077", 6),
    ],
)
def test_local_masters_retry_tasks(master: str, made: str, cores: int) -> None:
    """`local[N]` alone never retries a task; a cluster's cores come from its properties."""
    settings = SparkSettings(master=master, properties={"spark.executor.instances": 3, "spark.executor.cores": 2})
    assert master_of(settings) == made
    assert configured_cores(settings) == cores


@pytest.mark.parametrize(
    ("home", "says", "words"),
    [
        (None, "", "JAVA_HOME is .*nowhere, but there is no bin/java in it"),
        ("jdk8", 'openjdk version "1.8.0_292"', "is Java 8, but 17 or newer is needed"),
        ("jdk17", 'openjdk version "17.0.9"', r"Java 17\) does not start; .*spark.properties"),
    ],
)
def test_missing_java_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None, says: str, words: str
) -> None:
    """Spark only says that its gateway exited; which Java that was, or that there is none, is found out."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere" if home is None else tmp_path / "jdk"))
    with pytest.raises(StartupError, match=f"Spark's JVM .*{words}"):
        StartingSession("job", SparkSettings()).result()
