"""The Spark session that starts in the background."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import NoReturn

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from bridge.config.document import SparkSettings
from bridge.errors import StartupError
from spark.jvm.session import StartingSession
from spark.jvm.settings import HADOOP_VARIABLES, WITHOUT_FORKS


class NoJvm:
    """A driver's JVM that does not exist."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def connect(self) -> NoReturn:
        raise StartupError("as far as this test goes")

    def wait(self, timeout_s: float) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.fixture(autouse=True)
def python_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session sets them; the test undoes that."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")


def test_queries_have_the_properties_of_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session has them and the context does not: other users of local files keep Hadoop's defaults."""
    for variable in HADOOP_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    given: dict[str, str] = {}

    class Starting(StartingSession):
        def _make_context(self) -> SparkContext:
            return None  # type: ignore[return-value]

        def _make_session(self, context: SparkContext, options: dict[str, str]) -> SparkSession:
            given.update(options)
            raise StartupError("as far as this test goes")

    with pytest.raises(StartupError, match="as far as"):
        Starting("job", SparkSettings(checkpoint="checkpoint"), start_jvm=NoJvm).result()
    assert WITHOUT_FORKS.items() <= given.items()
    assert given["spark.app.name"] == "job"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_ctrl_c_stays_the_jobs(master: str) -> None:
    """Spark would handle the signal if its context were made in the main thread, with any master."""
    makers: list[threading.Thread] = []

    class Starting(StartingSession):
        def _make_context(self) -> NoReturn:
            makers.append(threading.current_thread())
            raise StartupError("as far as this test goes")

    with pytest.raises(StartupError, match="as far as"):
        Starting("job", SparkSettings(master=master), start_jvm=NoJvm).result()
    assert makers
    assert threading.main_thread() not in makers


@pytest.mark.parametrize(
    ("python", "master", "is_warm"), [("p", "local[2]", True), ("p", "k8s://a", False), (None, "local", False)]
)
def test_only_local_processes_come_from_the_fork_server(python: str | None, master: str, *, is_warm: bool) -> None:
    """Executors on other machines do not have its command."""
    starting = StartingSession("job", SparkSettings(master=master), python=python, start_jvm=NoJvm)
    assert starting.is_warm is is_warm
    assert os.environ["PYSPARK_PYTHON"] == (python if is_warm else sys.executable)
