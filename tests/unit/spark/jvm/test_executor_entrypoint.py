"""The entrypoint of the image's containers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from bridge.config.reference.example import example_yaml
from bridge.errors import StartupError
from bridge.runtime import log_setup
from spark.job import application
from spark.jvm.executor_entrypoint import executor_command, main
from spark.workers.fork_server import ForkServer

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
    """Options come in the order of their numbers, each as one word; arguments have the names of Spark's backend."""
    options = {"SPARK_JAVA_OPT_10": "-Dten=10", "SPARK_JAVA_OPT_2": "-Dtwo=a b"}
    command = executor_command(POD | options, java="/jre/bin/java", jars=Path("/spark/jars"))
    assert command == [
        *["/jre/bin/java", "-Dtwo=a b", "-Dten=10", "-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*"],
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *["--driver-url", POD["SPARK_DRIVER_URL"], "--executor-id", "3", "--cores", "2", "--app-id", "spark-1"],
        *["--hostname", "10.0.0.7", "--resourceProfileId", "0", "--podName", "shop-exec-3"],
    ]


def test_further_classes_come_first() -> None:
    """Classes that the pod's environment adds to the class path precede Spark's own jars."""
    command = executor_command(
        POD | {"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/extra/*"}, java="java", jars=Path("/jars")
    )
    assert command[command.index("-cp") + 1] == "/conf:/extra/*:/jars/*"


def test_executor_outside_of_a_pod_is_refused() -> None:
    """The error names every missing variable."""
    incomplete = {name: value for name, value in POD.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(StartupError, match="SPARK_DRIVER_URL not set"):
        executor_command(incomplete, java="java", jars=Path("/jars"))


def test_other_arguments_are_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that do not begin with `executor` are for `scylla-cdc-bridge`."""
    assert main(["example"]) == 0
    assert capsys.readouterr().out.startswith("# Configuration of one scylla-cdc-bridge job.")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A configuration file for a job. The job's signal handlers and variables are undone."""
    monkeypatch.setenv(log_setup.VARIABLE, "")
    path = tmp_path / "bridge.yaml"
    path.write_text(example_yaml(), encoding="utf-8")
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield str(path)
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_start_that_waits_for_its_servers_can_be_stopped(settings: str, number: signal.Signals) -> None:
    """Either signal ends the job at once. A container's first process ignores signals that it does not handle."""
    ended: list[str] = []
    fork_server: Any = SimpleNamespace(python="python", close=lambda: ended.append("fork server"))
    session: Any = SimpleNamespace(give_up=lambda: ended.append("JVM"))
    steps = application.StartSteps(
        start_fork_server=lambda: fork_server,
        start_session=lambda *_, **__: session,
        check_servers=lambda _config: signal.raise_signal(number),
    )
    with pytest.raises(SystemExit) as end:
        application.main(["-c", settings], steps=steps)
    assert end.value.code == 0
    assert ended == ["JVM", "fork server"]


def test_job_runs_without_a_fork_server(settings: str, tmp_path: Path) -> None:
    """The folder for temporary files may be too deep for a socket, or mounted without programs. It stays empty."""

    def started(*_: object, python: str | None, **__: object) -> NoReturn:
        assert python is None
        raise StartupError("as far as this test goes")

    far_down = tmp_path / ("far" * 40)
    far_down.mkdir()
    steps = application.StartSteps(start_fork_server=lambda: ForkServer(far_down), start_session=started)
    assert application.main(["-c", settings], steps=steps) == application.EXIT_REFUSED
    assert os.environ[log_setup.VARIABLE] == "info text"
    with pytest.raises(PermissionError, match="no program can be run there"):
        ForkServer(tmp_path, can_access=lambda *_: False)
    assert list(tmp_path.rglob("scylla-cdc-bridge-*")) == []
