"""How Spark's JVM is started."""

from __future__ import annotations

import re
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import NoReturn

import pytest

from bridge.config.document import SparkSettings
from bridge.errors import StartupError
from bridge.runtime import log_setup
from spark.jvm import launcher, session
from spark.jvm.launcher import MODULE_OPTIONS, SparkJvm, command, find_java, java_options, spark_folder
from spark.jvm.session import ComingSession, _of_queries, _properties


def test_options_of_the_modules_are_those_of_sparks_launcher() -> None:
    """Another release of Spark may need others; only the vector instructions are left out."""
    (jar,) = (spark_folder() / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as opened:
        compiled = opened.read("org/apache/spark/launcher/JavaModuleOptions.class")
    options = {found.decode() for found in re.findall(rb"-(?:-[a-z]|D|XX)[\w./:=+-]+", compiled)}
    assert options - set(MODULE_OPTIONS) == {"--add-modules=jdk.incubator.vector"}
    assert set(MODULE_OPTIONS) <= options


def test_command_line(tmp_path: Path) -> None:
    """Jars by name whatever the folder's order, options of all origins, and properties as they are."""
    for name in ("b.jar", "a.jar", "no-jar.txt"):
        (tmp_path / name).touch()
    properties = {
        "spark.driver.memory": "2g",
        "spark.driver.defaultJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.extraJavaOptions": "-Da='b c' -Dd=e",
        "spark.driver.extraClassPath": "/mine/*",
        "spark.app.name": "a job",
    }
    environment = {"SPARK_CONF_DIR": "/conf", "HADOOP_CONF_DIR": "/hadoop", "SPARK_SUBMIT_OPTS": "-Df=g"}
    words = command(properties, environment, java="/bin/java", jars=tmp_path)
    assert words[:4] == ["/bin/java", "-cp", f"/mine/*:/conf:{tmp_path}/a.jar:{tmp_path}/b.jar:/hadoop", "-Xmx2g"]
    main = words.index("org.apache.spark.deploy.SparkSubmit")
    assert words[main - 5 : main] == [MODULE_OPTIONS[-1], "-Df=g", "-XX:+UseSerialGC", "-Da=b c", "-Dd=e"]
    assert words[main + 1 :: 2] == ["--conf"] * len(properties) + ["pyspark-shell"]
    assert words[main + 2 :: 2] == [f"{name}={value}" for name, value in properties.items()]


def test_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The one in JAVA_HOME, else one on the PATH; without any, what to do."""
    java = tmp_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match=f"JAVA_HOME is {tmp_path}, but there is no bin/java in it"):
        find_java()
    java.parent.mkdir()
    java.touch()
    assert find_java() == str(java)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartupError, match="set JAVA_HOME"):
        find_java()


def test_java_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the file, and where it comes from."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("no program")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match=f"{java}: Permission denied; see JAVA_HOME"):
        SparkJvm({"spark.driver.memory": "1g"})


def test_java_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is not waited for without end."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec cat\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(launcher, "_COMES_WITHIN_S", 0.05)
    jvm = SparkJvm({"spark.driver.memory": "1g"})
    try:
        with pytest.raises(StartupError, match=r"Spark's JVM \(process \d+\) has not come up in 0 s: give it more CPU"):
            jvm.connect()
    finally:
        jvm.end()


def test_no_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which setting to look at."""
    monkeypatch.delenv("SPARK_HOME", raising=False)

    def refused(**_: object) -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    monkeypatch.setattr(launcher, "find_java", lambda: "java")
    with pytest.raises(StartupError, match=r"No usable temporary directory found.*set TMPDIR"):
        SparkJvm({"spark.driver.memory": "1g"})


def test_collector_may_be_chosen() -> None:
    """A JVM refuses to start with two."""
    assert "-XX:+UseSerialGC" in java_options("-Da=b")
    assert "-XX:+UseSerialGC" not in java_options("-Da=b -XX:+UseZGC")


def test_idle_jvm_writes_no_figures_of_itself() -> None:
    """20 times a second, to a file that nobody reads; who wants to says so."""
    given = "-XX:+UsePerfData"
    properties = _properties("job", SparkSettings(properties={"spark.driver.extraJavaOptions": given}))
    words = command(properties, {}, java="java", jars=Path("jars"))
    assert words.index("-XX:-UsePerfData") < words.index(given)


def test_class_archive_is_used_where_it_was_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without one the JVM is not told of any; what the configuration says of Java comes behind."""
    archive = tmp_path / "an archive.jsa"
    monkeypatch.setattr(launcher, "ARCHIVE", archive)
    assert not any(option.startswith("-XX:SharedArchiveFile") for option in java_options(""))
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java_options("")
    properties = _properties("job", SparkSettings(properties={"spark.driver.extraJavaOptions": "-Da=b"}))
    words = command(properties, {}, java="java", jars=tmp_path)
    assert words.index(f"-XX:SharedArchiveFile={archive}") < words.index("-Da=b")


def test_executors_log_like_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have an environment of their own."""
    monkeypatch.setenv(log_setup.VARIABLE, "debug json")
    assert _properties("job", SparkSettings())[f"spark.executorEnv.{log_setup.VARIABLE}"] == "debug json"
    monkeypatch.delenv(log_setup.VARIABLE)
    assert f"spark.executorEnv.{log_setup.VARIABLE}" not in _properties("job", SparkSettings())


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
    """Other stores keep what Spark takes for them, also where only Hadoop's own files say that it is another."""
    for name in session._HADOOP_ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "/etc/hadoop")
    settings = SparkSettings(checkpoint=checkpoint, properties=given)
    assert _of_queries(settings) == (session._WITHOUT_FORKS if expected else {})
    # For all of Spark, writing an event log to a store would end in an error.
    assert not any("fs.file" in name for name in _properties("job", settings))


@pytest.mark.parametrize("name", ["spark.hadoop.fs.file.impl", "spark.sql.streaming.checkpointFileManagerClass"])
def test_how_checkpoints_are_written_may_be_chosen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Who sets one of the two gets what Spark takes for the other."""
    for variable in session._HADOOP_ELSEWHERE:
        monkeypatch.delenv(variable, raising=False)
    settings = SparkSettings(checkpoint="checkpoint", properties={name: "a.Class"})
    assert _of_queries(settings) == {}
    assert _properties("job", settings)[name] == "a.Class"


def test_session_is_told_how_checkpoints_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It, and not the context: what else uses this machine's files by Hadoop goes by that one's settings."""
    for variable in session._HADOOP_ELSEWHERE:
        monkeypatch.delenv(variable, raising=False)
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(session, "SparkJvm", lambda _: None)
    told: dict[str, str] = {}

    def made(_context: object, *, options: dict[str, str]) -> NoReturn:
        told.update(options)
        raise StartupError("as far as this test goes")

    monkeypatch.setattr(session, "SparkSession", made)
    monkeypatch.setattr(ComingSession, "_make_context", lambda _: None)
    with pytest.raises(StartupError, match="as far as"):
        ComingSession("job", SparkSettings(checkpoint="checkpoint")).result()
    assert session._WITHOUT_FORKS.items() <= told.items()
    assert told["spark.app.name"] == "job"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_ctrl_c_stays_the_jobs(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    """Spark takes it for itself where its context is made in the main thread, whatever the master."""
    monkeypatch.setattr(session, "SparkJvm", lambda _: None)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")
    makers: list[threading.Thread] = []

    class Coming(ComingSession):
        def _make_context(self) -> NoReturn:
            makers.append(threading.current_thread())
            raise StartupError("as far as this test goes")

    with pytest.raises(StartupError, match="as far as"):
        Coming("job", SparkSettings(master=master)).result()
    assert makers
    assert threading.main_thread() not in makers
