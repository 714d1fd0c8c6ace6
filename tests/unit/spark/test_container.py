"""What a container starts."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge import preflight
from bridge.config_docs import example_yaml
from bridge.errors import StartupError
from spark import job
from spark.container import executor_command, main

POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@shop-0.shop-driver.data.svc:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-3",
}


def test_executor_gets_what_its_pod_was_given() -> None:
    """Options come in the order of their numbers, each as one word; the rest as Spark's backend names it."""
    options = {"SPARK_JAVA_OPT_10": "-Dten=10", "SPARK_JAVA_OPT_2": "-Dtwo=a b"}
    command = executor_command(POD | options, java="/jre/bin/java", jars=Path("/spark/jars"))
    assert command == [
        *["/jre/bin/java", "-Dtwo=a b", "-Dten=10", "-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*"],
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *["--driver-url", POD["SPARK_DRIVER_URL"], "--executor-id", "3", "--cores", "2", "--app-id", "spark-1"],
        *["--hostname", "10.0.0.7", "--resourceProfileId", "0", "--podName", "shop-exec-3"],
    ]


def test_further_classes_come_first() -> None:
    """What the pod's environment adds to the class path precedes Spark's own jars."""
    command = executor_command(
        POD | {"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/extra/*"}, java="java", jars=Path("/jars")
    )
    assert command[command.index("-cp") + 1] == "/conf:/extra/*:/jars/*"


def test_executor_outside_of_a_pod_is_refused() -> None:
    """Every variable that is missing is named."""
    incomplete = {name: value for name, value in POD.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(StartupError, match="SPARK_DRIVER_URL not set"):
        executor_command(incomplete, java="java", jars=Path("/jars"))


def test_other_words_are_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is not `executor` is for `scylla-cdc-bridge`."""
    assert main(["example"]) == 0
    assert capsys.readouterr().out.startswith("# Configuration of one scylla-cdc-bridge job.")


def test_start_that_waits_for_its_servers_can_be_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A SIGTERM before anything runs ends the job at once; a first process has no default action for it."""
    path = tmp_path / "bridge.yaml"
    path.write_text(example_yaml(), encoding="utf-8")
    ended: list[str] = []
    monkeypatch.setattr(preflight, "check", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(job, "Nursery", lambda: SimpleNamespace(python="python", close=lambda: ended.append("nursery")))
    monkeypatch.setattr(job, "ComingSession", lambda *_, **__: SimpleNamespace(give_up=lambda: ended.append("JVM")))
    former = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            job.main(["-c", str(path)])
    finally:
        signal.signal(signal.SIGTERM, former)
    assert end.value.code == 0
    assert ended == ["JVM", "nursery"]
