"""How Spark's JVM is started."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path

import pytest

from bridge.config.document import SparkSettings
from bridge.errors import StartupError
from spark.jvm.launcher import MODULE_OPTIONS, DirectJvm, command, find_java, java_options, spark_folder
from spark.jvm.settings import application_properties


def test_options_of_the_modules_are_those_of_sparks_launcher() -> None:
    """Another release of Spark may need other options. Only the vector instructions are left out."""
    (jar,) = (spark_folder() / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as opened:
        compiled = opened.read("org/apache/spark/launcher/JavaModuleOptions.class")
    options = {found.decode() for found in re.findall(rb"-(?:-[a-z]|D|XX)[\w./:=+-]+", compiled)}
    assert options - set(MODULE_OPTIONS) == {"--add-modules=jdk.incubator.vector"}
    assert set(MODULE_OPTIONS) <= options


def test_command_line(tmp_path: Path) -> None:
    """Jars sorted by name, options of all origins, and unchanged properties."""
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


def test_file_that_is_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the file, and the variable that it comes from."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("no program")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match=f"{java}: Permission denied; see JAVA_HOME"):
        DirectJvm({"spark.driver.memory": "1g"})


def test_jvm_that_does_not_come_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The wait for it ends."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec cat\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jvm = DirectJvm({"spark.driver.memory": "1g"}, timeout_s=0.05)
    try:
        with pytest.raises(StartupError, match=r"Spark's JVM \(process \d+\) has not come up in 0 s: give it more CPU"):
            jvm.connect()
    finally:
        jvm.end()


def test_no_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the variable to set."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(StartupError, match=r"no temporary files can be made .*missing.*set TMPDIR"):
        DirectJvm({"spark.driver.memory": "1g"}, folder=tmp_path / "missing")


def test_collector_may_be_chosen() -> None:
    """A JVM refuses to start with two."""
    assert "-XX:+UseSerialGC" in java_options("-Da=b")
    assert "-XX:+UseSerialGC" not in java_options("-Da=b -XX:+UseZGC")


def test_jvm_writes_no_statistics() -> None:
    """It would do so 20 times a second. A user's own option overrides that."""
    given = "-XX:+UsePerfData"
    properties = application_properties("job", SparkSettings(properties={"spark.driver.extraJavaOptions": given}))
    words = command(properties, {}, java="java", jars=Path("jars"))
    assert words.index("-XX:-UsePerfData") < words.index(given)


def test_class_archive_is_used_if_it_was_made(tmp_path: Path) -> None:
    """The configuration's own Java options follow it."""
    archive = tmp_path / "an archive.jsa"
    assert not any(option.startswith("-XX:SharedArchiveFile") for option in java_options("", archive))
    archive.touch()
    options = java_options("", archive)
    assert f"-XX:SharedArchiveFile={archive}" in options
    properties = {
        "spark.driver.memory": "1g",
        "spark.driver.defaultJavaOptions": shlex.join(options),
        "spark.driver.extraJavaOptions": "-Da=b",
    }
    words = command(properties, {}, java="java", jars=tmp_path)
    assert words.index(f"-XX:SharedArchiveFile={archive}") < words.index("-Da=b")
